//! Shared mappings of files.

use core::ffi::c_void;
use ffi::Errno;
use os::mapping::{READ, READ_WRITE};
use os::page::page_size;

/// A shared mapping of whole pages of a file.
pub(crate) struct Mapping(os::mapping::Mapping);

impl Mapping {
    /// Maps the pages that contain `length` bytes of a file, beginning at `offset`.
    pub(crate) fn new(fd: i32, offset: u64, length: usize, writable: bool) -> Result<Self, Errno> {
        let first = offset & !(page_size() - 1);
        let room = (offset - first)
            .checked_add(length as u64)
            .filter(|_| length > 0)
            .ok_or(Errno::INVALID)?;
        let room = usize::try_from(room).map_err(|_| Errno::INVALID)?;
        let rights = if writable { READ_WRITE } else { READ };
        let mapping = os::mapping::Mapping::shared(fd, first, room, rights)?;
        Ok(Self(mapping))
    }

    /// The address of the byte at an offset of the file, which lies in the first page of the mapping.
    pub(crate) fn address_of(&self, offset: u64) -> *mut c_void {
        let start = self.0.start().as_ptr().cast::<c_void>();
        start.wrapping_byte_add((offset & (page_size() - 1)) as usize)
    }
}
