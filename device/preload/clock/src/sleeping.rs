//! The C library's functions that sleep.

use crate::lab;
use crate::next::replace;
use crate::real;
use crate::scale::{SECOND, nanoseconds, time_of};
use core::ffi::{c_int, c_uint};
use libc::{clockid_t, timespec};

/// Converts the rest of an interrupted sleep to the lab's time.
///
/// # Safety
/// `left` is NULL, or points to a time.
unsafe fn interrupted(left: *mut timespec) {
    // SAFETY: by this function's contract, `left` is NULL, or points to a time.
    if let Some(left) = unsafe { left.as_mut() }
        && let Some(shrunk) = lab::shrunk(left)
    {
        *left = shrunk;
    }
}

replace! {
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
        let stretched = lab::stretched(time);
        let answer = real::nanosleep(lab::or_given(&stretched, time), left);
        if answer != 0 && stretched.is_some() {
            interrupted(left);
        }
        answer
    }

    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int {
        let Some(origin) = lab::scale().and_then(|scale| scale.origin(clock)) else {
            return real::clock_nanosleep(clock, flags, time, left);
        };
        if flags & libc::TIMER_ABSTIME != 0 {
            let asked = time.as_ref().and_then(nanoseconds);
            let at = asked.and_then(|asked| Some(time_of(lab::scale()?.machine_at(origin, asked))));
            return real::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, lab::or_given(&at, time), left);
        }
        let stretched = lab::stretched(time);
        let given = lab::or_given(&stretched, time);
        let answer = real::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, given, left);
        if answer == libc::EINTR {
            interrupted(left);
        }
        answer
    }

    fn usleep(micros: c_uint) -> c_int {
        nanosleep(&time_of(i64::from(micros) * 1000), core::ptr::null_mut())
    }

    fn sleep(seconds: c_uint) -> c_uint {
        let mut left = time_of(0);
        if nanosleep(&time_of(i64::from(seconds) * SECOND), &mut left) == 0 {
            return 0;
        }
        c_uint::try_from(left.tv_sec + i64::from(left.tv_nsec > 0)).unwrap_or(c_uint::MAX)
    }

    fn thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int {
        let stretched = lab::stretched(time);
        let answer = real::thrd_sleep(lab::or_given(&stretched, time), left);
        if answer == -1 && stretched.is_some() {
            interrupted(left);
        }
        answer
    }
}
