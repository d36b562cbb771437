//! Buffers that the library allocates (`ibv_alloc_buf`, rdma-core 63), and registration of any kind of memory
//! by one call (`ibv_reg_mr_ex`, rdma-core 59).

use crate::dmabuf;
use crate::memory::{Backing, register};
use crate::pd::PdArg;
use abi::{ibv_mr, ibv_pd};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use ffi::{BeginsWith, Errno, GivenUp, Object, Out, exports};
use os::mapping::Mapping;

/// Bits of `comp_mask` (`enum ibv_mr_init_attr_mask`).
const IOVA: u64 = 1;
const ADDR: u64 = 1 << 1;
const FD: u64 = 1 << 2;
const FD_OFFSET: u64 = 1 << 3;
const BUF: u64 = 1 << 5;

/// `struct ibv_mr_init_attr`. Before rdma-core 63 it ends at `buf`, so a field is read only where its bit of
/// `comp_mask` is set, and never the struct as a whole.
#[repr(C)]
pub(crate) struct ibv_mr_init_attr {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *mut Buffer,
}

const _: () = assert!(core::mem::offset_of!(ibv_mr_init_attr, buf) == 64);

/// A buffer of the library. The program sees an opaque `struct ibv_buf`.
#[repr(C)]
pub(crate) struct Buffer {
    domain: *mut ibv_pd,
    pages: Mapping,
}

// SAFETY: the whole struct is what the program points to; `ibv_alloc_buf` makes the pointers.
unsafe impl BeginsWith<Self> for Buffer {}

impl Buffer {
    /// Allocates whole zeroed pages.
    fn new(domain: *mut ibv_pd, length: usize) -> Result<Self, Errno> {
        let pages = Mapping::private(length)?;
        Ok(Self { domain, pages })
    }

    /// Whether a range lies within the buffer.
    fn holds(&self, addr: *mut c_void, length: usize) -> bool {
        let offset = (addr as usize).checked_sub(self.start() as usize);
        let end = offset.and_then(|offset| offset.checked_add(length));
        end.is_some_and(|end| end <= self.pages.length())
    }

    fn start(&self) -> *mut c_void {
        self.pages.start().as_ptr().cast()
    }
}

/// Registers a range of a buffer, which must belong to the same protection domain.
fn register_buffer(
    domain: PdArg<'_>,
    buffer: &Buffer,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: c_int,
) -> Result<*mut ibv_mr, Errno> {
    if buffer.domain != domain.raw() || !buffer.holds(addr, length) {
        return Err(Errno::INVALID);
    }
    register(domain, addr, length, iova, bits as u32, Backing::Program)
}

/// The arguments in `ibv_mr_init_attr`. Fields without their bit of `comp_mask` have their defaults.
struct Asked {
    length: usize,
    access: c_int,
    mask: u64,
    iova: Option<u64>,
    addr: *mut c_void,
    file: (c_int, u64),
    buf: *mut Buffer,
}

impl Asked {
    /// # Safety
    /// The fields are there whose bits are set, and those before them.
    unsafe fn read(attr: *const ibv_mr_init_attr) -> Self {
        // SAFETY: by this function's contract; these fields are there in each version of the struct.
        let (length, access, mask) = unsafe { ((*attr).length, (*attr).access, (*attr).comp_mask) };
        let has = |bit: u64| mask & bit != 0;
        Self {
            length,
            access,
            mask,
            // SAFETY: the field is there, because its bit is set.
            iova: has(IOVA).then(|| unsafe { (*attr).iova }),
            addr: if has(ADDR) {
                // SAFETY: the field is there, because its bit is set.
                unsafe { (*attr).addr }
            } else {
                null_mut()
            },
            file: (
                // SAFETY: the field is there, because its bit is set.
                if has(FD) { unsafe { (*attr).fd } } else { -1 },
                if has(FD_OFFSET) {
                    // SAFETY: the field is there, because its bit is set.
                    unsafe { (*attr).fd_offset }
                } else {
                    0
                },
            ),
            buf: if has(BUF) {
                // SAFETY: the field is there, because its bit is set.
                unsafe { (*attr).buf }
            } else {
                null_mut()
            },
        }
    }
}

exports! {
    /// `IBV_REG_MR_MASK_DMAH` gets `EOPNOTSUPP`: DMA handles steer the caches of PCI devices. The default
    /// offset is zero; the default `iova` is the address, or zero for a dma-buf descriptor.
    fn ibv_reg_mr_ex(domain: PdArg<'_>, attr: *const ibv_mr_init_attr) -> pointer(*mut ibv_mr) {
        if attr.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program has filled in the fields whose bits it set.
        let asked = unsafe { Asked::read(attr) };
        if asked.mask & !(IOVA | ADDR | FD | FD_OFFSET | BUF) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let has = |bit: u64| asked.mask & bit != 0;
        if has(ADDR) == has(FD) || has(FD_OFFSET) && !has(FD) || has(BUF) && has(FD) {
            return Err(Errno::INVALID);
        }
        let (length, access) = (asked.length, asked.access);
        if has(FD) {
            let (file, offset) = asked.file;
            return dmabuf::register(domain, file, offset, length, asked.iova.unwrap_or(0), access as u32);
        }
        let iova = asked.iova.unwrap_or(asked.addr as u64);
        if has(BUF) {
            // SAFETY: a buffer that was not freed, or NULL.
            let buffer = unsafe { asked.buf.as_ref() }.ok_or(Errno::INVALID)?;
            return register_buffer(domain, buffer, asked.addr, length, iova, access);
        }
        register(domain, asked.addr, length, iova, access as u32, Backing::Program)
    }

    /// Returns the buffer's address and writes its handle to `place`.
    fn ibv_alloc_buf(domain: PdArg<'_>, size: usize, place: Out<'_, *mut Buffer>) -> pointer(*mut c_void) {
        domain.get()?;
        if size == 0 || place.is_null() {
            return Err(Errno::INVALID);
        }
        let buffer = Buffer::new(domain.raw(), size)?;
        let start = buffer.start();
        place.write(Box::into_raw(Box::new(buffer)))?;
        Ok(start)
    }

    fn ibv_free_buf(given_up: GivenUp<Buffer, Buffer>) -> plain(()) {
        given_up.free();
    }

    /// No buffer is behind a dma-buf: `ENODATA`, as rdma-core answers for ordinary memory.
    fn ibv_export_buf_dmabuf_fd(buffer: Object<'_, Buffer, Buffer>) -> number(c_int) {
        buffer.get()?;
        Err(Errno(libc::ENODATA))
    }

    fn ibv_reg_buf_mr(
        domain: PdArg<'_>, buffer: Object<'_, Buffer, Buffer>, addr: *mut c_void, length: usize, bits: i32,
    ) -> pointer(*mut ibv_mr) {
        register_buffer(domain, buffer.get()?, addr, length, addr as u64, bits)
    }
}
