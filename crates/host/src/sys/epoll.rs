//! Waiting for a socket and a signal at once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptors that one call can name.
const EVENTS: usize = 4;

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
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32)
    }

    /// Watches a descriptor no more: whoever makes it readable no longer stops to look who waits.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: fd as u64 };
        // SAFETY: an event that lives until the call returns.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until a descriptor is readable, or for `timeout`; `None` is for ever. Says which are.
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
            let result = libc::epoll_pwait2(fd, place, room, time_pointer, std::ptr::null());
            if result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                // Before Linux 5.11: whole milliseconds, rounded up.
                let whole = timeout.map_or(-1, |timeout| timeout.as_micros().div_ceil(1000) as i32);
                libc::epoll_wait(fd, place, room, whole)
            } else {
                result
            }
        };
        events.into_iter().take(ready.max(0) as usize).map(|event| event.u64 as RawFd)
    }
}
