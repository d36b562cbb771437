//! The C library's functions that wait for descriptors, signals or System V semaphores, with a time limit.

use crate::lab;
use crate::next::replace;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

replace! {
    fn poll(list: *mut pollfd, count: nfds_t, time_ms: c_int) -> c_int {
        real::poll(list, count, lab::stretched_millis(time_ms))
    }

    fn __poll_chk(list: *mut pollfd, count: nfds_t, time_ms: c_int, room: usize) -> c_int {
        real::__poll_chk(list, count, lab::stretched_millis(time_ms), room)
    }

    fn ppoll(list: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t) -> c_int {
        real::ppoll(list, count, lab::or_given(&lab::stretched(time), time), signals)
    }

    fn __ppoll_chk(list: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t,
        room: usize) -> c_int {
        real::__ppoll_chk(list, count, lab::or_given(&lab::stretched(time), time), signals, room)
    }

    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval)
        -> c_int {
        let Some(mut stretched) = time.as_ref().and_then(lab::stretched_micros) else {
            return real::select(count, read, write, except, time);
        };
        let ready = real::select(count, read, write, except, &mut stretched);
        // Linux writes the remaining time to the caller's structure.
        if let Some(left) = lab::shrunk_micros(&stretched) {
            time.write(left);
        }
        ready
    }

    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *const timespec, signals: *const sigset_t) -> c_int {
        let stretched = lab::stretched(time);
        real::pselect(count, read, write, except, lab::or_given(&stretched, time), signals)
    }

    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int) -> c_int {
        real::epoll_wait(epoll, events, most, lab::stretched_millis(time_ms))
    }

    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, time_ms: c_int,
        signals: *const sigset_t) -> c_int {
        real::epoll_pwait(epoll, events, most, lab::stretched_millis(time_ms), signals)
    }

    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
        signals: *const sigset_t) -> c_int {
        real::epoll_pwait2(epoll, events, most, lab::or_given(&lab::stretched(time), time), signals)
    }

    fn sigtimedwait(signals: *const sigset_t, info: *mut c_void, time: *const timespec) -> c_int {
        real::sigtimedwait(signals, info, lab::or_given(&lab::stretched(time), time))
    }

    fn semtimedop(set: c_int, operations: *mut c_void, count: usize, time: *const timespec) -> c_int {
        real::semtimedop(set, operations, count, lab::or_given(&lab::stretched(time), time))
    }
}
