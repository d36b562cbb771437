//! Memory for data: it begins at a page boundary, as direct I/O and RDMA like it, and never moves.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What buffers begin at and are a multiple of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Bytes on the heap whose address is fixed while it lives.
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a buffer owns its memory alone, as a Box would.
unsafe impl Send for Buffer {}
// SAFETY: shared access reads only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// At least `length` zeros, a whole number of pages and not none.
    ///
    /// # Panics
    /// When `length` is more than an address space has.
    pub fn zeroed(length: usize) -> Self {
        let length = length.max(1).next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(length, ALIGNMENT).expect("buffers have at most a few MiB");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        Self { start, layout }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` leads to `size` initialised bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, in `zeroed`.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.layout.size()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_pages() {
        let mut buffer = Buffer::zeroed(5000);
        assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGNMENT), (8192, 0));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[8191] = 1;
        assert_eq!(Buffer::zeroed(0).len(), ALIGNMENT);
    }
}
