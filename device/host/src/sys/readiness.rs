//! Descriptors that programs poll and cannot write to.
//!
//! The kernel's completion channels, asynchronous events and event channels never report that they are
//! writable, and a program whose event loop watches both directions spins where a descriptor does. An eventfd
//! reports it nearly always. A timerfd never does, is one descriptor where a pipe is two, and its tick count
//! can be set by `ioctl(2)` (`TFD_IOC_SET_TICKS`), which wakes sleepers as fast as writing to an eventfd. A
//! kernel without that call (built without `CONFIG_CHECKPOINT_RESTORE`, gVisor) has a timer end at once
//! instead, which takes some 15 us longer.

use crate::sys::timer::Timer;
use link::cancellation;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sets the tick count of a timerfd (`linux/timerfd.h`).
const SET_TICKS: libc::Ioctl = 0x4008_5400;

/// Whether the kernel lacks [`SET_TICKS`]: the result for one descriptor holds for all.
static HAS_NO_TICKS: AtomicBool = AtomicBool::new(false);

/// A descriptor that is readable or not, and never writable.
#[derive(Debug)]
pub(crate) struct Readiness(Timer);

impl Readiness {
    /// Creates a descriptor that is not readable.
    ///
    /// # Errors
    /// Those of `timerfd_create(2)`: no descriptors or memory left.
    pub(crate) fn new() -> io::Result<Self> {
        Timer::new().map(Self)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.raw()
    }

    /// Makes it readable, and wakes all threads that wait for it, also those that wait for a change
    /// (`EPOLLET`) of a descriptor that was readable before. `ticks`, which is not 0, is what
    /// [`Self::wait`] returns; 1 where the kernel cannot set it.
    pub(crate) fn set(&self, ticks: u64) {
        if !HAS_NO_TICKS.load(Ordering::Relaxed) {
            // SAFETY: eight readable bytes.
            if unsafe { libc::ioctl(self.raw(), SET_TICKS, &raw const ticks) } == 0 {
                return;
            }
            HAS_NO_TICKS.store(true, Ordering::Relaxed);
        }
        self.0.start(Duration::ZERO);
    }

    /// Makes it not readable.
    pub(crate) fn clear(&self) {
        self.0.stop();
    }

    /// Waits until it is readable, unless it is non-blocking. It is not readable then, until it is set again.
    ///
    /// # Errors
    /// `EAGAIN` when it is not readable and non-blocking, `EINTR` when a signal came, `ECANCELED` when the
    /// thread was cancelled.
    pub(crate) fn wait(&self) -> io::Result<u64> {
        let mut ticks = [0u8; 8];
        cancellation::read(self.raw(), &mut ticks)?;
        Ok(u64::from_ne_bytes(ticks))
    }

    /// Whether [`Self::wait`] blocks.
    pub(crate) fn is_blocking(&self) -> bool {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(self.raw(), libc::F_GETFL) & libc::O_NONBLOCK == 0 }
    }

    #[cfg(test)]
    pub(crate) fn set_nonblocking(&self) {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(self.raw(), libc::F_SETFL, libc::O_NONBLOCK) };
    }

    /// The events that `poll(2)` reports for it, of reading and writing.
    #[cfg(test)]
    pub(crate) fn polled(&self) -> i16 {
        let mut polled = libc::pollfd {
            fd: self.raw(),
            events: libc::POLLIN | libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut polled, 1, 0) };
        polled.revents
    }

    /// Runs a test as on a kernel that cannot set tick counts.
    #[cfg(test)]
    pub(crate) fn without_ticks<T>(test: impl FnOnce() -> T) -> T {
        HAS_NO_TICKS.store(true, Ordering::Relaxed);
        let result = test();
        HAS_NO_TICKS.store(false, Ordering::Relaxed);
        result
    }
}
