//! The C library's functions that read a clock.

use crate::lab;
use crate::next::replace;
use crate::real;
use crate::scale::{SECOND, time_of};
use core::ffi::{c_int, c_void};
use libc::{clockid_t, time_t, timespec, timeval};

/// The base of `timespec_get` (C11) that is `CLOCK_REALTIME`.
const TIME_UTC: c_int = 1;

replace! {
    fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int {
        match lab::reading(clock) {
            Some(time) => {
                to.write(time_of(time));
                0
            }
            None => real::clock_gettime(clock, to),
        }
    }

    fn gettimeofday(to: *mut timeval, zone: *mut c_void) -> c_int {
        let answer = real::gettimeofday(to, zone);
        if !to.is_null() && let Some(time) = lab::reading(libc::CLOCK_REALTIME) {
            let time = time_of(time);
            to.write(timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1000 });
        }
        answer
    }

    fn time(to: *mut time_t) -> time_t {
        let Some(time) = lab::reading(libc::CLOCK_REALTIME) else { return real::time(to) };
        if let Some(to) = to.as_mut() {
            *to = time / SECOND;
        }
        time / SECOND
    }

    fn timespec_get(to: *mut timespec, base: c_int) -> c_int {
        if base == TIME_UTC && let Some(time) = lab::reading(libc::CLOCK_REALTIME) {
            to.write(time_of(time));
            return base;
        }
        real::timespec_get(to, base)
    }
}
