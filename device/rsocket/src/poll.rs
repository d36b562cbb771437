//! `rpoll` and `rselect`: waiting for rsockets and other descriptors together.

use super::defaults;
use super::sleep::{SLEEP_MAX, sleep};
use super::table::{self, Found};
use core::ffi::c_int;
use ffi::Errno;
use libc::{POLLERR, POLLHUP, POLLNVAL, pollfd};
use std::time::{Duration, Instant};

/// Conditions that `poll(2)` reports even if they are not requested.
const ALWAYS: i16 = POLLERR | POLLHUP | POLLNVAL;

/// Waits until one of `asked` is ready, and returns how many are. `None` waits without a limit.
pub(super) fn poll(asked: &mut [pollfd], time: Option<Duration>) -> Result<c_int, Errno> {
    let watched: Vec<Option<Found>> = asked.iter().map(|asked| table::find(asked.fd)).collect();
    let deadline = time.map(|time| Instant::now() + time);
    let over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let spin = defaults::of_this_host().spin;
    let mut spinning = None;
    loop {
        let ready = poll_once(asked, &watched, spinning.is_none())?;
        if ready > 0 || over() {
            return Ok(ready);
        }
        if spinning.get_or_insert_with(Instant::now).elapsed() < spin {
            continue;
        }
        let mut descriptors = Vec::with_capacity(2 * asked.len());
        for (asked, watched) in asked.iter().zip(&watched) {
            match watched {
                None => descriptors.push(pollfd {
                    revents: 0,
                    ..*asked
                }),
                Some(found) => descriptors.extend(found.watch().arm()?),
            }
        }
        let ready = poll_once(asked, &watched, true)?;
        if ready > 0 {
            return Ok(ready);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept = sleep(
            &mut descriptors,
            Some(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)),
            core::ptr::null(),
        );
        watched
            .iter()
            .flatten()
            .for_each(|found| found.watch().take_events());
        slept?;
        spinning = None;
    }
}

/// Polls once, without waiting. `with_system_calls` includes conditions that take a system call to find.
fn poll_once(
    asked: &mut [pollfd],
    watched: &[Option<Found>],
    with_system_calls: bool,
) -> Result<c_int, Errno> {
    let mut ready = 0;
    for (asked, watched) in asked.iter_mut().zip(watched) {
        asked.revents = match watched {
            Some(found) => found.watch().poll_once(with_system_calls) & (asked.events | ALWAYS),
            None if asked.fd < 0 || !with_system_calls => 0,
            None => {
                let mut one = [pollfd {
                    revents: 0,
                    ..*asked
                }];
                sleep(&mut one, Some(Duration::ZERO), core::ptr::null())?;
                one[0].revents
            }
        };
        ready += c_int::from(asked.revents != 0);
    }
    Ok(ready)
}
