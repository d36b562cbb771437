//! A timer as a descriptor (`timerfd_create(2)`): another thread can move the end of the time for which a
//! thread sleeps, and the sleeping thread need not run for it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A timer that ends once. Its descriptor is readable from its end until it is started or stopped again.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that is stopped.
    ///
    /// # Errors
    /// Those of `timerfd_create(2)`: no descriptors or memory left.
    pub(crate) fn new() -> io::Result<Self> {
        let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        // SAFETY: no pointers; the call makes a descriptor.
        unsafe { os::owned(libc::timerfd_create(clock, flags)) }.map(Self)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Starts the timer, in place of an earlier start. It ends after this time, at once if the time is zero.
    pub(crate) fn start(&self, after: Duration) {
        self.set(after.max(Duration::from_nanos(1)));
    }

    /// Stops the timer.
    pub(crate) fn stop(&self) {
        self.set(Duration::ZERO);
    }

    /// Sets the timer. The kernel takes a time of zero for a timer that is stopped.
    fn set(&self, after: Duration) {
        let never = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let at = libc::timespec {
            tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let when = libc::itimerspec {
            it_interval: never,
            it_value: at,
        };
        // SAFETY: a readable value, and no place for the old one.
        unsafe { libc::timerfd_settime(self.raw(), 0, &raw const when, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Epoll;

    #[test]
    fn a_timer_ends_once_it_is_due_and_not_when_it_is_stopped() {
        let (timer, epoll) = (
            Timer::new().expect("a timer"),
            Epoll::new().expect("an epoll descriptor"),
        );
        epoll.add(timer.raw()).expect("a descriptor to wait for");
        let ends = |within| {
            epoll
                .wait_fds(Some(within))
                .any(|ready| ready == timer.raw())
        };
        timer.start(Duration::ZERO);
        assert!(ends(Duration::from_secs(10)));
        timer.start(Duration::from_secs(1000));
        assert!(!ends(Duration::ZERO), "an earlier end is forgotten");
        timer.start(Duration::from_micros(10));
        assert!(ends(Duration::from_secs(10)));
        timer.stop();
        assert!(!ends(Duration::ZERO));
    }
}
