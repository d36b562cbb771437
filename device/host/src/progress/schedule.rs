//! When requests leave, the socket is read, acknowledgements wait, and sleeping threads wake: the half of the
//! policy that a device's lock protects.

use super::batching::Batching;
use super::constants::{
    EXECUTED_MAX, PACKETS_HEARD, SOCKET_FRESH, SOCKET_INTERVAL, TICK, TRANSMIT_BUDGET,
    WAITER_HOLDS_ACKS, YIELD_AFTER,
};
use super::traffic::Traffic;
use rnic::{Instant, Nanos, Pending};

/// When a device sends, receives and wakes.
#[derive(Default, Debug)]
pub(crate) struct Schedule {
    pub(crate) batching: Batching,
    pub(super) traffic: Traffic,
    pub(crate) socket: SocketReads,
    pub(crate) sleepers: Sleepers,
    /// Start of the time in which acknowledgements wait for the program's answer.
    acks_held_since: Option<Instant>,
    /// Number of requests that were executed when they were posted, since the last progress.
    executed: u32,
}

impl Schedule {
    /// Records that packets are made for all requests, and for acknowledgements that were held.
    pub(super) fn note_transmission(&mut self) {
        self.batching.note_transmission();
        self.acks_held_since = None;
    }

    /// Records requests that were executed when they were posted. Whether so many were, since the last
    /// progress, that arrivals have to be taken.
    #[inline]
    pub(super) fn note_executed_at_once(&mut self, executed: u32) -> bool {
        self.batching.note_executed_at_once();
        self.executed += executed;
        self.executed >= EXECUTED_MAX
    }

    /// Records that progress is made.
    pub(super) fn note_progress(&mut self) {
        self.executed = 0;
    }

    /// Time until which a program may sleep before a transmission where only acknowledgements of requests
    /// from shared memory wait (`pending`); `None` where it may not. Sent alone, they would wake a peer that
    /// waits for the answer.
    pub(super) fn acks_held_until(&mut self, now: Instant, pending: Pending) -> Option<Instant> {
        if pending != Pending::Acknowledgements || self.socket.hears_packets(now) {
            return None;
        }
        let until = *self.acks_held_since.get_or_insert(now) + WAITER_HOLDS_ACKS;
        (now < until).then_some(until)
    }

    /// Whether polls have found nothing for long. In a host of a lab they have at once: a program always
    /// waits for the work of another thread of this machine there.
    pub(super) fn waits_long(&self, now: Instant, in_lab: bool) -> bool {
        let long = if in_lab { Nanos(0) } else { YIELD_AFTER };
        self.batching.waits_long(now, long)
    }
}

/// Times of reads of the socket, which are system calls.
#[derive(Default, Debug)]
pub(crate) struct SocketReads {
    last: Instant,
    /// Time at which the socket and all rings were last found empty.
    emptied_at: Instant,
    /// Packets composed since the last read.
    made_since: usize,
    /// Time of the last arrived packet.
    heard_at: Option<Instant>,
}

impl SocketReads {
    /// Makes the next progress read the socket, even if the last read is recent.
    pub(crate) fn read_next(&mut self) {
        self.last = Instant(0);
    }

    /// Begins a series of reads, unless the last one is recent and `defers`: there is memory to read as well.
    pub(super) fn begin(&mut self, now: Instant, defers: bool) -> bool {
        let is_due = !(defers && now < self.last + SOCKET_INTERVAL);
        if is_due {
            self.last = now;
        }
        is_due
    }

    /// Records a read, and whether packets had arrived.
    pub(super) fn note_read(&mut self, now: Instant, arrived: bool) {
        self.made_since = 0;
        if arrived {
            self.heard_at = Some(now);
        }
    }

    /// Records packets that were made. Whether so many were made since the last read that the socket has to
    /// be read.
    pub(super) fn note_made(&mut self, made: usize) -> bool {
        self.made_since += made;
        self.made_since >= TRANSMIT_BUDGET
    }

    /// Records that the socket and all rings are empty.
    pub(super) fn note_empty(&mut self, now: Instant) {
        self.emptied_at = now;
    }

    /// Whether the socket and all rings were empty a moment ago.
    pub(super) fn was_just_empty(&self, now: Instant) -> bool {
        now <= self.emptied_at + SOCKET_FRESH
    }

    fn hears_packets(&self, now: Instant) -> bool {
        self.heard_at.is_some_and(|at| now < at + PACKETS_HEARD)
    }
}

/// Sleeping threads, and their wake-up times.
#[derive(Default, Debug)]
pub(crate) struct Sleepers {
    /// Latest time at which the progress thread wakes.
    pub(super) wakes_at: Instant,
    /// Time from which a poll postpones the next tick of the progress thread; `None` while it must not.
    postpones_at: Option<Instant>,
    /// The progress thread sleeps, and arrivals wake it.
    pub(super) thread: bool,
    /// The program sleeps in place of the progress thread, see [`super::event_wait`].
    pub(super) program: bool,
}

impl Sleepers {
    /// Whether a poll postpones the next tick of the progress thread now.
    #[inline]
    pub(crate) fn postpones_tick(&self, now: Instant) -> bool {
        self.postpones_at.is_some_and(|at| now >= at)
    }

    /// Lets polls postpone the next tick from half of its time on.
    pub(super) fn postpone_from_half(&mut self, now: Instant) {
        self.postpones_at = Some(now + Nanos(TICK.0 / 2));
    }

    /// Polls must not postpone the next tick.
    pub(super) fn keep_tick(&mut self) {
        self.postpones_at = None;
    }
}
