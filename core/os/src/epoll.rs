//! Waiting for descriptors (epoll(7)).

use crate::owned;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A timeout for epoll_wait(2): rounded up, -1 without a limit.
fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    })
}

/// Watches descriptors, level-triggered, for being readable, each under a number. One wait returns `MOST` of
/// them at most.
#[derive(Debug)]
pub struct Epoll<const MOST: usize>(OwnedFd);

impl<const MOST: usize> AsRawFd for Epoll<MOST> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<const MOST: usize> Epoll<MOST> {
    /// Creates one that watches nothing.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the call makes a descriptor.
        unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Self)
    }

    /// Watches a descriptor; its number is that of the descriptor.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        self.add_as(fd, fd as u64)
    }

    /// Watches a descriptor under this number.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_as(&self, fd: RawFd, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, number)
    }

    /// Stops watching a descriptor: making it readable then costs no search for waiting threads.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`: `ENOENT` if it was not watched.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: number,
        };
        // SAFETY: an event that lives until the call returns.
        match unsafe { libc::epoll_ctl(self.as_raw_fd(), operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until a descriptor is readable, or for `timeout`; `None` has no limit. Returns the numbers of
    /// those that are readable.
    pub fn wait(&self, timeout: Option<Duration>) -> impl Iterator<Item = u64> + use<MOST> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let time_pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (fd, room) = (self.as_raw_fd(), MOST as i32);
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
            .map(|event| event.u64)
    }

    /// The same for descriptors that [`Self::add`] has added: they are their own numbers.
    pub fn wait_fds(&self, timeout: Option<Duration>) -> impl Iterator<Item = RawFd> + use<MOST> {
        self.wait(timeout).map(|number| number as RawFd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn times_are_rounded_up_to_whole_milliseconds() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1500))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }

    #[test]
    fn readable_descriptors_are_returned_by_their_numbers_until_they_are_removed() {
        let epoll = Epoll::<1>::new().unwrap();
        let (first, mut pen) = io::pipe().unwrap();
        let (second, mut other_pen) = io::pipe().unwrap();
        epoll.add(first.as_raw_fd()).unwrap();
        epoll.add_as(second.as_raw_fd(), 1 << 40).unwrap();
        let ready = || epoll.wait(Some(Duration::ZERO)).collect::<Vec<_>>();
        assert_eq!(ready(), []);
        other_pen.write_all(b"x").unwrap();
        assert_eq!(ready(), [1 << 40]);
        epoll.remove(second.as_raw_fd()).unwrap();
        let again = epoll.remove(second.as_raw_fd()).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::ENOENT));
        pen.write_all(b"x").unwrap();
        assert_eq!(ready(), [first.as_raw_fd() as u64]);
    }
}
