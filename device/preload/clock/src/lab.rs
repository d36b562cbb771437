//! The clock of the lab that this process is in.

use crate::real;
use crate::scale::{SECOND, Scale, nanoseconds, time_of};
use core::ffi::{CStr, c_int};
use libc::{clockid_t, timespec, timeval};
use std::sync::atomic::{AtomicI64, Ordering};

/// `EPOCH,SLOWDOWN,WALL`: nanoseconds of the machine's clocks when the lab began, and the slowdown between.
const VARIABLE: &CStr = c"ROCKERY_LAB_CLOCK";
/// Unit to which the difference of two clocks is rounded: they are read one after the other, so the
/// difference is not exact.
const SUSPENDED_STEP: i64 = 1_000_000;

// Written by the first call, or by several at once, which write the same values.
static EPOCH: AtomicI64 = AtomicI64::new(0);
static WALL: AtomicI64 = AtomicI64::new(0);
static BOOT_AHEAD: AtomicI64 = AtomicI64::new(0);
static TAI_AHEAD: AtomicI64 = AtomicI64::new(0);
/// 0 until the other values are stored.
static SLOWDOWN: AtomicI64 = AtomicI64::new(0);

/// The clock of the lab; `None` where the program uses the machine's.
pub(crate) fn scale() -> Option<Scale> {
    let slowdown = match SLOWDOWN.load(Ordering::Acquire) {
        0 => look(),
        slowdown => slowdown,
    };
    (slowdown > 1).then(|| Scale {
        epoch: EPOCH.load(Ordering::Relaxed),
        wall: WALL.load(Ordering::Relaxed),
        boot_ahead: BOOT_AHEAD.load(Ordering::Relaxed),
        tai_ahead: TAI_AHEAD.load(Ordering::Relaxed),
        slowdown,
    })
}

/// Reads the environment before the program can change it.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code))]
static LOOK: extern "C" fn() = {
    extern "C" fn begin() {
        scale();
    }
    begin
};

/// Reads the variable. Without a valid one, the program uses the machine's clocks.
#[inline(never)]
fn look() -> i64 {
    let parsed = environment::with_value(VARIABLE, |value| parse(value.to_str().ok()?)).flatten();
    let slowdown = match parsed {
        Some((epoch, slowdown, wall)) => {
            EPOCH.store(epoch, Ordering::Relaxed);
            WALL.store(wall, Ordering::Relaxed);
            let ahead =
                |clock, of, step: i64| (machine(clock) - machine(of) + step / 2) / step * step;
            let boot_ahead = ahead(libc::CLOCK_BOOTTIME, libc::CLOCK_MONOTONIC, SUSPENDED_STEP);
            BOOT_AHEAD.store(boot_ahead, Ordering::Relaxed);
            TAI_AHEAD.store(
                ahead(libc::CLOCK_TAI, libc::CLOCK_REALTIME, SECOND),
                Ordering::Relaxed,
            );
            slowdown
        }
        None => 1,
    };
    SLOWDOWN.store(slowdown, Ordering::Release);
    slowdown
}

/// Epoch, slowdown and wall of the variable.
fn parse(text: &str) -> Option<(i64, i64, i64)> {
    let mut numbers = text
        .split(',')
        .map(|number| number.parse().ok().filter(|number| *number > 0));
    let three = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(three)
}

/// The time of a clock of the machine.
pub(crate) fn machine(clock: clockid_t) -> i64 {
    let mut time = time_of(0);
    // SAFETY: room for a time.
    unsafe { real::clock_gettime(clock, &mut time) };
    nanoseconds(&time).unwrap_or(0)
}

/// The time of a clock in the lab; `None` where it is the machine's.
pub(crate) fn reading(clock: clockid_t) -> Option<i64> {
    let scale = scale()?;
    Some(scale.reading(scale.origin(clock)?, machine(libc::CLOCK_MONOTONIC)))
}

/// The duration on the machine of a wait that has this duration in the lab; `None` where both are equal.
///
/// # Safety
/// `time` is NULL, or points to a time.
pub(crate) unsafe fn stretched(time: *const timespec) -> Option<timespec> {
    // SAFETY: by this function's contract, `time` is NULL, or points to a time.
    let time = unsafe { time.as_ref() }?;
    Some(time_of(scale()?.stretch(nanoseconds(time)?)))
}

/// Converts a wait in microseconds as [`stretched`] does.
pub(crate) fn stretched_micros(time: &timeval) -> Option<timeval> {
    let nanoseconds = crate::scale::nanoseconds_of_micros(time)?;
    Some(crate::scale::micros_of(scale()?.stretch(nanoseconds)))
}

/// The lab's time for the rest of a wait on the machine.
pub(crate) fn shrunk(time: &timespec) -> Option<timespec> {
    Some(time_of(scale()?.shrink(nanoseconds(time)?)))
}

/// Converts the rest of a wait in microseconds as [`shrunk`] does.
pub(crate) fn shrunk_micros(time: &timeval) -> Option<timeval> {
    let nanoseconds = crate::scale::nanoseconds_of_micros(time)?;
    Some(crate::scale::micros_of(scale()?.shrink(nanoseconds)))
}

/// Milliseconds, of which -1 means without end.
pub(crate) fn stretched_millis(time: c_int) -> c_int {
    match scale() {
        Some(scale) if time > 0 => {
            c_int::try_from(scale.stretch(time.into())).unwrap_or(c_int::MAX)
        }
        _ => time,
    }
}

/// The machine's time of a deadline on the same clock; `None` where both are equal.
pub(crate) fn deadline(clock: clockid_t, time: &timespec) -> Option<timespec> {
    let (scale, time) = (scale()?, nanoseconds(time)?);
    let at = scale.machine_at(scale.origin(clock)?, time);
    Some(time_of(match clock {
        libc::CLOCK_MONOTONIC => at,
        // The machine's clock may be set meanwhile, as on a machine that is not slowed down.
        _ => machine(clock).saturating_add(at.saturating_sub(machine(libc::CLOCK_MONOTONIC))),
    }))
}

/// Time until a timer expires, at least a nanosecond, because zero would turn the timer off. The clock of the
/// timer is derived from the time.
pub(crate) fn left(time: i64) -> Option<i64> {
    let scale = scale()?;
    let at = scale.machine_at(scale.origin(scale.clock_of(time))?, time);
    Some(at.saturating_sub(machine(libc::CLOCK_MONOTONIC)).max(1))
}

/// The pointer to pass on: to a converted time, or the caller's.
pub(crate) fn or_given<T>(converted: &Option<T>, given: *const T) -> *const T {
    converted.as_ref().map_or(given, core::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_positive_numbers_are_a_clock() {
        assert_eq!(parse("5,10,7"), Some((5, 10, 7)));
        for wrong in ["", "5,10", "5,10,7,1", "5,0,7", "5,-1,7", "a,10,7"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn outside_a_lab_times_are_the_machines() {
        let time = timespec {
            tv_sec: 1,
            tv_nsec: 5,
        };
        assert_eq!(reading(libc::CLOCK_MONOTONIC), None);
        assert!(deadline(libc::CLOCK_MONOTONIC, &time).is_none());
        assert_eq!(stretched_millis(7), 7);
        assert!(shrunk(&time).is_none());
    }
}
