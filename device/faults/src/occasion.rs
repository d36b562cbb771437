//! Something that happens in a program, at which a fault may happen.

use crate::{CmKind, Opcode, PacketKind, Point, QpKind};
use core::net::IpAddr;

/// One call, request or completion, with what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occasion<'a> {
    /// Point of the code at which rules are tried.
    pub point: Point,
    /// The device's name.
    pub device: Option<&'a str>,
    /// Type of the queue pair.
    pub kind: Option<QpKind>,
    /// Number of the queue pair.
    pub qpn: Option<u32>,
    /// Address of the peer of the queue pair.
    pub peer: Option<IpAddr>,
    /// Operation of the request, or receive.
    pub opcode: Option<Opcode>,
    /// Kind of the packet.
    pub packet: Option<PacketKind>,
    /// Message of the connection manager.
    pub message: Option<CmKind>,
    /// Bytes of the message or of the memory.
    pub size: Option<u64>,
}

impl Occasion<'_> {
    /// An occasion of which nothing is known but its point.
    pub const fn at(point: Point) -> Self {
        Self {
            point,
            device: None,
            kind: None,
            qpn: None,
            peer: None,
            opcode: None,
            packet: None,
            message: None,
            size: None,
        }
    }
}
