//! Records of `/dev/infiniband/umadN`: a header and a datagram (Linux, `include/uapi/rdma/ib_user_mad.h`).
//! Numbers are in the order of the machine, but for queue pairs, keys, LIDs and flow labels, which are in
//! network order.

use crate::mad::{Mad, get, put};
use crate::subnet::{GlobalRoute, Packet};
use alloc::vec::Vec;

/// Size of a header with the index of a partition key.
pub const HEADER_BYTES: usize = 64;
/// Size of a header of programs that did not ask for that.
pub const OLD_HEADER_BYTES: usize = 56;

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header {
    /// Number of the agent within the file.
    pub agent: u32,
    /// 0, or the number of an error.
    pub status: u32,
    /// Time until the answer, in milliseconds; 0 where no answer is expected.
    pub timeout_ms: u32,
    /// How often a request is repeated.
    pub retries: u32,
    /// Bytes of the whole record, in what is read.
    pub length: u32,
    /// The queue pair of the other side.
    pub qp: u32,
    /// The key of that queue pair.
    pub q_key: u32,
    /// The LID of the other side.
    pub lid: u16,
    /// The service level.
    pub service_level: u8,
    /// Low bits of the own LID.
    pub path_bits: u8,
    /// The global route, if there is one.
    pub global: Option<GlobalRoute>,
    /// Index of the partition key.
    pub p_key_index: u16,
}

impl Header {
    /// Reads a header; `None` when there are too few bytes.
    pub fn parse(bytes: &[u8], has_p_key: bool) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_at_checked(header_bytes(has_p_key))?;
        let word = |at: usize| u32::from_ne_bytes(core::array::from_fn(|byte| header[at + byte]));
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let has_global = header[32] != 0;
        let parsed = Self {
            agent: word(0),
            status: word(4),
            timeout_ms: word(8),
            retries: word(12),
            length: word(16),
            qp: get(header, 20),
            q_key: get(header, 24),
            lid: get(header, 28),
            service_level: header[30],
            path_bits: header[31],
            global: has_global.then(|| GlobalRoute {
                hop_limit: header[34],
                traffic_class: header[35],
                flow_label: get(header, 52),
                source: [0; 16],
                destination: core::array::from_fn(|byte| header[36 + byte]),
            }),
            p_key_index: if has_p_key { half(56) } else { 0 },
        };
        Some((parsed, rest))
    }

    /// Writes the header.
    pub fn bytes(&self, has_p_key: bool) -> Vec<u8> {
        let mut bytes = alloc::vec![0; header_bytes(has_p_key)];
        let words = [
            self.agent,
            self.status,
            self.timeout_ms,
            self.retries,
            self.length,
        ];
        for (index, word) in words.into_iter().enumerate() {
            bytes[4 * index..4 * index + 4].copy_from_slice(&word.to_ne_bytes());
        }
        put(&mut bytes, 20, self.qp);
        put(&mut bytes, 24, self.q_key);
        put(&mut bytes, 28, self.lid);
        (bytes[30], bytes[31]) = (self.service_level, self.path_bits);
        if let Some(global) = &self.global {
            bytes[32] = 1;
            (bytes[34], bytes[35]) = (global.hop_limit, global.traffic_class);
            bytes[36..52].copy_from_slice(&global.source);
            put(&mut bytes, 52, global.flow_label);
        }
        if has_p_key {
            bytes[56..58].copy_from_slice(&self.p_key_index.to_ne_bytes());
        }
        bytes
    }
}

/// Size of a header.
pub(super) const fn header_bytes(has_p_key: bool) -> usize {
    if has_p_key {
        HEADER_BYTES
    } else {
        OLD_HEADER_BYTES
    }
}

/// The record of a packet that arrived. Its datagram may be a message of several packets.
pub(super) fn of_received(
    agent: u32,
    packet: &Packet,
    p_key_index: u16,
    datagram: &[u8],
    has_p_key: bool,
) -> Vec<u8> {
    let header = Header {
        agent,
        length: (header_bytes(has_p_key) + datagram.len()) as u32,
        qp: packet.source_qp,
        q_key: packet.q_key,
        lid: packet.source_lid,
        service_level: packet.service_level,
        global: packet.global,
        p_key_index,
        ..Header::default()
    };
    let mut record = header.bytes(has_p_key);
    record.extend_from_slice(datagram);
    record
}

/// The record of a request that had no answer: its header, and the first 24 bytes of the datagram.
pub(super) fn of_timeout(header: &Header, mad: &Mad, has_p_key: bool) -> Vec<u8> {
    let header = Header {
        status: super::Errno::TIMED_OUT,
        ..*header
    };
    let mut record = header.bytes(has_p_key);
    record.extend_from_slice(&mad.bytes()[..crate::mad::HEADER_BYTES]);
    record
}
