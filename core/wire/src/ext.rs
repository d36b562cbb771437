//! Extended transport headers (IBTA 9.3), each read from and written to an array of its own size, so that no
//! access can go out of bounds. Numbers are big-endian; fields of 24 bits share a word with a reserved byte.

use crate::number::{Qpn, Rkey};
use crate::packet::{Aeth, AtomicEth, Deth, Reth, Syndrome};

/// Size of [`Reth`] in bytes.
pub const RETH_SIZE: usize = 16;
/// Size of [`Aeth`] in bytes.
pub const AETH_SIZE: usize = 4;
/// Size of immediate data in bytes.
pub const IMMEDIATE_SIZE: usize = 4;
/// Size of the invalidate extended header, IETH, in bytes.
pub const IETH_SIZE: usize = 4;
/// Size of [`AtomicEth`] in bytes.
pub const ATOMIC_ETH_SIZE: usize = 28;
/// Size of the atomic acknowledge extended header in bytes.
pub const ATOMIC_ACK_ETH_SIZE: usize = 8;
/// Size of [`Deth`] in bytes.
pub const DETH_SIZE: usize = 8;
/// Size of the XRC extended header (Annex A14) in bytes.
pub const XRC_ETH_SIZE: usize = 4;

/// The top byte of an AETH syndrome: bits 6 and 5 are the kind of the low five; bit 7 is reserved as 0 (IBTA
/// 9.7.5.2.4, table 45).
const SYNDROME_KIND: u8 = 0xe0;
const SYNDROME_VALUE: u8 = 0x1f;
const SYNDROME_ACK: u8 = 0x00;
const SYNDROME_RNR_NAK: u8 = 0x20;
const SYNDROME_NAK: u8 = 0x60;

impl Reth {
    /// Address 0..8, key 8..12, length 12..16.
    #[inline]
    pub const fn parse(b: &[u8; RETH_SIZE]) -> Self {
        Self {
            address: u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            rkey: Rkey(u32::from_be_bytes([b[8], b[9], b[10], b[11]])),
            length: u32::from_be_bytes([b[12], b[13], b[14], b[15]]),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; RETH_SIZE] {
        let mut bytes = [0; RETH_SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

impl Syndrome {
    /// Parses the syndrome byte.
    #[inline]
    pub const fn parse(byte: u8) -> Self {
        match (byte & SYNDROME_KIND, byte & SYNDROME_VALUE) {
            (SYNDROME_ACK, credits) => Self::Ack(credits),
            (SYNDROME_RNR_NAK, timer) => Self::RnrNak(timer),
            (SYNDROME_NAK, code) => Self::Nak(code),
            _ => Self::Reserved(byte),
        }
    }

    /// The syndrome byte; only the low five bits of a credit count, timer or NAK code are taken.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack(credits) => SYNDROME_ACK | credits & SYNDROME_VALUE,
            Self::RnrNak(timer) => SYNDROME_RNR_NAK | timer & SYNDROME_VALUE,
            Self::Nak(code) => SYNDROME_NAK | code & SYNDROME_VALUE,
            Self::Reserved(byte) => byte,
        }
    }
}

impl Aeth {
    /// Syndrome 0, message sequence number 1..4.
    #[inline]
    pub const fn parse(b: &[u8; AETH_SIZE]) -> Self {
        Self {
            syndrome: Syndrome::parse(b[0]),
            msn: u32::from_be_bytes([0, b[1], b[2], b[3]]),
        }
    }

    /// The header's bytes; only the low 24 bits of the MSN are taken.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; AETH_SIZE] {
        let msn = self.msn.to_be_bytes();
        [self.syndrome.to_byte(), msn[1], msn[2], msn[3]]
    }
}

impl AtomicEth {
    /// Address 0..8, key 8..12, swap or add 12..20, compare 20..28.
    #[inline]
    pub const fn parse(b: &[u8; ATOMIC_ETH_SIZE]) -> Self {
        Self {
            address: u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            rkey: Rkey(u32::from_be_bytes([b[8], b[9], b[10], b[11]])),
            swap_add: u64::from_be_bytes([b[12], b[13], b[14], b[15], b[16], b[17], b[18], b[19]]),
            compare: u64::from_be_bytes([b[20], b[21], b[22], b[23], b[24], b[25], b[26], b[27]]),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; ATOMIC_ETH_SIZE] {
        let mut bytes = [0; ATOMIC_ETH_SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}

impl Deth {
    /// Queue key 0..4, reserved 4, source queue pair 5..8.
    #[inline]
    pub const fn parse(b: &[u8; DETH_SIZE]) -> Self {
        Self {
            qkey: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            source: qpn_parse(&[b[4], b[5], b[6], b[7]]),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; DETH_SIZE] {
        let mut bytes = [0; DETH_SIZE];
        bytes[..4].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[4..].copy_from_slice(&qpn_to_bytes(self.source));
        bytes
    }
}

/// A QPN in the low 24 bits of a word whose top byte is reserved: the XRC extended header, and the end of a
/// DETH.
#[inline]
pub(crate) const fn qpn_parse(b: &[u8; XRC_ETH_SIZE]) -> Qpn {
    Qpn::new(u32::from_be_bytes(*b))
}

#[inline]
pub(crate) const fn qpn_to_bytes(qpn: Qpn) -> [u8; XRC_ETH_SIZE] {
    qpn.value().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_survives() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::parse(byte).to_byte(), byte);
        }
        assert_eq!(Syndrome::parse(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::parse(0x38), Syndrome::RnrNak(24));
        assert_eq!(Syndrome::parse(0x62), Syndrome::NAK_REMOTE_ACCESS);
        assert_eq!(Syndrome::parse(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::parse(0x80), Syndrome::Reserved(0x80));
    }

    #[test]
    fn headers_lie_as_the_specification_draws_them() {
        let mut bytes = [0; ATOMIC_ETH_SIZE];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = index as u8;
        }
        let atomic = AtomicEth::parse(&bytes);
        assert_eq!(
            (atomic.address, atomic.rkey),
            (0x0001_0203_0405_0607, Rkey(0x0809_0a0b))
        );
        assert_eq!(
            (atomic.swap_add, atomic.compare),
            (0x0c0d_0e0f_1011_1213, 0x1415_1617_1819_1a1b)
        );
        assert_eq!(atomic.to_bytes(), bytes);
        let reth = Reth {
            address: 0x0102_0304_0506_0708,
            rkey: Rkey(0x090a_0b0c),
            length: 0x0d0e_0f10,
        };
        assert_eq!(
            reth.to_bytes(),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        );
        assert_eq!(Reth::parse(&reth.to_bytes()), reth);
        let deth = Deth::parse(&[0x80, 1, 0, 0, 0xff, 0, 0, 1]);
        assert_eq!(
            deth,
            Deth {
                qkey: 0x8001_0000,
                source: Qpn::GSI
            }
        );
        assert_eq!(deth.to_bytes(), [0x80, 1, 0, 0, 0, 0, 0, 1]);
        let aeth = Aeth {
            syndrome: Syndrome::NAK_SEQUENCE,
            msn: 0xff12_3456,
        };
        assert_eq!(aeth.to_bytes(), [0x60, 0x12, 0x34, 0x56]);
    }
}
