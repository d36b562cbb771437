//! Event counters (`eventfd(2)`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An event counter.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a counter; reading it takes the whole count, and does not block.
    pub(crate) fn signal() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds one. The counter cannot overflow: that would take 2^64 events that are not read.
    pub(crate) fn add(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
    }

    /// Sets the counter to 0.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. Where there is nothing to take, the count is 0 as well.
        unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) };
    }
}
