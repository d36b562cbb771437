//! Shared mappings: files that a peer has mapped and announced are mapped here as well.

use super::file_thread::{FileThread, PeerFile};
use super::guarded::Guard;
use super::shared_files::{Attached, FILES_MAX, FilePart, is_our_segment_namespace, page_bytes};
use link::unix;
use os::mapping::{Mapping, READ_WRITE};
use rnic::{Backing, Gather, Piece};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::ptr::NonNull;

/// Limit of mappings of one peer's files; the least used one is unmapped first.
const MAPPINGS_MAX: usize = 64;
/// Bytes that are mapped at once, if the region lies within: programs register many small parts of one file.
const WINDOW: u64 = 1 << 30;

/// A peer's files, and the mappings of parts of them.
#[derive(Debug, Default)]
pub(crate) struct SharedMappings {
    /// Files by the numbers that the peer gave them.
    files: Vec<Option<Shown>>,
    mapped: Vec<SharedMapping>,
    guard: Option<Guard>,
}

/// A file or segment that a peer announced.
#[derive(Debug)]
pub(crate) enum Shown {
    File(PeerFile),
    /// A System V segment of the local IPC namespace, by its number.
    Segment(i32),
}

/// A message by which a peer announces a file or segment.
#[derive(Debug)]
pub(crate) enum Message {
    /// The number, and the file or segment; `None` where it cannot be mapped.
    Shown(Option<(u8, Shown)>),
    /// The message has not arrived yet.
    Awaited,
    /// The peer has ended.
    End,
}

/// First byte of a message with the descriptor of a file; the file's number follows.
pub(crate) const FILE: u8 = 2;
/// First byte of a message that announces a System V segment: the file's number and the segment's number
/// follow, with a descriptor of the IPC namespace in which the segment has that number.
pub(crate) const SEGMENT: u8 = 3;

/// A message as the file thread has received it.
enum Received {
    File(u8, RawFd),
    Segment(u8, i32),
    Nothing,
}

/// Receives a message by which a peer announces a file, in the file thread: see [`super::file_thread`].
pub(crate) fn receive(socket: RawFd) -> Message {
    let Ok(thread) = FileThread::get() else {
        return discard(socket);
    };
    let received = thread.run(Some(socket), |socket| {
        let socket = socket.ok_or(io::ErrorKind::NotConnected)?;
        let mut bytes = [0; 8];
        let (length, file) = unix::receive(socket.as_raw_fd(), &mut bytes)?;
        Ok(match (&bytes[..length.min(bytes.len())], file) {
            ([], _) => None,
            (&[FILE, number], Some(file)) => Some(Received::File(number, file.into_raw_fd())),
            (&[SEGMENT, number, a, b, c, d], Some(namespace))
                if is_our_segment_namespace(&namespace) =>
            {
                Some(Received::Segment(number, i32::from_le_bytes([a, b, c, d])))
            }
            _ => Some(Received::Nothing),
        })
    });
    let Some(received) = received else {
        return discard(socket);
    };
    match received {
        Ok(Some(Received::File(number, fd))) => {
            Message::Shown(Some((number, Shown::File(PeerFile::new(&thread, fd)))))
        }
        Ok(Some(Received::Segment(number, id))) => {
            Message::Shown(Some((number, Shown::Segment(id))))
        }
        Ok(Some(Received::Nothing)) => Message::Shown(None),
        Ok(None) => Message::End,
        Err(error) => not_received(&error),
    }
}

/// Takes the message where there is no file thread. The kernel closes its descriptor.
fn discard(socket: RawFd) -> Message {
    match unix::receive_now(socket, &mut [0; 8]) {
        Ok(0) => Message::End,
        Ok(_) => Message::Shown(None),
        Err(error) => not_received(&error),
    }
}

fn not_received(error: &io::Error) -> Message {
    if error.kind() == io::ErrorKind::WouldBlock {
        Message::Awaited
    } else {
        Message::End
    }
}

/// A mapping of a part of a file, from `part.offset` on.
#[derive(Debug)]
struct SharedMapping {
    part: FilePart,
    length: u64,
    /// Address of the first byte; none where the part could not be mapped.
    start: Option<NonNull<u8>>,
    _source: Option<Mapped>,
}

/// The kernel's mapping that a part lies in.
#[derive(Debug)]
enum Mapped {
    #[expect(dead_code, reason = "kept mapped")]
    File(Mapping),
    #[expect(dead_code, reason = "kept attached")]
    Segment(Attached),
}

// SAFETY: a mapping that lives as long as this; it is used through guarded copies only.
unsafe impl Send for SharedMapping {}

/// A range of memory that both processes have mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRange {
    place: NonNull<u8>,
    length: usize,
    guard: Guard,
}

impl SharedMappings {
    /// Adds a file or segment that the peer announced.
    pub(crate) fn add(&mut self, number: u8, shown: Shown) {
        let number = usize::from(number);
        if number >= FILES_MAX || self.files.get(number).is_some_and(Option::is_some) {
            return;
        }
        if self.guard.is_none() {
            self.guard = Guard::new().ok();
        }
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        self.files[number] = Some(shown);
    }

    /// Whether there can be no mappings: no file was announced, or faults cannot be caught.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() || self.guard.is_none()
    }

    /// Bytes `from` to `from + length` of a region that begins at `part` and has `total` bytes.
    #[inline]
    pub(crate) fn range(
        &mut self,
        part: FilePart,
        total: u64,
        from: u64,
        length: usize,
    ) -> Option<SharedRange> {
        let guard = self.guard?;
        if from.checked_add(length as u64)? > total {
            return None;
        }
        let index = match self
            .mapped
            .iter()
            .position(|mapping| mapping.has(part, total))
        {
            Some(index) => index,
            None => self.map(part, total)?,
        };
        let mapping = &self.mapped[index];
        let within = (part.offset - mapping.part.offset + from) as usize;
        // SAFETY: within the mapping.
        let place = unsafe { mapping.start?.add(within) };
        // Moves mappings that are used often to the front.
        if index > 0 {
            self.mapped.swap(index, index / 2);
        }
        Some(SharedRange {
            place,
            length,
            guard,
        })
    }

    #[cold]
    fn map(&mut self, part: FilePart, length: u64) -> Option<usize> {
        let mapping = match self.files.get(usize::from(part.file))?.as_ref()? {
            Shown::File(file) => file
                .with(|fd| {
                    SharedMapping::around(fd, part, length)
                        .or_else(|| SharedMapping::of_file(fd, part, length))
                })
                .flatten(),
            Shown::Segment(id) => SharedMapping::of_segment(*id, part, length),
        };
        let mapping = mapping.unwrap_or(SharedMapping {
            part,
            length,
            start: None,
            _source: None,
        });
        // Mappings that are replaced are of a file that has grown since.
        self.mapped.retain(|old| !mapping.has(old.part, old.length));
        self.mapped.truncate(MAPPINGS_MAX - 1);
        self.mapped.push(mapping);
        Some(self.mapped.len() - 1)
    }
}

impl SharedMapping {
    #[inline]
    fn has(&self, part: FilePart, length: u64) -> bool {
        let before = part.offset.checked_sub(self.part.offset);
        let end = before.and_then(|before| before.checked_add(length));
        part.file == self.part.file && end.is_some_and(|end| end <= self.length)
    }

    /// Maps the window of [`WINDOW`] bytes that a part lies in; `None` where the part crosses its end.
    fn around(fd: RawFd, part: FilePart, length: u64) -> Option<Self> {
        let offset = part.offset / WINDOW * WINDOW;
        let end = bytes_of(fd)?.min(offset.checked_add(WINDOW)?);
        let window = Self::of_file(fd, FilePart { offset, ..part }, end.checked_sub(offset)?)?;
        window.has(part, length).then_some(window)
    }

    fn of_segment(id: i32, part: FilePart, length: u64) -> Option<Self> {
        let attached = Attached::new(id).ok()?;
        part.offset
            .checked_add(length)
            .filter(|end| *end <= attached.bytes)?;
        // SAFETY: within the segment, as was checked.
        let start = unsafe { attached.start.add(part.offset as usize) };
        Some(Self {
            part,
            length,
            start: Some(start),
            _source: Some(Mapped::Segment(attached)),
        })
    }

    fn of_file(fd: RawFd, part: FilePart, length: u64) -> Option<Self> {
        let page = page_bytes(fd)?;
        let size = bytes_of(fd)?;
        let end = part.offset.checked_add(length).filter(|end| *end <= size)?;
        let from = part.offset / page * page;
        let span = usize::try_from((end - from).checked_next_multiple_of(page)?).ok()?;
        let mapping = Mapping::shared(fd, from, span, READ_WRITE).ok()?;
        // SAFETY: within the mapping.
        let start = unsafe { mapping.start().add((part.offset - from) as usize) };
        Some(Self {
            part,
            length,
            start: Some(start),
            _source: Some(Mapped::File(mapping)),
        })
    }
}

/// The size of a file in bytes.
fn bytes_of(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeros is a valid value, and there is room for one.
    unsafe {
        let mut stat: libc::stat = zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat.st_size as u64)
    }
}

impl SharedRange {
    /// Writes to the range, the last byte last. False where not all of it was written.
    pub(crate) fn write(self, from: Gather<'_>) -> bool {
        self.each(from, |place, bytes, length| {
            // SAFETY: within the mapping; memory that the device checked against regions of ours, or its own.
            unsafe { self.guard.copy(place, bytes, length) }
        })
    }

    /// Reads from the range. False where not all of it was read.
    pub(crate) fn read(self, into: Gather<'_>) -> bool {
        self.each(into, |place, bytes, length| {
            // SAFETY: within the mapping; memory of ours that may be written, as the device has checked.
            unsafe { self.guard.copy(bytes, place, length) }
        })
    }

    #[inline(always)]
    fn each(self, ours: Gather<'_>, copy: impl Fn(*mut u8, *mut u8, usize) -> bool) -> bool {
        let pieces = match ours {
            Gather::Pieces(
                &[
                    Piece {
                        address,
                        length,
                        backing: Backing::Pinned,
                    },
                ],
            ) => {
                return length as usize == self.length
                    && copy(self.place.as_ptr(), address as *mut u8, self.length);
            }
            Gather::Inline(bytes) => {
                return bytes.len() == self.length
                    && copy(self.place.as_ptr(), bytes.as_ptr().cast_mut(), bytes.len());
            }
            Gather::Pieces(pieces) => pieces,
        };
        if !are_pinned(pieces)
            || pieces
                .iter()
                .map(|piece| piece.length as usize)
                .sum::<usize>()
                != self.length
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

    /// Adds to the eight bytes of the range; returns the value before.
    pub(crate) fn fetch_add(self, add: u64) -> Option<u64> {
        if self.is_cell() {
            // SAFETY: eight aligned bytes of the mapping.
            unsafe { self.guard.fetch_add(self.place.as_ptr(), add) }
        } else {
            None
        }
    }

    /// Swaps the eight bytes of the range if they are as expected; returns the value before.
    pub(crate) fn compare_swap(self, compare: u64, swap: u64) -> Option<u64> {
        if !self.is_cell() {
            return None;
        }
        // SAFETY: eight aligned bytes of the mapping.
        unsafe { self.guard.compare_swap(self.place.as_ptr(), compare, swap) }
    }
}

/// Whether all pieces are pinned memory, to which access does not fail.
pub(crate) fn are_pinned(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.backing == Backing::Pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared_files::{Source, files, part_behind, segment_namespace};
    use std::fs::File;
    use std::ptr::null_mut;

    /// Bytes of each file: whole pages of every size.
    const PAGES: usize = 4 << 16;
    /// Where a file is cut off: at the end of a page of every size.
    const CUT: usize = 1 << 16;

    /// A file in memory, and its bytes as mapped by its owner.
    fn file(name: &std::ffi::CStr) -> (File, *mut u8) {
        // SAFETY: a name that lives until the call returns; then a new descriptor; then a new range.
        unsafe {
            use std::os::fd::FromRawFd;
            let file = File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC));
            file.set_len(PAGES as u64).unwrap();
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(
                null_mut(),
                PAGES,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            (file, base.cast())
        }
    }

    fn byte(owner: *mut u8, at: usize) -> u8 {
        // SAFETY: within the mapping.
        unsafe { owner.add(at).read_volatile() }
    }

    /// The mappings of a peer to which the part's file was announced.
    fn mappings_of(part: FilePart) -> SharedMappings {
        let mut mappings = SharedMappings::default();
        assert!(mappings.is_empty());
        let [ours, theirs] = unix::pair().unwrap();
        unix::set_nonblocking(ours.as_raw_fd()).unwrap();
        assert!(matches!(receive(ours.as_raw_fd()), Message::Awaited));
        match files()[usize::from(part.file)] {
            Source::File(fd) => {
                unix::send_fds(theirs.as_raw_fd(), &[FILE, part.file], &[fd]).unwrap()
            }
            Source::Segment(id) => {
                let [a, b, c, d] = id.to_le_bytes();
                let namespace = segment_namespace().unwrap();
                let message = [SEGMENT, part.file, a, b, c, d];
                unix::send_fds(theirs.as_raw_fd(), &message, &[namespace.as_raw_fd()]).unwrap();
            }
        }
        let Message::Shown(Some((number, shown))) = receive(ours.as_raw_fd()) else {
            panic!()
        };
        mappings.add(number, shown);
        assert!(!mappings.is_empty());
        mappings
    }

    /// Mappings of a file with this name in the process, and descriptors of it that file threads have.
    fn holdings(name: &str) -> (usize, usize) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let tasks = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .flatten()
            .map(|task| task.path());
        let is_file_thread = |task: &std::path::PathBuf| {
            std::fs::read_to_string(task.join("comm"))
                .is_ok_and(|name| name.trim() == "rockery-files")
        };
        let tables = tasks
            .filter(is_file_thread)
            .filter_map(|task| std::fs::read_dir(task.join("fd")).ok());
        let descriptors = tables.flatten().flatten();
        let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let of_name = links
            .filter(|link| link.to_string_lossy().contains(name))
            .count();
        (maps.matches(name).count(), of_name)
    }

    #[test]
    fn a_peers_file_and_its_memory_are_released_with_its_mappings() {
        let (file, owner) = file(c"released");
        let part = part_behind(owner as u64, PAGES as u64).unwrap();
        let before = holdings("memfd:released");
        for _ in 0..100 {
            let mut mappings = mappings_of(part);
            assert!(
                mappings
                    .range(part, PAGES as u64, 0, 8)
                    .unwrap()
                    .write(Gather::Inline(&[7; 8]))
            );
            assert_eq!(
                (holdings("memfd:released"), byte(owner, 7)),
                ((before.0 + 1, 1), 7)
            );
        }
        assert_eq!((holdings("memfd:released"), before.1), (before, 0));
        drop(file);
    }

    /// The same in a thread as the progress thread, which takes none of the program's signals.
    #[test]
    fn a_copy_to_a_file_that_was_cut_off_ends_in_threads_of_ours_too() {
        let (file, owner) = file(c"cut under a thread");
        let part = part_behind(owner as u64, PAGES as u64).unwrap();
        let mut mappings = mappings_of(part);
        assert!(
            mappings
                .range(part, PAGES as u64, 2 * CUT as u64, 8)
                .unwrap()
                .write(Gather::Inline(&[7; 8]))
        );
        file.set_len(CUT as u64).unwrap();
        let copies = crate::sys::process::spawn_quiet("copies", move || {
            let range = mappings
                .range(part, PAGES as u64, 2 * CUT as u64, 8)
                .unwrap();
            assert!(!range.write(Gather::Inline(&[7; 8])));
        });
        copies.unwrap().join().unwrap();
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece {
            address: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            backing: Backing::Pinned,
        }
    }

    #[test]
    fn what_one_maps_the_other_writes_and_reads() {
        let (_file, owner) = file(c"mappings");
        // A region that begins within a page, in the middle of the file.
        let part = part_behind(owner as u64 + 4196, 10_000).unwrap();
        assert_eq!(part.offset, 4196);
        let mut mappings = mappings_of(part);
        let bytes: Vec<u8> = (0..=255).collect();
        let halves = [piece(&bytes[..100]), piece(&bytes[100..])];
        assert!(
            mappings
                .range(part, 10_000, 9_744, 256)
                .unwrap()
                .write(Gather::Pieces(&halves))
        );
        assert!((0..256).all(|at| byte(owner, 4196 + 9_744 + at) == at as u8));
        let back = [0u8; 256];
        assert!(
            mappings
                .range(part, 10_000, 9_744, 256)
                .unwrap()
                .read(Gather::Pieces(&[piece(&back)]))
        );
        assert_eq!(std::hint::black_box(&back)[..], bytes[..]);
        assert!(
            mappings.range(part, 10_000, 9_745, 256).is_none(),
            "beyond the region"
        );
        assert!(
            mappings
                .range(FilePart { file: 63, ..part }, 10_000, 0, 8)
                .is_none(),
            "not shown"
        );
        let null = Piece {
            backing: Backing::Null,
            ..piece(&back)
        };
        assert!(
            !mappings
                .range(part, 10_000, 0, 256)
                .unwrap()
                .write(Gather::Pieces(&[null]))
        );
    }

    /// Each length has the code that copies it fastest.
    #[test]
    fn copies_of_each_length_write_their_range_alone() {
        let (file, owner) = file(c"lengths");
        let part = part_behind(owner as u64, PAGES as u64).unwrap();
        let mut mappings = mappings_of(part);
        let bytes: Vec<u8> = (1..=140).collect();
        for length in 1..=bytes.len() {
            for start in [4096, 4097, 4103] {
                let mut copy = |at, bytes: &[u8]| {
                    let range = mappings.range(part, PAGES as u64, at, bytes.len()).unwrap();
                    range.write(Gather::Pieces(&[piece(bytes)]))
                };
                assert!(copy(4000, &[0; 400]));
                assert!(copy(start, &bytes[..length]));
                let at = |place: usize| byte(owner, start as usize + place);
                assert!(
                    (0..length).all(|place| at(place) == bytes[place]),
                    "{length} at {start}"
                );
                assert_eq!(
                    (byte(owner, start as usize - 1), at(length)),
                    (0, 0),
                    "{length} at {start}"
                );
            }
        }
        file.set_len(CUT as u64).unwrap();
        for length in 1..=bytes.len() {
            let range = mappings
                .range(part, PAGES as u64, 2 * CUT as u64, length)
                .unwrap();
            assert!(
                !range.write(Gather::Inline(&bytes[..length])),
                "{length} where nothing is mapped"
            );
        }
    }

    #[test]
    fn atomics_are_those_of_the_processor() {
        let (_file, owner) = file(c"atomics");
        let part = part_behind(owner as u64, 64).unwrap();
        let mut mappings = mappings_of(part);
        let mut cell = |from| mappings.range(part, 64, from, 8).unwrap();
        assert_eq!(cell(8).fetch_add(5), Some(0));
        assert_eq!(cell(8).compare_swap(5, 9), Some(5));
        assert_eq!(cell(8).compare_swap(5, 1), Some(9));
        assert_eq!((byte(owner, 8), cell(4).fetch_add(1)), (9, None));
    }

    #[test]
    fn a_file_that_was_cut_off_ends_a_copy_and_nothing_else() {
        let (file, owner) = file(c"cut");
        let part = part_behind(owner as u64, PAGES as u64).unwrap();
        let mut mappings = mappings_of(part);
        let bytes = vec![7u8; 2 * CUT];
        let mut range = |from, length| mappings.range(part, PAGES as u64, from, length).unwrap();
        assert!(range(0, 2 * CUT).write(Gather::Inline(&bytes)));
        file.set_len(CUT as u64).unwrap();
        assert!(!range(0, 2 * CUT).write(Gather::Inline(&bytes)));
        assert!(!range(2 * CUT as u64, 8).write(Gather::Inline(&bytes[..8])));
        assert!(!range(2 * CUT as u64, 1).read(Gather::Pieces(&[piece(&bytes[..1])])));
        assert_eq!(
            (
                range(2 * CUT as u64, 8).fetch_add(1),
                range(2 * CUT as u64, 8).compare_swap(0, 1)
            ),
            (None, None)
        );
        assert!(range(0, CUT).write(Gather::Inline(&bytes[..CUT])));
        assert_eq!(byte(owner, CUT - 1), 7);
    }

    #[test]
    fn a_system_v_segment_is_a_shared_mapping() {
        // SAFETY: no pointers.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGES, libc::IPC_CREAT | 0o600) };
        let owner = Attached::new(id).unwrap();
        // Marked to be destroyed, as programs do at once: it stays while it is attached.
        // SAFETY: no pointers that are used.
        assert_eq!(unsafe { libc::shmctl(id, libc::IPC_RMID, null_mut()) }, 0);
        let part = part_behind(owner.start.addr().get() as u64 + 100, 10_000).unwrap();
        assert_eq!(
            (part.offset, files()[usize::from(part.file)]),
            (100, Source::Segment(id))
        );
        let mut mappings = mappings_of(part);
        let bytes = [7u8; 32];
        assert!(
            mappings
                .range(part, 10_000, 9_968, 32)
                .unwrap()
                .write(Gather::Inline(&bytes))
        );
        assert!((0..32).all(|at| byte(owner.start.as_ptr(), 100 + 9_968 + at) == 7));
        assert_eq!(
            mappings.range(part, 10_000, 4, 8).unwrap().fetch_add(1),
            Some(0)
        );
        assert!(
            mappings.range(part, PAGES as u64, 0, 8).is_none(),
            "longer than the segment"
        );
        assert!(is_our_segment_namespace(&segment_namespace().unwrap()));
        assert!(!is_our_segment_namespace(
            &std::fs::File::open("/proc/self/ns/net").unwrap().into()
        ));
    }

    #[test]
    fn private_memory_is_not_announced() {
        let private = vec![0u8; 10_000];
        assert_eq!(part_behind(private.as_ptr() as u64, 10_000), None);
        let (_file, owner) = file(c"ends");
        assert_eq!(
            part_behind(owner as u64 + 8, PAGES as u64),
            None,
            "longer than what is mapped"
        );
        assert_eq!(part_behind(8, 8), None);
    }
}
