//! Memory that two processes share: a sealed memfd whose two rings are each mapped twice in a row.

use os::memory_file;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

/// Bytes of one ring.
pub(crate) const RING_BYTES: usize = 1 << 19;
/// Bytes before the rings: a multiple of every page size.
pub(crate) const CONTROL_BYTES: usize = 1 << 16;
const FILE_BYTES: usize = CONTROL_BYTES + 2 * RING_BYTES;
const SPAN_BYTES: usize = CONTROL_BYTES + 4 * RING_BYTES;
/// Seals: neither process can change the size, so pages of the other's mapping do not vanish.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The mapping: control page, first ring twice, second ring twice. A record that crosses a ring's end
/// continues at its beginning, so that it is contiguous in the mapping.
#[derive(Debug)]
pub(crate) struct Mapping(NonNull<u8>);

// SAFETY: an address range that stays mapped until the last user drops it. What is in it is only reached
// through atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: threads reach the content only through atomics and raw copies, which may be concurrent.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates new memory, all zero, and the descriptor with which another process maps it.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let fd = memory_file::sealable(c"rockery", FILE_BYTES as u64)?;
        memory_file::seal(&fd, SEALS)?;
        Ok((Self::map(fd.as_raw_fd())?, fd))
    }

    /// Opens memory that another process created. It must be as [`Self::create`] makes it.
    pub(crate) fn open(fd: &impl AsFd) -> io::Result<Self> {
        memory_file::check(fd, SEALS, FILE_BYTES as u64)?;
        Self::map(fd.as_fd().as_raw_fd())
    }

    /// Memory of this process alone, for both ends in it. A race detector and Miri then see one address for
    /// each byte; and nothing is mapped twice, which records do not notice: each is contiguous beyond the
    /// ring's end, and begins before it.
    #[cfg(test)]
    pub(crate) fn anonymous() -> io::Result<Self> {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new range, wherever the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), SPAN_BYTES, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(
            NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?,
        ))
    }

    fn map(fd: RawFd) -> io::Result<Self> {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new range, wherever the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), SPAN_BYTES, libc::PROT_NONE, anonymous, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self(NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?);
        let (first, second) = (CONTROL_BYTES, CONTROL_BYTES + RING_BYTES);
        let parts = [
            (0, 0, CONTROL_BYTES),
            (CONTROL_BYTES, first, RING_BYTES),
            (CONTROL_BYTES + RING_BYTES, first, RING_BYTES),
            (CONTROL_BYTES + 2 * RING_BYTES, second, RING_BYTES),
            (CONTROL_BYTES + 3 * RING_BYTES, second, RING_BYTES),
        ];
        for (at, offset, length) in parts {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: within the range that was just reserved, which no other thread knows.
            let part =
                unsafe { libc::mmap(base.byte_add(at), length, rights, flags, fd, offset as i64) };
            if part == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(mapping)
    }

    /// Address of the control blocks.
    pub(crate) fn control(&self) -> NonNull<u8> {
        self.0
    }

    /// Address of a ring, of which `2 * RING_BYTES` can be accessed.
    pub(crate) fn ring(&self, index: usize) -> NonNull<u8> {
        // SAFETY: within the mapping, for both rings.
        unsafe {
            self.0
                .byte_add(CONTROL_BYTES + 2 * RING_BYTES * (index & 1))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own range, which is not used any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SPAN_BYTES) };
    }
}
