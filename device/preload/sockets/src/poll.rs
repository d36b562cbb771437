//! The C library's functions that wait for several descriptors. If none of them is an rsocket's, the C
//! library's function is called unchanged.

use crate::next::replace;
use crate::real;
use crate::rsockets as r;
use crate::table;
use core::ffi::c_int;
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::time::Duration;

/// Milliseconds for `poll`, rounded up.
pub(crate) fn milliseconds(time: Option<Duration>) -> c_int {
    let whole = |time: Duration| time.as_nanos().div_ceil(1_000_000);
    time.map_or(-1, |time| {
        c_int::try_from(whole(time)).unwrap_or(c_int::MAX)
    })
}

/// # Safety
/// `time` is NULL, or points to a time.
unsafe fn duration(time: *const timespec) -> Option<Duration> {
    // SAFETY: by this function's contract, `time` is NULL, or points to a time.
    let time = unsafe { time.as_ref() }?;
    Some(Duration::new(
        time.tv_sec.max(0) as u64,
        (time.tv_nsec.max(0) as u32).min(999_999_999),
    ))
}

/// Waits with other signals blocked. Unlike in the kernel, changing the mask and waiting are not atomic.
///
/// # Safety
/// `signals` is NULL, or points to a set of signals.
pub(crate) unsafe fn with_signals<T>(signals: *const sigset_t, wait: impl FnOnce() -> T) -> T {
    if signals.is_null() {
        return wait();
    }
    // SAFETY: by this function's contract, `signals` is NULL, or points to a set of signals; room for the set
    // that was there.
    unsafe {
        let mut before: sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, signals, &mut before);
        let answer = wait();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        answer
    }
}

/// Waits for descriptors of the program, some of which are rsockets'.
#[inline(never)]
fn wait(asked: &mut [pollfd], time_ms: c_int) -> c_int {
    let standing = |asked: &pollfd| pollfd {
        fd: table::rsocket(asked.fd).unwrap_or(asked.fd),
        ..*asked
    };
    let mut list: Vec<pollfd> = asked.iter().map(standing).collect();
    // SAFETY: as many as there are.
    let ready = unsafe { r::rpoll(list.as_mut_ptr(), list.len() as nfds_t, time_ms) };
    for (asked, seen) in asked.iter_mut().zip(&list) {
        asked.revents = seen.revents;
    }
    ready
}

/// Whether one of the descriptors is an rsocket's.
///
/// # Safety
/// `count` elements are at `list`.
unsafe fn list<'a>(list: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if list.is_null() || r::in_librdmacm() {
        return None;
    }
    // SAFETY: by this function's contract, `count` elements are at `list`.
    let asked = unsafe { core::slice::from_raw_parts_mut(list, count as usize) };
    asked
        .iter()
        .any(|asked| table::rsocket(asked.fd).is_some())
        .then_some(asked)
}

/// The sets of `select`, and the `poll` events that each requests.
const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
/// Conditions that make a descriptor ready for both reading and writing.
const ENDS: i16 = libc::POLLHUP | libc::POLLERR;

/// # Safety
/// As for `select(2)`.
#[inline(never)]
unsafe fn select_by_poll(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: Option<Duration>,
) -> Option<c_int> {
    let mut asked = Vec::new();
    let mut is_ours = false;
    // SAFETY: by this function's contract, which is that of `select(2)`.
    unsafe {
        for fd in 0..count.clamp(0, libc::FD_SETSIZE as c_int) {
            let is_in = |set: *mut fd_set| !set.is_null() && libc::FD_ISSET(fd, set);
            let events = sets.iter().zip(EVENTS).filter(|(set, _)| is_in(**set));
            let events = events.fold(0, |events, (_, event)| events | event);
            if events != 0 {
                is_ours |= table::rsocket(fd).is_some();
                asked.push(pollfd {
                    fd,
                    events,
                    revents: 0,
                });
            }
        }
        if !is_ours {
            return None;
        }
        let ready = wait(&mut asked, milliseconds(time));
        if ready < 0 {
            return Some(ready);
        }
        let mut set_bits = 0;
        for (set, event) in sets
            .into_iter()
            .zip(EVENTS)
            .filter(|(set, _)| !set.is_null())
        {
            libc::FD_ZERO(set);
            let wanted = if event == libc::POLLPRI {
                event
            } else {
                event | ENDS
            };
            for asked in asked
                .iter()
                .filter(|it| it.events & event != 0 && it.revents & wanted != 0)
            {
                libc::FD_SET(asked.fd, set);
                set_bits += 1;
            }
        }
        Some(set_bits)
    }
}

replace! {
    fn poll(fds: *mut pollfd, count: nfds_t, time_ms: c_int) -> c_int {
        match list(fds, count) {
            Some(asked) => wait(asked, time_ms),
            None => real::poll(fds, count, time_ms),
        }
    }

    fn ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t) -> c_int {
        match list(fds, count) {
            Some(asked) => with_signals(signals, || wait(asked, milliseconds(duration(time)))),
            None => real::ppoll(fds, count, time, signals),
        }
    }

    fn __poll_chk(fds: *mut pollfd, count: nfds_t, time_ms: c_int, _room: usize) -> c_int {
        poll(fds, count, time_ms)
    }

    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, time: *const timespec, signals: *const sigset_t,
        _room: usize) -> c_int {
        ppoll(fds, count, time, signals)
    }

    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval)
        -> c_int {
        let limit = time.as_ref().map(|time| {
            Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
        });
        select_by_poll(count, [read, write, except], limit)
            .unwrap_or_else(|| real::select(count, read, write, except, time))
    }

    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *const timespec, signals: *const sigset_t) -> c_int {
        with_signals(signals, || select_by_poll(count, [read, write, except], duration(time)))
            .unwrap_or_else(|| real::pselect(count, read, write, except, time, signals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_micros(1))), 1);
        assert_eq!(milliseconds(Some(Duration::MAX)), c_int::MAX);
    }
}
