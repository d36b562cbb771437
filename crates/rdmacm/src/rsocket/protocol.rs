//! What two rsockets say to each other, as rdma-core's do (`docs/rsocket` in its sources), so that they are
//! peers.
//!
//! Each end registers a receive buffer, and grants the peer one half of it after the other. The peer writes
//! its bytes there by RDMA WRITE, and tells how many in the immediate data. The halves that are granted stand
//! in a table of two entries at the writer's end, into which the reader writes.

/// Bytes of private data that a connection's both ends send.
pub(super) const CONNECT_BYTES: usize = 40;
/// Entries of the table of granted memory.
pub(super) const GRANTS: usize = 2;
/// A memory range in memory or on the wire: address, key, length.
pub(super) const RANGE_BYTES: usize = 16;
/// An entry of the table of mapped memory: offset, then a range.
pub(super) const MAPPING_BYTES: usize = 24;
/// The most that a message can say of itself.
pub(super) const LENGTH_MAX: u32 = 0x1fff_ffff;

const VERSION: u8 = 1;
/// The sender's memory is big-endian.
const BIG_ENDIAN: u8 = 1;
/// The sender knows mapped memory.
const MAPS: u8 = 2;
const OPERATION_SHIFT: u32 = 29;
/// Scale of the size of the table of mappings: up to 128 as it is, above in units of 256.
const SCALE_BIT: u32 = 0x80;
const SCALE_SHIFT: u32 = 8;

/// Memory that a peer may write to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Range {
    /// In memory, in the byte order of whoever reads it there.
    pub(super) fn to_memory(self, big_endian: bool) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        let (address, key, length) = match big_endian {
            true => (self.address.to_be_bytes(), self.key.to_be_bytes(), self.length.to_be_bytes()),
            false => (self.address.to_le_bytes(), self.key.to_le_bytes(), self.length.to_le_bytes()),
        };
        bytes[..8].copy_from_slice(&address);
        bytes[8..12].copy_from_slice(&key);
        bytes[12..].copy_from_slice(&length);
        bytes
    }

    /// As this end reads what its peer wrote for it.
    pub(super) fn from_memory(bytes: [u8; RANGE_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, key @ .., i, j, k, l] = bytes;
        Self {
            address: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_ne_bytes(key),
            length: u32::from_ne_bytes([i, j, k, l]),
        }
    }
}

/// What an end says of itself when it connects or accepts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Connect {
    pub(super) big_endian: bool,
    /// Messages that it can take before it gives more credits.
    pub(super) credits: u16,
    /// Entries of its table of mapped memory; 0 when it does not know such a thing.
    pub(super) mappings: u32,
    /// Its table of granted memory; the length counts entries.
    pub(super) grants: Range,
    /// The first half of its receive buffer.
    pub(super) first: Range,
}

impl Connect {
    pub(super) fn to_bytes(self) -> [u8; CONNECT_BYTES] {
        let mut bytes = [0; CONNECT_BYTES];
        bytes[0] = VERSION;
        bytes[1] = MAPS | if self.big_endian { BIG_ENDIAN } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scale(self.mappings);
        bytes[8..24].copy_from_slice(&self.grants.to_memory(true));
        bytes[24..40].copy_from_slice(&self.first.to_memory(true));
        bytes
    }

    /// `None` for what is too short, of another version, or makes no sense.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CONNECT_BYTES] = bytes.first_chunk()?;
        let network = |at: usize| -> Option<Range> {
            let bytes: &[u8; RANGE_BYTES] = bytes.get(at..)?.first_chunk()?;
            let [address @ .., _, _, _, _, _, _, _, _] = *bytes;
            let [_, _, _, _, _, _, _, _, key @ .., i, j, k, l] = *bytes;
            let length = u32::from_be_bytes([i, j, k, l]);
            Some(Range { address: u64::from_be_bytes(address), key: u32::from_be_bytes(key), length })
        };
        let connect = Self {
            big_endian: bytes[1] & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            mappings: if bytes[1] & MAPS != 0 { unscale(bytes[7]) } else { 0 },
            grants: network(8)?,
            first: network(24)?,
        };
        (bytes[0] == VERSION && connect.grants.length > 0).then_some(connect)
    }
}

/// The size of a table of mappings as one byte; what does not fit is rounded down.
pub(super) fn scale(value: u32) -> u8 {
    let value = value.min(0x7fff);
    let scaled = if value <= SCALE_BIT { value } else { SCALE_BIT | (value >> SCALE_SHIFT) };
    scaled as u8
}

/// And back.
pub(super) fn unscale(scaled: u8) -> u32 {
    let value = u32::from(scaled);
    if value <= SCALE_BIT { value } else { (value & !SCALE_BIT) << SCALE_SHIFT }
}

/// The immediate data of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// So many bytes were written to granted memory.
    Data(u32),
    /// This many messages, counted from the beginning, may be sent; a range may have been granted.
    Credits(u16),
    /// An entry of the table of mapped memory was written.
    Mapping(u32),
    /// The sender is done, in both directions.
    Disconnect,
    /// Nothing is new.
    KeepAlive,
    /// The sender sends no more.
    Shutdown,
    /// Nothing that is known: reserved for others.
    Unknown,
}

impl Message {
    /// As the wire has it, before it is made big-endian.
    pub(super) const fn value(self) -> u32 {
        let (operation, data) = match self {
            Self::Data(length) => (0, length),
            Self::Credits(credits) => (4, credits as u32),
            Self::Mapping(index) => (6, index),
            Self::Disconnect => (7, 0),
            Self::KeepAlive => (7, 1),
            Self::Shutdown => (7, 2),
            Self::Unknown => (5, 0),
        };
        (operation << OPERATION_SHIFT) | (data & LENGTH_MAX)
    }

    pub(super) const fn parse(value: u32) -> Self {
        let data = value & LENGTH_MAX;
        match (value >> OPERATION_SHIFT, data) {
            (0, length) => Self::Data(length),
            // Sixteen bits count, the rest wrapped.
            (4, credits) => Self::Credits(credits as u16),
            (6, index) => Self::Mapping(index),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::KeepAlive,
            (7, 2) => Self::Shutdown,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connects_is_as_rdma_core_has_it() {
        let connect = Connect {
            big_endian: false,
            credits: 384,
            mappings: 4,
            grants: Range { address: 0x1122_3344_5566_7788, key: 0xaabb_ccdd, length: 2 },
            first: Range { address: 0x99, key: 7, length: 65536 },
        };
        let bytes = connect.to_bytes();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 4]);
        assert_eq!(bytes[8..16], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(bytes[16..24], [0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 2]);
        assert_eq!(bytes[32..40], [0, 0, 0, 7, 0, 1, 0, 0]);
        assert_eq!(Connect::parse(&bytes), Some(connect));
        // The connection manager pads.
        assert_eq!(Connect::parse(&[&bytes[..], &[0; 16]].concat()), Some(connect));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bytes =
            Connect { grants: Range { length: 2, ..Range::default() }, ..Connect::default() }.to_bytes();
        assert!(Connect::parse(&bytes).is_some());
        assert_eq!(Connect::parse(&bytes[..39]), None);
        assert_eq!(Connect::parse(&[2; CONNECT_BYTES]), None);
        assert_eq!(Connect::parse(&Connect::default().to_bytes()), None);
    }

    #[test]
    fn messages_come_back_as_they_were_sent() {
        let all = [Message::Data(LENGTH_MAX), Message::Credits(0xffff), Message::Mapping(3)];
        for message in all.into_iter().chain([Message::Disconnect, Message::KeepAlive, Message::Shutdown]) {
            assert_eq!(Message::parse(message.value()), message);
        }
        assert_eq!(Message::Shutdown.value(), 0xe000_0002);
        for reserved in [0x2000_0000, 0x4000_0000, 0x6000_0000, 0xa000_0000, 0xe000_0003] {
            assert_eq!(Message::parse(reserved), Message::Unknown);
        }
    }

    #[test]
    fn ranges_are_written_in_the_order_of_who_reads_them() {
        let range = Range { address: 1, key: 2, length: 3 };
        assert_eq!(Range::from_memory(range.to_memory(cfg!(target_endian = "big"))), range);
        assert_eq!(range.to_memory(true)[7], 1);
        assert_eq!(range.to_memory(false)[0], 1);
    }

    #[test]
    fn sizes_of_tables_are_rounded_down() {
        for (value, rounded) in [(0, 0), (5, 5), (128, 128), (129, 128), (256, 256), (1000, 768)] {
            assert_eq!(unscale(scale(value)), rounded, "{value}");
        }
    }
}
