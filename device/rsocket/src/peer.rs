//! The state of a stream's peer: the places of its tables, and the number of messages that it can receive.

use super::protocol::{Connect, MAPPING_BYTES, RANGE_BYTES, Range};
use abi::ibv_wr_rdma;

/// The peer of a stream.
#[derive(Default, Debug)]
pub(super) struct Peer {
    parameters: Connect,
    /// Messages that were sent, modulo 2^16, and the number up to which they may be.
    sent: u16,
    may_send: u16,
    /// Index of the grant that the peer gets next.
    grant: u32,
}

impl Peer {
    /// The first grant of the peer is in the parameters of this end.
    pub(super) fn new(parameters: Connect) -> Self {
        Self {
            parameters,
            sent: 0,
            may_send: parameters.credits,
            grant: 1,
        }
    }

    /// Whether the peer has named its parameters, and can receive messages.
    pub(super) fn is_known(&self) -> bool {
        self.parameters.credits != 0
    }

    /// Entries of its table of mappings.
    pub(super) fn mappings(&self) -> u32 {
        self.parameters.mappings
    }

    /// Whether the peer has a receive for one more message.
    pub(super) fn has_receive(&self) -> bool {
        self.sent != self.may_send
    }

    /// A message is about to be sent.
    pub(super) fn count_message(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Sets the number of the last message that the peer can receive.
    pub(super) fn set_credits(&mut self, may_send: u16) {
        self.may_send = may_send;
    }

    /// A range in its byte order.
    pub(super) fn range(&self, range: Range) -> [u8; RANGE_BYTES] {
        range.to_memory(self.parameters.big_endian)
    }

    /// Address and key of the memory to which the next grant is written.
    pub(super) fn grant_place(&self) -> ibv_wr_rdma {
        let Range { address, key, .. } = self.parameters.grants;
        ibv_wr_rdma {
            remote_addr: address.wrapping_add(u64::from(self.grant) * RANGE_BYTES as u64),
            rkey: key,
        }
    }

    /// The next grant was written.
    pub(super) fn granted(&mut self) {
        self.grant = (self.grant + 1) % self.parameters.grants.length.max(1);
    }

    /// An entry of its table of mappings, in its byte order.
    pub(super) fn mapping(&self, offset: u64, range: Range) -> [u8; MAPPING_BYTES] {
        let offset = if self.parameters.big_endian {
            offset.to_be_bytes()
        } else {
            offset.to_le_bytes()
        };
        let mut entry = [0; MAPPING_BYTES];
        entry[..8].copy_from_slice(&offset);
        entry[8..].copy_from_slice(&self.range(range));
        entry
    }

    /// Where an entry of its table of mappings is written, behind the table of grants: address and key.
    pub(super) fn mapping_place(&self, index: u32) -> ibv_wr_rdma {
        let Range {
            address,
            key,
            length,
        } = self.parameters.grants;
        let table = u64::from(length) * RANGE_BYTES as u64;
        ibv_wr_rdma {
            remote_addr: address.wrapping_add(table + u64::from(index) * MAPPING_BYTES as u64),
            rkey: key,
        }
    }
}
