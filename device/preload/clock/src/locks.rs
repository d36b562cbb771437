//! The C library's functions that wait for a lock, a condition, a semaphore or a thread until a deadline.

use crate::lab;
use crate::next::replace;
use crate::real;
use crate::scale::nanoseconds;
use core::ffi::{c_int, c_void};
use libc::{clockid_t, timespec};

/// The object that is waited for; it is passed on unchanged.
type Object = *mut c_void;

/// The machine's time of a deadline; `None` where both are equal.
///
/// # Safety
/// `time` is NULL, or points to a time.
unsafe fn on(clock: clockid_t, time: *const timespec) -> Option<timespec> {
    // SAFETY: by this function's contract, `time` is NULL, or points to a time.
    lab::deadline(clock, unsafe { time.as_ref() }?)
}

/// The same for functions whose clock was chosen when the object was created.
///
/// # Safety
/// `time` is NULL, or points to a time.
unsafe fn on_its_clock(time: *const timespec) -> Option<timespec> {
    // SAFETY: by this function's contract, `time` is NULL, or points to a time.
    let time = unsafe { time.as_ref() }?;
    lab::deadline(lab::scale()?.clock_of(nanoseconds(time)?), time)
}

/// Functions of an object and a deadline on `CLOCK_REALTIME`.
macro_rules! until_wall_time {
    ($(fn $name:ident;)*) => {
        replace! {$(
            fn $name(object: Object, time: *const timespec) -> c_int {
                real::$name(object, lab::or_given(&on(libc::CLOCK_REALTIME, time), time))
            }
        )*}
    };
}

/// Functions of an object and a deadline on a clock that the caller names.
macro_rules! until {
    ($(fn $name:ident;)*) => {
        replace! {$(
            fn $name(object: Object, clock: clockid_t, time: *const timespec) -> c_int {
                real::$name(object, clock, lab::or_given(&on(clock, time), time))
            }
        )*}
    };
}

until_wall_time! {
    fn sem_timedwait;
    fn pthread_mutex_timedlock;
    fn pthread_rwlock_timedrdlock;
    fn pthread_rwlock_timedwrlock;
    fn mtx_timedlock;
}

until! {
    fn sem_clockwait;
    fn pthread_mutex_clocklock;
    fn pthread_rwlock_clockrdlock;
    fn pthread_rwlock_clockwrlock;
}

replace! {
    fn pthread_cond_timedwait(condition: Object, mutex: Object, time: *const timespec) -> c_int {
        real::pthread_cond_timedwait(condition, mutex, lab::or_given(&on_its_clock(time), time))
    }

    fn pthread_cond_clockwait(condition: Object, mutex: Object, clock: clockid_t, time: *const timespec)
        -> c_int {
        real::pthread_cond_clockwait(condition, mutex, clock, lab::or_given(&on(clock, time), time))
    }

    fn cnd_timedwait(condition: Object, mutex: Object, time: *const timespec) -> c_int {
        real::cnd_timedwait(condition, mutex, lab::or_given(&on(libc::CLOCK_REALTIME, time), time))
    }

    fn pthread_timedjoin_np(thread: libc::pthread_t, answer: *mut Object, time: *const timespec) -> c_int {
        real::pthread_timedjoin_np(thread, answer, lab::or_given(&on(libc::CLOCK_REALTIME, time), time))
    }
}
