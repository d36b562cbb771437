//! The protocol between two rsockets, in rdma-core's layout (`docs/rsocket` in its sources), so that both
//! interoperate.
//!
//! Each end registers a receive buffer, and grants its halves to the peer in turn. The peer writes its bytes
//! there by RDMA WRITE, with their number in the immediate data. The granted ranges are in a table of two
//! entries at the writer, into which the reader writes by RDMA WRITE too.

/// Bytes of private data in the REQ and the REP.
pub(super) const CONNECT_BYTES: usize = 40;
/// Entries of the table of granted ranges.
pub(super) const GRANTS: usize = 2;
/// Bytes of a memory range, in memory and on the wire: address, key, length.
pub(super) const RANGE_BYTES: usize = 16;
/// Bytes of an entry of the table of mappings: offset, then a range.
pub(super) const MAPPING_BYTES: usize = 24;
/// Largest length in a message: 29 bits.
pub(super) const LENGTH_MAX: u32 = 0x1fff_ffff;

const VERSION: u8 = 1;
/// Flag: the sender is big-endian.
const BIG_ENDIAN: u8 = 1;
/// Flag: the sender has a table of mappings (`riomap`).
const MAPS: u8 = 2;
const OPERATION_SHIFT: u32 = 29;
/// Scaling of the number of mappings to one byte: up to 128 unchanged, above in units of 256.
const SCALE_BIT: u32 = 0x80;
const SCALE_SHIFT: u32 = 8;

/// A memory range that a peer may write to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Range {
    /// The bytes of a range in memory, in the byte order of the host that reads it there.
    pub(super) fn to_memory(self, big_endian: bool) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        let (address, key, length) = match big_endian {
            true => (
                self.address.to_be_bytes(),
                self.key.to_be_bytes(),
                self.length.to_be_bytes(),
            ),
            false => (
                self.address.to_le_bytes(),
                self.key.to_le_bytes(),
                self.length.to_le_bytes(),
            ),
        };
        bytes[..8].copy_from_slice(&address);
        bytes[8..12].copy_from_slice(&key);
        bytes[12..].copy_from_slice(&length);
        bytes
    }

    /// A range that the peer wrote into this host's memory.
    pub(super) fn from_memory(bytes: [u8; RANGE_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, key @ .., i, j, k, l] = bytes;
        Self {
            address: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_ne_bytes(key),
            length: u32::from_ne_bytes([i, j, k, l]),
        }
    }
}

/// Private data of a REQ or REP: the parameters of one end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Connect {
    pub(super) big_endian: bool,
    /// Messages that the end can receive before it sends more credits.
    pub(super) credits: u16,
    /// Entries of its table of mappings; 0 if it has none.
    pub(super) mappings: u32,
    /// Its table of granted ranges; the length is the number of entries.
    pub(super) grants: Range,
    /// The first granted range: half of its receive buffer.
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

    /// `None` for private data that is too short, of another version, or has an empty grant table.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CONNECT_BYTES] = bytes.first_chunk()?;
        let network = |at: usize| -> Option<Range> {
            let bytes: &[u8; RANGE_BYTES] = bytes.get(at..)?.first_chunk()?;
            let [address @ .., _, _, _, _, _, _, _, _] = *bytes;
            let [_, _, _, _, _, _, _, _, key @ .., i, j, k, l] = *bytes;
            let length = u32::from_be_bytes([i, j, k, l]);
            Some(Range {
                address: u64::from_be_bytes(address),
                key: u32::from_be_bytes(key),
                length,
            })
        };
        let connect = Self {
            big_endian: bytes[1] & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            mappings: if bytes[1] & MAPS != 0 {
                unscale(bytes[7])
            } else {
                0
            },
            grants: network(8)?,
            first: network(24)?,
        };
        (bytes[0] == VERSION && connect.grants.length > 0).then_some(connect)
    }
}

/// Scales a number of mappings to one byte, rounded down.
pub(super) fn scale(value: u32) -> u8 {
    let value = value.min(0x7fff);
    let scaled = if value <= SCALE_BIT {
        value
    } else {
        SCALE_BIT | (value >> SCALE_SHIFT)
    };
    scaled as u8
}

/// The inverse of [`scale`].
pub(super) fn unscale(scaled: u8) -> u32 {
    let value = u32::from(scaled);
    if value <= SCALE_BIT {
        value
    } else {
        (value & !SCALE_BIT) << SCALE_SHIFT
    }
}

/// A message: the immediate data of an RDMA WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// This number of bytes was written to granted memory.
    Data(u32),
    /// The peer may send messages up to this sequence number; a range may have been granted.
    Credits(u16),
    /// This entry of the table of mappings was written.
    Mapping(u32),
    /// The sender closes both directions.
    Disconnect,
    /// Keep-alive, without further meaning.
    KeepAlive,
    /// The sender closes its sending direction.
    Shutdown,
    /// A reserved value.
    Unknown,
}

impl Message {
    /// The immediate data in host byte order; it is sent in big-endian.
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
            // Sequence numbers have 16 bits and wrap.
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
    fn private_data_has_the_layout_of_rdma_core() {
        let connect = Connect {
            big_endian: false,
            credits: 384,
            mappings: 4,
            grants: Range {
                address: 0x1122_3344_5566_7788,
                key: 0xaabb_ccdd,
                length: 2,
            },
            first: Range {
                address: 0x99,
                key: 7,
                length: 65536,
            },
        };
        let bytes = connect.to_bytes();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 4]);
        assert_eq!(
            bytes[8..16],
            [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]
        );
        assert_eq!(bytes[16..24], [0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 2]);
        assert_eq!(bytes[32..40], [0, 0, 0, 7, 0, 1, 0, 0]);
        assert_eq!(Connect::parse(&bytes), Some(connect));
        // The connection manager pads private data.
        assert_eq!(
            Connect::parse(&[&bytes[..], &[0; 16]].concat()),
            Some(connect)
        );
    }

    #[test]
    fn invalid_private_data_is_rejected() {
        let bytes = Connect {
            grants: Range {
                length: 2,
                ..Range::default()
            },
            ..Connect::default()
        }
        .to_bytes();
        assert!(Connect::parse(&bytes).is_some());
        assert_eq!(Connect::parse(&bytes[..39]), None);
        assert_eq!(Connect::parse(&[2; CONNECT_BYTES]), None);
        assert_eq!(Connect::parse(&Connect::default().to_bytes()), None);
    }

    #[test]
    fn messages_round_trip() {
        let all = [
            Message::Data(LENGTH_MAX),
            Message::Credits(0xffff),
            Message::Mapping(3),
        ];
        for message in
            all.into_iter()
                .chain([Message::Disconnect, Message::KeepAlive, Message::Shutdown])
        {
            assert_eq!(Message::parse(message.value()), message);
        }
        assert_eq!(Message::Shutdown.value(), 0xe000_0002);
        for reserved in [
            0x2000_0000,
            0x4000_0000,
            0x6000_0000,
            0xa000_0000,
            0xe000_0003,
        ] {
            assert_eq!(Message::parse(reserved), Message::Unknown);
        }
    }

    #[test]
    fn ranges_are_written_in_the_readers_byte_order() {
        let range = Range {
            address: 1,
            key: 2,
            length: 3,
        };
        assert_eq!(
            Range::from_memory(range.to_memory(cfg!(target_endian = "big"))),
            range
        );
        assert_eq!(range.to_memory(true)[7], 1);
        assert_eq!(range.to_memory(false)[0], 1);
    }

    #[test]
    fn sizes_of_tables_are_rounded_down() {
        for (value, rounded) in [
            (0, 0),
            (5, 5),
            (128, 128),
            (129, 128),
            (256, 256),
            (1000, 768),
        ] {
            assert_eq!(unscale(scale(value)), rounded, "{value}");
        }
    }
}
