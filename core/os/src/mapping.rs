//! Mappings of memory and files (mmap(2)) that end with their owner.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, without_provenance_mut};

/// Rights to read only.
pub const READ: libc::c_int = libc::PROT_READ;
/// Rights to read and to write.
pub const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping at an address that the kernel has chosen. What is in it is reached by its users' unsafe code.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an address range that stays mapped until this is dropped, from whatever thread.
unsafe impl Send for Mapping {}
// SAFETY: the address and the length do not change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed pages of this process alone.
    ///
    /// # Errors
    /// Those of the system call: `ENOMEM`, `EINVAL` for a length of 0.
    pub fn private(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::new(length, READ_WRITE, flags, -1, 0, 0)
    }

    /// Maps a part of a file, shared with all who map it. The offset is that of a page.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn shared(fd: RawFd, offset: u64, length: usize, rights: libc::c_int) -> io::Result<Self> {
        Self::shared_near(0, fd, offset, length, rights)
    }

    /// The same, at an address of a page if that is free.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn shared_near(
        wish: usize,
        fd: RawFd,
        offset: u64,
        length: usize,
        rights: libc::c_int,
    ) -> io::Result<Self> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        Self::new(length, rights, libc::MAP_SHARED, fd, offset, wish)
    }

    fn new(
        length: usize,
        rights: libc::c_int,
        flags: libc::c_int,
        fd: RawFd,
        offset: i64,
        wish: usize,
    ) -> io::Result<Self> {
        // SAFETY: a new range, wherever the kernel has room: without MAP_FIXED it replaces no mapping.
        let base = unsafe {
            libc::mmap(
                without_provenance_mut(wish),
                length,
                rights,
                flags,
                fd,
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, length })
    }

    /// Address of the first byte of the mapping.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length of the mapping in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own range, which is not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_file;
    use crate::page::page_size;
    use std::os::fd::AsRawFd;

    #[test]
    fn mappings_of_one_file_show_the_same_bytes_and_private_ones_zeros() {
        let page = usize::try_from(page_size()).unwrap();
        let file = memory_file::sealable(c"test", 2 * page_size()).unwrap();
        let fd = file.as_raw_fd();
        let whole = Mapping::shared(fd, 0, 2 * page, READ_WRITE).unwrap();
        let second = Mapping::shared(fd, page_size(), page, READ).unwrap();
        let alone = Mapping::private(page).unwrap();
        assert_eq!(
            [whole.length(), second.length(), alone.length()],
            [2 * page, page, page]
        );
        // SAFETY: within the mappings, which one thread uses.
        unsafe {
            whole.start().add(page).write_volatile(7);
            assert_eq!(
                (
                    second.start().read_volatile(),
                    alone.start().read_volatile()
                ),
                (7, 0)
            );
        }
        assert!(Mapping::private(0).is_err());
        assert!(Mapping::shared(fd, 1, page, READ).is_err(), "no whole page");
        assert!(Mapping::shared(fd, u64::MAX, page, READ).is_err());
        let free = alone.start().as_ptr() as usize;
        drop(alone);
        let again = Mapping::shared_near(free, fd, 0, page, READ).unwrap();
        assert_eq!(again.start().as_ptr() as usize, free);
    }
}
