//! The book of a device: what it grants to peers, in memory that peers on the same host can read.
//!
//! Each entry is a sequence lock: an odd number while its owner writes it. Peers cannot write (the memory is
//! sealed against it); they copy an entry, and believe it if the number is the same before and after.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Regions and windows that are shown at most; what does not fit is not shown.
pub(crate) const REGIONS: usize = 4096;
/// Queue pairs, by the lower bits of their number.
pub(crate) const QUEUES: usize = 1 << 14;
/// Numbers of an entry.
pub(crate) const WORDS: usize = 7;
/// Sealed against new writers, besides what keeps it in its place; ours is there before.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

#[repr(C, align(64))]
struct Entry {
    sequence: AtomicU32,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Only one thread does at a time.
    fn write(&self, words: [u64; WORDS]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// `None` while it is being written.
    fn read(&self) -> Option<[u64; WORDS]> {
        let before = self.sequence.load(Ordering::Acquire);
        let words = std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(words)
    }
}

#[repr(C)]
struct Pages {
    /// The same number, read through the file and through the process, is the same process.
    token: AtomicU64,
    regions: [Entry; REGIONS],
    queues: [Entry; QUEUES],
}

/// Which table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Regions,
    Queues,
}

/// A book, mapped.
#[derive(Debug)]
struct Mapped(NonNull<Pages>);

// SAFETY: a mapping that lives as long as this, and all of it is atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(fd: &impl AsFd, rights: i32) -> io::Result<Self> {
        let (length, fd) = (size_of::<Pages>(), fd.as_fd().as_raw_fd());
        // SAFETY: a new range, wherever the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?))
    }

    fn pages(&self) -> &Pages {
        // SAFETY: mapped, page-aligned, long enough (as was checked), and any contents are valid.
        unsafe { self.0.as_ref() }
    }

    fn entry(&self, table: Table, index: usize) -> &Entry {
        match table {
            Table::Regions => &self.pages().regions[index % REGIONS],
            Table::Queues => &self.pages().queues[index % QUEUES],
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, that nobody uses any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Pages>()) };
    }
}

/// Our own book.
#[derive(Debug)]
pub(crate) struct OwnBook {
    mapped: Mapped,
    fd: OwnedFd,
}

impl OwnBook {
    /// An empty one.
    pub(crate) fn new(token: u64) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that lives until the call returns.
        let fd = unsafe { libc::memfd_create(c"rockery-book".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: no pointers.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size_of::<Pages>() as i64) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = Mapped::new(&fd, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        mapped.pages().token.store(token, Ordering::Relaxed);
        Ok(Self { mapped, fd })
    }

    /// What peers open.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Where the token is in our memory.
    pub(crate) fn address(&self) -> u64 {
        self.mapped.0.as_ptr() as u64
    }

    /// Writes an entry; only one thread does at a time.
    pub(crate) fn write(&self, table: Table, index: usize, words: [u64; WORDS]) {
        self.mapped.entry(table, index).write(words);
    }

    /// An entry's first number, as we wrote it.
    pub(crate) fn first(&self, table: Table, index: usize) -> u64 {
        self.mapped.entry(table, index).words[0].load(Ordering::Relaxed)
    }
}

/// A peer's book.
#[derive(Debug)]
pub(crate) struct PeersBook(Mapped);

impl PeersBook {
    /// Opens it. It must be as [`OwnBook::new`] makes it.
    pub(crate) fn open(fd: &impl AsFd) -> io::Result<Self> {
        let raw = fd.as_fd().as_raw_fd();
        // SAFETY: all zeros is a valid value, and there is room for one.
        let (seals, length) = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let seals = libc::fcntl(raw, libc::F_GET_SEALS);
            if seals < 0 || libc::fstat(raw, &mut stat) < 0 {
                return Err(io::Error::last_os_error());
            }
            (seals, stat.st_size)
        };
        if seals & SEALS != SEALS || length != size_of::<Pages>() as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Mapped::new(fd, libc::PROT_READ).map(Self)
    }

    /// The number that its owner has at the address it named.
    pub(crate) fn token(&self) -> u64 {
        self.0.pages().token.load(Ordering::Relaxed)
    }

    /// An entry; `None` while it is being written.
    pub(crate) fn read(&self, table: Table, index: usize) -> Option<[u64; WORDS]> {
        self.0.entry(table, index).read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nobody_else_writes() {
        let own = OwnBook::new(77).unwrap();
        let peers = PeersBook::open(own.fd()).unwrap();
        assert_eq!(peers.token(), 77);
        assert_eq!(peers.read(Table::Regions, 5), Some([0; WORDS]));
        own.write(Table::Regions, 5, [1, 2, 3, 4, 5, 6, 7]);
        own.write(Table::Queues, 5, [9; WORDS]);
        assert_eq!(peers.read(Table::Regions, 5), Some([1, 2, 3, 4, 5, 6, 7]));
        assert_eq!((own.first(Table::Queues, 5), own.first(Table::Regions, 5)), (9, 1));
        assert!(Mapped::new(own.fd(), libc::PROT_READ | libc::PROT_WRITE).is_err(), "sealed");
        assert!(PeersBook::open(&std::fs::File::open("/proc/self/exe").unwrap()).is_err());
    }

    /// Miri tries orders of stores that this processor does not show (`scripts/sanitize.sh`).
    #[test]
    fn an_entry_is_read_whole_or_not_at_all() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 200_000 };
        let entry = Entry { sequence: AtomicU32::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=ROUNDS).for_each(|round| entry.write([round; WORDS])));
            let mut last = 0;
            for _ in 0..ROUNDS {
                if let Some(words) = entry.read() {
                    assert!(words.iter().all(|word| *word == words[0]) && words[0] >= last, "{words:?}");
                    last = words[0];
                }
            }
        });
        assert_eq!(entry.read(), Some([ROUNDS; WORDS]));
    }
}
