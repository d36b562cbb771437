//! Requests that wait for an answer.

use super::files::FileId;
use super::record::Header;
use crate::mad::Mad;
use crate::subnet::Packet;
use fabric::{Span, Time};

/// What an answer is found by: transaction and class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    transaction: u64,
    class: u8,
}

impl Key {
    /// The key of a request, or of the request that a response answers.
    pub(super) fn of(mad: &Mad) -> Self {
        Self {
            transaction: mad.transaction(),
            class: mad.class(),
        }
    }
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) file: FileId,
    /// The agent's number on the host.
    pub(super) agent: u32,
    pub(super) header: Header,
    pub(super) packet: Packet,
    pub(super) ends_at: Time,
    retries: u32,
}

const MILLISECOND: Span = Span(1_000_000_000);

impl Request {
    pub(super) fn new(now: Time, file: FileId, agent: u32, header: Header, packet: Packet) -> Self {
        let mut request = Self {
            file,
            agent,
            header,
            packet,
            ends_at: now,
            retries: header.retries,
        };
        request.restart(now);
        request
    }

    /// The answer may take its whole time again.
    pub(super) fn restart(&mut self, now: Time) {
        self.ends_at = now + MILLISECOND.times(u64::from(self.header.timeout_ms));
    }

    /// Sends the request again, if it may be.
    pub(super) fn repeat(&mut self, now: Time) -> Option<Packet> {
        self.retries = self.retries.checked_sub(1)?;
        self.restart(now);
        Some(self.packet.clone())
    }
}
