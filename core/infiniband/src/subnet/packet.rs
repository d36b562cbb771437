//! Packets with management datagrams.

use crate::mad::Mad;

/// The global route header of a packet, which packets between subnets have, and others where the sender
/// wants one (IBTA 8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobalRoute {
    /// The traffic class.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Routers that the packet may pass.
    pub hop_limit: u8,
    /// The sender's GID.
    pub source: [u8; 16],
    /// The receiver's GID.
    pub destination: [u8; 16],
}

/// A packet with a management datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The sender's LID.
    pub source_lid: u16,
    /// The receiver's LID; 0xffff, the permissive one, is accepted by every port.
    pub destination_lid: u16,
    /// The service level.
    pub service_level: u8,
    /// The sending queue pair.
    pub source_qp: u32,
    /// The receiving queue pair: 0 and 1 are those of management.
    pub destination_qp: u32,
    /// The key of the receiving queue pair.
    pub q_key: u32,
    /// The key of the sender's partition.
    pub p_key: u16,
    /// The global route header, if the packet has one.
    pub global: Option<GlobalRoute>,
    /// The datagram that the packet carries.
    pub mad: Mad,
}

/// The key of queue pair 1 (IBTA 10.2.5).
pub(super) const GSI_KEY: u32 = 0x8001_0000;
/// The key of full members of the default partition.
const DEFAULT_PARTITION: u16 = 0xffff;
/// Bytes of LRH, BTH, DETH, datagram and ICRC: what counters count.
const COUNTED_BYTES: u32 = 8 + 12 + 8 + 256 + 4;
const GLOBAL_BYTES: u32 = 40;
/// Bytes of the VCRC and of the delimiters of a packet.
const FRAMING_BYTES: u32 = 2 + 2;

impl Packet {
    /// A packet of the default partition between the management queue pairs of two ports.
    pub fn between(source_lid: u16, destination_lid: u16, mad: Mad) -> Self {
        let qp = u32::from(!mad.is_smp());
        Self {
            source_lid,
            destination_lid,
            service_level: 0,
            source_qp: qp,
            destination_qp: qp,
            q_key: if qp == 0 { 0 } else { GSI_KEY },
            p_key: DEFAULT_PARTITION,
            global: None,
            mad,
        }
    }

    /// Whether the packet is one of subnet management: virtual lane 15.
    pub fn is_smp(&self) -> bool {
        self.destination_qp == 0
    }

    /// Bytes that counters count.
    pub fn counted_bytes(&self) -> u32 {
        COUNTED_BYTES + self.global.map_or(0, |_| GLOBAL_BYTES)
    }

    /// Bytes for which the packet occupies a link.
    pub fn link_bytes(&self) -> u32 {
        self.counted_bytes() + FRAMING_BYTES
    }

    /// The packet of an answer, with this packet's datagram: addresses are exchanged.
    pub fn answer(&self) -> Self {
        Self {
            source_lid: self.destination_lid,
            destination_lid: self.source_lid,
            source_qp: self.destination_qp,
            destination_qp: self.source_qp,
            global: self.global.map(|global| GlobalRoute {
                source: global.destination,
                destination: global.source,
                hop_limit: u8::MAX,
                ..global
            }),
            ..self.clone()
        }
    }
}
