//! Event counters (`eventfd(2)`).

use crate::owned;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An event counter.
#[derive(Debug)]
pub struct EventCounter(OwnedFd);

impl AsRawFd for EventCounter {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl EventCounter {
    /// Creates a counter, which programs that this process executes do not get; reading it takes the whole
    /// count, and does not block.
    ///
    /// # Errors
    /// Those of `eventfd(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        Self::with_flags(libc::EFD_CLOEXEC)
    }

    /// The same, which programs that this process executes get.
    ///
    /// # Errors
    /// Those of `eventfd(2)`: no descriptors or memory left.
    pub fn inherited() -> io::Result<Self> {
        Self::with_flags(0)
    }

    fn with_flags(flags: libc::c_int) -> io::Result<Self> {
        // SAFETY: no pointers; the call makes a descriptor.
        unsafe { owned(libc::eventfd(0, libc::EFD_NONBLOCK | flags)) }.map(Self)
    }

    /// Adds one. The counter cannot overflow: that would take 2^64 events that are not read.
    pub fn add(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sets the counter to 0.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. Where there is nothing to take, the count is 0 as well.
        unsafe { libc::read(self.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait;
    use std::time::Duration;

    #[test]
    fn a_counter_is_readable_from_the_first_event_until_it_is_cleared() {
        for counter in [EventCounter::new(), EventCounter::inherited()] {
            let counter = counter.unwrap();
            let is_ready = || wait([(counter.as_raw_fd(), false)], Duration::ZERO).unwrap();
            assert!(!is_ready());
            counter.add();
            counter.add();
            assert!(is_ready());
            counter.clear();
            assert!(!is_ready());
            counter.clear();
        }
    }

    #[test]
    fn only_an_inherited_counter_outlives_exec() {
        let closes = |counter: EventCounter| {
            // SAFETY: numbers only.
            unsafe { libc::fcntl(counter.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
        };
        assert!(closes(EventCounter::new().unwrap()));
        assert!(!closes(EventCounter::inherited().unwrap()));
    }
}
