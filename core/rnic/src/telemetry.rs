//! In-band network telemetry (INT): data that switches add to the packets that they forward.

use crate::time::Instant;

/// Limit of switches whose telemetry a queue pair uses: the capacity of HPCC's packets (Li et al., SIGCOMM
/// 2019, section 4.1).
pub const HOPS_MAX: usize = 5;

/// Telemetry of one switch about the egress port of a packet, at the time when the packet left it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hop {
    /// Identifier of the port and its switch.
    pub port: u32,
    /// Time by the switch's clock.
    pub at: Instant,
    /// Bytes that the port sent since it came up.
    pub sent_bytes: u64,
    /// Bytes in the port's queue.
    pub queued_bytes: u32,
    /// Speed of the port in bits per second.
    pub rate_bps: u64,
}
