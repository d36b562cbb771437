//! Ultra Ethernet's transport for unordered, reliable delivery (RUD): packets take any path and arrive in any
//! order, receivers say which ones they have, and ask for those that a switch has trimmed.
//!
//! State machines without a clock or a wire of their own: [`super::host`] drives them.

mod credits;
mod endpoint;
mod entropy;
mod nscc;
mod receiver;
mod sender;

#[cfg(test)]
mod tests;

pub(super) use endpoint::{Endpoint, Incoming, SenderCounters};
pub use entropy::EntropyKind;
pub use nscc::NsccConfig;
pub(super) use sender::Outgoing;

use fabric::{Span, Time};

/// The transport of a host's flows, where it is Ultra Ethernet's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UetConfig {
    /// Bytes that a flow may have under way, where NSCC does not decide.
    pub window: u64,
    /// The network that congestion control is for.
    pub network: NsccConfig,
    /// NSCC at the sender.
    pub nscc: bool,
    /// Credits by the receiver (RCCC).
    pub rccc: bool,
    /// How paths are chosen.
    pub entropy: EntropyKind,
    /// Entropy values of a flow: a power of two.
    pub values: u16,
    /// A receiver acknowledges at least after so many bytes.
    pub ack_bytes: u32,
    /// A packet that was neither acknowledged nor asked for is sent again after this time, and after twice as
    /// long each further time.
    pub timeout: Span,
    /// How often, before the flow fails.
    pub retries: u8,
}

/// What a packet tells its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A part of a message.
    Data {
        /// Its number in the flow.
        psn: u64,
        /// When it left the sender.
        sent_at: Time,
        /// The path that it takes.
        entropy: u16,
        /// The sender waits for an acknowledgement.
        asks: bool,
        /// It is the first of its message.
        starts: bool,
        /// RCCC: all the credit that the sender has wanted so far.
        wanted: u64,
    },
    /// Packets have arrived.
    Ack(Sack),
    /// A packet was trimmed.
    Nack {
        /// Its number in the flow.
        psn: u64,
        /// When it had left the sender.
        sent_at: Time,
        /// The path that it took.
        entropy: u16,
        /// The switch that trimmed it is the one that the receiver is attached to.
        at_last_hop: bool,
    },
    /// RCCC: the receiver grants credit.
    Credit {
        /// All that was granted so far.
        granted: u64,
    },
}

/// A selective acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sack {
    /// All packets before this one have arrived.
    pub cumulative: u64,
    /// How far behind it the packet of the bitmap's lowest bit is. A bit that is clear says nothing
    /// (section 3.5.12.6).
    pub offset: u32,
    /// A bit for each packet from there on.
    pub bitmap: u64,
    /// When the packet that is answered was sent.
    pub sent_at: Time,
    /// The entropy value by which it came.
    pub entropy: u16,
    /// A switch has marked it.
    pub is_marked: bool,
    /// RCCC: all the credit that was granted so far, because packets that say so may be lost.
    pub granted: u64,
}

impl Sack {
    /// Whether it says that a packet has arrived.
    pub const fn covers(&self, psn: u64) -> bool {
        if psn < self.cumulative {
            return true;
        }
        let first = self.cumulative + self.offset as u64;
        psn >= first && psn - first < 64 && self.bitmap >> (psn - first) & 1 == 1
    }
}
