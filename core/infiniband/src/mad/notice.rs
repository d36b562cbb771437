//! Notices of traps (IBTA 13.4.8.2, 14.2.5.1).

use super::{Mad, class, method, put};

const NOTICE: u16 = 0x02;
const GENERIC: u8 = 0x80;

/// Numbers of generic traps of subnet management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapNumber {
    /// A port of a switch changed its state.
    LinkStateChange = 128,
    /// Capabilities, or another local value that the manager reads, changed.
    LocalChange = 144,
    /// A packet had a wrong M_Key.
    BadMKey = 256,
}

/// A notice that a node sends to its manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Number of the trap.
    pub number: TrapNumber,
    /// The kind of node that sends it: 1 channel adapter, 2 switch.
    pub producer: u8,
    /// The LID of the port that sends it.
    pub issuer: u16,
    /// The details, from byte 10 of the notice on.
    pub details: [u8; 54],
}

impl Notice {
    /// The notice that a switch sends when one of its ports has changed.
    pub fn link_state_change(lid: u16) -> Self {
        Self::with_lid(TrapNumber::LinkStateChange, 2, lid)
    }

    /// The notice that capabilities of a port have changed.
    pub fn capabilities_changed(producer: u8, lid: u16, capabilities: u32) -> Self {
        let mut notice = Self::with_lid(TrapNumber::LocalChange, producer, lid);
        // Reserved 0..2, LID 2, reserved, OtherLocalChanges 5, CapabilityMask 6 (IBTA table 131).
        put(&mut notice.details, 0, 0_u16);
        put(&mut notice.details, 2, lid);
        put(&mut notice.details, 6, capabilities);
        notice
    }

    /// The notice that a packet from a LID had a wrong key.
    pub fn bad_m_key(producer: u8, lid: u16, packet: &Mad, from: u16) -> Self {
        let mut notice = Self::with_lid(TrapNumber::BadMKey, producer, lid);
        // Reserved 0..2, LID 2, DrSLID 4, method 6, reserved, attribute 8, modifier 10, M_Key 14.
        put(&mut notice.details, 0, 0_u16);
        put(&mut notice.details, 2, from);
        put(&mut notice.details, 6, packet.method());
        put(&mut notice.details, 8, packet.attribute());
        put(&mut notice.details, 10, packet.modifier());
        put(&mut notice.details, 14, packet.u64(super::HEADER_BYTES));
        notice
    }

    fn with_lid(number: TrapNumber, producer: u8, lid: u16) -> Self {
        let mut details = [0; 54];
        put(&mut details, 0, lid);
        Self {
            number,
            producer,
            issuer: lid,
            details,
        }
    }

    /// The urgency that the specification gives to the trap: 1 urgent, 2 security, 4 informational.
    fn kind(&self) -> u8 {
        match self.number {
            TrapNumber::LinkStateChange => 1,
            TrapNumber::BadMKey => 2,
            TrapNumber::LocalChange => 4,
        }
    }

    /// The datagram of the trap.
    pub fn mad(&self, m_key: u64, transaction: u64) -> Mad {
        let mut mad = Mad::new(class::SUBNET_LID, 1, method::TRAP, NOTICE, 0);
        mad.set_transaction(transaction);
        mad.put_u64(super::HEADER_BYTES, m_key);
        let data = mad.data_mut();
        data[0] = GENERIC | self.kind();
        data[3] = self.producer;
        put(data, 4, self.number as u16);
        put(data, 6, self.issuer);
        data[10..64].copy_from_slice(&self.details);
        mad
    }
}
