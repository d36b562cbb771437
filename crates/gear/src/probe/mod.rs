//! `doctor probe`: does RoCEv2 reach another host, at which packet size, with which marks, and does the
//! network keep its promises under load. It asks from user space, so neither end needs an RDMA adapter.
//!
//! Nothing here touches a socket: [`survey`] puts questions to an [`Ask`], [`Pacer`] says when a packet of
//! load is due, [`Tally`] counts what arrived, and [`findings`] judges what was observed.

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
pub use survey::{Answer, Ask, Mark, Observed, Question, Reach, SizeLimit, Sizes, packet_bytes, survey};

/// The hop limit that every packet of a probe is sent with.
pub const HOP_LIMIT: u8 = 64;

/// A UDP port without listener on nearly every host: the first one of traceroute.
pub const CLOSED_PORT: u16 = 33434;
