//! Waiting until one of a few descriptors is ready: level-triggered, so that a descriptor need not be
//! drained.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// A descriptor, and whether to wait until it is writable too.
pub type Watched = (RawFd, bool);

/// Waits until a descriptor is ready or the time has passed; returns whether one is ready. Negative
/// descriptors are ignored.
///
/// # Errors
/// The error of `poll`; a signal is no error, but ends the wait.
pub fn wait<const COUNT: usize>(watched: [Watched; COUNT], most: Duration) -> io::Result<bool> {
    let mut polled = watched.map(|(fd, writes)| {
        let events = libc::POLLIN | if writes { libc::POLLOUT } else { 0 };
        libc::pollfd {
            fd,
            events,
            revents: 0,
        }
    });
    let timeout = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: as many entries as are said; descriptors that are not open are reported, not touched.
    match unsafe { libc::poll(polled.as_mut_ptr(), COUNT as libc::nfds_t, timeout) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        ready => Ok(ready > 0),
    }
}
