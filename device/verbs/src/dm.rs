//! Device memory (`ibv_alloc_dm`). A hardware device has it on the card; here it is ordinary memory, outside
//! the program's own objects.

use crate::context::{ContextArg, ContextRef};
use crate::device_memory::{DeviceMemory, WORD};
use crate::memory::{self, Backing};
use crate::pd::PdArg;
use abi::{ibv_alloc_dm_attr, ibv_dm, ibv_mr};
use core::ffi::c_void;
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Subject, exports};
use std::alloc::Layout;
use std::sync::Arc;

/// Bytes of one allocation at most: as much as large cards have.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// Page size (log2): larger alignments are refused.
const ALIGNMENT_LOG_MAX: u32 = 12;

/// Device memory of a program. Contexts that import it share it.
#[repr(C)]
pub(crate) struct Dm {
    abi: ibv_dm,
    memory: Arc<DeviceMemory>,
    context: ContextRef,
}

// SAFETY: C sees the first field; `boxed` makes the pointers.
unsafe impl BeginsWith<ibv_dm> for Dm {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// Device memory, as an argument.
type DmArg<'a> = Object<'a, Dm, ibv_dm>;

/// Device memory as C's struct.
pub(crate) fn boxed(context: ContextRef, memory: Arc<DeviceMemory>, handle: u32) -> *mut ibv_dm {
    let abi = ibv_dm {
        context: context.raw(),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle,
    };
    Box::into_raw(Box::new(Dm {
        abi,
        memory,
        context,
    }))
    .cast()
}

exports! {
    fn alloc_dm(context: ContextArg<'_>, attr: In<'_, *mut ibv_alloc_dm_attr>) -> pointer(*mut ibv_dm) {
        let attr = attr.get()?;
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
        let mut objects = context.objects();
        objects.device_memories_made = objects.device_memories_made.wrapping_add(1);
        let handle = objects.device_memories_made;
        objects.device_memories.insert(handle, Arc::clone(&memory));
        Ok(boxed(context.hold(), memory, handle))
    }

    fn free_dm(given_up: GivenUp<Dm, ibv_dm>) -> code(i32) {
        let dm = given_up.get()?;
        if dm.memory.has_regions() {
            return Err(Errno::BUSY);
        }
        dm.context.objects().device_memories.remove(&dm.abi.handle);
        given_up.free();
        Ok(())
    }

    fn memcpy_to_dm(dm: DmArg<'_>, offset: u64, from: *const c_void, length: usize) -> code(i32) {
        let to = dm.get()?.memory.words(offset, length)?;
        if from.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program passes so many bytes, and the range lies in the device memory.
        unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), to, length) };
        Ok(())
    }

    fn memcpy_from_dm(to: *mut c_void, dm: DmArg<'_>, offset: u64, length: usize) -> code(i32) {
        let from = dm.get()?.memory.words(offset, length)?;
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program has room for so many bytes, and the range lies in the device memory.
        unsafe { core::ptr::copy_nonoverlapping(from, to.cast::<u8>(), length) };
        Ok(())
    }

    /// Addresses in the region begin at zero, since device memory has no address in the program.
    fn reg_dm_mr(domain: PdArg<'_>, dm: DmArg<'_>, offset: u64, length: usize, bits: u32)
        -> pointer(*mut ibv_mr) {
        let memory = &dm.get()?.memory;
        if !memory::access(bits)?.contains(rnic::Access::ZERO_BASED) {
            return Err(Errno::INVALID);
        }
        let address = memory.range(offset, length)?;
        let backing = Backing::Device(Arc::clone(memory));
        let made = memory::register(domain, address.cast(), length, 0, bits, backing)?;
        memory.add_region();
        // SAFETY: a region that was just made.
        unsafe { (*made).addr = core::ptr::null_mut() };
        Ok(made)
    }
}
