//! I/Os that take too long, and what Linux' NVMe over Fabrics does then. The first that times out has the
//! whole controller reset: the connections of all its queues end, and every I/O under way is cancelled. After
//! `reconnect_delay` the host is connected again and sends them once more; one that was sent again
//! `nvme_core.max_retries` times ends with an error. (`nvme_rdma_timeout`, `nvme_tcp_timeout`,
//! `nvme_cancel_request` and `nvme_decide_disposition` of Linux 5.8 and later, without multipath.)
//!
//! The queue pair stands for all connections of its session, one after the other: numbers tell them apart.

use super::session::{Io, Session, Step, Word};
use super::{NUMBER_BYTES, Store};
use fabric::Time;

/// Bytes of the datagram that ends a connection over RDMA (IBTA 12.6.10: DREQ, a MAD).
const DISCONNECT_BYTES: u32 = 256;

impl Session {
    /// The number of the command that may be sent now: an I/O that was cancelled goes first.
    pub(super) fn next_command(&mut self, now: Time) -> Option<u64> {
        if self.is_down || self.open.len() >= self.flow.depth as usize {
            return None;
        }
        let io = match self.cancelled.pop_front() {
            Some(cancelled) => Io {
                sent: now,
                repeated: cancelled.repeated + 1,
                ..cancelled
            },
            None if self.issued >= self.flow.messages => return None,
            None => {
                self.issued += 1;
                Io {
                    begun: now,
                    sent: now,
                    repeated: 0,
                }
            }
        };
        let number = self.sent;
        self.sent += 1;
        self.open.insert(Self::wire_number(number), io);
        Some(number)
    }

    /// Whether a message is about a command of a connection that has ended.
    pub(super) const fn is_stale(&self, number: u64) -> bool {
        Self::wire_number(number) < self.first
    }

    /// Cancels all I/Os under way; returns how many are sent again, and how many end with an error.
    fn cancel(&mut self) -> [u64; 2] {
        let retries = self.flow.io.retries;
        let open = std::mem::take(&mut self.open).into_values();
        let (again, failed): (Vec<Io>, Vec<Io>) = open.partition(|io| io.repeated < retries);
        let counts = [again.len() as u64, failed.len() as u64];
        // Those that were cancelled before, and not sent yet, are younger.
        let waiting = std::mem::take(&mut self.cancelled);
        self.cancelled = again.into_iter().chain(waiting).collect();
        self.first = Self::wire_number(self.sent);
        self.is_down = true;
        counts
    }
}

impl Store {
    /// Looks after the I/Os of a session from now on.
    pub(super) fn watch(&mut self, now: Time, session: u32) {
        let this = &mut self.sessions[session as usize];
        if !std::mem::replace(&mut this.is_watched, true) {
            let timeout = this.flow.io.timeout;
            self.plan(now + timeout, Step::Expire { session });
        }
    }

    /// The oldest I/O of a session may have timed out. Returns the sessions of the controller, if it is
    /// reset, with the number of I/Os that end with an error.
    pub(super) fn expire(&mut self, now: Time, session: u32) -> Vec<(u32, u64)> {
        let this = &mut self.sessions[session as usize];
        this.is_watched = false;
        let flow = this.flow;
        let Some(oldest) = this.open.values().next() else {
            return Vec::new();
        };
        let due = oldest.sent + flow.io.timeout;
        if due > now {
            this.is_watched = true;
            self.plan(due, Step::Expire { session });
            return Vec::new();
        }
        let overdue = |io: &&Io| io.sent + flow.io.timeout <= now;
        self.timed_out.resets += 1;
        let mut ended = Vec::new();
        for index in 0..self.sessions.len() as u32 {
            let this = &mut self.sessions[index as usize];
            if !this.shares_controller(&flow) {
                continue;
            }
            self.timed_out.ios += this.open.values().filter(overdue).count() as u64;
            let [again, errors] = this.cancel();
            let first = this.first;
            self.timed_out.errors += errors;
            self.timed_out.cancelled += again;
            ended.push((index, errors));
            self.say(now, index, Word::Closed, first, self.closing_bytes());
            self.plan(now + flow.io.reconnect, Step::Reconnect { session: index });
        }
        ended
    }

    /// The host is connected again.
    pub(super) fn reconnected(&mut self, now: Time, session: u32) {
        self.sessions[session as usize].is_down = false;
        self.ask(now, session);
    }

    /// Bytes of the message that ends a connection: none in a stream besides headers.
    const fn closing_bytes(&self) -> u32 {
        match self.config.stream {
            true => NUMBER_BYTES,
            false => DISCONNECT_BYTES,
        }
    }
}
