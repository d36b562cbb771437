//! Virtual lanes of a port of InfiniBand: credits in place of pauses (IBTA 7.9), arbitration (7.6.9), and the
//! lifetime of packets at the head of a lane (18.2).
//!
//! A port with lanes is an [`crate::Egress`] whose queues are the lanes. A lane whose next packet has no
//! credits counts as paused until the peer has room for it, so that the search for deadlocks and the
//! counters of pauses work for lanes too.

mod arbitration;
mod credits;

pub use arbitration::{Arbitration, ArbitrationEntry};
pub use credits::{BLOCK_BYTES, BLOCKS_MAX, CREDIT_PACKET_BYTES, CreditUpdate, blocks};

use crate::config::CLASSES;
use crate::time::{Span, Time};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arbitration::Arbiter;
use credits::{CreditReceiver, CreditSender};

/// Virtual lanes of data. The specification has up to 15, and ports have 1, 2, 4, 8 or 15 in use.
pub const LANES: usize = CLASSES;

/// How many service levels there are.
pub const SERVICE_LEVELS: usize = 16;

/// Bytes around a packet on the link: a delimiter at each end (IBTA volume 2, chapter 5), and no gap.
pub const DELIMITER_BYTES: u32 = 2;

/// A lane that dropped too many packets in a row drops all for so many lifetimes (IBTA 18.2).
const STALL_LIFETIMES: u64 = 8;

/// The news of a flow control packet, or of a lost packet, at a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkNews {
    /// The peer has another limit.
    Credits(CreditUpdate),
    /// A packet of a lane did not arrive: the peer's count of sent blocks shows it.
    Lost {
        /// The lane that the packet was sent in.
        lane: u8,
        /// Bytes of the packet.
        length: u16,
    },
}

/// The settings of the lanes of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneConfig {
    /// Blocks of the receive buffer of each lane.
    pub buffer_blocks: u16,
    /// How lanes take turns.
    pub arbitration: Arbitration,
    /// For how long a packet may wait for credits at the head of a lane; without a limit if there is none.
    pub lifetime: Option<Span>,
    /// Packets that are dropped in a row at the head of a lane until it stalls (VLStallCount); 0 is never.
    pub stall_count: u8,
}

/// The lanes of a port, and the room that they have at the other end of its link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortLanes {
    /// The settings of the port.
    pub config: Arc<LaneConfig>,
    /// Blocks of the peer's receive buffer of each lane.
    pub peer_blocks: u16,
}

/// From service levels to lanes (IBTA 7.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaneMap {
    /// One table for all ports of the switch.
    Uniform([u8; SERVICE_LEVELS]),
    /// By the port of arrival and then by the one that the packet leaves by; there are so many ports.
    ByPorts(u16, Vec<[u8; SERVICE_LEVELS]>),
}

impl LaneMap {
    /// The lane of a packet on the link that it leaves by.
    pub(crate) fn lane(&self, from: u16, out: u16, level: u8) -> u8 {
        let level = usize::from(level) % SERVICE_LEVELS;
        let lane = match self {
            Self::Uniform(lanes) => lanes[level],
            Self::ByPorts(ports, all) => {
                let place = usize::from(from) * usize::from(*ports) + usize::from(out);
                all.get(place).map_or(0, |lanes| lanes[level])
            }
        };
        lane % LANES as u8
    }
}

/// The lanes of a port.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    config: Arc<LaneConfig>,
    senders: [CreditSender; LANES],
    receivers: [CreditReceiver; LANES],
    arbiter: Arbiter,
    /// Since when the packet at the head has lacked credits; never, if it does not.
    blocked_since: [Time; LANES],
    /// Packets dropped in a row at the head.
    expired: [u8; LANES],
    stalled_until: [Time; LANES],
}

impl Lanes {
    /// The lanes of a port whose peer has this many blocks of buffer for each lane.
    pub(crate) fn new(
        PortLanes {
            config,
            peer_blocks,
        }: PortLanes,
    ) -> Self {
        Self {
            senders: [CreditSender::new(peer_blocks); LANES],
            receivers: [CreditReceiver::new(config.buffer_blocks); LANES],
            arbiter: Arbiter::default(),
            blocked_since: [Time::NEVER; LANES],
            expired: [0; LANES],
            stalled_until: [Time(0); LANES],
            config,
        }
    }

    /// Whether the packet at the head of a lane has credits.
    pub(crate) fn allows(&self, lane: usize, length: u16) -> bool {
        self.senders[lane].allows(blocks(length))
    }

    /// Blocks that may still be sent in a lane.
    pub(crate) fn credits(&self, lane: usize) -> u16 {
        self.senders[lane].credits()
    }

    /// The packet at the head of a lane lacks credits. Returns until when it may wait.
    pub(crate) fn block(&mut self, lane: usize, now: Time) -> Time {
        let since = &mut self.blocked_since[lane];
        *since = (*since).min(now);
        self.config
            .lifetime
            .map_or(Time::NEVER, |life| *since + life)
    }

    /// Whether the packet at the head of a lane is to be dropped: its lifetime is over, or the lane is
    /// stalled.
    pub(crate) fn is_expired(&self, lane: usize, now: Time) -> bool {
        let Some(lifetime) = self.config.lifetime else {
            return false;
        };
        let since = self.blocked_since[lane];
        let is_old = since != Time::NEVER && now - since >= lifetime;
        is_old || now < self.stalled_until[lane]
    }

    /// The packet at the head of a lane is dropped.
    pub(crate) fn expire(&mut self, lane: usize, now: Time) {
        self.blocked_since[lane] = Time::NEVER;
        if now < self.stalled_until[lane] {
            return;
        }
        let LaneConfig {
            lifetime,
            stall_count,
            ..
        } = &*self.config;
        self.expired[lane] += 1;
        if self.expired[lane] >= *stall_count {
            self.expired[lane] = 0;
            let stall = lifetime.unwrap_or_default().times(STALL_LIFETIMES);
            if *stall_count > 0 {
                self.stalled_until[lane] = now + stall;
            }
        }
    }

    /// The packet at the head of a lane leaves.
    pub(crate) fn send(&mut self, lane: usize, length: u16) {
        self.senders[lane].send(blocks(length));
        self.blocked_since[lane] = Time::NEVER;
        self.expired[lane] = 0;
    }

    /// The lane that sends next, of several that may.
    pub(crate) fn choose(&mut self, eligible: u8, length: impl Fn(u8) -> u32) -> Option<u8> {
        self.arbiter
            .choose(&self.config.arbitration, eligible, length)
    }

    /// The peer has another limit.
    pub(crate) fn set_limit(&mut self, update: CreditUpdate) {
        self.senders[usize::from(update.lane) % LANES].set_limit(update.limit);
    }

    /// A packet has arrived in a lane.
    pub(crate) fn receive(&mut self, lane: usize, length: u16) {
        self.receivers[lane].receive(blocks(length));
    }

    /// A packet of a lane was lost on the link.
    pub(crate) fn skip(&mut self, lane: usize, length: u16) {
        self.receivers[lane].skip(blocks(length));
    }

    /// A packet that arrived in a lane has left the buffer.
    pub(crate) fn release(&mut self, lane: usize, length: u16) {
        self.receivers[lane].release(blocks(length));
    }

    /// What the peer is told about a lane.
    pub(crate) fn update(&self, lane: usize) -> CreditUpdate {
        CreditUpdate {
            lane: lane as u8,
            sent: self.senders[lane].sent(),
            limit: self.receivers[lane].limit(),
        }
    }
}
