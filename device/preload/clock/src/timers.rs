//! The C library's timers: the process's timer (`alarm`), POSIX timers, and timer descriptors.

use crate::lab;
use crate::next::replace;
use crate::real;
use crate::scale::{SECOND, micros_of, nanoseconds, nanoseconds_of_micros, time_of};
use core::ffi::{c_int, c_uint, c_void};
use libc::{clockid_t, itimerspec, itimerval, timer_t};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Timers of clocks that are not slowed: their numbers plus 1, or 0. Programs have few; timers beyond the
/// table are slowed.
static UNSLOWED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

fn replace_unslowed(number: usize, by: usize) -> bool {
    let replaced = |place: &AtomicUsize| {
        place
            .compare_exchange(number, by, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    UNSLOWED.iter().any(replaced)
}

fn entry(timer: timer_t) -> usize {
    (timer as usize).wrapping_add(1)
}

fn is_slowed(timer: timer_t) -> bool {
    UNSLOWED
        .iter()
        .all(|place| place.load(Ordering::Relaxed) != entry(timer))
}

/// The setting of a timer for the kernel: its interval, and the time until it expires, both in the machine's
/// time.
fn stretched(setting: &itimerspec, is_absolute: bool) -> Option<itimerspec> {
    let scale = lab::scale()?;
    let (first, interval) = (
        nanoseconds(&setting.it_value)?,
        nanoseconds(&setting.it_interval)?,
    );
    // Zero turns the timer off, whatever the flags say.
    let first = if is_absolute && first > 0 {
        lab::left(first)?
    } else {
        scale.stretch(first)
    };
    Some(itimerspec {
        it_value: time_of(first),
        it_interval: time_of(scale.stretch(interval)),
    })
}

/// Converts a timer's remaining time and interval to the lab's time.
///
/// # Safety
/// `setting` is NULL, or points to a setting.
unsafe fn shrink(setting: *mut itimerspec) {
    // SAFETY: by this function's contract, `setting` is NULL, or points to a setting.
    let Some(setting) = (unsafe { setting.as_mut() }) else {
        return;
    };
    for time in [&mut setting.it_value, &mut setting.it_interval] {
        *time = lab::shrunk(time).unwrap_or(*time);
    }
}

/// The same for times in microseconds.
///
/// # Safety
/// `setting` is NULL, or points to a setting.
unsafe fn shrink_micros(setting: *mut itimerval) {
    // SAFETY: by this function's contract, `setting` is NULL, or points to a setting.
    let Some(setting) = (unsafe { setting.as_mut() }) else {
        return;
    };
    for time in [&mut setting.it_value, &mut setting.it_interval] {
        *time = lab::shrunk_micros(time).unwrap_or(*time);
    }
}

/// The setting of the process's timer, in the machine's time.
fn stretched_micros(setting: &itimerval) -> Option<itimerval> {
    let stretched = lab::stretched_micros;
    Some(itimerval {
        it_value: stretched(&setting.it_value)?,
        it_interval: stretched(&setting.it_interval)?,
    })
}

/// A setting of the process's timer for nanoseconds.
fn alarm_in(first: i64, interval: i64) -> itimerval {
    itimerval {
        it_value: micros_of(first),
        it_interval: micros_of(interval),
    }
}

/// The remaining time of the process's timer, in nanoseconds.
fn left_of(setting: &itimerval) -> i64 {
    nanoseconds_of_micros(&setting.it_value).unwrap_or(0)
}

replace! {
    fn alarm(seconds: c_uint) -> c_uint {
        let mut before = alarm_in(0, 0);
        setitimer(libc::ITIMER_REAL, &alarm_in(i64::from(seconds) * SECOND, 0), &mut before);
        let left = left_of(&before);
        // As the kernel rounds: an alarm that is set has a second left at least.
        let rounded = (left + SECOND / 2) / SECOND;
        c_uint::try_from(rounded.max(i64::from(left > 0))).unwrap_or(c_uint::MAX)
    }

    fn ualarm(micros: c_uint, interval: c_uint) -> c_uint {
        let mut before = alarm_in(0, 0);
        let setting = alarm_in(i64::from(micros) * 1000, i64::from(interval) * 1000);
        setitimer(libc::ITIMER_REAL, &setting, &mut before);
        c_uint::try_from(left_of(&before) / 1000).unwrap_or(c_uint::MAX)
    }

    fn setitimer(which: c_int, setting: *const itimerval, before: *mut itimerval) -> c_int {
        if which != libc::ITIMER_REAL {
            return real::setitimer(which, setting, before);
        }
        let stretched = setting.as_ref().and_then(stretched_micros);
        let answer = real::setitimer(which, lab::or_given(&stretched, setting), before);
        if answer == 0 {
            shrink_micros(before);
        }
        answer
    }

    fn getitimer(which: c_int, setting: *mut itimerval) -> c_int {
        let answer = real::getitimer(which, setting);
        if answer == 0 && which == libc::ITIMER_REAL {
            shrink_micros(setting);
        }
        answer
    }

    fn timer_create(clock: clockid_t, event: *mut c_void, timer: *mut timer_t) -> c_int {
        let answer = real::timer_create(clock, event, timer);
        if answer == 0 && lab::scale().is_some_and(|scale| scale.origin(clock).is_none()) {
            replace_unslowed(0, entry(*timer));
        }
        answer
    }

    fn timer_delete(timer: timer_t) -> c_int {
        replace_unslowed(entry(timer), 0);
        real::timer_delete(timer)
    }

    fn timer_settime(timer: timer_t, flags: c_int, setting: *const itimerspec, before: *mut itimerspec)
        -> c_int {
        let slowed = if is_slowed(timer) {
            setting.as_ref().and_then(|setting| stretched(setting, flags & libc::TIMER_ABSTIME != 0))
        } else {
            None
        };
        let Some(slowed) = slowed else { return real::timer_settime(timer, flags, setting, before) };
        let answer = real::timer_settime(timer, flags & !libc::TIMER_ABSTIME, &slowed, before);
        if answer == 0 {
            shrink(before);
        }
        answer
    }

    fn timer_gettime(timer: timer_t, setting: *mut itimerspec) -> c_int {
        let answer = real::timer_gettime(timer, setting);
        if answer == 0 && is_slowed(timer) {
            shrink(setting);
        }
        answer
    }

    fn timerfd_settime(timer: c_int, flags: c_int, setting: *const itimerspec, before: *mut itimerspec)
        -> c_int {
        let is_absolute = flags & libc::TFD_TIMER_ABSTIME != 0;
        let Some(slowed) = setting.as_ref().and_then(|setting| stretched(setting, is_absolute)) else {
            return real::timerfd_settime(timer, flags, setting, before);
        };
        let answer = real::timerfd_settime(timer, flags & !libc::TFD_TIMER_ABSTIME, &slowed, before);
        if answer == 0 {
            shrink(before);
        }
        answer
    }

    fn timerfd_gettime(timer: c_int, setting: *mut itimerspec) -> c_int {
        let answer = real::timerfd_gettime(timer, setting);
        if answer == 0 {
            shrink(setting);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_of_processor_time_are_known_until_they_are_deleted() {
        let timer = std::ptr::null_mut();
        assert!(is_slowed(timer));
        assert!(replace_unslowed(0, entry(timer)));
        assert!(!is_slowed(timer));
        assert!(replace_unslowed(entry(timer), 0) && is_slowed(timer));
    }
}
