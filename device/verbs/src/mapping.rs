//! Shared mappings of files.

use core::ffi::c_void;
use ffi::Errno;

const PAGE: u64 = 4096;

/// A shared mapping of whole pages of a file.
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Maps the pages that contain `length` bytes of a file, beginning at `offset`.
    pub(crate) fn new(fd: i32, offset: u64, length: usize, writable: bool) -> Result<Self, Errno> {
        let first = offset & !(PAGE - 1);
        let room = (offset - first)
            .checked_add(length as u64)
            .filter(|_| length > 0)
            .ok_or(Errno::INVALID)?;
        let room = usize::try_from(room).map_err(|_| Errno::INVALID)?;
        let position = i64::try_from(first).map_err(|_| Errno::INVALID)?;
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping, where the kernel finds room.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                room,
                rights,
                libc::MAP_SHARED,
                fd,
                position,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Self {
            start,
            length: room,
        })
    }

    /// The address of the byte at an offset of the file, which lies in the first page of the mapping.
    pub(crate) fn address_of(&self, offset: u64) -> *mut c_void {
        self.start.wrapping_byte_add((offset & (PAGE - 1)) as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and the region that lay in it is gone.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
