//! Every byte layout that crosses a rockery wire.
//!
//! Two levels: fixed-size views over bytes ([`bth`], [`ext`], [`ipv4`] and so on), which cannot panic because
//! their size is part of their type, and above them one decoded form, [`Packet`]. The device works on
//! [`Packet`]; a simulation never encodes at all.
//!
//! ```text
//! frame ──FrameHeaders::parse──▶ datagram ──split_icrc──▶ transport ──Packet::parse──▶ Packet, payload
//!                                                             │
//!                                      Flow::seed, Icrc::transport, finish: compare with the last bytes
//! ```
//!
//! The payload of a UD packet to queue pair 1 is a [`mad`], and with RoCEv2 one of [`cm`]'s messages.
//!
//! [`nvme`] has the structures of NVMe over Fabrics, [`smb`] those of SMB Direct and SMB2.
//!
//! The guarantees of every function here: no bytes make it panic, nothing is allocated, and what parses is
//! encoded to the same bytes again, reserved bits and padding cleared.
#![no_std]
#![forbid(unsafe_code)]

pub mod bth;
pub mod cm;
pub mod codec;
pub mod crc32;
pub mod dcbx;
pub mod ethernet;
pub mod ethertype;
pub mod ext;
pub mod frame;
pub mod frame_error;
pub mod grh;
pub mod icrc;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub(crate) mod layout;
pub mod lldp;
pub mod local_route;
pub mod mad;
pub mod number;
pub mod nvme;
pub mod opcode;
pub mod packet;
pub mod pause;
pub mod record;
pub mod smb;
pub mod traffic_class;
pub mod udp;

pub use bth::{Bth, set_pad};
pub use codec::{EncodeError, ParseError, pad_of};
pub use ethernet::{Ethernet, MacAddress, VlanTag};
pub use ethertype::EtherType;
pub use frame::FrameHeaders;
pub use frame_error::FrameError;
pub use icrc::{Flow, Icrc, explain_identification, split_icrc};
pub use ip::Ip;
pub use ipv4::{Identification, Ipv4};
pub use ipv6::Ipv6;
pub use local_route::{FlowControl, LocalRoute};
pub use number::{PartitionKey, Psn, Qpn, Rkey};
pub use opcode::{MAX_HEADERS, Opcode};
pub use packet::{Aeth, AtomicEth, Deth, Message, Packet, Position, Reth, Service, Syndrome, Tail};
pub use pause::Pause;
pub use traffic_class::{Ecn, TrafficClass};
pub use udp::{ROCE_PORT, Udp};
