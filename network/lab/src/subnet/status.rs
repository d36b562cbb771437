//! What a lab tells of the InfiniBand ports of its hosts.

use super::{LiveSubnet, PORT};
use serde::{Deserialize, Serialize};

/// Bytes of a word of the counters.
const WORD_BYTES: u64 = 4;

/// The InfiniBand port of a live host: its state, and what it has counted since the lab began or a program
/// has cleared the counter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InfinibandPort {
    /// The name of its state, as in `/sys`: `DOWN`, `INIT`, `ARMED` or `ACTIVE`.
    pub state: String,
    /// The number of its state: 1 to 4.
    pub state_number: u8,
    /// The LID; 0 without a manager.
    pub lid: u16,
    /// The LID of the manager.
    pub manager_lid: u16,
    /// Bytes that were sent, headers included.
    pub transmit_bytes: u64,
    /// Bytes that arrived.
    pub receive_bytes: u64,
    /// Packets that were sent.
    pub transmit_packets: u64,
    /// Packets that arrived.
    pub receive_packets: u64,
    /// Microseconds in which data waited for credits.
    pub transmit_wait_us: u64,
    /// Packets that were not sent.
    pub transmit_discards: u64,
    /// Packets that arrived damaged.
    pub receive_errors: u64,
    /// Packets of subnet management that found no room.
    pub management_dropped: u64,
    /// How often the link went down.
    pub link_downed: u64,
}

impl LiveSubnet {
    /// The port of a host.
    pub(crate) fn port_status(&self, host: usize) -> InfinibandPort {
        let port = &self.subnet.node(host).ports[usize::from(PORT)];
        let counters = &port.counters;
        InfinibandPort {
            state: port.state.name().to_owned(),
            state_number: port.state as u8,
            lid: port.lid,
            manager_lid: port.sm_lid,
            transmit_bytes: counters.transmit_words * WORD_BYTES,
            receive_bytes: counters.receive_words * WORD_BYTES,
            transmit_packets: counters.transmit_packets,
            receive_packets: counters.receive_packets,
            transmit_wait_us: counters.transmit_wait,
            transmit_discards: counters.transmit_discards,
            receive_errors: counters.receive_errors,
            management_dropped: counters.vl15_dropped,
            link_downed: counters.link_downed,
        }
    }
}
