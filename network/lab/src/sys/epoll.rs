//! Waiting for descriptors.

use super::{checked, owned};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Descriptors that one call names at most.
const EVENTS: usize = 64;

/// Watches descriptors, level-triggered, each under a number.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Watches a descriptor for being readable.
    pub(crate) fn add(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: number,
        };
        // SAFETY: an event that lives until the call returns.
        let added =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        checked(added).map(drop)
    }

    /// Watches a descriptor no more.
    pub(crate) fn remove(&self, fd: RawFd) {
        let none = std::ptr::null_mut();
        // SAFETY: no event is needed. An error means that it was not watched.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, none) };
    }

    /// The numbers of descriptors that are ready, waiting for `nanoseconds` at most.
    pub(crate) fn wait(&self, nanoseconds: u64) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let time = libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        };
        let (fd, room) = (self.0.as_raw_fd(), EVENTS as i32);
        // SAFETY: room for the events, a time, no signal mask.
        let ready = unsafe {
            let place = events.as_mut_ptr();
            let mask = std::ptr::null::<libc::sigset_t>();
            let result = libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                place,
                room,
                &raw const time,
                mask,
                0usize,
            );
            if result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                // Before Linux 5.11: whole milliseconds, rounded up.
                libc::epoll_wait(fd, place, room, nanoseconds.div_ceil(1_000_000) as i32)
            } else {
                result as i32
            }
        };
        events
            .into_iter()
            .take(ready.max(0) as usize)
            .map(|event| event.u64)
    }
}
