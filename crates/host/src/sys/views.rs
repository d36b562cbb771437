//! What a peer has mapped, and showed us the file of, mapped here as well: memory of both.

use super::guarded::Guard;
use super::shares::{Attached, FILES_MAX, Part, Source, page_bytes};
use rnic::{Backing, Gather, Piece};
use std::mem::zeroed;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

/// Mappings of one peer's memory at most; the one that was used least goes first.
const VIEWS_MAX: usize = 64;
/// What is mapped at once, where the region lies within: programs register many small parts of one file.
const WINDOW: u64 = 1 << 30;

/// A peer's files, and what of them is mapped.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// By the peer's numbers. Descriptors are open as long as the process, see [`super::shares`].
    files: Vec<Option<Source>>,
    mapped: Vec<View>,
    guard: Option<Guard>,
}

/// A part of a file, from `part.offset` on.
#[derive(Debug)]
struct View {
    part: Part,
    length: u64,
    /// Where the part begins; none where it could not be mapped.
    start: Option<NonNull<u8>>,
    _mapping: Option<Mapping>,
}

/// What a view is part of.
#[derive(Debug)]
enum Mapping {
    File {
        base: *mut libc::c_void,
        span: usize,
    },
    #[expect(dead_code, reason = "kept attached")]
    Segment(Attached),
}

// SAFETY: a mapping that lives as long as this; it is used through guarded copies only.
unsafe impl Send for View {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Self::File { base, span } = self {
            // SAFETY: our own mapping, that nobody uses any more.
            unsafe { libc::munmap(*base, *span) };
        }
    }
}

/// A stretch of memory of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    place: NonNull<u8>,
    length: usize,
    guard: Guard,
}

impl Views {
    /// The peer shows a file.
    pub(crate) fn add(&mut self, number: u8, file: OwnedFd) {
        self.insert(number, || Source::File(file.into_raw_fd()));
    }

    /// The peer shows a System V segment of our namespace.
    pub(crate) fn add_segment(&mut self, number: u8, id: i32) {
        self.insert(number, || Source::Segment(id));
    }

    fn insert(&mut self, number: u8, source: impl FnOnce() -> Source) {
        let number = usize::from(number);
        if number >= FILES_MAX || self.files.get(number).is_some_and(Option::is_some) {
            return;
        }
        if self.guard.is_none() {
            self.guard = Guard::new().ok();
        }
        if self.files.len() <= number {
            self.files.resize(number + 1, None);
        }
        self.files[number] = Some(source());
    }

    /// Whether there can be any.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() || self.guard.is_none()
    }

    /// Bytes `from` to `from + length` of a region that begins at `part` and has `total` bytes.
    #[inline]
    pub(crate) fn stretch(&mut self, part: Part, total: u64, from: u64, length: usize) -> Option<Stretch> {
        let guard = self.guard?;
        if from.checked_add(length as u64)? > total {
            return None;
        }
        let index = match self.mapped.iter().position(|view| view.has(part, total)) {
            Some(index) => index,
            None => self.map(part, total)?,
        };
        let view = &self.mapped[index];
        let within = (part.offset - view.part.offset + from) as usize;
        // SAFETY: within the view.
        let place = unsafe { view.start?.add(within) };
        // What is used much is found soon.
        self.mapped.swap(index, index / 2);
        Some(Stretch { place, length, guard })
    }

    #[cold]
    fn map(&mut self, part: Part, length: u64) -> Option<usize> {
        let view = match (*self.files.get(usize::from(part.file))?)? {
            Source::File(fd) => View::around(fd, part, length).or_else(|| View::of_file(fd, part, length)),
            Source::Segment(id) => View::of_segment(id, part, length),
        };
        let view = view.unwrap_or(View { part, length, start: None, _mapping: None });
        // A file may have grown.
        self.mapped.retain(|old| !view.has(old.part, old.length));
        self.mapped.truncate(VIEWS_MAX - 1);
        self.mapped.push(view);
        Some(self.mapped.len() - 1)
    }
}

impl View {
    #[inline]
    fn has(&self, part: Part, length: u64) -> bool {
        let before = part.offset.checked_sub(self.part.offset);
        let end = before.and_then(|before| before.checked_add(length));
        part.file == self.part.file && end.is_some_and(|end| end <= self.length)
    }

    /// The window that a part lies in, as far as there is one.
    fn around(fd: RawFd, part: Part, length: u64) -> Option<Self> {
        let offset = part.offset / WINDOW * WINDOW;
        let end = bytes_of(fd)?.min(offset.checked_add(WINDOW)?);
        let window = Self::of_file(fd, Part { offset, ..part }, end.checked_sub(offset)?)?;
        window.has(part, length).then_some(window)
    }

    fn of_segment(id: i32, part: Part, length: u64) -> Option<Self> {
        let attached = Attached::new(id).ok()?;
        part.offset.checked_add(length).filter(|end| *end <= attached.bytes)?;
        // SAFETY: within the segment, as was checked.
        let start = unsafe { attached.start.add(part.offset as usize) };
        Some(Self { part, length, start: Some(start), _mapping: Some(Mapping::Segment(attached)) })
    }

    fn of_file(fd: RawFd, part: Part, length: u64) -> Option<Self> {
        let page = page_bytes(fd)?;
        let size = bytes_of(fd)?;
        let end = part.offset.checked_add(length).filter(|end| *end <= size)?;
        let from = part.offset / page * page;
        let span = usize::try_from((end - from).checked_next_multiple_of(page)?).ok()?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new range, wherever the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), span, rights, libc::MAP_SHARED, fd, from as i64) };
        if base == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: within the mapping.
        let start = NonNull::new(unsafe { base.cast::<u8>().add((part.offset - from) as usize) });
        Some(Self { part, length, start, _mapping: Some(Mapping::File { base, span }) })
    }
}

/// Bytes of a file.
fn bytes_of(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeros is a valid value, and there is room for one.
    unsafe {
        let mut stat: libc::stat = zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat.st_size as u64)
    }
}

impl Stretch {
    /// Writes to it; whether all of it arrived. The last byte last.
    pub(crate) fn write(self, from: Gather<'_>) -> bool {
        self.each(from, |place, bytes, length| {
            // SAFETY: within the view; memory that the device checked against regions of ours, or its own.
            unsafe { self.guard.copy(place, bytes, length) }
        })
    }

    /// Reads from it; whether all of it came.
    pub(crate) fn read(self, into: Gather<'_>) -> bool {
        self.each(into, |place, bytes, length| {
            // SAFETY: as above, and memory that may be written.
            unsafe { self.guard.copy(bytes, place, length) }
        })
    }

    fn each(self, ours: Gather<'_>, copy: impl Fn(*mut u8, *mut u8, usize) -> bool) -> bool {
        let pieces = match ours {
            Gather::Inline(bytes) => {
                return bytes.len() == self.length
                    && copy(self.place.as_ptr(), bytes.as_ptr().cast_mut(), bytes.len());
            }
            Gather::Pieces(pieces) => pieces,
        };
        if !are_pinned(pieces)
            || pieces.iter().map(|piece| piece.length as usize).sum::<usize>() != self.length
        {
            return false;
        }
        let mut place = self.place;
        pieces.iter().all(|piece| {
            let length = piece.length as usize;
            let done = copy(place.as_ptr(), piece.address as *mut u8, length);
            // SAFETY: as many bytes are there, as was checked.
            place = unsafe { place.add(length) };
            done
        })
    }

    fn is_cell(self) -> bool {
        self.length == 8 && self.place.addr().get().is_multiple_of(8)
    }

    /// Adds to its eight bytes; what was there.
    pub(crate) fn fetch_add(self, add: u64) -> Option<u64> {
        // SAFETY: eight aligned bytes of the view.
        if self.is_cell() { unsafe { self.guard.fetch_add(self.place.as_ptr(), add) } } else { None }
    }

    /// Swaps its eight bytes if they are as expected; what was there.
    pub(crate) fn compare_swap(self, compare: u64, swap: u64) -> Option<u64> {
        if !self.is_cell() {
            return None;
        }
        // SAFETY: eight aligned bytes of the view.
        unsafe { self.guard.compare_swap(self.place.as_ptr(), compare, swap) }
    }
}

/// Whether all pieces are memory that is there for sure.
pub(crate) fn are_pinned(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.backing == Backing::Pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shares::{files, is_our_segment_namespace, part_behind, segment_namespace};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    const PAGES: usize = 8 * 4096;

    /// A file in memory, and its bytes as its owner has them.
    fn file(name: &std::ffi::CStr) -> (File, *mut u8) {
        // SAFETY: a name that lives until the call returns; then a new descriptor; then a new range.
        unsafe {
            use std::os::fd::FromRawFd;
            let file = File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC));
            file.set_len(PAGES as u64).unwrap();
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(null_mut(), PAGES, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(base, libc::MAP_FAILED);
            (file, base.cast())
        }
    }

    fn byte(owner: *mut u8, at: usize) -> u8 {
        // SAFETY: within the mapping.
        unsafe { owner.add(at).read_volatile() }
    }

    fn views_of(part: Part) -> Views {
        let mut views = Views::default();
        assert!(views.is_empty());
        match files()[usize::from(part.file)] {
            Source::File(fd) => {
                // SAFETY: no pointers; a new descriptor.
                let copy = unsafe {
                    use std::os::fd::FromRawFd;
                    OwnedFd::from_raw_fd(libc::dup(fd))
                };
                views.add(part.file, copy);
            }
            Source::Segment(id) => views.add_segment(part.file, id),
        }
        assert!(!views.is_empty());
        views
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece { address: bytes.as_ptr() as u64, length: bytes.len() as u32, backing: Backing::Pinned }
    }

    #[test]
    fn what_one_maps_the_other_writes_and_reads() {
        let (_file, owner) = file(c"views");
        // A region that begins within a page, in the middle of the file.
        let part = part_behind(owner as u64 + 4196, 10_000).unwrap();
        assert_eq!(part.offset, 4196);
        let mut views = views_of(part);
        let bytes: Vec<u8> = (0..=255).collect();
        let halves = [piece(&bytes[..100]), piece(&bytes[100..])];
        assert!(views.stretch(part, 10_000, 9_744, 256).unwrap().write(Gather::Pieces(&halves)));
        assert!((0..256).all(|at| byte(owner, 4196 + 9_744 + at) == at as u8));
        let back = [0u8; 256];
        assert!(views.stretch(part, 10_000, 9_744, 256).unwrap().read(Gather::Pieces(&[piece(&back)])));
        assert_eq!(std::hint::black_box(&back)[..], bytes[..]);
        assert!(views.stretch(part, 10_000, 9_745, 256).is_none(), "beyond the region");
        assert!(views.stretch(Part { file: 63, ..part }, 10_000, 0, 8).is_none(), "not shown");
        let null = Piece { backing: Backing::Null, ..piece(&back) };
        assert!(!views.stretch(part, 10_000, 0, 256).unwrap().write(Gather::Pieces(&[null])));
    }

    #[test]
    fn atomics_are_those_of_the_processor() {
        let (_file, owner) = file(c"atomics");
        let part = part_behind(owner as u64, 64).unwrap();
        let mut views = views_of(part);
        let mut cell = |from| views.stretch(part, 64, from, 8).unwrap();
        assert_eq!(cell(8).fetch_add(5), Some(0));
        assert_eq!(cell(8).compare_swap(5, 9), Some(5));
        assert_eq!(cell(8).compare_swap(5, 1), Some(9));
        assert_eq!((byte(owner, 8), cell(4).fetch_add(1)), (9, None));
    }

    #[test]
    fn a_file_that_was_cut_off_ends_a_copy_and_nothing_else() {
        let (file, owner) = file(c"cut");
        let part = part_behind(owner as u64, PAGES as u64).unwrap();
        let mut views = views_of(part);
        let bytes = vec![7u8; 8192];
        let mut stretch = |from, length| views.stretch(part, PAGES as u64, from, length).unwrap();
        assert!(stretch(0, 8192).write(Gather::Inline(&bytes)));
        file.set_len(4096).unwrap();
        assert!(!stretch(0, 8192).write(Gather::Inline(&bytes)));
        assert!(!stretch(8192, 8).write(Gather::Inline(&bytes[..8])));
        assert!(!stretch(8192, 1).read(Gather::Pieces(&[piece(&bytes[..1])])));
        assert_eq!((stretch(8192, 8).fetch_add(1), stretch(8192, 8).compare_swap(0, 1)), (None, None));
        assert!(stretch(0, 4096).write(Gather::Inline(&bytes[..4096])));
        assert_eq!(byte(owner, 4095), 7);
    }

    #[test]
    fn a_system_v_segment_is_memory_of_both() {
        // SAFETY: no pointers.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGES, libc::IPC_CREAT | 0o600) };
        let owner = Attached::new(id).unwrap();
        // Marked to be destroyed, as programs do at once: it stays while somebody has it.
        // SAFETY: no pointers that are used.
        assert_eq!(unsafe { libc::shmctl(id, libc::IPC_RMID, null_mut()) }, 0);
        let part = part_behind(owner.start.addr().get() as u64 + 100, 10_000).unwrap();
        assert_eq!((part.offset, files()[usize::from(part.file)]), (100, Source::Segment(id)));
        let mut views = views_of(part);
        let bytes = [7u8; 32];
        assert!(views.stretch(part, 10_000, 9_968, 32).unwrap().write(Gather::Inline(&bytes)));
        assert!((0..32).all(|at| byte(owner.start.as_ptr(), 100 + 9_968 + at) == 7));
        assert_eq!(views.stretch(part, 10_000, 4, 8).unwrap().fetch_add(1), Some(0));
        assert!(views.stretch(part, PAGES as u64, 0, 8).is_none(), "longer than the segment");
        assert!(is_our_segment_namespace(&segment_namespace().unwrap()));
        assert!(!is_our_segment_namespace(&std::fs::File::open("/proc/self/ns/net").unwrap().into()));
    }

    #[test]
    fn memory_that_is_not_shared_is_not_shown() {
        let private = vec![0u8; 10_000];
        assert_eq!(part_behind(private.as_ptr() as u64, 10_000), None);
        let (_file, owner) = file(c"ends");
        assert_eq!(part_behind(owner as u64 + 8, PAGES as u64), None, "longer than what is mapped");
        assert_eq!(part_behind(8, 8), None);
    }
}
