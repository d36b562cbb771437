//! Registered memory, for peers to write to and for messages to be sent from.

use abi::{ibv_mr, ibv_pd, ibv_sge};
use core::ffi::c_int;
use ffi::Errno;
use rdma_cm::verbs::verbs;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Alignment of registered memory: a page.
const ALIGNMENT: usize = 4096;

/// A ring of registered bytes.
pub(super) struct Buffer {
    start: *mut u8,
    layout: Layout,
    mr: *mut ibv_mr,
}

impl Buffer {
    /// # Safety
    /// `pd` lives longer than the buffer.
    pub(super) unsafe fn new(pd: *mut ibv_pd, length: usize, access: u32) -> Result<Self, Errno> {
        let invalid = |_| Errno::NO_MEMORY;
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).map_err(invalid)?;
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        let mut buffer = Self {
            start,
            layout,
            mr: core::ptr::null_mut(),
        };
        // SAFETY: the layout has a size; the memory is ours.
        let mr = unsafe { (verbs()?.ibv_reg_mr)(pd, start.cast(), layout.size(), access as c_int) };
        buffer.mr = Errno::check_pointer(mr)?;
        Ok(buffer)
    }

    pub(super) const fn length(&self) -> usize {
        self.layout.size()
    }

    pub(super) fn address(&self) -> u64 {
        self.start as u64
    }

    /// The remote key, for the peer.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: registered as long as this is there.
        unsafe { (*self.mr).rkey }
    }

    fn local_key(&self) -> u32 {
        // SAFETY: registered as long as this is there.
        unsafe { (*self.mr).lkey }
    }

    /// The bytes from `at` on as scatter/gather elements: one, or two where the range wraps.
    pub(super) fn pieces(&self, at: usize, length: usize) -> ([ibv_sge; 2], usize) {
        let first = length.min(self.length().saturating_sub(at));
        let piece = |at: usize, length: usize| ibv_sge {
            addr: self.address() + at as u64,
            length: length as u32,
            lkey: self.local_key(),
        };
        let pieces = [piece(at, first), piece(0, length - first)];
        (pieces, if first == length { 1 } else { 2 })
    }

    /// Copies bytes into the ring, at most the ring's length.
    pub(super) fn copy_in(&self, at: usize, bytes: &[u8]) {
        let bytes = bytes.get(..self.length()).unwrap_or(bytes);
        let (one, two) = bytes.split_at(bytes.len().min(self.length().saturating_sub(at)));
        // SAFETY: both parts lie within the ring; no request sends these bytes now.
        unsafe {
            core::ptr::copy_nonoverlapping(one.as_ptr(), self.start.add(at), one.len());
            core::ptr::copy_nonoverlapping(two.as_ptr(), self.start, two.len());
        }
    }

    /// Copies bytes out of the ring.
    pub(super) fn take(&self, at: usize, to: &mut [u8]) {
        let limit = self.length().min(to.len());
        let to = &mut to[..limit];
        let (one, two) = to.split_at_mut(limit.min(self.length().saturating_sub(at)));
        // SAFETY: both parts lie within the ring. A peer may write here at the same time; the bytes are plain
        // data and are then unspecified.
        unsafe {
            core::ptr::copy_nonoverlapping(self.start.add(at), one.as_mut_ptr(), one.len());
            core::ptr::copy_nonoverlapping(self.start, two.as_mut_ptr(), two.len());
        }
    }

    /// Reads bytes from the ring, which a peer may be writing.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        if at.saturating_add(N) <= self.length() {
            // SAFETY: within the memory.
            bytes = unsafe { core::ptr::read_volatile(self.start.add(at).cast::<[u8; N]>()) };
        }
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(verbs) = verbs()
            && !self.mr.is_null()
        {
            // SAFETY: ours, and nothing uses it any more.
            unsafe { (verbs.ibv_dereg_mr)(self.mr) };
        }
        // SAFETY: as it was allocated.
        unsafe { dealloc(self.start, self.layout) };
    }
}
