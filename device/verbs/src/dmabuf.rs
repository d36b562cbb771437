//! Memory behind a file descriptor (`ibv_reg_dmabuf_mr`): a dma-buf of another device, or any other file that
//! can be mapped, such as a memfd.

use crate::mapping::Mapping;
use crate::memory::{self, Backing};
use crate::pd::PdArg;
use abi::ibv_mr;
use ffi::{Errno, exports};
use rnic::Access;

/// What drivers of GPUs answer to a mapping of a dma-buf of their memory: `ENOTSUPP`, which the kernel keeps
/// to itself elsewhere, so that programs have no text for it.
const KERNEL_NOT_SUPPORTED: i32 = 524;

/// Maps the bytes, and registers the mapping. Without a descriptor programs ask whether the memory of a GPU
/// can be registered: NCCL takes every error but `EOPNOTSUPP` for a yes, UCX takes `EBADF` for one, and NCCL
/// ends when the memory is refused later. Here it cannot, since the processor does not reach it.
pub(crate) fn register(
    domain: PdArg<'_>,
    fd: i32,
    offset: u64,
    length: usize,
    iova: u64,
    bits: u32,
) -> Result<*mut ibv_mr, Errno> {
    let writable = memory::access(bits)?.contains(Access::LOCAL_WRITE);
    if fd < 0 {
        return Err(Errno::UNSUPPORTED);
    }
    let mapping = Mapping::new(fd, offset, length, writable).map_err(|error| match error {
        Errno(KERNEL_NOT_SUPPORTED) => Errno::UNSUPPORTED,
        other => other,
    })?;
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
