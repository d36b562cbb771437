//! Ranges of the peer's memory that this end may write, in tables that the peer writes: those that it has
//! granted in turn, and those that it has mapped.

use super::buffer::Buffer;
use super::protocol::{GRANTS, MAPPING_BYTES, RANGE_BYTES, Range};
use super::sizes::{CONTROL_REQUESTS, PEER_WRITES};
use abi::{ibv_pd, ibv_sge};
use ffi::Errno;

/// The tables, and behind them ranges that control messages send.
pub(super) struct Ranges {
    memory: Buffer,
    mappings: u32,
    /// Index of the grant that is being written to.
    grant: usize,
    /// Ranges that were sent.
    sent: usize,
}

impl Ranges {
    /// # Safety
    /// `pd` outlives this.
    pub(super) unsafe fn new(pd: *mut ibv_pd, mappings: u32) -> Result<Self, Errno> {
        let length = slots_at(mappings) + CONTROL_REQUESTS as usize * RANGE_BYTES;
        // SAFETY: by this function's contract, `pd` outlives the buffer.
        let memory = unsafe { Buffer::new(pd, length, PEER_WRITES) }?;
        Ok(Self {
            memory,
            mappings,
            grant: 0,
            sent: 0,
        })
    }

    /// Entries of the table of mappings.
    pub(super) fn mappings(&self) -> u32 {
        self.mappings
    }

    /// The table of grants, for the peer.
    pub(super) fn grants(&self) -> Range {
        Range {
            address: self.memory.address(),
            key: self.memory.key(),
            length: GRANTS as u32,
        }
    }

    /// The granted range that is written to next.
    pub(super) fn granted(&self) -> Range {
        Range::from_memory(self.memory.read(self.grant * RANGE_BYTES))
    }

    /// Sets the range that is granted when the connection is made.
    pub(super) fn set_first(&mut self, first: Range) {
        self.write_grant(0, first);
    }

    fn write_grant(&mut self, index: usize, range: Range) {
        self.memory.copy_in(
            index * RANGE_BYTES,
            &range.to_memory(cfg!(target_endian = "big")),
        );
    }

    /// Sets what is left of the granted range. The peer may grant the entry anew as soon as it has read the
    /// bytes, so it is updated before they are sent.
    pub(super) fn set_granted(&mut self, left: Range) {
        self.write_grant(self.grant, left);
        if left.length == 0 {
            self.grant = (self.grant + 1) % GRANTS;
        }
    }

    /// The range that the peer has mapped at an offset, and the offset in it.
    pub(super) fn mapped(&self, offset: u64) -> Option<(Range, u64)> {
        (0..self.mappings as usize).find_map(|index| {
            let at = GRANTS * RANGE_BYTES + index * MAPPING_BYTES;
            let start = u64::from_ne_bytes(self.memory.read(at));
            let range = Range::from_memory(self.memory.read(at + 8));
            let inside = offset
                .checked_sub(start)
                .filter(|inside| *inside < u64::from(range.length))?;
            Some((range, inside))
        })
    }

    /// Places a range where a control message sends it from. The place is used again after as many control
    /// messages as may be posted.
    pub(super) fn place_range(&mut self, range: [u8; RANGE_BYTES]) -> ibv_sge {
        let slot = slots_at(self.mappings) + (self.sent % CONTROL_REQUESTS as usize) * RANGE_BYTES;
        self.sent += 1;
        self.memory.copy_in(slot, &range);
        let ([piece, _], _) = self.memory.pieces(slot, RANGE_BYTES);
        piece
    }
}

/// Bytes of both tables.
const fn slots_at(mappings: u32) -> usize {
    GRANTS * RANGE_BYTES + mappings as usize * MAPPING_BYTES
}
