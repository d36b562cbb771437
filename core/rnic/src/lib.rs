//! The RoCEv2 device, sans-IO: one state machine that runs live and in virtual time.
//!
//! # Drive contract
//!
//! Inputs: verbs calls, [`Device::handle_packet`] for each packet that arrived, [`Device::handle_timeout`]
//! when the clock reaches [`Device::next_timeout`]. `now` never runs backwards.
//!
//! After any input, until the outputs are empty:
//! 1. [`Device::transmit`] with a [`Sink`] until it returns 0. Positive acknowledgements may be left for a
//!    while ([`Device::pending`] says when there is nothing else), so that they travel with data.
//! 2. [`Device::poll_event`] until `None`: completion channels and asynchronous events.
//! 3. [`Device::next_timeout`]: the deadline of the next call.
//!
//! Completions wait in their queues for [`CompletionQueues::poll`]. Each call does bounded work:
//! `handle_packet` handles one packet, `transmit` at most its budget. A spurious timeout does nothing. No
//! call blocks, allocates per packet once its queues have grown, reads a clock, or panics on what a peer or a
//! program passes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod address;
pub mod cm;
mod completion;
mod completion_queues;
mod config;
mod congestion;
mod counters;
mod cq;
mod device;
mod domain;
mod error;
mod event;
mod gids;
mod grant;
mod handle;
mod memory;
mod port;
mod qp;
mod qpns;
mod random;
mod receive;
mod region;
mod resources;
mod shared_receives;
mod sink;
mod subnet;
mod telemetry;
mod time;
mod work;

pub use access::Access;
pub use address::{AddressVector, Arrival, Channel, Gid, LocalRoute, Path, Senders};
pub use completion::{Completion, CompletionKind, Extra, NetworkHeader, Status};
pub use completion_queues::CompletionQueues;
pub use config::Config;
pub use congestion::{
    CongestionConfig, DcqcnConfig, DctcpConfig, FirmwareDcqcn, HpccConfig, Signal, SwiftConfig,
    TimelyConfig,
};
pub use counters::{PortCounters, QpCounters};
pub use cq::{Arm, Moderation};
pub use device::{
    Device, Grants, Multicast, Pending, RegisteredMemory, SharedMemory, Srqs, simulation,
};
pub use domain::{DomainName, ForwardedRequest, SrqOwner};
pub use error::Error;
pub use event::Event;
pub use gids::GidTable;
pub use grant::{Change, QueueGrant, RegionGrant};
pub use handle::{Cq, Lkey, Pd, Srq, Window, Xrcd};
pub use memory::{Backing, Fault, Gather, Memory, Payload, Piece};
pub use port::{Port, PortMut};
pub use qp::attr::{AttrMask, Capacity, Migration, Mtu, QpAttr, QpInit, QpType, State};
pub use region::{RegionChange, RegionInit, RegionKeys, WindowKind};
pub use sink::{
    Advice, ChannelRings, Channels, Decision, Direct, DirectExecution, DirectPath, DirectRequest,
    DirectWork, Execution, NoChannels, PacketKind, RUN_MAX, RunRequest, Sink, StreamStatistics,
    Streamed, StreamedRequest,
};
pub use subnet::{LidAddress, PARTITIONS, SubnetPort};
pub use telemetry::{HOPS_MAX, Hop};
pub use time::{Instant, Nanos};
pub use work::{
    Data, Destination, Operation, ReceiveRequest, SendFlags, SendRequest, Sge, WindowBinding,
};
