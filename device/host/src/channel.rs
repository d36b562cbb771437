//! Queues of events behind file descriptors that programs poll: completion channels, asynchronous events, and
//! event channels of connections.
//!
//! The descriptor is readable while events wait, and never writable, as the kernel's are; reading blocks
//! unless the program sets `O_NONBLOCK` on it.

use crate::sys::fork;
use crate::sys::readiness::Readiness;
use rnic::Event;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A queue of events behind a file descriptor.
#[derive(Debug)]
pub struct EventQueue<T> {
    fd: Readiness,
    waiting: Mutex<Waiting<T>>,
}

/// The events, and the state of the descriptor.
#[derive(Debug)]
struct Waiting<T> {
    events: VecDeque<T>,
    /// The tick count that the descriptor was last set to; 0 when it was cleared since, or when a reader has
    /// read the ticks and has held the lock since. While events wait this is not 0.
    set_to: u64,
    /// Number of times that the descriptor was set.
    settings: u64,
}

/// Result of [`Readiness::wait`] where the kernel cannot set tick counts.
const TIMER_ENDED: u64 = 1;

impl<T> Waiting<T> {
    fn set(&mut self, fd: &Readiness) {
        self.settings += 1;
        self.set_to = TIMER_ENDED + self.settings;
        fd.set(self.set_to);
    }

    fn clear_if_empty(&mut self, fd: &Readiness) {
        if self.events.is_empty() && self.set_to != 0 {
            self.set_to = 0;
            fd.clear();
        }
    }

    fn pop(&mut self, fd: &Readiness) -> Option<T> {
        let event = self.events.pop_front();
        self.clear_if_empty(fd);
        event
    }

    /// Takes the oldest event, for a reader that has read `ticks`, and so made the descriptor unreadable
    /// unless it was set since.
    fn pop_after(&mut self, fd: &Readiness, ticks: u64) -> Option<T> {
        if ticks == self.set_to {
            self.set_to = 0;
        }
        let event = self.events.pop_front();
        if !self.events.is_empty() && (self.set_to == 0 || ticks == TIMER_ENDED) {
            self.set(fd);
        }
        self.clear_if_empty(fd);
        event
    }
}

impl<T> EventQueue<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Those of `timerfd_create(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        let waiting = Waiting {
            events: VecDeque::new(),
            set_to: 0,
            settings: 0,
        };
        Ok(Self {
            fd: Readiness::new()?,
            waiting: Mutex::new(waiting),
        })
    }

    /// The descriptor, which is readable while events wait.
    pub fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. The descriptor is set for each, also where others wait already: a program that uses
    /// edge-triggered epoll (`EPOLLET`) and takes one event at a time is woken for each.
    pub fn push(&self, event: T) {
        let mut waiting = self.lock();
        waiting.events.push_back(event);
        waiting.set(&self.fd);
    }

    /// Takes the oldest event; blocks as the descriptor's mode says. When another thread has taken it
    /// meanwhile, or it was removed, waits again.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking, `EINTR` when a signal came.
    pub fn next(&self) -> io::Result<T> {
        self.next_noting(|_| {})
    }

    /// Takes the oldest event like [`Self::next`]; `note` sees it at a time after which it cannot be removed.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_noting(&self, note: impl Fn(&T)) -> io::Result<T> {
        let mut waiting = self.lock();
        let mut event = waiting.pop(&self.fd);
        loop {
            if let Some(event) = event {
                note(&event);
                return Ok(event);
            }
            drop(waiting);
            let ticks = self.fd.wait()?;
            waiting = self.lock();
            event = waiting.pop_after(&self.fd, ticks);
        }
    }

    /// Takes the oldest event if there is one, in any mode of the descriptor.
    fn next_now(&self) -> Option<T> {
        self.lock().pop(&self.fd)
    }

    /// Removes and returns the wanted events, at any position.
    pub fn take_out(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut waiting = self.lock();
        if !waiting.events.iter().any(&mut wanted) {
            return Vec::new();
        }
        let (out, rest): (VecDeque<T>, VecDeque<T>) = waiting.events.drain(..).partition(wanted);
        waiting.events = rest;
        waiting.clear_if_empty(&self.fd);
        out.into()
    }

    fn forget(&self, unwanted: impl FnMut(&T) -> bool) {
        drop(self.take_out(unwanted));
    }
}

/// Completion events of any number of completion queues (`ibv_comp_channel`). An event is the cookie that was
/// given to [`crate::Device::attach_cq`].
#[derive(Debug)]
pub struct CompletionChannel {
    events: EventQueue<u64>,
    /// A program waits for the device's wake-up socket instead of the descriptor.
    waiting: AtomicBool,
}

impl CompletionChannel {
    /// Creates a channel.
    ///
    /// # Errors
    /// Those of `timerfd_create(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            events: EventQueue::new()?,
            waiting: AtomicBool::new(false),
        })
    }

    /// The descriptor, which is readable while events wait. Programs may set `O_NONBLOCK`; it stays open
    /// until the channel is dropped.
    pub fn fd(&self) -> RawFd {
        self.events.fd.raw()
    }

    /// Takes the oldest event, waiting for one.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking, `EINTR` when a signal came.
    pub fn next(&self) -> io::Result<u64> {
        self.events.next()
    }

    pub(crate) fn next_now(&self) -> Option<u64> {
        self.events.next_now()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.lock().events.is_empty()
    }

    /// Whether the descriptor is in blocking mode.
    pub(crate) fn is_blocking(&self) -> bool {
        self.events.fd.is_blocking()
    }

    /// Whether a program waits for the device's wake-up socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sets whether a program waits for the wake-up socket. Called with the device's lock held.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(crate) fn push(&self, cookie: u64) {
        self.events.push(cookie);
    }

    /// Drops the events of a queue.
    pub(crate) fn forget(&self, cookie: u64) {
        self.events.forget(|&event| event == cookie);
    }
}

/// The device's asynchronous events (`ibv_get_async_event`).
#[derive(Debug)]
pub struct AsyncEvents(EventQueue<Event>);

impl AsyncEvents {
    pub(crate) fn new() -> io::Result<Self> {
        EventQueue::new().map(Self)
    }

    /// The descriptor, which is readable while events wait.
    pub fn fd(&self) -> RawFd {
        self.0.fd.raw()
    }

    /// Takes the oldest event, waiting for one.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking, `EINTR` when a signal came.
    pub fn next(&self) -> io::Result<Event> {
        self.0.next()
    }

    /// Removes events of an object that is being destroyed.
    pub fn forget(&self, unwanted: impl FnMut(&Event) -> bool) {
        let _inside = fork::enter();
        self.0.forget(unwanted);
    }

    pub(crate) fn push(&self, event: Event) {
        self.0.push(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_forgotten_ones_do_not() {
        let channel = CompletionChannel::new().unwrap();
        [7, 8, 7, 9]
            .into_iter()
            .for_each(|cookie| channel.push(cookie));
        channel.forget(7);
        assert_eq!(channel.next().unwrap(), 8);
        assert_eq!(channel.next().unwrap(), 9);
    }

    #[test]
    fn a_non_blocking_descriptor_says_so() {
        let channel = CompletionChannel::new().unwrap();
        channel.events.fd.set_nonblocking();
        assert_eq!(
            channel.next().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        channel.push(1);
        channel.forget(1);
        assert_eq!(
            channel.next().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    /// The same as the kernel's descriptors, also where the kernel cannot set tick counts.
    #[test]
    fn a_descriptor_is_readable_while_events_wait_and_never_writable() {
        let check = || {
            let queue = EventQueue::new().unwrap();
            let polled = |expected: i16| {
                // A timer that is to end at once ends with the next interrupt.
                while queue.fd.polled() != expected {
                    assert_eq!(queue.fd.polled() & libc::POLLOUT, 0);
                    std::thread::yield_now();
                }
            };
            for taken in [EventQueue::next_now as fn(&EventQueue<u64>) -> _, |queue| {
                queue.next().ok()
            }] {
                polled(0);
                (1..=3).for_each(|event| queue.push(event));
                for event in 1..=3 {
                    polled(libc::POLLIN);
                    assert_eq!(taken(&queue), Some(event));
                }
                polled(0);
            }
            (1..=3).for_each(|event| queue.push(event));
            assert_eq!(queue.take_out(|event| *event != 2), [1, 3]);
            polled(libc::POLLIN);
            assert_eq!(queue.take_out(|_| true), [2]);
            polled(0);
        };
        check();
        Readiness::without_ticks(check);
    }

    /// Two readers sleep, and events come in bursts: each is taken once, and no reader sleeps while one
    /// waits.
    #[test]
    fn readers_that_sleep_take_every_event_once() {
        const EVENTS: u64 = 20_000;
        let queue = EventQueue::new().unwrap();
        let read = || {
            let mut taken = Vec::new();
            while let Ok(event) = queue.next()
                && event < EVENTS
            {
                taken.push(event);
            }
            taken
        };
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let readers = [scope.spawn(read), scope.spawn(read)];
            for event in 0..EVENTS {
                queue.push(event);
                if event % 3 == 0 {
                    std::thread::yield_now();
                }
            }
            queue.push(EVENTS);
            queue.push(EVENTS);
            readers
                .into_iter()
                .flat_map(|reader| reader.join().unwrap())
                .collect()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..EVENTS));
        assert_eq!(queue.fd.polled(), 0);
    }

    #[test]
    fn a_reader_waits_until_an_event_comes() {
        let channel = CompletionChannel::new().unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| channel.next().unwrap());
            channel.push(5);
            assert_eq!(reader.join().unwrap(), 5);
        });
    }
}
