//! `rpoll` and `rselect`: rsockets and other descriptors in one wait.

use super::table::{self, Found};
use super::wait::SLEEP_MAX;
use core::ffi::c_int;
use door::Errno;
use libc::{POLLERR, POLLHUP, POLLNVAL, pollfd};
use std::time::{Duration, Instant};

/// What `poll` tells without being asked.
const ALWAYS: i16 = POLLERR | POLLHUP | POLLNVAL;

/// poll(2), with a time or without end.
///
/// # Errors
/// As it has them.
pub(super) fn sleep(
    descriptors: &mut [pollfd],
    time: Option<Duration>,
    signals: *const libc::sigset_t,
) -> Result<c_int, Errno> {
    let time = time.map(|time| libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: as many as the slice has; time and signals live until the call returns.
    let ready =
        unsafe { libc::ppoll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, time, signals) };
    if ready < 0 { Err(Errno::last()) } else { Ok(ready) }
}

/// Waits until one of `asked` is ready, and says how many are. `None` waits without end.
pub(super) fn poll(asked: &mut [pollfd], time: Option<Duration>) -> Result<c_int, Errno> {
    let watched: Vec<Option<Found>> = asked.iter().map(|asked| table::find(asked.fd)).collect();
    let deadline = time.map(|time| Instant::now() + time);
    let over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let spin = super::defaults::of_this_host().spin;
    let mut spinning = None;
    loop {
        let ready = look(asked, &watched, spinning.is_none())?;
        if ready > 0 || over() {
            return Ok(ready);
        }
        if spinning.get_or_insert_with(Instant::now).elapsed() < spin {
            continue;
        }
        let mut descriptors = Vec::with_capacity(2 * asked.len());
        for (asked, watched) in asked.iter().zip(&watched) {
            match watched {
                None => descriptors.push(pollfd { revents: 0, ..*asked }),
                Some(found) => descriptors.extend(found.watch().arm()?),
            }
        }
        let ready = look(asked, &watched, true)?;
        if ready > 0 {
            return Ok(ready);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept =
            sleep(&mut descriptors, Some(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)), core::ptr::null());
        watched.iter().flatten().for_each(|found| found.watch().quiet());
        slept?;
        spinning = None;
    }
}

/// Looks once, without waiting. What is rare is looked for when `thoroughly`.
fn look(asked: &mut [pollfd], watched: &[Option<Found>], thoroughly: bool) -> Result<c_int, Errno> {
    let mut ready = 0;
    for (asked, watched) in asked.iter_mut().zip(watched) {
        asked.revents = match watched {
            Some(found) => found.watch().look(thoroughly) & (asked.events | ALWAYS),
            None if asked.fd < 0 || !thoroughly => 0,
            None => {
                let mut one = [pollfd { revents: 0, ..*asked }];
                sleep(&mut one, Some(Duration::ZERO), core::ptr::null())?;
                one[0].revents
            }
        };
        ready += c_int::from(asked.revents != 0);
    }
    Ok(ready)
}
