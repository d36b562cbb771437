//! WRITEs and READs that the sender executes itself, on the memory of the process at the other end of a lane.
//!
//! Each device keeps a book of what it grants, which its peers can read. Who wants to write finds there what
//! the responder would find in its tables, and asks the same questions of it (`rnic::RegionGrant`). While it
//! moves bytes it says so in the memory of the lane, and who takes a grant back waits until nobody does.

use crate::sys::book::{OwnBook, PeersBook, QUEUES, REGIONS, Table, WORDS};
use crate::sys::foreign::Foreign;
use rnic::{Access, Change, Direct, Gid, Path, Pd, Piece, QueueGrant, RegionGrant};
use std::io;
use std::os::fd::AsFd;
use wire::{Qpn, Reth, Rkey};

/// Places at which a region may stand in the book.
const PLACES: usize = 8;
/// Bytes that are moved directly, whatever the other side does: one page, for which a call costs about what
/// two looks into another core's cache do.
pub(super) const SMALL: u32 = 4096;
/// And where it sleeps: waking it costs as much time as moving this.
pub(super) const LARGE: u32 = 128 << 10;

/// Another process's memory, and what it grants.
#[derive(Debug)]
pub(super) struct Reach {
    memory: Foreign,
    book: PeersBook,
}

impl Reach {
    /// Opens both, and makes sure that they belong together.
    pub(super) fn open(process: u32, book: &impl AsFd, address: u64) -> io::Result<Self> {
        let book = PeersBook::open(book)?;
        Ok(Self { memory: Foreign::open(process, address, book.token())?, book })
    }

    /// Executes a request, if the other side grants it; otherwise nothing was done, or not all.
    pub(super) fn execute(&self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, direct: Direct<'_>) -> bool {
        if reth.length == 0 {
            return false;
        }
        let need = match direct {
            Direct::Write(_) => Access::REMOTE_WRITE,
            Direct::Read(_) => Access::REMOTE_READ,
        };
        let Some(piece) = self.find(path, from, to, reth, need) else { return false };
        match direct {
            Direct::Write(bytes) => self.memory.write(piece.address, bytes),
            Direct::Read(bytes) => self.memory.read(piece.address, bytes),
        }
    }

    /// The place that a request names, as the responder would find it.
    fn find(&self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, need: Access) -> Option<Piece> {
        let queue = queue_of(self.book.read(Table::Queues, queue_index(to))?)?;
        let connected = queue.qpn == to
            && queue.peer == from
            && queue.source == path.destination
            && queue.destination == path.source;
        if !connected || !queue.access.contains(need) {
            return None;
        }
        let words = region_indices(reth.rkey).filter_map(|index| self.book.read(Table::Regions, index));
        let region = words.filter_map(region_of).find(|region| region.rkey == reth.rkey)?;
        region.piece(queue.pd, to, reth.address, reth.length, need)
    }
}

/// Writes down what changed. True when something that was granted is no longer, and peers have to be waited
/// for.
pub(super) fn publish(book: &OwnBook, rnic: &rnic::Device, change: Change) -> bool {
    let (table, place, words) = match change {
        Change::Region(rkey) => {
            let place = region_place(book, rkey);
            (Table::Regions, place, rnic.region_grant(rkey).map(|grant| region_words(&grant)))
        }
        Change::Queue(qpn) => {
            let (index, words) = (queue_index(qpn), rnic.queue_grant(qpn).map(|grant| queue_words(&grant)));
            let there = book.first(Table::Queues, index) as u32;
            let ours = there == qpn.value() || (there == 0 && words.is_some());
            (Table::Queues, ours.then_some(index), words)
        }
    };
    let Some(index) = place else { return false };
    let taken_back = book.first(table, index) != 0;
    if words.is_some() || taken_back {
        book.write(table, index, words.unwrap_or_default());
    }
    taken_back
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

fn region_words(grant: &RegionGrant) -> [u64; WORDS] {
    let rights = u64::from(grant.pd.value()) | u64::from(grant.access.bits()) << 32;
    let only = grant.only.map_or(0, |qpn| u64::from(qpn.value()) + 1);
    [region_first(grant.rkey), rights, grant.start, grant.length, grant.iova, only, 0]
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
        assert_eq!(region_of(region_words(&region)), Some(region));
        let any = RegionGrant { only: None, ..region };
        assert_eq!(region_of(region_words(&any)), Some(any));
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
