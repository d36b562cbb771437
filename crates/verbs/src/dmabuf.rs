//! Memory behind a file descriptor (`ibv_reg_dmabuf_mr`): a dma-buf of another device, or any other file that
//! can be mapped, such as a memfd.

use crate::memory::{self, Beneath};
use abi::{ibv_mr, ibv_pd};
use core::ffi::c_void;
use door::{Errno, door};
use rnic::Access;

const PAGE: u64 = 4096;

/// A mapping of whole pages.
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Maps the pages that hold `length` bytes of a file from `offset` on.
    fn new(fd: i32, offset: u64, length: usize, writable: bool) -> Result<Self, Errno> {
        let first = offset & !(PAGE - 1);
        let room =
            (offset - first).checked_add(length as u64).filter(|_| length > 0).ok_or(Errno::INVALID)?;
        let room = usize::try_from(room).map_err(|_| Errno::INVALID)?;
        let position = i64::try_from(first).map_err(|_| Errno::INVALID)?;
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping, where the kernel finds room.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), room, rights, libc::MAP_SHARED, fd, position) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Self { start, length: room })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and the region that lay in it is gone.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

door! {
    /// The region has no address in the program: `iova` is what its keys open.
    fn ibv_reg_dmabuf_mr(domain: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: i32, bits: i32)
        -> pointer(*mut ibv_mr) {
        let writable = memory::access(bits as u32)?.contains(Access::LOCAL_WRITE);
        let mapping = Mapping::new(fd, offset, length, writable)?;
        let address = mapping.start.byte_add((offset & (PAGE - 1)) as usize);
        let beneath = Beneath::Mapping(mapping);
        let made = memory::register(domain, address, length, iova, bits as u32, beneath)?;
        (*made).addr = core::ptr::null_mut();
        Ok(made)
    }
}
