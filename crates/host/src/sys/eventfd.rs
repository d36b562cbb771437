//! Event counters (`eventfd(2)`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An event counter.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Each read takes one.
    pub(crate) fn semaphore() -> io::Result<Self> {
        Self::new(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC)
    }

    /// Each read takes all, and never waits.
    pub(crate) fn signal() -> io::Result<Self> {
        Self::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
    }

    fn new(flags: i32) -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds one. The counter cannot overflow: it would take 2^64 events that nobody reads.
    pub(crate) fn add(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes one (or all, of a signal), waiting for it unless the descriptor is non-blocking.
    pub(crate) fn take(&self) -> io::Result<()> {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes.
        let read = unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) };
        if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes one if there is one, without waiting whatever the descriptor's mode.
    pub(crate) fn take_if_there(&self) {
        let mut count = [0u8; 8];
        let piece = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
        // SAFETY: one piece of eight writable bytes.
        unsafe { libc::preadv2(self.raw(), &piece, 1, -1, libc::RWF_NOWAIT) };
    }

    /// Takes all of a signal.
    pub(crate) fn clear(&self) {
        // Nothing there is as good as something: both are 0 afterwards.
        let _ = self.take();
    }

    /// Whether taking waits.
    pub(crate) fn is_blocking(&self) -> bool {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(self.raw(), libc::F_GETFL) & libc::O_NONBLOCK == 0 }
    }

    #[cfg(test)]
    pub(crate) fn set_nonblocking(&self) {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(self.raw(), libc::F_SETFL, libc::O_NONBLOCK) };
    }
}
