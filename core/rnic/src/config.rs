//! Configuration of a device at its creation: limits, numbers and policies.

use crate::congestion::CongestionConfig;
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
