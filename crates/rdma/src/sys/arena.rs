//! Memory that peers on the same host can map: what rockery's device then moves is a plain copy. Other
//! devices see memory like any other.
//!
//! One file in memory has all of it, since a device shows few files to its peers. A piece has its place in
//! the file to itself for ever, and gives its pages back when it ends.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A piece of memory, of zeros at first.
pub(super) struct Piece {
    start: NonNull<u8>,
    length: usize,
    /// Its place in the file; none where it is memory of this process alone.
    offset: Option<libc::off_t>,
}

struct Arena {
    file: OwnedFd,
    /// Behind the last place that was given out.
    end: Mutex<libc::off_t>,
}

/// None where the kernel does not give such a file.
fn arena() -> Option<&'static Arena> {
    static ARENA: OnceLock<Option<Arena>> = OnceLock::new();
    ARENA.get_or_init(|| make().ok()).as_ref()
}

fn make() -> io::Result<Arena> {
    // SAFETY: a name that ends with a zero.
    let fd = unsafe { libc::memfd_create(c"rdma".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made, and is nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // Whoever maps it too cannot take its end away, on which touching it would end this process.
    // SAFETY: a descriptor that is open; the rest are numbers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Arena { file, end: Mutex::new(0) })
}

impl Piece {
    /// So many bytes, a whole number of pages; `None` where there are none to be had this way.
    pub(super) fn take(length: usize) -> Option<Self> {
        let arena = arena()?;
        let fd = arena.file.as_raw_fd();
        let mut end = arena.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *end;
        let behind = offset.checked_add(libc::off_t::try_from(length).ok()?)?;
        // SAFETY: a descriptor that is open; the rest are numbers.
        if unsafe { libc::ftruncate(fd, behind) } < 0 {
            return None;
        }
        *end = behind;
        drop(end);
        let start = map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)?;
        Some(Self { start, length, offset: Some(offset) })
    }

    /// The same, of memory that is this process's alone. It takes room where it is touched.
    pub(super) fn alone(length: usize) -> Option<Self> {
        let start = map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        Some(Self { start, length, offset: None })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

fn map(length: usize, how: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, where the kernel likes; what is mapped of a file is there.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, access, how, fd, offset) };
    NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED)
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the mapping that `take` made, which nobody uses any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        if let Some((arena, offset)) = arena().zip(self.offset) {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a descriptor that is open; the rest are numbers.
            unsafe { libc::fallocate(arena.file.as_raw_fd(), how, offset, self.length as libc::off_t) };
        }
    }
}
