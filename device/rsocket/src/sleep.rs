//! Sleeping on descriptors.

use core::ffi::c_int;
use ffi::{Errno, cancellation};
use libc::pollfd;
use std::time::Duration;

/// Longest sleep: an event wakes only one of the threads that wait for a socket.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// `poll(2)` with a time-out in any unit; `None` waits without a limit.
///
/// # Errors
/// As `poll(2)`, and `ECANCELED` when the thread was cancelled.
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
    // SAFETY: time and signals live until the call returns.
    let ready = unsafe { cancellation::ppoll(descriptors, time, signals) }?;
    Ok(ready as c_int)
}
