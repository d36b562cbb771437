//! Management datagrams as bytes (IBTA 13.4.2), with their fields at their places.

mod field;
mod notice;
mod smp;

pub use field::{Number, get, put};
pub use notice::{Notice, TrapNumber};
pub use smp::{DirectedRoute, PATH_MAX};

use alloc::boxed::Box;

/// Size of a datagram in bytes.
pub const MAD_BYTES: usize = 256;
/// Size of the common header in bytes.
pub const HEADER_BYTES: usize = 24;
/// Where the data of subnet management, performance management and others begins.
pub const DATA_AT: usize = 64;
/// Bytes of data of subnet management.
pub const SMP_DATA_BYTES: usize = 64;
/// The base version that all datagrams have.
pub const BASE_VERSION: u8 = 1;

/// Management classes (IBTA table 145).
pub mod class {
    /// Subnet management, routed by LIDs.
    pub const SUBNET_LID: u8 = 0x01;
    /// Subnet administration, which a manager offers to all.
    pub const SUBNET_ADMINISTRATION: u8 = 0x03;
    /// Performance management: counters of ports.
    pub const PERFORMANCE: u8 = 0x04;
    /// Device management, as storage targets have it.
    pub const DEVICE: u8 = 0x06;
    /// Subnet management with a directed route.
    pub const SUBNET_DIRECTED: u8 = 0x81;
    /// The first class of vendors with an OUI and room for RMPP.
    pub const VENDOR_2_FIRST: u8 = 0x30;
    /// The last class of vendors with an OUI.
    pub const VENDOR_2_LAST: u8 = 0x4f;
    /// Baseboard management. A bit of the attribute modifier marks its responses, not the method.
    pub const BASEBOARD: u8 = 0x05;
}

/// Methods (IBTA table 146).
pub mod method {
    /// A request for an attribute.
    pub const GET: u8 = 0x01;
    /// A request to change an attribute.
    pub const SET: u8 = 0x02;
    /// A notice that a manager gets unasked.
    pub const TRAP: u8 = 0x05;
    /// A request to take a record away, of subnet administration.
    pub const DELETE: u8 = 0x15;
    /// Ends the repetition of a trap.
    pub const TRAP_REPRESS: u8 = 0x07;
    /// The bit of a response.
    pub const RESPONSE: u8 = 0x80;
    /// The answer to Get and Set.
    pub const GET_RESPONSE: u8 = GET | RESPONSE;
}

/// Status codes of responses (IBTA 13.4.7).
pub mod status {
    /// The class or its version is not supported.
    pub const BAD_VERSION: u16 = 0x0004;
    /// The method is not supported.
    pub const BAD_METHOD: u16 = 0x0008;
    /// The method is not supported for this attribute, or the attribute is unknown.
    pub const BAD_ATTRIBUTE: u16 = 0x000c;
    /// A field of the attribute or its modifier has a value that is not valid.
    pub const BAD_VALUE: u16 = 0x001c;
}

/// A management datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad(Box<[u8; MAD_BYTES]>);

impl Default for Mad {
    fn default() -> Self {
        Self(Box::new([0; MAD_BYTES]))
    }
}

impl Mad {
    /// A datagram with this header, and zeros behind it.
    pub fn new(class: u8, class_version: u8, method: u8, attribute: u16, modifier: u32) -> Self {
        let mut mad = Self::default();
        mad.0[..4].copy_from_slice(&[BASE_VERSION, class, class_version, method]);
        mad.put_u16(16, attribute);
        mad.put_u32(20, modifier);
        mad
    }

    /// The datagram of bytes; what they lack is zero, as Linux fills up short ones.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut mad = Self::default();
        let length = bytes.len().min(MAD_BYTES);
        mad.0[..length].copy_from_slice(&bytes[..length]);
        mad
    }

    /// The bytes as they are sent.
    pub fn bytes(&self) -> &[u8; MAD_BYTES] {
        &self.0
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8; MAD_BYTES] {
        &mut self.0
    }

    /// The management class.
    pub fn class(&self) -> u8 {
        self.0[1]
    }

    /// The version of the class.
    pub fn class_version(&self) -> u8 {
        self.0[2]
    }

    /// The method with its bit of a response.
    pub fn method(&self) -> u8 {
        self.0[3]
    }

    /// Makes this a datagram of another method.
    pub fn set_method(&mut self, method: u8) {
        self.0[3] = method;
    }

    /// Whether this is a response: an agent is found by its transaction, not by its class.
    pub fn is_response(&self) -> bool {
        self.method() & method::RESPONSE != 0
            || self.method() == method::TRAP_REPRESS
            || (self.class() == class::BASEBOARD && self.modifier() & 1 != 0)
    }

    /// Whether this is a subnet management packet: they go to queue pair 0, and all others to queue pair 1.
    pub fn is_smp(&self) -> bool {
        matches!(self.class(), class::SUBNET_LID | class::SUBNET_DIRECTED)
    }

    /// The status, without the direction bit of a directed route.
    pub fn status(&self) -> u16 {
        let status = self.u16(4);
        if self.class() == class::SUBNET_DIRECTED {
            status & 0x7fff
        } else {
            status
        }
    }

    /// Writes the status and keeps the direction bit of a directed route.
    pub fn set_status(&mut self, status: u16) {
        let direction = if self.class() == class::SUBNET_DIRECTED {
            self.u16(4) & 0x8000
        } else {
            0
        };
        self.put_u16(4, direction | status);
    }

    /// The transaction, which a response repeats.
    pub fn transaction(&self) -> u64 {
        self.u64(8)
    }

    /// Writes the transaction.
    pub fn set_transaction(&mut self, transaction: u64) {
        self.put_u64(8, transaction);
    }

    /// Attribute ID of the datagram.
    pub fn attribute(&self) -> u16 {
        self.u16(16)
    }

    /// The attribute's modifier.
    pub fn modifier(&self) -> u32 {
        self.u32(20)
    }

    /// The OUI of a vendor class of the second range.
    pub fn oui(&self) -> [u8; 3] {
        [self.0[37], self.0[38], self.0[39]]
    }

    /// The data of an attribute: 64 bytes in subnet management.
    pub fn data(&self) -> &[u8] {
        &self.0[DATA_AT..DATA_AT + SMP_DATA_BYTES]
    }

    /// The attribute's data, to be written.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.0[DATA_AT..DATA_AT + SMP_DATA_BYTES]
    }

    /// The 16 bits at a place.
    pub fn u16(&self, at: usize) -> u16 {
        get(&self.0[..], at)
    }

    /// The 32 bits at a place.
    pub fn u32(&self, at: usize) -> u32 {
        get(&self.0[..], at)
    }

    /// The 64 bits at a place.
    pub fn u64(&self, at: usize) -> u64 {
        get(&self.0[..], at)
    }

    /// Writes 16 bits at a place.
    pub fn put_u16(&mut self, at: usize, value: u16) {
        put(&mut self.0[..], at, value);
    }

    /// Writes 32 bits at a place.
    pub fn put_u32(&mut self, at: usize, value: u32) {
        put(&mut self.0[..], at, value);
    }

    /// Writes 64 bits at a place.
    pub fn put_u64(&mut self, at: usize, value: u64) {
        put(&mut self.0[..], at, value);
    }
}
