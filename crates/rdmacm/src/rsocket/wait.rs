//! How calls wait: what all kinds of sockets have in common.

use core::ffi::c_int;
use door::Errno;
use libc::pollfd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A sleep lasts no longer: two threads of a program may wait for one socket, and an event wakes one of
/// them.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What one thread at a time sees of a socket.
pub(super) trait Endpoint {
    /// Does what has become possible. Often called, so without a system call.
    fn progress(&mut self);
    /// Looks at what is rare, and takes a system call.
    fn attend(&mut self);
    /// Asks for an event with the next completion.
    ///
    /// # Errors
    /// When the device refuses.
    fn arm(&mut self) -> Result<(), Errno>;
    /// Takes the events that were asked for.
    fn quiet(&mut self);
    /// What a thread sleeps on.
    fn descriptors(&self) -> [pollfd; 2];
    /// What `poll` says of it.
    fn readiness(&self) -> i16;
    /// A program has asked for something.
    fn used(&mut self);
}

/// What a descriptor stands for.
pub(super) struct Shared<E> {
    pub(super) fd: c_int,
    inner: Mutex<E>,
    /// A thread sleeps on the descriptors; others wait for their turn.
    polling: AtomicBool,
    turn: Condvar,
}

impl<E: Endpoint> Shared<E> {
    pub(super) fn new(fd: c_int, inner: E) -> Self {
        Self { fd, inner: Mutex::new(inner), polling: AtomicBool::new(false), turn: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, E> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries until there is a result. `time` limits it, and a socket that does not block tries once.
    pub(super) fn wait<T>(
        &self,
        nonblocking: bool,
        time: Option<Duration>,
        mut attempt: impl FnMut(&mut E) -> Result<Option<T>, Errno>,
    ) -> Result<T, Errno> {
        let deadline = time.map(|time| Instant::now() + time);
        let spin = super::defaults::of_this_host().spin;
        let mut inner = self.lock();
        inner.used();
        let mut spinning = None;
        loop {
            inner.progress();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            // What is rare takes a system call.
            if spinning.is_none() {
                inner.attend();
                if let Some(done) = attempt(&mut inner)? {
                    return Ok(done);
                }
            }
            if nonblocking || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Errno(libc::EAGAIN));
            }
            if spinning.get_or_insert_with(Instant::now).elapsed() < spin {
                drop(inner);
                std::hint::spin_loop();
                inner = self.lock();
                continue;
            }
            let left =
                deadline.map_or(SLEEP_MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.min(SLEEP_MAX);
            spinning = None;
            if self.polling.load(Ordering::Relaxed) {
                let waited = self.turn.wait_timeout(inner, left);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            inner.arm()?;
            inner.progress();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            // Set and cleared under the lock, which orders it.
            self.polling.store(true, Ordering::Relaxed);
            let mut descriptors = inner.descriptors();
            drop(inner);
            let slept = super::poll::sleep(&mut descriptors, Some(left), core::ptr::null());
            inner = self.lock();
            self.polling.store(false, Ordering::Relaxed);
            inner.quiet();
            self.turn.notify_all();
            slept?;
        }
    }
}

/// A socket among others that are waited for.
pub(super) trait Watch: Send + Sync {
    /// What it is ready for. What is rare is looked at when `thoroughly`.
    fn look(&self, thoroughly: bool) -> i16;
    /// Prepares for a sleep, and says on what.
    ///
    /// # Errors
    /// When the device refuses.
    fn arm(&self) -> Result<[pollfd; 2], Errno>;
    /// After the sleep.
    fn quiet(&self);
}

impl<E: Endpoint + Send> Watch for Shared<E> {
    fn look(&self, thoroughly: bool) -> i16 {
        let mut inner = self.lock();
        inner.progress();
        if thoroughly {
            inner.attend();
        }
        inner.readiness()
    }

    fn arm(&self) -> Result<[pollfd; 2], Errno> {
        let mut inner = self.lock();
        inner.arm()?;
        Ok(inner.descriptors())
    }

    fn quiet(&self) {
        self.lock().quiet();
    }
}
