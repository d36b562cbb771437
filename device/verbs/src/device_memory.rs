//! The bytes of device memory.

use ffi::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment of a program's copies: hardware accesses device memory in 4-byte words.
pub(crate) const WORD: usize = 4;

/// The allocated bytes.
pub(crate) struct DeviceMemory {
    start: *mut u8,
    layout: Layout,
    /// Regions registered in it. It cannot be freed while there are any.
    regions: AtomicUsize,
}

// SAFETY: accesses are ordered by the program, as for any memory that a device uses too.
unsafe impl Send for DeviceMemory {}
// SAFETY: accesses are ordered by the program, as for any memory that a device uses too.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    pub(crate) fn new(layout: Layout) -> Result<Arc<Self>, Errno> {
        // SAFETY: the layout is not empty: `ibv_alloc_dm` refuses a length of zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(Arc::new(Self {
            start,
            layout,
            regions: AtomicUsize::new(0),
        }))
    }

    /// Whether regions are registered in it.
    pub(crate) fn has_regions(&self) -> bool {
        self.regions.load(Ordering::Acquire) > 0
    }

    /// Adds one region to the count.
    pub(crate) fn add_region(&self) {
        self.regions.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes one region from the count.
    pub(crate) fn release(&self) {
        self.regions.fetch_sub(1, Ordering::AcqRel);
    }

    /// The address of a range that a region may have: one of any alignment, as of a process's memory.
    pub(crate) fn range(&self, offset: u64, length: usize) -> Result<*mut u8, Errno> {
        let fits = offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.layout.size() as u64);
        if fits {
            Ok(self.start.wrapping_add(offset as usize))
        } else {
            Err(Errno::INVALID)
        }
    }

    /// The address of a range that a program may copy: one of whole words.
    pub(crate) fn words(&self, offset: u64, length: usize) -> Result<*mut u8, Errno> {
        let is_aligned = offset.is_multiple_of(WORD as u64) && length.is_multiple_of(WORD);
        if is_aligned {
            self.range(offset, length)
        } else {
            Err(Errno::INVALID)
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used any more.
        unsafe { dealloc(self.start, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_any_alignment_and_copies_that_of_words() {
        let memory =
            DeviceMemory::new(Layout::from_size_align(12, 8).expect("a layout")).expect("memory");
        let at = |range: Result<*mut u8, Errno>| {
            range
                .ok()
                .map(|address| address.addr() - memory.start.addr())
        };
        assert_eq!(at(memory.range(1, 10)), Some(1));
        assert_eq!(at(memory.range(12, 0)), Some(12));
        assert_eq!(at(memory.words(4, 8)), Some(4));
        for (offset, length) in [(1, 4), (4, 3)] {
            assert_eq!(at(memory.words(offset, length)), None, "{offset} {length}");
        }
        for (offset, length) in [(4, 12), (13, 0), (u64::MAX, 4)] {
            assert_eq!(at(memory.range(offset, length)), None, "{offset} {length}");
            assert_eq!(at(memory.words(offset, length)), None, "{offset} {length}");
        }
    }
}
