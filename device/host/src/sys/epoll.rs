//! Waiting for a socket and a signal at once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Limit of descriptors that one call returns.
const EVENTS: usize = 4;

/// A timeout for epoll_wait(2): rounded up, -1 without a limit.
fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    })
}

/// Watches descriptors, level-triggered, for being readable.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32)
    }

    /// Stops watching a descriptor: making it readable then costs no search for waiting threads.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events,
            u64: fd as u64,
        };
        // SAFETY: an event that lives until the call returns.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until a descriptor is readable, or for `timeout`; `None` has no limit. Returns those that are
    /// readable.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> impl Iterator<Item = RawFd> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let time_pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (fd, room) = (self.0.as_raw_fd(), events.len() as i32);
        // SAFETY: room for the events, a time or null, no signal mask.
        let ready = unsafe {
            let place = events.as_mut_ptr();
            // As a system call: glibc has had the function since 2.35.
            let no_mask = std::ptr::null::<libc::sigset_t>();
            let result = libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                place,
                room,
                time_pointer,
                no_mask,
                0usize,
            );
            if result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                // Before Linux 5.11: whole milliseconds, rounded up.
                libc::epoll_wait(fd, place, room, milliseconds(timeout))
            } else {
                result as i32
            }
        };
        events
            .into_iter()
            .take(ready.max(0) as usize)
            .map(|event| event.u64 as RawFd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_whole_milliseconds() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1500))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }
}
