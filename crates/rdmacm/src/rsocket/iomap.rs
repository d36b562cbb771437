//! Memory that a peer writes to directly, at offsets that both ends know.

use super::protocol::Range;
use super::socket::Inner;
use crate::verbs::verbs;
use abi::ibv_mr;
use core::ffi::{c_int, c_void};
use door::Errno;

const LOCAL_WRITE: c_int = 1;
const REMOTE_WRITE: c_int = 2;
const REMOTE_READ: c_int = 4;
/// The caller leaves the offset to us: the address serves.
const ANY_OFFSET: i64 = -1;

/// A part of this process's memory.
pub(super) struct Mapping {
    offset: u64,
    mr: *mut ibv_mr,
    /// Where it stands in the peer's table, and whether it stands there yet.
    index: u32,
    told: bool,
    /// Not wanted any more: goes once the peer knows.
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
    /// Registers memory for the peer, which is told with the next bytes that are sent.
    ///
    /// # Safety
    /// `length` bytes at `memory` stay what they are until they are unmapped.
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
        let offset = if offset == ANY_OFFSET { memory as u64 } else { offset as u64 };
        let mut access = LOCAL_WRITE;
        access |= if protection & libc::PROT_WRITE != 0 { REMOTE_WRITE } else { 0 };
        access |= if protection & libc::PROT_READ != 0 { REMOTE_READ } else { 0 };
        // SAFETY: as above; the identifier has a queue pair, and so a domain.
        let mr = unsafe { (verbs()?.ibv_reg_mr)((*self.id).pd, memory, length, access) };
        let mr = Errno::check_pointer(mr)?;
        self.mappings.push(Mapping { offset, mr, index, told: false, gone: false });
        self.tell_mappings()?;
        Ok(offset as i64)
    }

    /// Takes it back.
    pub(super) fn unmap(&mut self, memory: *mut c_void, length: usize) -> Result<(), Errno> {
        // SAFETY: registered as long as the mapping is there.
        let mr = |mapping: &Mapping| unsafe { ((*mapping.mr).addr, (*mapping.mr).length) };
        let is_it = |mapping: &Mapping| mr(mapping) == (memory, length);
        let found = self.mappings.iter_mut().find(|mapping| !mapping.gone && is_it(mapping));
        let mapping = found.ok_or(Errno::INVALID)?;
        (mapping.gone, mapping.told) = (true, false);
        if self.stream().is_ok_and(|stream| stream.ended.is_some()) {
            self.mappings.retain(|mapping| !mapping.gone);
            return Ok(());
        }
        self.tell_mappings()
    }

    /// Tells the peer as much as there is room for.
    pub(super) fn tell_mappings(&mut self) -> Result<(), Errno> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        for mapping in self.mappings.iter_mut().filter(|mapping| !mapping.told) {
            if !stream.can_map() {
                return Ok(());
            }
            stream.map(mapping.index, mapping.offset, mapping.range())?;
            mapping.told = true;
        }
        self.mappings.retain(|mapping| !(mapping.gone && mapping.told));
        Ok(())
    }

    /// Whether the peer knows of all of them: what is sent afterwards may rely on that.
    pub(super) fn mappings_are_told(&self) -> bool {
        self.mappings.iter().all(|mapping| mapping.told)
    }
}

/// Writes to memory that the peer has mapped, as much as goes; `None` when that is nothing yet.
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
