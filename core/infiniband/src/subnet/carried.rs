//! What data has done to the counters of a port: its driver counts it, since data does not pass the subnet's
//! queue.

use super::{End, Subnet};

/// Packets of data at a port. The fields are those of [`crate::node::Counters`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carried {
    /// Packets that were sent.
    pub transmit_packets: u64,
    /// Words of four bytes that were sent.
    pub transmit_words: u64,
    /// Ticks in which data waited for credits.
    pub transmit_wait: u64,
    /// Packets that arrived.
    pub receive_packets: u64,
    /// Words of four bytes that arrived.
    pub receive_words: u64,
    /// Packets that arrived damaged.
    pub receive_errors: u64,
    /// Packets that were not sent.
    pub transmit_discards: u64,
    /// Packets that no port of the switch could forward.
    pub switch_relay_errors: u64,
}

impl Carried {
    /// What was added to an earlier count.
    pub fn since(&self, before: &Self) -> Self {
        let added = |now: u64, before: u64| now.saturating_sub(before);
        Self {
            transmit_packets: added(self.transmit_packets, before.transmit_packets),
            transmit_words: added(self.transmit_words, before.transmit_words),
            transmit_wait: added(self.transmit_wait, before.transmit_wait),
            receive_packets: added(self.receive_packets, before.receive_packets),
            receive_words: added(self.receive_words, before.receive_words),
            receive_errors: added(self.receive_errors, before.receive_errors),
            transmit_discards: added(self.transmit_discards, before.transmit_discards),
            switch_relay_errors: added(self.switch_relay_errors, before.switch_relay_errors),
        }
    }
}

impl Subnet {
    /// Adds data to the counters of a port.
    pub fn add_carried(&mut self, at: End, data: Carried) {
        let ports = &mut self.nodes[at.node].ports;
        let Some(port) = ports.get_mut(usize::from(at.port)) else {
            return;
        };
        let counters = &mut port.counters;
        counters.transmit_packets += data.transmit_packets;
        counters.transmit_words += data.transmit_words;
        counters.transmit_wait += data.transmit_wait;
        counters.receive_packets += data.receive_packets;
        counters.receive_words += data.receive_words;
        counters.receive_errors += data.receive_errors;
        counters.transmit_discards += data.transmit_discards;
        counters.switch_relay_errors += data.switch_relay_errors;
    }
}
