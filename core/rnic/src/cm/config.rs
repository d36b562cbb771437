//! Configuration of the connection manager, and the limits of everything that peers can fill.

use super::ids::IdSeries;
use crate::time::Nanos;

/// Settings; the defaults are those of Linux's rdma_cm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Response time of each end: 4.096 µs times 2 to this power. 0..=[`TIMEOUT_CODE_MAX`], default 20 (4.3
    /// s).
    pub response_timeout: u8,
    /// How often a message is repeated. 0..=15, default 15.
    pub retries: u8,
    /// Time that an answer may take after an MRA to the peer: 4.096 µs times 2 to this power.
    /// 0..=[`TIMEOUT_CODE_MAX`], default 24 (69 s).
    pub service_timeout: u8,
    /// Limit of connections in any state but listening, and of service ID resolutions. Default 65,536: 50 MB.
    pub connections_max: usize,
    /// Limit of listeners. Default 16,384.
    pub listeners_max: usize,
    /// TTL of sent datagrams. Default 64.
    pub hop_limit: u8,
    /// Prefix of communication IDs, where several connection managers share queue pair 1. Default 0.
    pub comm_id_prefix: u32,
    /// Length of the prefix in bits: 0..=24, default 0.
    pub comm_id_prefix_bits: u8,
    /// Series of communication IDs to continue, when another manager used some of them before. Default: a
    /// series of its own, from the seed.
    pub comm_id_series: Option<IdSeries>,
    /// Whether [`super::Cm::poll_change`] is called: default no.
    pub reports_changes: bool,
}

impl Default for CmConfig {
    fn default() -> Self {
        Self {
            response_timeout: 20,
            retries: RETRIES_MAX,
            service_timeout: 24,
            connections_max: 65_536,
            listeners_max: 16_384,
            hop_limit: 64,
            comm_id_prefix: 0,
            comm_id_prefix_bits: 0,
            comm_id_series: None,
            reports_changes: false,
        }
    }
}

/// The largest value of the field in a REQ.
pub(super) const RETRIES_MAX: u8 = 15;

/// The longest time that a peer can impose at once: 69 s. The fields of its messages could express 2.4 hours.
pub const TIMEOUT_CODE_MAX: u8 = 24;

/// Limit of datagrams that wait to be sent. A driver takes them after each input, so more than a few wait
/// only when it does not; further ones are dropped, as a network may drop them.
pub(super) const TRANSMITS_MAX: usize = 4_096;

/// Limit of timers that one call handles.
pub(super) const TIMEOUTS_PER_CALL: usize = 64;

/// How long an answer without confirmation (a REJ, a SIDR_REP) is kept, in response times: a peer that missed
/// it repeats its request after one and two packet lifetimes.
pub(super) const REPLAY_RESPONSES: u64 = 2;

/// Limit of timers that are examined when the table is full and a connection has to be evicted.
pub(super) const EVICTIONS_SCANNED_MAX: usize = 64;

/// Duration of a time code (IBTA 12.7.10 and others): 4.096 µs times 2 to this power. Codes above the limit
/// give the limit.
pub(super) const fn duration(code: u8) -> Nanos {
    let code = if code < TIMEOUT_CODE_MAX {
        code
    } else {
        TIMEOUT_CODE_MAX
    };
    Nanos(4_096 << code)
}

/// The time-out code for a queue pair's acknowledgements: twice the packet lifetime, and the time that the
/// peer's adapter takes. Codes add like logarithms: the greater wins, and one more when the other is as large
/// as half of it (IBTA 9.7.6.1.3 and 12.7.34).
pub const fn ack_timeout(adapter_delay: u8, packet_lifetime: u8) -> u8 {
    let round_trip = packet_lifetime.saturating_add(1);
    let (greater, smaller) = if round_trip >= adapter_delay {
        (round_trip, adapter_delay)
    } else {
        (adapter_delay, round_trip)
    };
    let code = if smaller + 1 >= greater {
        greater + 1
    } else {
        greater
    };
    if code < 31 { code } else { 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_double() {
        assert_eq!(duration(0), Nanos(4_096));
        assert_eq!(duration(20), Nanos(4_294_967_296));
        assert_eq!(duration(31), duration(TIMEOUT_CODE_MAX));
    }

    #[test]
    fn acknowledgement_timeouts_are_those_of_linux() {
        // The captures: rxe's delay is 15, and RoCE's packet lifetime was 18 in Linux 6.1.
        assert_eq!(ack_timeout(15, 18), 19);
        assert_eq!(
            (
                ack_timeout(16, 16),
                ack_timeout(17, 16),
                ack_timeout(18, 16)
            ),
            (18, 18, 19)
        );
        assert_eq!(
            (ack_timeout(0, 16), ack_timeout(25, 16), ack_timeout(31, 31)),
            (17, 25, 31)
        );
    }
}
