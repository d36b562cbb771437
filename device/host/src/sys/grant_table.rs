//! The grant table of a device: the memory regions, memory windows and queue pairs by which peers on the same
//! host may execute requests themselves, in memory that these peers can read.
//!
//! Each entry is a sequence lock: its sequence number is odd while the owner writes it. Peers cannot write
//! (the memory is sealed against it); a peer copies an entry, and uses the copy if the number was even and is
//! the same afterwards.

use link::sequence_lock;
use os::sealed_table::{SealedTable, Shared};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries for regions and windows. Requests to regions without an entry go through the rings.
pub(crate) const REGIONS: usize = 4096;
/// Entries for queue pairs, which are indexed by the lower bits of the queue pair number.
pub(crate) const QUEUES: usize = 1 << 14;
/// 64-bit words of an entry.
pub(crate) const WORDS: usize = 7;

/// The bits of a random number that make the address of a page in the lower half of a program's address
/// space.
#[cfg(target_arch = "x86_64")]
const ADDRESS_MASK: u64 = (1 << 46) - 4096;
/// The bits of a random number that make the address of a page, of 64 KiB at most. Kernels with addresses of
/// 39 or 42 bits ignore most such wishes, and choose an address at random themselves.
#[cfg(target_arch = "aarch64")]
const ADDRESS_MASK: u64 = (1 << 46) - 65536;

#[repr(C, align(64))]
struct Entry {
    sequence: AtomicU32,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Writes the entry. Only one thread of the owner does at a time, with the device's lock held.
    fn write(&self, words: [u64; WORDS]) {
        sequence_lock::write(&self.sequence, &self.words, &words);
    }

    /// A consistent copy of the entry, and its sequence number; `None` while it is being written.
    fn read(&self) -> Option<([u64; WORDS], u32)> {
        sequence_lock::read(&self.sequence, &self.words)
    }
}

#[repr(C)]
struct Pages {
    /// A random number. A peer reads it through this file and through the process's memory: if both are
    /// equal, it has the memory of the right process.
    token: AtomicU64,
    regions: [Entry; REGIONS],
    queues: [Entry; QUEUES],
}

/// The section of the table that an entry is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Regions,
    Queues,
}

// SAFETY: atomics.
unsafe impl Shared for Pages {}

impl Pages {
    fn entry(&self, section: Section, index: usize) -> &Entry {
        match section {
            Section::Regions => &self.regions[index % REGIONS],
            Section::Queues => &self.queues[index % QUEUES],
        }
    }
}

/// The grant table of a device of this process.
#[derive(Debug)]
pub(crate) struct GrantTable {
    pages: SealedTable<Pages>,
    fd: OwnedFd,
}

impl GrantTable {
    /// Makes an empty table, at an address that depends on the token: peers recognize the address space by it
    /// (see [`super::other_process`]).
    pub(crate) fn new(token: u64) -> io::Result<Self> {
        let wish = (token & ADDRESS_MASK) as usize;
        let (pages, fd) = SealedTable::<Pages>::create(c"rockery-grants", wish)?;
        pages.token.store(token, Ordering::Relaxed);
        Ok(Self { pages, fd })
    }

    /// The descriptor that peers map for reading.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Address of the token in this process's memory.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(&*self.pages) as u64
    }

    /// Writes an entry. Only one thread does at a time.
    pub(crate) fn write(&self, section: Section, index: usize, words: [u64; WORDS]) {
        self.pages.entry(section, index).write(words);
    }

    /// The first word of an entry, as last written.
    pub(crate) fn first(&self, section: Section, index: usize) -> u64 {
        self.pages.entry(section, index).words[0].load(Ordering::Relaxed)
    }
}

/// The grant table of a peer, mapped for reading.
#[derive(Debug)]
pub(crate) struct PeerGrantTable(SealedTable<Pages>);

impl PeerGrantTable {
    /// Maps a peer's table. It must have the size and the seals of [`GrantTable::new`].
    pub(crate) fn open(fd: &impl AsFd) -> io::Result<Self> {
        SealedTable::open(fd).map(Self)
    }

    /// The token, which the peer process also has at the address in its handshake.
    pub(crate) fn token(&self) -> u64 {
        self.0.token.load(Ordering::Relaxed)
    }

    /// A consistent copy of an entry, with a stamp that shows later whether the entry is unchanged; `None`
    /// while it is being written.
    pub(crate) fn read(&self, section: Section, index: usize) -> Option<([u64; WORDS], Stamp)> {
        let (words, sequence) = self.0.entry(section, index).read()?;
        Some((
            words,
            Stamp {
                section,
                index,
                sequence,
            },
        ))
    }

    /// Whether an entry is unchanged since it was read.
    #[inline]
    pub(crate) fn is_as(&self, stamp: Stamp) -> bool {
        let entry = self.0.entry(stamp.section, stamp.index);
        sequence_lock::is_unchanged(&entry.sequence, stamp.sequence)
    }
}

/// An entry that was read, and its sequence number at that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    section: Section,
    index: usize,
    sequence: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn peers_read_what_the_owner_writes_and_cannot_write() {
        let own = GrantTable::new(77).unwrap();
        let peers = PeerGrantTable::open(own.fd()).unwrap();
        assert_eq!(peers.token(), 77);
        let words = |section| peers.read(section, 5).map(|(words, _)| words);
        assert_eq!(words(Section::Regions), Some([0; WORDS]));
        own.write(Section::Regions, 5, [1, 2, 3, 4, 5, 6, 7]);
        let (_, stamp) = peers.read(Section::Queues, 5).unwrap();
        assert!(peers.is_as(stamp), "the other section has changed");
        own.write(Section::Queues, 5, [9; WORDS]);
        assert!(!peers.is_as(stamp));
        assert_eq!(words(Section::Regions), Some([1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(
            (
                own.first(Section::Queues, 5),
                own.first(Section::Regions, 5)
            ),
            (9, 1)
        );
        let (fd, rights) = (own.fd().as_raw_fd(), os::mapping::READ_WRITE);
        let mapped = os::mapping::Mapping::shared(fd, 0, size_of::<Pages>(), rights);
        assert!(mapped.is_err(), "sealed");
        assert!(PeerGrantTable::open(&std::fs::File::open("/proc/self/exe").unwrap()).is_err());
    }

    /// Miri tries orders of stores that this processor does not show (`scripts/sanitize.sh`).
    #[test]
    fn an_entry_is_read_whole_or_not_at_all() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 200_000 };
        let entry = Entry {
            sequence: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=ROUNDS).for_each(|round| entry.write([round; WORDS])));
            let mut last = 0;
            for _ in 0..ROUNDS {
                if let Some((words, _)) = entry.read() {
                    assert!(
                        words.iter().all(|word| *word == words[0]) && words[0] >= last,
                        "{words:?}"
                    );
                    last = words[0];
                }
            }
        });
        assert_eq!(entry.read().map(|(words, _)| words), Some([ROUNDS; WORDS]));
    }
}
