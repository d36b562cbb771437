//! Queues of events behind file descriptors that programs poll: completion channels and asynchronous events.
//!
//! The descriptor is an eventfd in semaphore mode whose count is the length of the queue, so it is readable
//! exactly while events wait, and whether reading blocks is up to whoever sets `O_NONBLOCK` on it.

use crate::sys::eventfd::EventFd;
use rnic::Event;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A queue of events behind a file descriptor.
#[derive(Debug)]
pub struct EventQueue<T> {
    fd: EventFd,
    queue: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Those of `eventfd(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: EventFd::semaphore()?, queue: Mutex::default() })
    }

    /// Readable while events wait.
    pub fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        self.lock().push_back(event);
        self.fd.add();
    }

    /// Takes the oldest event, waiting as the descriptor says. When what was counted has been forgotten
    /// meanwhile, waits again.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking, `EINTR` when a signal came.
    pub fn next(&self) -> io::Result<T> {
        self.next_noting(|_| {})
    }

    /// The same; `note` sees the event while nobody can have it forgotten any more.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_noting(&self, note: impl Fn(&T)) -> io::Result<T> {
        loop {
            self.fd.take()?;
            let mut queue = self.lock();
            if let Some(event) = queue.pop_front() {
                note(&event);
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event if there is one, whatever the descriptor's mode.
    fn next_now(&self) -> Option<T> {
        let mut queue = self.lock();
        let event = queue.pop_front()?;
        self.fd.take_if_there();
        Some(event)
    }

    /// Takes events out, wherever they stand; their count is taken off unless a reader was faster, who then
    /// finds nothing and waits again.
    pub fn take_out(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut queue = self.lock();
        if !queue.iter().any(&mut wanted) {
            return Vec::new();
        }
        let (out, rest): (VecDeque<T>, VecDeque<T>) = queue.drain(..).partition(wanted);
        *queue = rest;
        out.iter().for_each(|_| self.fd.take_if_there());
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
    /// A program waits for the device's bell, and not for the descriptor.
    waiting: AtomicBool,
}

impl CompletionChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// Those of `eventfd(2)`: no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { events: EventQueue::new()?, waiting: AtomicBool::new(false) })
    }

    /// Readable while events wait. Programs may set `O_NONBLOCK`; it stays open until the channel is dropped.
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
        !self.events.lock().is_empty()
    }

    /// Whether a program that waits is to wait.
    pub(crate) fn is_blocking(&self) -> bool {
        self.events.fd.is_blocking()
    }

    /// Whether a program waits for the device's bell.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// With the device's lock held.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(crate) fn push(&self, cookie: u64) {
        self.events.push(cookie);
    }

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

    /// Readable while events wait.
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
        [7, 8, 7, 9].into_iter().for_each(|cookie| channel.push(cookie));
        channel.forget(7);
        assert_eq!(channel.next().unwrap(), 8);
        assert_eq!(channel.next().unwrap(), 9);
    }

    #[test]
    fn a_non_blocking_descriptor_says_so() {
        let channel = CompletionChannel::new().unwrap();
        channel.events.fd.set_nonblocking();
        assert_eq!(channel.next().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        channel.push(1);
        channel.forget(1);
        assert_eq!(channel.next().unwrap_err().kind(), io::ErrorKind::WouldBlock);
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
