//! Class and marks of packets when they enter the network.

use crate::plan::LiveHost;
use fabric::PacketKind;
use link::lab::Header;
use sim::world::Forgery;
use wire::{Message, Packet};

/// How a packet is marked when it enters the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked {
    pub(crate) class: u8,
    pub(crate) tos: u8,
    pub(crate) pcp: Option<u8>,
    pub(crate) is_data: bool,
    /// The number of its operation.
    pub(crate) operation: u8,
    pub(crate) forgery: Forgery,
}

/// Virtual lanes of data of every port.
const VIRTUAL_LANES: u8 = 8;

/// Marks as the adapter of the host sets them. A program that chose a DSCP of its own keeps it.
pub(crate) fn marks(host: &LiveHost, header: &Header, packet: &Packet) -> Marked {
    if host.is_infiniband {
        return lane(header, packet);
    }
    let role = match packet.message {
        Message::Congestion => 2,
        Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } => 1,
        _ => 0,
    };
    let marking = host.marks[role];
    let (dscp, class) = match header.traffic_class >> 2 {
        0 => (marking.dscp, marking.class),
        _ if role == 2 => (marking.dscp, marking.class),
        own => (own, host.class_of(own)),
    };
    let ecn = if header.traffic_class & 3 != 0 {
        header.traffic_class & 3
    } else {
        u8::from(marking.ecn) << 1
    };
    Marked {
        class: class & 7,
        tos: dscp << 2 | ecn,
        pcp: marking.pcp,
        is_data: role == 0,
        operation: operation(packet),
        forgery: Forgery::None,
    }
}

fn operation(packet: &Packet) -> u8 {
    let operation = packet.message.operation();
    operation.map_or(PacketKind::OTHER.operation(), |operation| {
        operation.number()
    })
}

/// The virtual lane of a packet, by its service level: switches here read the lane where Ethernet has the
/// DSCP.
fn lane(header: &Header, packet: &Packet) -> Marked {
    let lane = header.service_level % VIRTUAL_LANES;
    let answers = matches!(
        packet.message,
        Message::Acknowledge(_) | Message::AtomicAcknowledge { .. }
    );
    Marked {
        class: lane,
        tos: lane << 2,
        pcp: None,
        is_data: !answers,
        operation: operation(packet),
        forgery: Forgery::None,
    }
}
