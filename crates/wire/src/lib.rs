//! Every byte layout that crosses a rockery wire.
//!
//! Two levels: fixed-size views over bytes ([`bth`], [`ext`]), which cannot panic because their size is part of
//! their type, and above them one decoded form, [`Packet`], that says what a RoCEv2 packet means. The device
//! works on [`Packet`]; a simulation never encodes at all.
#![no_std]
#![forbid(unsafe_code)]

pub mod bth;
pub mod codec;
pub mod crc32;
pub mod ext;
pub mod icrc;
pub mod number;
pub mod opcode;
pub mod packet;

pub use bth::Bth;
pub use codec::{EncodeError, ParseError, pad_of};
pub use icrc::{Flow, Icrc, Identification, explain_identification, split_icrc};
pub use number::{PartitionKey, Psn, Qpn, Rkey};
pub use opcode::{MAX_HEADERS, Opcode};
pub use packet::{Aeth, AtomicEth, Deth, Message, Packet, Position, Reth, Service, Syndrome, Tail};
