//! Counters of a port, as performance management reads them (IBTA 16.1.3.5, 16.1.4.11).

/// What a port has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Errors of symbols on lanes.
    pub symbol_errors: u64,
    /// How often the link recovered by itself.
    pub link_recovered: u64,
    /// How often the link went down.
    pub link_downed: u64,
    /// Packets that arrived damaged.
    pub receive_errors: u64,
    /// Packets that no port of the switch could forward.
    pub switch_relay_errors: u64,
    /// Packets that were not sent: the link was down, or their lifetime ended.
    pub transmit_discards: u64,
    /// Packets with a wrong partition key, sent.
    pub transmit_constraint: u64,
    /// Packets with a wrong partition key, received.
    pub receive_constraint: u64,
    /// Packets of virtual lane 15 that found its buffer full.
    pub vl15_dropped: u64,
    /// Words of four bytes that were sent.
    pub transmit_words: u64,
    /// Words of four bytes that arrived.
    pub receive_words: u64,
    /// Packets that were sent.
    pub transmit_packets: u64,
    /// Packets that arrived.
    pub receive_packets: u64,
    /// Multicast packets that were sent.
    pub multicast_transmit_packets: u64,
    /// Multicast packets that arrived.
    pub multicast_receive_packets: u64,
    /// Ticks in which data waited for credits.
    pub transmit_wait: u64,
}
