//! Direct writes (`riomap`, `riowrite`): memory that a peer writes to at offsets that both ends know.

use super::protocol::Range;
use super::socket::Inner;
use crate::verbs::verbs;
use abi::ibv_mr;
use core::ffi::{c_int, c_void};
use door::Errno;

const LOCAL_WRITE: c_int = 1;
const REMOTE_WRITE: c_int = 2;
const REMOTE_READ: c_int = 4;
/// Offset argument -1: the address is the offset.
const OFFSET_IS_ADDRESS: i64 = -1;

/// A mapped range of this process's memory.
pub(super) struct Mapping {
    offset: u64,
    mr: *mut ibv_mr,
    /// Index in the peer's table of mappings, and whether the peer has the entry.
    index: u32,
    is_announced: bool,
    /// Unmapped by the program; removed once the peer has been told.
    gone: bool,
}

impl Mapping {
    fn range(&self) -> Range {
        // SAFETY: registered as long as this is there.
        let mr = unsafe { &*self.mr };
        let length = if self.gone { 0 } else { mr.length as u32 };
        Range { address: mr.addr as u64, key: mr.rkey, length }
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

impl Inner {
    /// Registers memory for the peer, which gets the table entry before the next bytes.
    ///
    /// # Safety
    /// `length` bytes at `memory` stay valid until they are unmapped.
    pub(super) unsafe fn map(
        &mut self,
        memory: *mut c_void,
        length: usize,
        protection: c_int,
        offset: i64,
    ) -> Result<i64, Errno> {
        let room = self.stream()?.peer_mappings();
        if memory.is_null() || length == 0 || u32::try_from(length).is_err() {
            return Err(Errno::INVALID);
        }
        let index = (0..room).find(|index| !self.mappings.iter().any(|mapping| mapping.index == *index));
        let index = index.ok_or(Errno::NO_MEMORY)?;
        let offset = if offset == OFFSET_IS_ADDRESS { memory as u64 } else { offset as u64 };
        let mut access = LOCAL_WRITE;
        access |= if protection & libc::PROT_WRITE != 0 { REMOTE_WRITE } else { 0 };
        access |= if protection & libc::PROT_READ != 0 { REMOTE_READ } else { 0 };
        // SAFETY: by this function's contract, `length` bytes at `memory` stay valid until they are unmapped;
        // the identifier has a queue pair, and so a domain.
        let mr = unsafe { (verbs()?.ibv_reg_mr)((*self.id).pd, memory, length, access) };
        let mr = Errno::check_pointer(mr)?;
        self.mappings.push(Mapping { offset, mr, index, is_announced: false, gone: false });
        self.announce_mappings()?;
        Ok(offset as i64)
    }

    /// Unmaps a range.
    pub(super) fn unmap(&mut self, memory: *mut c_void, length: usize) -> Result<(), Errno> {
        // SAFETY: registered as long as the mapping is there.
        let mr = |mapping: &Mapping| unsafe { ((*mapping.mr).addr, (*mapping.mr).length) };
        let is_it = |mapping: &Mapping| mr(mapping) == (memory, length);
        let found = self.mappings.iter_mut().find(|mapping| !mapping.gone && is_it(mapping));
        let mapping = found.ok_or(Errno::INVALID)?;
        (mapping.gone, mapping.is_announced) = (true, false);
        if self.stream().is_ok_and(|stream| stream.ended.is_some()) {
            self.mappings.retain(|mapping| !mapping.gone);
            return Ok(());
        }
        self.announce_mappings()
    }

    /// Writes table entries to the peer, as many as there is room for.
    pub(super) fn announce_mappings(&mut self) -> Result<(), Errno> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        for mapping in self.mappings.iter_mut().filter(|mapping| !mapping.is_announced) {
            if !stream.can_map() {
                return Ok(());
            }
            stream.map(mapping.index, mapping.offset, mapping.range())?;
            mapping.is_announced = true;
        }
        self.mappings.retain(|mapping| !(mapping.gone && mapping.is_announced));
        Ok(())
    }

    /// Whether the peer has all entries: bytes that are sent afterwards may rely on them.
    pub(super) fn mappings_are_announced(&self) -> bool {
        self.mappings.iter().all(|mapping| mapping.is_announced)
    }
}

/// Writes to the peer's mapped memory, as many bytes as there is room for; `None` when there is none.
pub(super) fn write(inner: &mut Inner, bytes: &[u8], offset: u64) -> Result<Option<usize>, Errno> {
    let stream = inner.stream()?;
    if !stream.writable {
        return Err(Errno(libc::EPIPE));
    }
    if !stream.can_map() {
        return Ok(None);
    }
    stream.write_mapped(bytes, offset)?.ok_or(Errno::INVALID).map(Some)
}
