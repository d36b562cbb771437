//! `doctor probe`: measures whether RoCEv2 reaches another host, with which packet size and marks, and
//! whether the network is lossless and fair under load. It runs in user space, so neither end needs an RDMA
//! adapter.
//!
//! This module uses no socket: [`survey`] sends questions through an [`Ask`], [`Pacer`] computes when a
//! packet of load is due, [`Tally`] counts arrivals, and [`findings`] evaluates the observations.

mod datagram;
mod findings;
mod load;
mod matrix;
mod message;
mod shares;
mod survey;

pub use datagram::{Ends, Heard};
pub use findings::{LoadShape, load_findings, share_findings, survey_findings};
pub use load::{Due, Pacer, StreamOutcome, Tally};
pub use matrix::{
    Matrix, MatrixCell, MatrixFault, MatrixFinding, MatrixPair, MatrixRow, Whereabouts, read_row,
};
pub use message::{LoadEnd, LoadOrder, MESSAGE_BYTES, ProbeMessage, Seen};
pub use shares::{Expected, Share, expected_of, measured};
pub use survey::{
    Answer, Ask, Mark, Observed, Question, Reach, SizeLimit, Sizes, packet_bytes, survey,
};

/// The hop limit that every packet of a probe is sent with.
pub const HOP_LIMIT: u8 = 64;

/// A UDP port without listener on nearly every host: the first one of traceroute.
pub const CLOSED_PORT: u16 = 33434;
