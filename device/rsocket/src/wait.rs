//! Blocking calls on a socket, common to streams and datagrams.

use super::defaults::{self, Defaults};
use super::sleep::{SLEEP_MAX, sleep};
use core::ffi::c_int;
use ffi::{Errno, cancellation};
use libc::pollfd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a call polls before it sleeps where the last sleep was shorter. While a program sleeps, the
/// device's progress thread takes packets, and both then contend for the device.
const SPIN_LONG: Duration = Duration::from_micros(200);

/// State of a socket, behind its lock.
pub(super) trait Endpoint {
    /// Polls the completion queues. Called often, so it makes no system call.
    fn progress(&mut self);
    /// Reads events of the connection manager or the UDP socket, which takes a system call.
    fn progress_with_system_calls(&mut self);
    /// Arms the completion queue: the next completion makes an event.
    ///
    /// # Errors
    /// When the device refuses.
    fn arm(&mut self) -> Result<(), Errno>;
    /// Takes the completion events.
    fn take_events(&mut self);
    /// The descriptors that a thread sleeps on.
    fn descriptors(&self) -> [pollfd; 2];
    /// Conditions that are true now, as `poll(2)` reports them.
    fn readiness(&self) -> i16;
    /// Notes that a program has called, for keep-alive.
    fn used(&mut self);
}

/// A socket shared by the threads of the program.
pub(super) struct Shared<E> {
    pub(super) fd: c_int,
    inner: Mutex<E>,
    /// Whether a thread sleeps on the descriptors; other threads wait on `woken`.
    polling: AtomicBool,
    woken: Condvar,
    /// The last sleep was shorter than [`SPIN_LONG`].
    polls_long: AtomicBool,
}

impl<E: Endpoint> Shared<E> {
    pub(super) fn new(fd: c_int, inner: E) -> Self {
        Self {
            fd,
            inner: Mutex::new(inner),
            polling: AtomicBool::new(false),
            woken: Condvar::new(),
            polls_long: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, E> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats `attempt` until it has a result. `time` is the time-out; a non-blocking socket tries once.
    pub(super) fn wait<T>(
        &self,
        nonblocking: bool,
        time: Option<Duration>,
        mut attempt: impl FnMut(&mut E) -> Result<Option<T>, Errno>,
    ) -> Result<T, Errno> {
        let deadline = time.map(|time| Instant::now() + time);
        let &Defaults { spin, adapts, .. } = defaults::of_this_host();
        let mut inner = self.lock();
        inner.used();
        let mut spinning = None;
        loop {
            inner.progress();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            // Once per sleep, because it takes a system call.
            if spinning.is_none() {
                inner.progress_with_system_calls();
                if let Some(done) = attempt(&mut inner)? {
                    return Ok(done);
                }
            }
            if nonblocking || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Errno(libc::EAGAIN));
            }
            let polls_for = if self.polls_long.load(Ordering::Relaxed) {
                spin.max(SPIN_LONG)
            } else {
                spin
            };
            if spinning.get_or_insert_with(Instant::now).elapsed() < polls_for {
                drop(inner);
                std::hint::spin_loop();
                inner = self.lock();
                continue;
            }
            let left = deadline.map_or(SLEEP_MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let left = left.min(SLEEP_MAX);
            spinning = None;
            if self.polling.load(Ordering::Relaxed) {
                cancellation::test()?;
                let waited = self.woken.wait_timeout(inner, left);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            inner.arm()?;
            inner.progress();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            // Set and cleared under the lock.
            self.polling.store(true, Ordering::Relaxed);
            let mut descriptors = inner.descriptors();
            drop(inner);
            let asleep = Instant::now();
            let slept = sleep(&mut descriptors, Some(left), core::ptr::null());
            self.polls_long
                .store(adapts && asleep.elapsed() < SPIN_LONG, Ordering::Relaxed);
            inner = self.lock();
            self.polling.store(false, Ordering::Relaxed);
            inner.take_events();
            self.woken.notify_all();
            slept?;
        }
    }
}

/// A socket, as the calls that wait for several see it.
pub(super) trait Pollable: Send + Sync {
    /// Conditions that are true now. `with_system_calls` includes those that take a system call to find.
    fn poll_once(&self, with_system_calls: bool) -> i16;
    /// Arms the socket, and returns the descriptors to sleep on.
    ///
    /// # Errors
    /// When the device refuses.
    fn arm(&self) -> Result<[pollfd; 2], Errno>;
    /// Takes the events after a sleep.
    fn take_events(&self);
}

impl<E: Endpoint + Send> Pollable for Shared<E> {
    fn poll_once(&self, with_system_calls: bool) -> i16 {
        let mut inner = self.lock();
        inner.progress();
        if with_system_calls {
            inner.progress_with_system_calls();
        }
        inner.readiness()
    }

    fn arm(&self) -> Result<[pollfd; 2], Errno> {
        let mut inner = self.lock();
        inner.arm()?;
        Ok(inner.descriptors())
    }

    fn take_events(&self) {
        self.lock().take_events();
    }
}
