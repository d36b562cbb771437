//! Collectives: ranks that send to each other what depends on what they received.
//!
//! ```text
//!   job ──▶ waits for others ──▶ computes ──▶ its group's turn ──▶ strands: one or a few for each channel
//!   strand ──▶ round, stage, slice ──▶ the next slice, when it has arrived and there is room for it
//! ```
//!
//! A host has the state of its ranks, and nothing else: what happens at another host is known when a packet
//! of it arrives. For each slice the receiver writes a record to the sender when it has a buffer for it, and
//! then the sender writes the slice, with immediate data (NCCL 2.30, `transport/net_ib`).

mod critical;
mod follow;
mod host;
mod local;
mod log;
mod message;
mod outcome;
mod packets;
mod pipe;
pub(super) mod plan;
pub(super) mod program;
pub(super) mod schedule;
mod strand;
mod worker;

pub use critical::{Leg, LegKind};
pub use outcome::{EndedRepetition, JobLink, JobRank, JobResult, Need, RankState, StrandWait};

pub(super) use message::LocalMessage;
pub(super) use outcome::{ended, job_result};
pub(super) use packets::JobsByPacket;
pub(super) use pipe::PipeEnd;
pub(super) use worker::Worker;

use super::scenario::Flow;

/// Bytes of the record that clears the way for a slice, besides its immediate data: 64 with it, as NCCL's
/// records have.
const CLEAR_BYTES: u32 = 60;

/// In a host's lists of posters, what is no poster but a pipe, or a job that something is planned for.
pub(super) const OF_WORKER: u32 = 1 << 31;

/// Work requests and receives that each end of a pipe needs: slices under way, and as many records that clear
/// the way; twice, since completions may come later than what they allow.
pub(super) fn requests(flow: &Flow) -> [u32; 2] {
    [2 * flow.depth, 2 * flow.depth]
}
