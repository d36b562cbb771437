//! `syscall(2)`, by which the standard libraries of Rust and C++ wait and some programs read clocks.

use crate::lab;
use crate::next::replace;
use crate::real;
use core::ffi::{c_int, c_long};
use libc::timespec;

/// The operation of a `futex(2)`, without its flags.
const OPERATION: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
/// Waits until a deadline on the clock that the flag selects; the C library's constants do not have this
/// operation (linux/futex.h).
const FUTEX_LOCK_PI2: c_int = 13;

/// The time argument of a futex operation: a duration, or a deadline. Operations that do not wait have
/// another argument there.
///
/// # Safety
/// `time` is the fourth argument of that operation.
unsafe fn limit(operation: c_int, time: *const timespec) -> Option<timespec> {
    let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
        0 => libc::CLOCK_MONOTONIC,
        _ => libc::CLOCK_REALTIME,
    };
    let clock = match operation & OPERATION {
        // SAFETY: the argument of this operation is NULL, or a time.
        libc::FUTEX_WAIT => return unsafe { lab::stretched(time) },
        libc::FUTEX_LOCK_PI => libc::CLOCK_REALTIME,
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2 => clock,
        _ => return None,
    };
    // SAFETY: the argument of these operations is NULL, or a time.
    lab::deadline(clock, unsafe { time.as_ref() }?)
}

replace! {
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        match number {
            libc::SYS_futex => {
                let given = d as *const timespec;
                let limit = limit(b as c_int, given);
                real::syscall(number, a, b, c, lab::or_given(&limit, given) as c_long, e, f)
            }
            libc::SYS_clock_gettime => crate::reading::clock_gettime(a as c_int, b as *mut timespec).into(),
            libc::SYS_gettimeofday => crate::reading::gettimeofday(a as *mut _, b as *mut _).into(),
            libc::SYS_nanosleep => crate::sleeping::nanosleep(a as *const _, b as *mut _).into(),
            libc::SYS_epoll_pwait2 => {
                let stretched = lab::stretched(d as *const timespec);
                let time = lab::or_given(&stretched, d as *const timespec) as c_long;
                real::syscall(number, a, b, c, time, e, f)
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}
