//! WRITEs, READs and atomics that the sender executes itself, on the memory of the process at the other end
//! of a lane.
//!
//! Each device keeps a book of what it grants, which its peers can read. Who wants to write finds there what
//! the responder would find in its tables, and asks the same questions of it (`rnic::RegionGrant`). While it
//! moves bytes it says so in the memory of the lane, and who takes a grant back waits until nobody does.

use crate::sys::book::{OwnBook, PeersBook, QUEUES, REGIONS, Table, WORDS};
use crate::sys::foreign::Foreign;
use crate::sys::memory::ProcessMemory;
use crate::sys::shares::{self, Part};
use crate::sys::views::{Views, are_pinned};
use rnic::{Access, Change, Direct, Gather, Gid, Memory, Path, Payload, Pd, Piece, QueueGrant, RegionGrant};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wire::{Qpn, Reth, Rkey};

/// Places at which a region may stand in the book.
const PLACES: usize = 8;
/// Bytes that are moved directly, whatever the other side does: one page, for which a call costs about what
/// two looks into another core's cache do.
pub(super) const SMALL: u32 = 4096;
/// And where it sleeps: waking it costs as much time as moving this.
pub(super) const LARGE: u32 = 128 << 10;

/// The most that is moved at once, with the device's lock held, to and from memory of both: 0.1 ms.
const SHARED_MAX: u32 = 4 << 20;

/// Another process's memory, and what it grants.
#[derive(Debug)]
pub(super) struct Reach {
    /// None where the kernel does not let us.
    memory: Option<Foreign>,
    /// What both have.
    views: Views,
    book: PeersBook,
}

impl Reach {
    /// Opens both, and makes sure that they belong together.
    pub(super) fn open(process: u32, book: &impl AsFd, address: u64) -> io::Result<Self> {
        let book = PeersBook::open(book)?;
        let memory = Foreign::open(process, address, book.token()).ok();
        Ok(Self { memory, views: Views::default(), book })
    }

    /// The other side shows a file of which it has mapped something.
    pub(super) fn show(&mut self, number: u8, file: OwnedFd) {
        self.views.add(number, file);
    }

    /// The other side shows a System V segment, named as in this `namespace`.
    pub(super) fn show_segment(&mut self, number: u8, id: i32, namespace: &OwnedFd) {
        if shares::is_our_segment_namespace(namespace) {
            self.views.add_segment(number, id);
        }
    }

    /// Whether there can be memory of both.
    pub(super) fn has_views(&self) -> bool {
        !self.views.is_empty()
    }

    /// Whether a request of this length is worth a system call, or needs none. The first that is sent after
    /// a while is, if it is short or the other side `sleeps`: waking it takes as long.
    pub(super) fn is_worth(&self, reth: &Reth, first: bool, sleeps: bool) -> Option<Means> {
        let call =
            first && self.memory.is_some() && (reth.length <= SMALL || (reth.length <= LARGE && sleeps));
        match (call, !self.views.is_empty() && reth.length <= SHARED_MAX) {
            (false, false) => None,
            (call, shared) => Some(Means { call, shared }),
        }
    }

    /// Executes a request, if the other side grants it; otherwise nothing was done, or not all.
    pub(super) fn execute(
        &mut self,
        path: &Path,
        (from, to): (Qpn, Qpn),
        reth: &Reth,
        direct: Direct<'_>,
        means: Means,
    ) -> bool {
        if reth.length == 0 {
            return false;
        }
        let need = match direct {
            Direct::Write(_) => Access::REMOTE_WRITE,
            Direct::Read(_) => Access::REMOTE_READ,
            Direct::FetchAdd { .. } | Direct::CompareSwap { .. } => Access::REMOTE_ATOMIC,
        };
        let Some((piece, region, part)) = self.find(path, from, to, reth, need) else { return false };
        let offset = piece.address.wrapping_sub(region.start);
        let length = reth.length as usize;
        let part = part.filter(|_| means.shared);
        if let Some(both) = part.and_then(|part| self.views.stretch(part, region.length, offset, length)) {
            return match direct {
                Direct::Write(bytes) => both.write(bytes),
                Direct::Read(bytes) => both.read(bytes),
                Direct::FetchAdd { add, into } => keep(into, || both.fetch_add(add)),
                Direct::CompareSwap { compare, swap, into } => {
                    keep(into, || both.compare_swap(compare, swap))
                }
            };
        }
        match (self.memory.as_ref().filter(|_| means.call), direct) {
            (Some(memory), Direct::Write(bytes)) => memory.write(piece.address, bytes),
            (Some(memory), Direct::Read(bytes)) => memory.read(piece.address, bytes),
            _ => false,
        }
    }

    /// The place that a request names, as the responder would find it.
    fn find(&self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, need: Access) -> Option<Found> {
        let queue = queue_of(self.book.read(Table::Queues, queue_index(to))?)?;
        let connected = queue.qpn == to
            && queue.peer == from
            && queue.source == path.destination
            && queue.destination == path.source;
        if !connected || !queue.access.contains(need) {
            return None;
        }
        let words = region_indices(reth.rkey).filter_map(|index| self.book.read(Table::Regions, index));
        let regions = words.filter_map(|words| Some((region_of(words)?, part_of(words))));
        let (region, part) = { regions }.find(|(region, _)| region.rkey == reth.rkey)?;
        let piece = region.piece(queue.pd, to, reth.address, reth.length, need)?;
        Some((piece, region, part))
    }
}

/// What a request names, the region that it is of, and the part of a file that the region is.
type Found = (Piece, RegionGrant, Option<Part>);

/// How a request may be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// By a call to the kernel.
    call: bool,
    /// In memory of both.
    shared: bool,
}

/// Puts what an atomic found where the program wants it. Nothing is done where that cannot be written.
fn keep(into: Gather<'_>, atomic: impl FnOnce() -> Option<u64>) -> bool {
    let Gather::Pieces(pieces) = into else { return false };
    if !are_pinned(pieces) {
        return false;
    }
    let Some(before) = atomic() else { return false };
    let bytes = before.to_ne_bytes();
    let mut rest = &bytes[..];
    for piece in pieces {
        let (part, more) = rest.split_at(rest.len().min(piece.length as usize));
        // Pinned memory takes everything.
        let _ = ProcessMemory.write(*piece, Payload::Bytes(part));
        rest = more;
    }
    true
}

/// What a change was, for peers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Published {
    /// Something that was granted is no longer, and peers have to be waited for.
    pub(super) taken_back: bool,
    /// A file has to be shown.
    pub(super) shows: bool,
}

/// Writes down what changed.
pub(super) fn publish(book: &OwnBook, rnic: &rnic::Device, change: Change) -> Published {
    let mut shows = false;
    let (table, place, words) = match change {
        Change::Region(rkey) => {
            let place = region_place(book, rkey);
            let words = rnic.region_grant(rkey).map(|grant| {
                let part = shared_part(&grant);
                shows = part.is_some();
                region_words(&grant, part)
            });
            (Table::Regions, place, words)
        }
        Change::Queue(qpn) => {
            let (index, words) = (queue_index(qpn), rnic.queue_grant(qpn).map(|grant| queue_words(&grant)));
            let there = book.first(Table::Queues, index) as u32;
            let ours = there == qpn.value() || (there == 0 && words.is_some());
            (Table::Queues, ours.then_some(index), words)
        }
    };
    let Some(index) = place else { return Published::default() };
    let taken_back = book.first(table, index) != 0;
    if words.is_some() || taken_back {
        book.write(table, index, words.unwrap_or_default());
    }
    Published { taken_back, shows }
}

/// The part of a file that a region is, if peers may do something to it.
fn shared_part(grant: &RegionGrant) -> Option<Part> {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let fits = grant.access.intersects(remote) && !grant.access.contains(Access::ON_DEMAND);
    if fits { shares::part_behind(grant.start, grant.length) } else { None }
}

/// Where a region stands, or has room; `None` where it has none.
fn region_place(book: &OwnBook, rkey: Rkey) -> Option<usize> {
    let first = |index: usize| book.first(Table::Regions, index);
    let mut places = region_indices(rkey);
    places
        .clone()
        .find(|&index| first(index) == region_first(rkey))
        .or_else(|| places.find(|&at| first(at) == 0))
}

fn queue_index(qpn: Qpn) -> usize {
    qpn.value() as usize % QUEUES
}

fn region_indices(rkey: Rkey) -> impl Iterator<Item = usize> + Clone {
    let home = (rkey.0.wrapping_mul(0x9e37_79b1) >> 12) as usize;
    (0..PLACES).map(move |step| (home + step) % REGIONS)
}

/// An empty place has 0 here, which is no region's.
fn region_first(rkey: Rkey) -> u64 {
    u64::from(rkey.0) | 1 << 32
}

fn region_words(grant: &RegionGrant, part: Option<Part>) -> [u64; WORDS] {
    let rights = u64::from(grant.pd.value()) | u64::from(grant.access.bits()) << 32;
    let only = grant.only.map_or(0, |qpn| u64::from(qpn.value()) + 1);
    let part = part.map_or(0, |part| part.offset << 8 | (u64::from(part.file) + 1));
    [region_first(grant.rkey), rights, grant.start, grant.length, grant.iova, only, part]
}

fn region_of(words: [u64; WORDS]) -> Option<RegionGrant> {
    let [first, rights, start, length, iova, only, _] = words;
    (first >> 32 == 1).then(|| RegionGrant {
        rkey: Rkey(first as u32),
        pd: Pd::from_value(rights as u32),
        start,
        length,
        iova,
        access: Access::from_bits_truncate((rights >> 32) as u32),
        only: only.checked_sub(1).map(|qpn| Qpn::new(qpn as u32)),
    })
}

fn part_of(words: [u64; WORDS]) -> Option<Part> {
    let file = (words[6] as u8).checked_sub(1)?;
    Some(Part { file, offset: words[6] >> 8 })
}

fn queue_words(grant: &QueueGrant) -> [u64; WORDS] {
    let first = u64::from(grant.qpn.value()) | u64::from(grant.peer.value()) << 32;
    let rights = u64::from(grant.pd.value()) | u64::from(grant.access.bits()) << 32;
    let [source, destination] = [grant.source, grant.destination].map(|gid| u128::from_be_bytes(gid.0));
    let half = |gid: u128| [(gid >> 64) as u64, gid as u64];
    let ([a, b], [c, d]) = (half(source), half(destination));
    [first, rights, a, b, c, d, 0]
}

fn queue_of(words: [u64; WORDS]) -> Option<QueueGrant> {
    let [first, rights, a, b, c, d, _] = words;
    let gid = |high: u64, low: u64| Gid((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
    (first != 0).then(|| QueueGrant {
        qpn: Qpn::new(first as u32),
        peer: Qpn::new((first >> 32) as u32),
        source: gid(a, b),
        destination: gid(c, d),
        pd: Pd::from_value(rights as u32),
        access: Access::from_bits_truncate((rights >> 32) as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_the_same() {
        let region = RegionGrant {
            rkey: Rkey(0xdead_beef),
            pd: Pd::from_value(7),
            start: 0x7fff_0000_1234,
            length: u64::MAX,
            iova: 5,
            access: Access::REMOTE_WRITE | Access::LOCAL_WRITE | Access::ON_DEMAND,
            only: Some(Qpn::new(0xff_fffe)),
        };
        assert_eq!(region_of(region_words(&region, None)), Some(region));
        assert_eq!(part_of(region_words(&region, None)), None);
        let part = Some(Part { file: 63, offset: 0x1234_5678_9000 });
        assert_eq!(part_of(region_words(&region, part)), part);
        let any = RegionGrant { only: None, ..region };
        assert_eq!(region_of(region_words(&any, part)), Some(any));
        let queue = QueueGrant {
            qpn: Qpn::new(0x4001),
            peer: Qpn::new(0x8002),
            source: Gid::from_ipv4([10, 0, 0, 1]),
            destination: Gid([0xfe; 16]),
            pd: Pd::from_value(3),
            access: Access::REMOTE_READ,
        };
        assert_eq!(queue_of(queue_words(&queue)), Some(queue));
        assert_eq!((region_of([0; WORDS]), queue_of([0; WORDS])), (None, None));
    }
}
