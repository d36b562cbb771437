//! Direct writes (`riomap`, `riowrite`): memory that a peer writes to at offsets that both ends know.

use super::protocol::Range;
use super::stream::Stream;
use abi::{ibv_mr, ibv_pd};
use core::ffi::{c_int, c_void};
use ffi::Errno;
use rdma_cm::verbs::verbs;

const LOCAL_WRITE: c_int = 1;
const REMOTE_WRITE: c_int = 2;
const REMOTE_READ: c_int = 4;
/// Offset argument -1: the address is the offset.
const OFFSET_IS_ADDRESS: i64 = -1;

/// A mapped range of this process's memory.
struct Mapping {
    offset: u64,
    mr: *mut ibv_mr,
    /// Index in the peer's table of mappings, and whether the peer has the entry.
    index: u32,
    is_announced: bool,
    /// Unmapped by the program; removed once the peer has the changed entry.
    gone: bool,
}

impl Mapping {
    fn range(&self) -> Range {
        // SAFETY: registered as long as this is there.
        let mr = unsafe { &*self.mr };
        let length = if self.gone { 0 } else { mr.length as u32 };
        Range {
            address: mr.addr as u64,
            key: mr.rkey,
            length,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Ok(verbs) = verbs() {
            // SAFETY: ours.
            unsafe { (verbs.ibv_dereg_mr)(self.mr) };
        }
    }
}

/// The ranges that this end has mapped.
#[derive(Default)]
pub(super) struct Mappings(Vec<Mapping>);

impl Mappings {
    /// Registers memory for the peer, which gets the table entry before the next bytes.
    ///
    /// # Safety
    /// `length` bytes at `memory` stay valid until they are unmapped, and `pd` as long as this.
    pub(super) unsafe fn map(
        &mut self,
        stream: &mut Stream,
        pd: *mut ibv_pd,
        memory: *mut c_void,
        length: usize,
        protection: c_int,
        offset: i64,
    ) -> Result<i64, Errno> {
        let room = stream.peer_mappings();
        if memory.is_null() || length == 0 || u32::try_from(length).is_err() {
            return Err(Errno::INVALID);
        }
        let index = (0..room).find(|index| !self.0.iter().any(|mapping| mapping.index == *index));
        let index = index.ok_or(Errno::NO_MEMORY)?;
        let offset = if offset == OFFSET_IS_ADDRESS {
            memory as u64
        } else {
            offset as u64
        };
        let mut access = LOCAL_WRITE;
        access |= if protection & libc::PROT_WRITE != 0 {
            REMOTE_WRITE
        } else {
            0
        };
        access |= if protection & libc::PROT_READ != 0 {
            REMOTE_READ
        } else {
            0
        };
        // SAFETY: by this function's contract, `length` bytes at `memory` stay valid until they are unmapped.
        let mr = unsafe { (verbs()?.ibv_reg_mr)(pd, memory, length, access) };
        let mr = Errno::check_pointer(mr)?;
        self.0.push(Mapping {
            offset,
            mr,
            index,
            is_announced: false,
            gone: false,
        });
        self.announce(stream)?;
        Ok(offset as i64)
    }

    /// Unmaps a range, which is removed once the peer has the changed entry.
    pub(super) fn unmap(&mut self, memory: *mut c_void, length: usize) -> Result<(), Errno> {
        // SAFETY: registered as long as the mapping is there.
        let mr = |mapping: &Mapping| unsafe { ((*mapping.mr).addr, (*mapping.mr).length) };
        let is_it = |mapping: &Mapping| mr(mapping) == (memory, length);
        let found = self
            .0
            .iter_mut()
            .find(|mapping| !mapping.gone && is_it(mapping));
        let mapping = found.ok_or(Errno::INVALID)?;
        (mapping.gone, mapping.is_announced) = (true, false);
        Ok(())
    }

    /// Removes unmapped ranges without notifying the peer: the connection has ended.
    pub(super) fn remove_unmapped(&mut self) {
        self.0.retain(|mapping| !mapping.gone);
    }

    /// Writes table entries to the peer, as many as there is room for.
    pub(super) fn announce(&mut self, stream: &mut Stream) -> Result<(), Errno> {
        for mapping in self.0.iter_mut().filter(|mapping| !mapping.is_announced) {
            if !stream.can_map() {
                return Ok(());
            }
            stream.map(mapping.index, mapping.offset, mapping.range())?;
            mapping.is_announced = true;
        }
        self.0
            .retain(|mapping| !(mapping.gone && mapping.is_announced));
        Ok(())
    }

    /// Whether the peer has all entries: bytes that are sent afterwards may rely on them.
    pub(super) fn are_announced(&self) -> bool {
        self.0.iter().all(|mapping| mapping.is_announced)
    }

    /// Deregisters all ranges.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
