//! Protocol between a device and a lab, which emulates the network: messages on a Unix socket, and records in
//! the shared memory that the lab passes over it.
//!
//! ```text
//! device ──Hello: version, range of queue pair numbers──▶ lab
//! ```
//!
//! A record begins with a [`Header`], then the transport headers in their wire format; its payload is the
//! packet's, without padding and ICRC.

/// Version of these messages and records.
pub const VERSION: u32 = 3;
/// Classes of packets (priorities of 802.1Q).
pub const CLASSES: usize = 8;
/// Bytes of a [`Hello`].
pub const MESSAGE_BYTES: usize = 12;
/// The byte that wakes the other side.
pub const WAKE: u8 = 0;

/// Announces queue pair numbers of a device. The first message on a connection opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The first number.
    pub first: u32,
    /// Count of the numbers.
    pub count: u32,
}

impl Hello {
    /// Encodes the message.
    pub fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Decodes a message; `None` for another version.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (word(0) == VERSION).then(|| Self {
            first: word(4),
            count: word(8),
        })
    }
}

/// The answer to the first [`Hello`]: the mapping of packets to rings. The lab reads the class of each packet
/// from the packet itself, so a device that deviates only delays its own packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Limit of bytes in a ring, above which the device waits.
    pub ahead: u32,
    /// The classes of data and of acknowledgements, for programs that choose no DSCP.
    pub classes: [u8; 2],
    /// The class of each DSCP that a program may choose.
    pub by_dscp: [u8; DSCPS],
}

/// Number of DSCPs.
const DSCPS: usize = 64;

impl Welcome {
    /// Length in bytes.
    pub const BYTES: usize = 8 + 2 + DSCPS;

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ahead.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.classes);
        bytes[10..].copy_from_slice(&self.by_dscp);
        bytes
    }

    /// Decodes a message; `None` for another version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let by_dscp = std::array::from_fn(|dscp| bytes[10 + dscp]);
        (word(0) == VERSION).then(|| Self {
            ahead: word(4),
            classes: [bytes[8], bytes[9]],
            by_dscp,
        })
    }

    /// Index of the ring for packets with this traffic class.
    #[inline]
    pub fn ring(&self, traffic_class: u8, is_acknowledgement: bool) -> usize {
        let class = match traffic_class >> 2 {
            0 => self.classes[usize::from(is_acknowledgement)],
            dscp => self.by_dscp[usize::from(dscp)],
        };
        usize::from(class) % CLASSES
    }
}

/// Header of a record, before the transport headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Time at which the packet was made or arrived, in nanoseconds of the lab's clock.
    pub stamp: u64,
    /// The address of the sending device: IPv4-mapped for IPv4, and of a LID for a port of a subnet.
    pub source: [u8; 16],
    /// The address of the receiving device: as that of the sender, or of a multicast group.
    pub destination: [u8; 16],
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL).
    pub hop_limit: u8,
    /// UDP source port; in an InfiniBand subnet the LID that the packet is routed by.
    pub source_port: u16,
    /// The service level of InfiniBand.
    pub service_level: u8,
}

impl Header {
    /// Length in bytes.
    pub const BYTES: usize = 45;

    /// Encodes the header.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.source);
        bytes[24..40].copy_from_slice(&self.destination);
        bytes[40] = self.traffic_class;
        bytes[41] = self.hop_limit;
        bytes[42..44].copy_from_slice(&self.source_port.to_le_bytes());
        bytes[44] = self.service_level;
        bytes
    }

    /// Decodes the header, and returns the bytes after it; `None` where a record is too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        let piece = |at: usize| std::array::from_fn(|byte| header[at + byte]);
        let parsed = Self {
            stamp: u64::from_le_bytes(piece(0)),
            source: std::array::from_fn(|byte| header[8 + byte]),
            destination: std::array::from_fn(|byte| header[24 + byte]),
            traffic_class: header[40],
            hop_limit: header[41],
            source_port: u16::from_le_bytes([header[42], header[43]]),
            service_level: header[44],
        };
        Some((parsed, rest))
    }
}

/// The monotonic clock in nanoseconds, which all processes of the machine share.
#[inline]
pub fn monotonic() -> u64 {
    crate::sys::clock::monotonic()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_headers_are_read_as_they_were_written() {
        let hello = Hello {
            first: 0x4000,
            count: 0x4000,
        };
        assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        let mut other = hello.to_bytes();
        other[0] ^= 1;
        assert_eq!(Hello::parse(&other), None);
        let by_dscp = std::array::from_fn(|dscp| dscp as u8 >> 3);
        let welcome = Welcome {
            ahead: 1 << 14,
            classes: [3, 6],
            by_dscp,
        };
        assert_eq!(Welcome::parse(&welcome.to_bytes()), Some(welcome));
        assert_eq!(Welcome::parse(&hello.to_bytes()), None);
        assert_eq!(
            [0, 2, 26 << 2].map(|class| welcome.ring(class, false)),
            [3, 3, 3]
        );
        assert_eq!(
            [1, 26 << 2, 8 << 2].map(|class| welcome.ring(class, true)),
            [6, 3, 1]
        );
        let header = Header {
            stamp: 1 << 40,
            source: [1; 16],
            destination: [2; 16],
            traffic_class: 104,
            hop_limit: 64,
            source_port: 49_152,
            service_level: 7,
        };
        let mut record = header.to_bytes().to_vec();
        record.extend([7, 8]);
        assert_eq!(Header::parse(&record), Some((header, &[7, 8][..])));
        assert_eq!(Header::parse(&record[..44]), None);
        assert!(monotonic() <= monotonic());
    }
}
