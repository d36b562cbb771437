//! Direct execution: WRITEs, READs and atomics that the requester executes itself, on the memory of the
//! process at the other end of a channel.
//!
//! Each device publishes a grant table that its peers can read. The requester finds there the data that the
//! responder has in its own tables, and makes the same checks (`rnic::RegionGrant`). It sets a busy word in
//! the channel's memory while it moves bytes; a process that revokes a grant waits until that word is
//! cleared.

use crate::sys::grant_table::{GrantTable, PeerGrantTable, QUEUES, REGIONS, Section, Stamp, WORDS};
use crate::sys::memory::ProcessMemory;
use crate::sys::other_process::{Copy, OtherProcess};
use crate::sys::shared_files::{self, FilePart};
use crate::sys::shared_mappings::{SharedMappings, SharedRange, Shown, are_pinned};
use rnic::{
    Access, Arrival, Change, Direct, DirectPath, DirectRequest, Gather, Gid, Memory, Payload, Pd,
    Piece, QueueGrant, RUN_MAX, RegionGrant, RunRequest,
};
use std::io;
use std::os::fd::AsFd;
use wire::{Qpn, Reth, Rkey};

/// Number of entries of the grant table in which a region's grant may be, from the one that its key hashes
/// to.
const PROBES: usize = 8;
/// The longest request, in bytes, that is executed by a system call although the peer is awake: one page, for
/// which the call takes about as long as two cache misses on a line of another core.
pub(super) const SMALL: u32 = 4096;
/// The longest request, in bytes, that is executed by a system call while the peer sleeps: waking it takes as
/// long as copying this.
pub(super) const LARGE: u32 = 128 << 10;

/// The longest request, in bytes, that is copied to or from a shared mapping: 0.1 ms with the device's lock
/// held.
const SHARED_MAX: u32 = 4 << 20;

/// The longest request, in bytes, that is executed in the call that posts it. Longer ones are copied in runs:
/// the locked instructions of a call wait for the stores of the copy before it, which makes 64 KiB one by one
/// take a tenth longer.
const AT_ONCE_MAX: u32 = 16 << 10;

/// The memory of the peer process, and the peer's grants.
#[derive(Debug)]
pub(super) struct PeerMemory {
    /// Its address space; `None` where the kernel does not permit access.
    memory: Option<OtherProcess>,
    /// Memory that both processes have mapped.
    mappings: SharedMappings,
    grants: PeerGrantTable,
    /// The queue pair and the region of the last request: the next one probably has the same.
    queue: Option<(Stamp, QueueGrant)>,
    region: Option<(Stamp, Region)>,
}

impl PeerMemory {
    /// Opens the memory and the grant table, and checks by the table's token that both are of one process.
    pub(super) fn open(process: u32, table: &impl AsFd, address: u64) -> io::Result<Self> {
        let grants = PeerGrantTable::open(table)?;
        let memory = OtherProcess::open(process, address, grants.token()).ok();
        Ok(Self {
            memory,
            ..Self::of_grants(grants)
        })
    }

    fn of_grants(grants: PeerGrantTable) -> Self {
        Self {
            memory: None,
            mappings: SharedMappings::default(),
            grants,
            queue: None,
            region: None,
        }
    }

    /// The copy methods for requests to the peer's queue pairs, for the log.
    pub(super) fn copy_methods(&self) -> &'static str {
        match self.memory {
            Some(_) => {
                "a system call on the peer's memory, a copy in shared mappings, or the rings"
            }
            None => {
                "a copy in shared mappings, or the rings (the kernel does not let us access its memory)"
            }
        }
    }

    /// Adds a file or segment that the peer has announced, of which it has registered a part.
    pub(super) fn add_mapping(&mut self, number: u8, shown: Shown) {
        self.mappings.add(number, shown);
    }

    /// Whether the kernel permits access to its memory.
    pub(super) fn can_call(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the peer has announced files that can be mapped here.
    pub(super) fn has_shared_mappings(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// Whether a request may be executed in the call that posts it, because it is short and may be to memory
    /// that is mapped here: not where its key is the last one and names other memory.
    #[inline]
    pub(super) fn may_execute_at_once(&self, reth: &Reth) -> bool {
        let is_other =
            |(_, region): &(Stamp, Region)| region.grant.rkey == reth.rkey && region.part.is_none();
        reth.length <= AT_ONCE_MAX
            && !self.mappings.is_empty()
            && !self.region.as_ref().is_some_and(is_other)
    }

    /// The methods by which a request of this length may be executed; `None` where it may not. A system call
    /// pays where it was measured to be faster (`is_faster`), and if nothing else waits to be sent
    /// (`may_call`) and the request is short or the peer `sleeps`, because waking it takes as long.
    pub(super) fn copy_method(
        &self,
        length: u32,
        may_call: bool,
        sleeps: bool,
        is_faster: bool,
    ) -> Option<CopyMethod> {
        let pays = length <= SMALL || (length <= LARGE && sleeps);
        let call = self.memory.is_some() && (is_faster || (may_call && pays));
        match (call, !self.mappings.is_empty() && length <= SHARED_MAX) {
            (false, false) => None,
            (call, shared) => Some(CopyMethod { call, shared }),
        }
    }

    /// Executes a request, if the peer grants it. False where it was not executed, or only a part of it.
    pub(super) fn execute(
        &mut self,
        at: &DirectPath<'_>,
        request: &DirectRequest<'_>,
        method: CopyMethod,
    ) -> bool {
        let DirectRequest { reth, direct } = request;
        if reth.length == 0 {
            return false;
        }
        let need = right_for(direct);
        let Some((piece, Region { grant, part })) = self.memory_of(at, reth, need) else {
            return false;
        };
        let offset = piece.address.wrapping_sub(grant.start);
        let length = reth.length as usize;
        let part = part.filter(|_| method.shared);
        if let Some(range) =
            part.and_then(|part| self.mappings.range(part, grant.length, offset, length))
        {
            return execute_in(range, *direct);
        }
        match (self.memory.as_ref().filter(|_| method.call), *direct) {
            (Some(memory), Direct::Write(bytes)) => memory.write(piece.address, bytes),
            (Some(memory), Direct::Read(bytes)) => memory.read(piece.address, bytes),
            _ => false,
        }
    }

    /// Executes a request to memory that is mapped here, if the peer grants it. False where it was not
    /// executed, or only a part of it.
    #[inline(always)]
    pub(super) fn execute_shared(
        &mut self,
        at: &DirectPath<'_>,
        request: &DirectRequest<'_>,
    ) -> bool {
        let DirectRequest { reth, direct } = request;
        let need = right_for(direct);
        let Some(pd) = self.connected_pd(at, need) else {
            return false;
        };
        let Some(Region {
            grant,
            part: Some(part),
        }) = self.region(reth.rkey)
        else {
            return false;
        };
        let Some(piece) = grant.piece(pd, at.to, reth.address, reth.length, need) else {
            return false;
        };
        let (part, total, offset) = (*part, grant.length, piece.address.wrapping_sub(grant.start));
        let range = self
            .mappings
            .range(part, total, offset, reth.length as usize);
        range.is_some_and(|range| reth.length > 0 && execute_in(range, *direct))
    }

    /// Executes WRITEs or READs that follow each other, from the first on. Returns how many were executed.
    /// Those to shared mappings are copied one after the other; where the first one is to other memory, up to
    /// `calls` of its length are moved by one system call.
    pub(super) fn execute_run(
        &mut self,
        at: &DirectPath<'_>,
        is_read: bool,
        run: &[RunRequest],
        calls: usize,
    ) -> usize {
        let need = if is_read {
            Access::REMOTE_READ
        } else {
            Access::REMOTE_WRITE
        };
        let Some(pd) = self.connected_pd(at, need) else {
            return 0;
        };
        let shared = self.copy_run(pd, at.to, need, run);
        if shared > 0 || calls == 0 {
            return shared;
        }
        let mut copies = [Copy::default(); RUN_MAX];
        let alike = run
            .iter()
            .take(calls)
            .take_while(|request| request.reth.length == run[0].reth.length);
        let found = alike.map_while(|RunRequest { reth, piece: ours }| {
            let (theirs, _) = self.granted_memory(pd, at.to, reth, need)?;
            Some(Copy {
                ours: ours.address,
                theirs: theirs.address,
                length: reth.length,
            })
        });
        let count = { copies.iter_mut().zip(found) }
            .map(|(place, copy)| *place = copy)
            .count();
        let Some(memory) = &self.memory else { return 0 };
        if is_read {
            memory.read_all(&copies[..count])
        } else {
            memory.write_all(&copies[..count])
        }
    }

    /// Executes requests to shared mappings, from the first on. Returns how many were executed.
    fn copy_run(&mut self, pd: Pd, to: Qpn, need: Access, run: &[RunRequest]) -> usize {
        if self.mappings.is_empty() {
            return 0;
        }
        let mut done = 0;
        for RunRequest { reth, piece: ours } in run {
            let Some((piece, Region { grant, part })) = self.granted_memory(pd, to, reth, need)
            else {
                break;
            };
            let Some(part) = part.filter(|_| reth.length <= SHARED_MAX) else {
                break;
            };
            let offset = piece.address.wrapping_sub(grant.start);
            let range = self
                .mappings
                .range(part, grant.length, offset, reth.length as usize);
            let ours = Gather::Pieces(std::slice::from_ref(ours));
            let copied = match need {
                Access::REMOTE_READ => range.is_some_and(|range| range.read(ours)),
                _ => range.is_some_and(|range| range.write(ours)),
            };
            if !copied {
                break;
            }
            done += 1;
        }
        done
    }

    /// The peer's address space, if its queue pair `theirs` is connected to ours, sends from where the packet
    /// came from, and has not left RTS: requests that it has posted are not completed then.
    pub(super) fn of_sender(
        &mut self,
        arrival: &Arrival,
        theirs: Qpn,
        ours: Qpn,
    ) -> Option<&OtherProcess> {
        let queue = self.queue(theirs)?;
        let is_it = queue.peer == ours
            && queue.source == arrival.source
            && queue.destination == arrival.destination;
        self.memory.as_ref().filter(|_| is_it)
    }

    /// The protection domain of the peer's queue pair, if it is connected to ours and has these rights.
    #[inline]
    fn connected_pd(&mut self, at: &DirectPath<'_>, need: Access) -> Option<Pd> {
        let queue = self.queue(at.to)?;
        let connected = queue.peer == at.from
            && queue.source == at.path.destination
            && queue.destination == at.path.source;
        (connected && queue.access.contains(need)).then_some(queue.pd)
    }

    /// The memory that a request names, by the checks that the responder would make.
    fn memory_of(
        &mut self,
        at: &DirectPath<'_>,
        reth: &Reth,
        need: Access,
    ) -> Option<(Piece, Region)> {
        let pd = self.connected_pd(at, need)?;
        self.granted_memory(pd, at.to, reth, need)
    }

    /// The memory that a request of a queue pair of ours names, to which the peer grants this.
    #[inline]
    fn granted_memory(
        &mut self,
        pd: Pd,
        to: Qpn,
        reth: &Reth,
        need: Access,
    ) -> Option<(Piece, Region)> {
        let region = self.region(reth.rkey)?;
        Some((
            region
                .grant
                .piece(pd, to, reth.address, reth.length, need)?,
            *region,
        ))
    }

    /// The peer's grant to a local queue pair that is connected to this one.
    #[inline]
    fn queue(&mut self, to: Qpn) -> Option<&QueueGrant> {
        let is_it =
            |(stamp, grant): &(Stamp, QueueGrant)| grant.qpn == to && self.grants.is_as(*stamp);
        if !self.queue.as_ref().is_some_and(is_it) {
            self.look_up_queue(to);
        }
        self.queue.as_ref().map(|(_, grant)| grant)
    }

    #[cold]
    fn look_up_queue(&mut self, to: Qpn) {
        let found = self.grants.read(Section::Queues, queue_index(to));
        self.queue = found.and_then(|(words, stamp)| Some((stamp, queue_of(words)?)));
        self.queue = self.queue.take().filter(|(_, grant)| grant.qpn == to);
    }

    /// The peer's grant of a key.
    #[inline]
    fn region(&mut self, rkey: Rkey) -> Option<&Region> {
        let is_it = |(stamp, region): &(Stamp, Region)| {
            region.grant.rkey == rkey && self.grants.is_as(*stamp)
        };
        if !self.region.as_ref().is_some_and(is_it) {
            self.look_up_region(rkey);
        }
        self.region.as_ref().map(|(_, region)| region)
    }

    #[cold]
    fn look_up_region(&mut self, rkey: Rkey) {
        self.region = region_indices(rkey).find_map(|index| {
            let (words, stamp) = self.grants.read(Section::Regions, index)?;
            let grant = region_of(words).filter(|grant| grant.rkey == rkey)?;
            Some((
                stamp,
                Region {
                    grant,
                    part: part_of(words),
                },
            ))
        });
    }
}

/// The right to the peer's memory that a request needs.
#[inline(always)]
fn right_for(direct: &Direct<'_>) -> Access {
    match direct {
        Direct::Write(_) => Access::REMOTE_WRITE,
        Direct::Read(_) => Access::REMOTE_READ,
        Direct::FetchAdd { .. } | Direct::CompareSwap { .. } => Access::REMOTE_ATOMIC,
    }
}

/// Executes a request on its range of the peer's memory. False where it was not executed, or only a part.
#[inline(always)]
fn execute_in(range: SharedRange, direct: Direct<'_>) -> bool {
    match direct {
        Direct::Write(bytes) => range.write(bytes),
        Direct::Read(bytes) => range.read(bytes),
        Direct::FetchAdd { add, into } => store_result(into, || range.fetch_add(add)),
        Direct::CompareSwap {
            compare,
            swap,
            into,
        } => store_result(into, || range.compare_swap(compare, swap)),
    }
}

/// A region of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    grant: RegionGrant,
    /// The part of a file that it maps.
    part: Option<FilePart>,
}

/// The ways in which a request may be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyMethod {
    /// By a system call on the peer's memory.
    call: bool,
    /// By a copy or an atomic instruction in a shared mapping.
    shared: bool,
}

/// Executes an atomic and stores the old value in the requester's memory. The atomic is not executed where
/// that memory may not be mapped.
fn store_result(into: Gather<'_>, atomic: impl FnOnce() -> Option<u64>) -> bool {
    let Gather::Pieces(pieces) = into else {
        return false;
    };
    if !are_pinned(pieces) {
        return false;
    }
    let Some(before) = atomic() else { return false };
    let bytes = before.to_ne_bytes();
    let mut rest = &bytes[..];
    for piece in pieces {
        let (part, more) = rest.split_at(rest.len().min(piece.length as usize));
        // Writing to pinned memory does not fail.
        let _ = ProcessMemory.write(*piece, Payload::Bytes(part));
        rest = more;
    }
    true
}

/// Effect of a change of the grant table on peers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Published {
    /// A grant was revoked: peers that are executing a request have to be waited for.
    pub(super) taken_back: bool,
    /// A region of a shared file was added: peers may not have the file's descriptor yet.
    pub(super) shows: bool,
}

/// Writes a change of the device's regions or queue pairs to the grant table.
pub(super) fn publish_change(
    grants: &GrantTable,
    rnic: &mut rnic::Device,
    change: Change,
) -> Published {
    let mut shows = false;
    let (section, place, words) = match change {
        Change::Region(rkey) => {
            let place = region_place(grants, rkey);
            let words = rnic.grants().region(rkey).map(|grant| {
                let part = shared_part(&grant);
                shows = part.is_some();
                region_words(&grant, part)
            });
            (Section::Regions, place, words)
        }
        Change::Queue(qpn) => {
            let (index, words) = (
                queue_index(qpn),
                rnic.grants().queue(qpn).map(|grant| queue_words(&grant)),
            );
            let entry = grants.first(Section::Queues, index) as u32;
            let ours = entry == qpn.value() || (entry == 0 && words.is_some());
            (Section::Queues, ours.then_some(index), words)
        }
    };
    let Some(index) = place else {
        return Published::default();
    };
    let taken_back = grants.first(section, index) != 0;
    if words.is_some() || taken_back {
        grants.write(section, index, words.unwrap_or_default());
    }
    Published { taken_back, shows }
}

/// The part of a shared file that a region maps, if the region has remote access rights.
fn shared_part(grant: &RegionGrant) -> Option<FilePart> {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let fits = grant.access.intersects(remote) && !grant.access.contains(Access::ON_DEMAND);
    if fits {
        shared_files::part_behind(grant.start, grant.length)
    } else {
        None
    }
}

/// The entry of a region, or a free one for it; `None` where all entries that it may use are taken.
fn region_place(grants: &GrantTable, rkey: Rkey) -> Option<usize> {
    let first = |index: usize| grants.first(Section::Regions, index);
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
    (0..PROBES).map(move |step| (home + step) % REGIONS)
}

/// First word of a region's entry. It is 0 in an empty entry, and never for a region.
fn region_first(rkey: Rkey) -> u64 {
    u64::from(rkey.0) | 1 << 32
}

fn region_words(grant: &RegionGrant, part: Option<FilePart>) -> [u64; WORDS] {
    let rights = u64::from(grant.pd.value()) | u64::from(grant.access.bits()) << 32;
    let only = grant.only.map_or(0, |qpn| u64::from(qpn.value()) + 1);
    let part = part.map_or(0, |part| part.offset << 8 | (u64::from(part.file) + 1));
    [
        region_first(grant.rkey),
        rights,
        grant.start,
        grant.length,
        grant.iova,
        only,
        part,
    ]
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

fn part_of(words: [u64; WORDS]) -> Option<FilePart> {
    let file = (words[6] as u8).checked_sub(1)?;
    Some(FilePart {
        file,
        offset: words[6] >> 8,
    })
}

fn queue_words(grant: &QueueGrant) -> [u64; WORDS] {
    let first = u64::from(grant.qpn.value()) | u64::from(grant.peer.value()) << 32;
    let rights = u64::from(grant.pd.value()) | u64::from(grant.access.bits()) << 32;
    let [source, destination] =
        [grant.source, grant.destination].map(|gid| u128::from_be_bytes(gid.0));
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
    fn what_was_found_last_is_not_used_when_it_has_changed() {
        let own = GrantTable::new(0).unwrap();
        let mut peer = PeerMemory::of_grants(PeerGrantTable::open(own.fd()).unwrap());
        let grant = RegionGrant {
            rkey: Rkey(77),
            pd: Pd::from_value(1),
            start: 4096,
            length: 100,
            iova: 0,
            access: Access::REMOTE_WRITE,
            only: None,
        };
        let [home, next, ..] = region_indices(grant.rkey).collect::<Vec<_>>()[..] else {
            panic!()
        };
        let write = |at, words| own.write(Section::Regions, at, words);
        assert_eq!(peer.region(grant.rkey), None);
        write(next, region_words(&grant, None));
        for _ in 0..2 {
            assert_eq!(peer.region(grant.rkey), Some(&Region { grant, part: None }));
        }
        let longer = RegionGrant {
            length: 200,
            ..grant
        };
        write(next, region_words(&longer, None));
        assert_eq!(
            peer.region(grant.rkey),
            Some(&Region {
                grant: longer,
                part: None
            })
        );
        let other = RegionGrant {
            rkey: Rkey(78),
            ..grant
        };
        assert_eq!(peer.region(other.rkey), None);
        write(next, [0; WORDS]);
        write(home, region_words(&grant, None));
        assert_eq!(peer.region(grant.rkey), Some(&Region { grant, part: None }));
        write(home, [0; WORDS]);
        assert_eq!(peer.region(grant.rkey), None);
    }

    #[test]
    fn grants_are_parsed_as_they_were_encoded() {
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
        let part = Some(FilePart {
            file: 63,
            offset: 0x1234_5678_9000,
        });
        assert_eq!(part_of(region_words(&region, part)), part);
        let any = RegionGrant {
            only: None,
            ..region
        };
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
