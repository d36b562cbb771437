//! Configuration of a device at its creation: limits, numbers and policies.

use crate::time::Nanos;

/// Limits and policies. [`Config::default`] is what a live device uses.
#[derive(Clone, Debug)]
pub struct Config {
    /// Queue pairs at most.
    pub max_qp: u32,
    /// Work requests per send or receive queue at most.
    pub max_qp_wr: u32,
    /// Scatter/gather elements per work request at most.
    pub max_sge: u32,
    /// Bytes that a work request may carry inline at most.
    pub max_inline: u32,
    /// Completion queues at most.
    pub max_cq: u32,
    /// Entries per completion queue at most.
    pub max_cqe: u32,
    /// Memory regions and windows at most, together.
    pub max_mr: u32,
    /// Protection domains at most.
    pub max_pd: u32,
    /// Shared receive queues at most.
    pub max_srq: u32,
    /// Work requests per shared receive queue at most.
    pub max_srq_wr: u32,
    /// READs and atomics that a queue pair has outstanding at most, as responder and as initiator.
    pub max_rd_atomic: u8,
    /// Multicast groups at most, and queue pairs per group.
    pub max_mcast_groups: u32,
    /// Queue pairs attached to one multicast group at most.
    pub max_mcast_attach: u32,
    /// Limit of unacknowledged bytes that a queue pair keeps in the network.
    pub window_bytes: u32,
    /// Place WRITEs and READ responses as they arrive, in any order, and give every WRITE packet a RETH, as
    /// ConnectX does with adaptive routing on. Off: go-back-N (IBTA 9.7.5.1.2).
    pub out_of_order: bool,
    /// Give every packet of a WRITE without immediate a RETH even without out-of-order receive: each is a
    /// WRITE of its own to the peer. They are then equally long, which segmentation offload wants.
    pub write_only: bool,
    /// Ask the peer for READ responses whose packets are all READ RESPONSE ONLY, and so equally long, by a
    /// bit that other implementations ignore ([`wire::Message::ReadRequest`]). Requests with it are always
    /// answered so.
    pub response_only: bool,
    /// How far ahead of the expected PSN a packet may be and still be placed; also how many packets may
    /// arrive after a hole before it counts as lost.
    pub reorder_window: u32,
    /// Largest number of packets between two requests for an acknowledgement while more follow at once.
    pub ack_interval: u32,
    /// Time that the requester takes to go back after a sequence error: adapters do it in firmware.
    pub recovery_ns: Nanos,
    /// Bytes of each packet besides its payload that pacing counts: headers, preamble and gap.
    pub overhead_bytes: u32,
    /// Congestion control algorithm and its parameters.
    pub congestion: CongestionConfig,
}

/// Which congestion control a queue pair runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CongestionConfig {
    /// No algorithm: the window alone limits.
    Off,
    /// The window shrinks on loss and grows again: for networks without PFC, such as a socket buffer.
    Adaptive,
    /// DCQCN (Zhu et al., SIGCOMM 2015) with these parameters.
    Dcqcn(DcqcnConfig),
    /// Swift (Kumar et al., SIGCOMM 2020) with these parameters.
    Swift(SwiftConfig),
    /// HPCC (Li et al., SIGCOMM 2019) with these parameters: for networks whose switches add telemetry (INT),
    /// and drivers that pass it on ([`crate::simulation::Simulated::handle_telemetry`]).
    Hpcc(HpccConfig),
}

/// Parameters of HPCC, as in its paper's section 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HpccConfig {
    /// Line rate in bits per second: the rate at which a flow starts.
    pub line_rate_bps: u64,
    /// T: the base round-trip time in an empty network, a little more than the longest.
    pub base_rtt_ns: Nanos,
    /// eta: target utilisation of links, in units of 2^-16.
    pub eta: u32,
    /// maxStage: consecutive steps in which the window only grows.
    pub stages_max: u8,
    /// W_AI: additive increase in bytes per step.
    pub additive_bytes: u32,
}

impl Default for HpccConfig {
    /// The paper's, for 100 Gb/s (section 5.1).
    fn default() -> Self {
        Self {
            line_rate_bps: 100_000_000_000,
            base_rtt_ns: Nanos::from_micros(13),
            eta: (1 << 16) * 95 / 100,
            stages_max: 5,
            additive_bytes: 80,
        }
    }
}

/// Parameters of Swift, as in its paper's section 3.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwiftConfig {
    /// The target delay, from sending a packet to its acknowledgement, below which the window grows: without
    /// hops and with a large window.
    pub target_ns: Nanos,
    /// Increase of the target per switch on the path.
    pub hop_ns: Nanos,
    /// fs_range: the largest increase of the target as the window shrinks; 0 is none.
    pub flow_range_ns: Nanos,
    /// fs_min_cwnd: the window at which the increase is largest, in units of 2^-16 packets.
    pub flow_min: u32,
    /// fs_max_cwnd: the window from which on there is no increase, in units of 2^-16 packets.
    pub flow_max: u32,
    /// ai: additive increase of the window in bytes per round trip.
    pub additive_bytes: u32,
    /// beta: multiplicative decrease, in units of 2^-16.
    pub beta: u32,
    /// max_mdf: the largest part by which the window shrinks at once, in units of 2^-16.
    pub decrease_max: u32,
}

impl Default for SwiftConfig {
    /// The paper gives few of its constants. Those of htsim's model of it (`sim/swift.cpp`, which calls them
    /// guesses): 0.8, a half, 0.1 and 100 packets. One packet per round trip, and a target of 25 us that
    /// neither hops nor windows change by default.
    fn default() -> Self {
        Self {
            target_ns: Nanos::from_micros(25),
            hop_ns: Nanos(0),
            flow_range_ns: Nanos(0),
            flow_min: (1 << 16) / 10,
            flow_max: 100 << 16,
            additive_bytes: 4096,
            beta: (1 << 16) * 4 / 5,
            decrease_max: 1 << 15,
        }
    }
}

/// Parameters of DCQCN, named as in the paper's section 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Line rate in bits per second: the rate at which a flow starts.
    pub line_rate_bps: u64,
    /// Lower limit of rates.
    pub minimum_rate_bps: u64,
    /// g: weight of a new observation in alpha, as a shift (1/256 is 8).
    pub g_shift: u8,
    /// N: at most one CNP per queue pair in this time.
    pub cnp_interval_ns: Nanos,
    /// K: alpha decays when no CNP arrived for this time.
    pub alpha_interval_ns: Nanos,
    /// T: time between rate increases.
    pub increase_interval_ns: Nanos,
    /// B: bytes between rate increases.
    pub increase_bytes: u64,
    /// F: increases by halving the distance before additive ones.
    pub fast_recovery_steps: u8,
    /// R_AI: additive increase in bits per second.
    pub additive_bps: u64,
    /// R_HAI: hyper increase in bits per second.
    pub hyper_bps: u64,
    /// How many bytes may leave at once after the driver was late, or the queue pair had nothing to send: the
    /// depth of the rate limiter's token bucket. 0 for a driver that is in time, such as a simulator.
    pub burst_bytes: u32,
    /// The variant in adapters' firmware, if given: clock ticks instead of a cut with each notification.
    pub firmware: Option<FirmwareDcqcn>,
}

/// Differences of adapters' firmware from DCQCN's paper: alpha moves up or down every `alpha_interval_ns`,
/// depending on whether a notification arrived in it; the rate is cut at most once per `cut_interval_ns`; and
/// the first step beyond fast recovery is additive, all later ones are hyper, by the clock alone. (Parameters
/// `rate_reduce_monitor_period`, `dce_tcp_rtt` and `clamp_tgt_rate` of ConnectX; the model is that of HPCC's
/// authors, SIGCOMM 2019.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareDcqcn {
    /// Least time between cuts.
    pub cut_interval_ns: Nanos,
    /// Whether a cut that follows another without an increase between them lowers the target too.
    pub clamp_target: bool,
}

impl Default for DcqcnConfig {
    /// The paper's values, for a 40 Gb/s line (SIGCOMM 2015, section 5.2 and figure 14).
    fn default() -> Self {
        Self {
            line_rate_bps: 40_000_000_000,
            minimum_rate_bps: 10_000_000,
            g_shift: 8,
            cnp_interval_ns: Nanos::from_micros(50),
            alpha_interval_ns: Nanos::from_micros(55),
            increase_interval_ns: Nanos::from_micros(55),
            increase_bytes: 10 << 20,
            fast_recovery_steps: 5,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
            burst_bytes: 0,
            firmware: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_qp: 1 << 20,
            max_qp_wr: 1 << 15,
            max_sge: 32,
            max_inline: 1024,
            max_cq: 1 << 20,
            max_cqe: 1 << 20,
            max_mr: 1 << 20,
            max_pd: 1 << 16,
            max_srq: 1 << 16,
            max_srq_wr: 1 << 15,
            max_rd_atomic: 128,
            max_mcast_groups: 4096,
            max_mcast_attach: 1024,
            window_bytes: 1 << 20,
            out_of_order: false,
            write_only: false,
            response_only: false,
            reorder_window: 1024,
            ack_interval: 64,
            recovery_ns: Nanos(0),
            overhead_bytes: 82,
            congestion: CongestionConfig::Adaptive,
        }
    }
}
