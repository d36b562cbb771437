//! A host's end of a pipe: what it has sent and not heard of, and what it has heard and not taken.

use super::plan::LocalLinks;
use rnic::RegionKeys;
use std::collections::VecDeque;
use wire::Qpn;

/// A slice that a pipe has from a strand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) bytes: u32,
    pub(super) part: u32,
    /// Repetition of the part, and the slice's number in the repetition.
    pub(super) repetition: u32,
    pub(super) number: u32,
}

/// A host's end of a pipe.
#[derive(Debug)]
pub(super) struct HostPipe {
    pub(super) seat: u32,
    /// Whether data leaves by it.
    pub(super) sends: bool,
    pub(super) flow: u32,
    pub(super) qpn: Qpn,
    pub(super) keys: Option<RegionKeys>,
    /// The strand that uses it.
    pub(super) user: u32,
    pub(super) failed: bool,
    /// Sender: slices that the receiver has room for, those that wait for that, and those under way.
    pub(super) room: u32,
    pub(super) waiting: VecDeque<Slice>,
    pub(super) flying: VecDeque<Slice>,
    /// Sender: what was acknowledged.
    pub(super) acknowledged_bytes: u64,
    /// Pauses and packets sent again, when the last slice was acknowledged or one was posted after a rest.
    pub(super) seen: Seen,
    pub(super) rests: bool,
    /// Receiver: slices that have arrived and were not taken; records under way, and those to be posted.
    pub(super) arrived: u32,
    pub(super) clearing: u32,
    pub(super) owed: u32,
    /// Receiver: slices that arrived in this repetition.
    pub(super) arrivals: u32,
    /// Records under way at most.
    pub(super) requests: u32,
    /// Work requests that the adapter has not got yet: a slice's bytes, or a record.
    pub(super) handed: VecDeque<Option<u32>>,
    /// The way within a server that it is, and the host at its other end.
    pub(super) local: Option<LocalEnd>,
}

/// An end of a way within a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalEnd {
    pub(super) pipe: u32,
    pub(super) peer_host: u32,
    pub(super) links: LocalLinks,
}

/// What a host has counted at its port and at a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Seen {
    pub(super) paused_ps: u64,
    /// Bytes that left the port, with preambles and gaps.
    pub(super) sent_bytes: u64,
    pub(super) resent_packets: u64,
}

/// One end of a pipe of the plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct PipeEnd {
    pub(in crate::world) pipe: u32,
    pub(in crate::world) sends: bool,
    pub(in crate::world) qpn: Qpn,
    /// Of the other end.
    pub(in crate::world) keys: RegionKeys,
    /// Slices that cross it in the whole run.
    pub(in crate::world) messages: u64,
}

impl HostPipe {
    pub(super) const fn new(seat: u32, sends: bool, flow: u32) -> Self {
        Self {
            seat,
            sends,
            flow,
            qpn: Qpn::new(0),
            keys: None,
            user: 0,
            failed: false,
            room: 0,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            acknowledged_bytes: 0,
            seen: Seen {
                paused_ps: 0,
                sent_bytes: 0,
                resent_packets: 0,
            },
            rests: true,
            arrived: 0,
            clearing: 0,
            owed: 0,
            arrivals: 0,
            requests: u32::MAX,
            handed: VecDeque::new(),
            local: None,
        }
    }

    /// Slices in the sender's buffers.
    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.flying.len()
    }

    /// Whether slices wait for room at the receiver, and none is under way.
    pub(super) fn lacks_room(&self) -> bool {
        !self.waiting.is_empty() && self.flying.is_empty()
    }

    pub(super) const fn has_arrived(&self) -> bool {
        self.arrived > 0
    }
}
