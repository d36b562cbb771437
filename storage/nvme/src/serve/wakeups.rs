//! What wakes the thread of a connection: its socket or completion channel, other threads, and the io_uring
//! of its engine.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use server::Wake;

use crate::engine::Engine;

/// The thread looks at everything after each wake-up, whatever its reason.
const ANY: Token = Token(0);
/// The shortest sleep before a deadline.
const SLEEP_NS_MIN: u64 = 1_000_000;
/// The longest interval between two checks of the keep alive deadline.
pub(super) const CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// Wakes the thread of a connection through its `Poll`.
struct PollWaker(Waker);

impl Wake for PollWaker {
    fn wake(&self) {
        // A full eventfd counter is already a pending wake-up.
        _ = self.0.wake();
    }
}

/// The events that a thread waits for.
pub(super) struct Wakeups {
    poll: Poll,
    events: Events,
    wake: Arc<dyn Wake>,
    ring_is_watched: bool,
}

impl Wakeups {
    pub(super) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), ANY)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(8),
            wake: Arc::new(PollWaker(waker)),
            ring_is_watched: false,
        })
    }

    /// What wakes the thread from another one.
    pub(super) fn wake(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.wake)
    }

    /// Watches a socket or a descriptor from now on.
    pub(super) fn watch(&self, source: &mut impl Source, interest: Interest) -> io::Result<()> {
        self.poll.registry().register(source, ANY, interest)
    }

    /// Watches the io_uring of the engine, which is created with the first task that needs it.
    pub(super) fn watch_ring(&mut self, engine: &Engine) -> io::Result<()> {
        if !self.ring_is_watched
            && let Some(descriptor) = engine.descriptor()
        {
            self.watch(&mut SourceFd(&descriptor), Interest::READABLE)?;
            self.ring_is_watched = true;
        }
        Ok(())
    }

    /// Sleeps until an event, at most for this time.
    pub(super) fn sleep(&mut self, time_max: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, time_max) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

/// How long a thread may sleep before it checks a deadline.
pub(super) fn until_check(deadline_ns: u64, now_ns: u64) -> Duration {
    let left_ns = deadline_ns.saturating_sub(now_ns);
    Duration::from_nanos(left_ns.clamp(SLEEP_NS_MIN, CHECK_INTERVAL_NS))
}
