//! Memory that peers on the same host can map, so that rockery's device transfers by copying. To other
//! devices it is ordinary memory.
//!
//! All of it is in one memfd, because a device offers few files to its peers. The range of a piece in the
//! file is never reused, and its pages are freed with the piece.

use os::memory_file;
use os::page::page_size;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::pages::Pages;

/// A piece of zeroed memory.
pub(super) struct Piece {
    start: NonNull<u8>,
    length: usize,
    /// Its offset in the file; `None` for private memory of this process.
    offset: Option<libc::off_t>,
    referred: OnceLock<Pages>,
}

/// Half of a large page, in bytes.
pub(super) const HALF: usize = 1 << 20;

/// Half of a large page that no piece has.
struct Half(NonNull<u8>);

// SAFETY: memory that only its owner accesses.
unsafe impl Send for Half {}

struct Arena {
    file: OwnedFd,
    /// Offset after the last piece.
    end: Mutex<libc::off_t>,
}

/// The arena; `None` where the kernel does not provide a memfd.
fn arena() -> Option<&'static Arena> {
    static ARENA: OnceLock<Option<Arena>> = OnceLock::new();
    let refused =
        |error| tracing::warn!("buffers are private memory, which peers cannot map: {error}");
    ARENA.get_or_init(|| make().map_err(refused).ok()).as_ref()
}

fn make() -> io::Result<Arena> {
    let file = memory_file::sealable(c"rdma", 0)?;
    // Sealed against truncation: a process that maps the file could otherwise make accesses of this process
    // fail (SIGBUS).
    memory_file::seal(&file, libc::F_SEAL_SHRINK)?;
    Ok(Arena {
        file,
        end: Mutex::new(0),
    })
}

impl Piece {
    /// Maps this many bytes, which take whole pages of the kernel in the file; `None` if it cannot grow.
    pub(super) fn take(length: usize) -> Option<Self> {
        let arena = arena()?;
        let fd = arena.file.as_raw_fd();
        let length = length.checked_next_multiple_of(usize::try_from(page_size()).ok()?)?;
        let mut end = arena.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *end;
        let behind = offset.checked_add(libc::off_t::try_from(length).ok()?)?;
        memory_file::set_length(&arena.file, u64::try_from(behind).ok()?).ok()?;
        *end = behind;
        drop(end);
        let start = map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)?;
        Some(Self {
            start,
            length,
            offset: Some(offset),
            referred: OnceLock::new(),
        })
    }

    /// Maps private memory. Pages are allocated on first access.
    pub(super) fn alone(length: usize) -> Option<Self> {
        let start = map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        Some(Self {
            start,
            length,
            offset: None,
            referred: OnceLock::new(),
        })
    }

    /// Maps private memory of [`HALF`] bytes: half of a large page, where the kernel has large pages for
    /// programs that ask. The other half is the next piece.
    pub(super) fn half() -> Option<Self> {
        static OTHER: Mutex<Option<Half>> = Mutex::new(None);
        let mut other = OTHER.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match other.take() {
            Some(Half(start)) => start,
            None => {
                let start = large_page()?;
                // SAFETY: within the large page.
                *other = Some(Half(unsafe { start.add(HALF) }));
                start
            }
        };
        Some(Self {
            start,
            length: HALF,
            offset: None,
            referred: OnceLock::new(),
        })
    }

    /// The pages that the kernel may read at any later time; `None` for memory that other processes map.
    pub(super) fn referred(&self) -> Option<&OnceLock<Pages>> {
        Some(&self.referred).filter(|_| self.offset.is_none())
    }

    /// As [`Piece::referred`], to remove pages.
    pub(super) fn referred_mut(&mut self) -> Option<&mut Pages> {
        self.referred.get_mut()
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// Maps private memory of two halves that begins where a large page may.
fn large_page() -> Option<NonNull<u8>> {
    const LARGE: usize = 2 * HALF;
    let all = map(2 * LARGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
    let before = all.as_ptr().align_offset(LARGE);
    // SAFETY: `before` is less than a large page, and the mapping has two.
    let (start, end) = unsafe { (all.add(before), all.add(before + LARGE)) };
    // SAFETY: parts of the new mapping that nothing uses; lengths of 0 are refused without effect.
    unsafe {
        libc::munmap(all.as_ptr().cast(), before);
        libc::munmap(end.as_ptr().cast(), LARGE - before);
        libc::madvise(start.as_ptr().cast(), LARGE, libc::MADV_HUGEPAGE);
    }
    Some(start)
}

fn map(
    length: usize,
    how: libc::c_int,
    fd: libc::c_int,
    offset: libc::off_t,
) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, within the file.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, access, how, fd, offset) };
    NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED)
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the mapping that `take` made, which is not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        if let Some((arena, offset)) = arena().zip(self.offset) {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a descriptor that is open; the rest are numbers.
            unsafe {
                libc::fallocate(
                    arena.file.as_raw_fd(),
                    how,
                    offset,
                    self.length as libc::off_t,
                )
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zeroed_and_disjoint() {
        let halves = || Piece::half().unwrap();
        drop(halves());
        let taken = [
            Piece::take(8192).unwrap(),
            Piece::take(4096).unwrap(),
            Piece::take(4096).unwrap(),
            halves(),
            halves(),
            halves(),
        ];
        for (piece, length) in taken.iter().zip([8192, 4096, 4096, HALF, HALF, HALF]) {
            // SAFETY: the piece's own bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(piece.start().as_ptr(), length) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
    }
}
