//! `rpoll` and `rselect`: rsockets and other descriptors in one wait.

use super::socket::Socket;
use super::table;
use core::ffi::c_int;
use door::Errno;
use libc::{POLLERR, POLLHUP, POLLNVAL, pollfd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looking without sleeping, before sleeping.
const SPIN: Duration = Duration::from_micros(30);
/// A sleep lasts no longer, since an event of a socket may wake another thread.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// What `poll` tells without being asked.
const ALWAYS: i16 = POLLERR | POLLHUP | POLLNVAL;

/// poll(2), with a time or without end.
///
/// # Errors
/// As it has them.
pub(super) fn sleep(descriptors: &mut [pollfd], time: Option<Duration>) -> Result<c_int, Errno> {
    let time = time.map(|time| libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: as many as the slice has; the time lives until the call returns.
    let ready = unsafe {
        libc::ppoll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, time, core::ptr::null())
    };
    if ready < 0 { Err(Errno::last()) } else { Ok(ready) }
}

/// What a descriptor stands for.
enum Watched {
    Socket(Arc<Socket>),
    Other,
}

/// Waits until one of `asked` is ready, and says how many are. `None` waits without end.
pub(super) fn poll(asked: &mut [pollfd], time: Option<Duration>) -> Result<c_int, Errno> {
    let find = |asked: &pollfd| table::find(asked.fd).map_or(Watched::Other, Watched::Socket);
    let watched: Vec<Watched> = asked.iter().map(find).collect();
    let deadline = time.map(|time| Instant::now() + time);
    let over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let mut spinning = None;
    loop {
        let ready = look(asked, &watched, spinning.is_none())?;
        if ready > 0 || over() {
            return Ok(ready);
        }
        if spinning.get_or_insert_with(Instant::now).elapsed() < SPIN {
            continue;
        }
        let mut descriptors = Vec::with_capacity(2 * asked.len());
        for (asked, watched) in asked.iter().zip(&watched) {
            match watched {
                Watched::Other => descriptors.push(pollfd { revents: 0, ..*asked }),
                Watched::Socket(socket) => {
                    let mut inner = socket.lock();
                    if let Some(stream) = &mut inner.stream {
                        stream.arm()?;
                    }
                    descriptors.extend(inner.descriptors());
                }
            }
        }
        let ready = look(asked, &watched, true)?;
        if ready > 0 {
            return Ok(ready);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        sleep(&mut descriptors, Some(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)))?;
        for socket in watched.iter().filter_map(|watched| match watched {
            Watched::Socket(socket) => Some(socket),
            Watched::Other => None,
        }) {
            if let Some(stream) = &mut socket.lock().stream {
                stream.quiet();
            }
        }
        spinning = None;
    }
}

/// Looks once, without waiting. What the connection manager tells is looked for when `thoroughly`.
fn look(asked: &mut [pollfd], watched: &[Watched], thoroughly: bool) -> Result<c_int, Errno> {
    let mut ready = 0;
    for (asked, watched) in asked.iter_mut().zip(watched) {
        asked.revents = match watched {
            Watched::Socket(socket) => {
                let mut inner = socket.lock();
                inner.progress();
                if thoroughly {
                    inner.attend();
                }
                inner.readiness() & (asked.events | ALWAYS)
            }
            Watched::Other if asked.fd < 0 || !thoroughly => 0,
            Watched::Other => {
                let mut one = [pollfd { revents: 0, ..*asked }];
                sleep(&mut one, Some(Duration::ZERO))?;
                one[0].revents
            }
        };
        ready += c_int::from(asked.revents != 0);
    }
    Ok(ready)
}
