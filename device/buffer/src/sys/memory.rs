//! Zeroed memory at a fixed address: on the heap, or a mapping.

use os::page::page_size;
use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::arena::{HALF, Piece};
use crate::ALIGNMENT;
use crate::pages::Pages;

/// From this length on memory is mapped, because the kernel then zeroes pages on first access.
const MAPPED_MIN: usize = 256 << 10;

/// Memory that this owns alone.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    /// A mapping; other memory is on the heap.
    piece: Option<Box<Piece>>,
}

// SAFETY: this owns its memory alone, as a Box would.
unsafe impl Send for Memory {}
// SAFETY: shared access reads only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Private memory of this length, a whole number of pages that is not zero. Memory of 1 MiB is in large
    /// pages, where the kernel has them.
    ///
    /// # Panics
    /// When `length` is larger than an address space.
    pub(crate) fn zeroed(length: usize) -> Self {
        match if length == HALF { Piece::half() } else { None } {
            Some(piece) => Self::of(piece, length),
            None => Self::sparse(length),
        }
    }

    /// As [`Memory::zeroed`], without large pages: pages that are never written use no memory.
    pub(crate) fn sparse(length: usize) -> Self {
        if length >= MAPPED_MIN
            && let Some(piece) = Piece::alone(length)
        {
            return Self::of(piece, length);
        }
        let layout = layout(length);
        assert_ne!(length, 0);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            alloc::handle_alloc_error(layout)
        };
        Self {
            start,
            length,
            piece: None,
        }
    }

    /// Memory of this length, a whole number of pages, that peers on this host can map, if there is any left.
    ///
    /// # Panics
    /// As [`Memory::zeroed`].
    pub(crate) fn mappable(length: usize) -> Self {
        match Piece::take(length) {
            Some(piece) => Self::of(piece, length),
            None => Self::zeroed(length),
        }
    }

    fn of(piece: Piece, length: usize) -> Self {
        Self {
            start: piece.start(),
            length,
            piece: Some(Box::new(piece)),
        }
    }

    /// The pages that the kernel may read at any later time. Only a private mapping has such a set: nothing
    /// else gets its pages while anything refers to them.
    pub(crate) fn referred(&self) -> Option<&OnceLock<Pages>> {
        self.piece.as_ref()?.referred()
    }

    /// Replaces the pages that a range touches by new ones. Bytes outside the range keep their contents,
    /// those within it are unspecified afterwards. `false`, without effect, where the kernel refuses that.
    pub(crate) fn replace_pages(&mut self, range: &Range<usize>) -> bool {
        let page = usize::try_from(page_size()).unwrap_or(ALIGNMENT);
        let Range { start: first, end } = kernel_pages(range, page);
        if self.referred().is_none() || first >= end || end > self.length {
            return false;
        }
        // The bytes of the first and the last page that are not in the range.
        let (before, behind) = (
            self[first..range.start].to_vec(),
            self[range.end..end].to_vec(),
        );
        // SAFETY: whole pages of a private mapping that this owns, and that nothing borrows. They are zeroed
        // bytes afterwards.
        if unsafe {
            libc::madvise(
                self.start.as_ptr().add(first).cast(),
                end - first,
                libc::MADV_DONTNEED,
            )
        } != 0
        {
            return false;
        }
        self[first..range.start].copy_from_slice(&before);
        self[range.end..end].copy_from_slice(&behind);
        if let Some(referred) = self.piece.as_mut().and_then(|piece| piece.referred_mut()) {
            referred.remove(&(first / ALIGNMENT..end / ALIGNMENT));
        }
        true
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// The pages of the kernel, each of `page` bytes, that a range touches. They may be longer than ours, and the
/// kernel gives back whole ones.
fn kernel_pages(range: &Range<usize>, page: usize) -> Range<usize> {
    let page = page.max(ALIGNMENT);
    range.start / page * page..range.end.next_multiple_of(page)
}

fn layout(length: usize) -> Layout {
    Layout::from_size_align(length, ALIGNMENT).expect("buffers have at most a few MiB")
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` leads to `length` initialised bytes that this owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is allocated with this length, and this has the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.piece.is_none() {
            // SAFETY: allocated with this layout, in `zeroed`, and this had the only reference.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.length)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_of_the_kernel_are_given_back() {
        let range = ALIGNMENT + 10..2 * ALIGNMENT;
        assert_eq!(kernel_pages(&range, ALIGNMENT), ALIGNMENT..2 * ALIGNMENT);
        for page in [16 << 10, 64 << 10] {
            assert_eq!(kernel_pages(&range, page), 0..page);
        }
        assert_eq!(kernel_pages(&(65_535..65_537), 64 << 10), 0..2 * (64 << 10));
    }
}
