//! What switches tell of themselves in the packets that cross them (in-band network telemetry).

use crate::time::Instant;

/// Switches of whose telemetry a queue pair takes note: what HPCC's packets have room for (Li et al., SIGCOMM
/// 2019, section 4.1).
pub const HOPS_MAX: usize = 5;

/// What one switch told about the port that a packet left it by, at the moment when it did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hop {
    /// Which port of which switch it is.
    pub port: u32,
    /// By the switch's clock.
    pub at: Instant,
    /// Bytes that the port sent since it came up.
    pub sent_bytes: u64,
    /// Bytes that wait there.
    pub queued_bytes: u32,
    /// Its speed, in bits per second.
    pub rate_bps: u64,
}
