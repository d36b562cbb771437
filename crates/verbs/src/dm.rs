//! Device memory (`ibv_alloc_dm`): on a card it is fast and near, here it is memory like any other, apart
//! from the program's own objects.

use crate::context::context;
use crate::memory::{self, Beneath};
use abi::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use core::ffi::c_void;
use door::{Errno, door};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one allocation may take: as much as large cards have.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// Cards are read and written in words.
const WORD: usize = 4;
/// A page: what is asked to be aligned further than that is refused.
const ALIGNMENT_LOG_MAX: u32 = 12;

/// Device memory that a program has. Those that import it have the same.
#[repr(C)]
pub(crate) struct Dm {
    abi: ibv_dm,
    memory: Arc<DeviceMemory>,
}

/// The memory itself.
pub(crate) struct DeviceMemory {
    start: *mut u8,
    layout: Layout,
    /// Regions in it: it cannot go before they do.
    regions: AtomicUsize,
}

// SAFETY: whoever uses the bytes orders it, as with any memory that a device uses too.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    fn new(layout: Layout) -> Result<Arc<Self>, Errno> {
        // SAFETY: the layout is not empty: what is asked for has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(Arc::new(Self { start, layout, regions: AtomicUsize::new(0) }))
    }

    /// One region less.
    pub(crate) fn release(&self) {
        self.regions.fetch_sub(1, Ordering::AcqRel);
    }

    /// Where a range of it lies.
    fn range(&self, offset: u64, length: usize) -> Result<*mut u8, Errno> {
        let fits = offset.checked_add(length as u64).is_some_and(|end| end <= self.layout.size() as u64);
        let is_aligned = offset.is_multiple_of(WORD as u64) && length.is_multiple_of(WORD);
        if fits && is_aligned { Ok(self.start.wrapping_add(offset as usize)) } else { Err(Errno::INVALID) }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has it any more.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Device memory as C has it.
pub(crate) fn boxed(context: *mut ibv_context, memory: Arc<DeviceMemory>, handle: u32) -> *mut ibv_dm {
    let abi = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle,
    };
    Box::into_raw(Box::new(Dm { abi, memory })).cast()
}

/// # Safety
/// The pointer is NULL or device memory that was not freed.
unsafe fn dm<'a>(raw: *mut ibv_dm) -> Result<&'a Dm, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Dm>().as_ref() }.ok_or(Errno::INVALID)
}

door! {
    fn alloc_dm(raw: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> pointer(*mut ibv_dm) {
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
        if attr.comp_mask != 0 || attr.length == 0 || attr.log_align_req > ALIGNMENT_LOG_MAX {
            return Err(Errno::INVALID);
        }
        if attr.length > BYTES_MAX {
            return Err(Errno(libc::ENOMEM));
        }
        let alignment = (1 << attr.log_align_req).max(align_of::<u64>());
        let size = attr.length.next_multiple_of(WORD);
        let layout = Layout::from_size_align(size, alignment).map_err(|_| Errno::INVALID)?;
        let memory = DeviceMemory::new(layout)?;
        let mut objects = context(raw).objects();
        objects.device_memories_made = objects.device_memories_made.wrapping_add(1);
        let handle = objects.device_memories_made;
        objects.device_memories.insert(handle, Arc::clone(&memory));
        Ok(boxed(raw, memory, handle))
    }

    fn free_dm(raw: *mut ibv_dm) -> code(i32) {
        let dm = dm(raw)?;
        if dm.memory.regions.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        context(dm.abi.context).objects().device_memories.remove(&dm.abi.handle);
        drop(Box::from_raw(raw.cast::<Dm>()));
        Ok(())
    }

    fn memcpy_to_dm(raw: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> code(i32) {
        let to = dm(raw)?.memory.range(offset, length)?;
        if from.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), to, length);
        Ok(())
    }

    fn memcpy_from_dm(to: *mut c_void, raw: *mut ibv_dm, offset: u64, length: usize) -> code(i32) {
        let from = dm(raw)?.memory.range(offset, length)?;
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        core::ptr::copy_nonoverlapping(from, to.cast::<u8>(), length);
        Ok(())
    }

    /// Addresses in the region begin at zero: device memory has none of its own.
    fn reg_dm_mr(domain: *mut ibv_pd, raw: *mut ibv_dm, offset: u64, length: usize, bits: u32)
        -> pointer(*mut ibv_mr) {
        let memory = &dm(raw)?.memory;
        if !memory::access(bits)?.contains(rnic::Access::ZERO_BASED) {
            return Err(Errno::INVALID);
        }
        let address = memory.range(offset, length)?;
        let beneath = Beneath::Device(Arc::clone(memory));
        let made = memory::register(domain, address.cast(), length, 0, bits, beneath)?;
        memory.regions.fetch_add(1, Ordering::AcqRel);
        (*made).addr = core::ptr::null_mut();
        Ok(made)
    }
}
