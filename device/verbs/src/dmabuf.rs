//! Memory behind a file descriptor (`ibv_reg_dmabuf_mr`): a dma-buf of another device, or any other file that
//! can be mapped, such as a memfd.

use crate::mapping::Mapping;
use crate::memory::{self, Backing};
use crate::pd::PdArg;
use abi::ibv_mr;
use ffi::{Errno, exports};
use rnic::Access;

/// Maps the bytes, and registers the mapping.
pub(crate) fn register(
    domain: PdArg<'_>,
    fd: i32,
    offset: u64,
    length: usize,
    iova: u64,
    bits: u32,
) -> Result<*mut ibv_mr, Errno> {
    let writable = memory::access(bits)?.contains(Access::LOCAL_WRITE);
    let mapping = Mapping::new(fd, offset, length, writable)?;
    let address = mapping.address_of(offset);
    let made = memory::register(
        domain,
        address,
        length,
        iova,
        bits,
        Backing::Mapping(mapping),
    )?;
    // SAFETY: a region that was just made.
    unsafe { (*made).addr = core::ptr::null_mut() };
    Ok(made)
}

exports! {
    /// The region has no address in the program: `iova` is the address under which its keys are used.
    fn ibv_reg_dmabuf_mr(domain: PdArg<'_>, offset: u64, length: usize, iova: u64, fd: i32, bits: i32)
        -> pointer(*mut ibv_mr) {
        register(domain, fd, offset, length, iova, bits as u32)
    }
}
