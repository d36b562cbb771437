//! Every change that revokes rights, and every place where a command of an NVMe/RDMA queue can wait: when the
//! change has returned, the command reaches the medium no more.
//!
//! `rockery run -- rdma_barriers`; hosts and target are in this process. The host of the commands, the
//! victim, has no receives posted while a change is made: a response is at the head of the send queue of the
//! target, and behind it the RDMA READs for the data of its commands.

mod changes;
mod world;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use programs::rdma_queue::RdmaQueue;
use wire::nvme::Command;

use changes::{CHANGES, Change, NONE};
use world::{AFTER, BEFORE, Kind, RANGE_BYTES, World};

/// Cells of the table that are tried at once: each waits for RNR timers most of the time.
const AT_ONCE: usize = 8;
/// Bytes of the writes that take all buffers of a queue.
const FILL: usize = 1 << 20;

/// Places in the memory of the victim.
mod at {
    use std::ops::Range;

    use super::world::RANGE_BYTES;

    pub(super) const COMPARE: Range<usize> = 0..RANGE_BYTES;
    pub(super) const WRITE: Range<usize> = 0x1000..0x1000 + RANGE_BYTES;
    pub(super) const LIST: usize = 0x2000;
    pub(super) const READ: Range<usize> = 0x3000..0x3000 + RANGE_BYTES;
    pub(super) const FIRST: Range<usize> = 0x4000..0x4000 + super::world::BLOCK;
}

/// Where a command waits while the change is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// For its data: the RDMA READ is in the send queue of the target.
    Data,
    /// For the data of the second of a fused pair; those of the first were in its capsule.
    DataOfSecond,
    /// The other way round.
    DataOfFirst,
    /// For a data buffer, before an RDMA READ.
    Buffer,
    /// For the host: it is executed, and its response is in the send queue of the target.
    Response,
    /// For its data, and the connection ends.
    LostConnection,
}

const PLACES: [Place; 6] = [
    Place::Data,
    Place::DataOfSecond,
    Place::DataOfFirst,
    Place::Buffer,
    Place::Response,
    Place::LostConnection,
];

impl Place {
    /// Whether commands of this kind can wait here.
    fn holds(self, kind: Kind) -> bool {
        match self {
            Self::Data | Self::LostConnection => !matches!(kind, Kind::Read | Kind::WriteZeroes),
            Self::DataOfFirst | Self::DataOfSecond => kind == Kind::CompareAndWrite,
            Self::Buffer => kind != Kind::WriteZeroes,
            Self::Response => true,
        }
    }

    /// Whether the data of a command are in its capsule.
    fn is_in_capsule(self, index: usize) -> bool {
        match self {
            Self::Response => true,
            Self::DataOfSecond => index == 0,
            Self::DataOfFirst => index == 1,
            Self::Data | Self::Buffer | Self::LostConnection => false,
        }
    }
}

/// Fills the memory of the victim with the data of its commands.
fn prepare(queue: &mut RdmaQueue, kind: Kind) {
    let memory = queue.memory();
    memory.fill(AFTER);
    memory[at::COMPARE].fill(BEFORE);
    memory[at::FIRST].fill(BEFORE);
    let list = kind.commands().pop().map(|(_, data)| data);
    let list = list.unwrap_or_default();
    if list.len() < RANGE_BYTES {
        memory[at::LIST..at::LIST + list.len()].copy_from_slice(&list);
    }
}

/// Where the data of a command are in the memory of the victim.
fn part(kind: Kind, index: usize, length: usize) -> std::ops::Range<usize> {
    match (kind, index) {
        (Kind::Read, _) => at::READ,
        (Kind::CompareAndWrite, 0) => at::COMPARE,
        (Kind::Deallocate | Kind::Copy, _) => at::LIST..at::LIST + length,
        _ => at::WRITE.start..at::WRITE.start + length,
    }
}

/// Sends the commands, until each waits at its place. Returns their CIDs.
fn begin(world: &mut World, kind: Kind, place: Place) -> Result<Vec<u16>, String> {
    let queue = &mut world.victim.io[0];
    prepare(queue, kind);
    // The data come by an RDMA WRITE, and behind it the response finds no receive.
    queue.send(world::read_first_block(), queue.keyed(at::FIRST))?;
    let has_come = |queue: &mut RdmaQueue| queue.memory()[at::FIRST].iter().all(|it| *it == AFTER);
    world::until("the first read", || has_come(queue))?;
    let mut sent = Vec::new();
    if place == Place::Buffer {
        for _ in 0..nvme::limits::QUEUE_DATA_BYTES / FILL {
            sent.push(queue.send(world::write_of(FILL), queue.keyed(0..FILL))?);
        }
    }
    for (index, (command, data)) in kind.commands().into_iter().enumerate() {
        let is_in_capsule = place.is_in_capsule(index) && kind != Kind::Read;
        sent.push(match is_in_capsule {
            true => queue.send_in_capsule(command, &data)?,
            false => {
                let part = part(kind, index, data.len());
                queue.send(command, queue.keyed(part))?
            }
        });
    }
    // Commands are taken in order: when this one has been executed, the others wait.
    let (marker, data) = world::marker();
    queue.send_in_capsule(marker, &data)?;
    world::until("the marker", || world.has_marker())?;
    Ok(sent)
}

/// Lets the commands go on: their responses must be failures, unless they were executed before the change.
fn go_on(world: &mut World, sent: &[u16], may_succeed: bool) -> Result<(), String> {
    let Some(queue) = world.victim.io.first_mut() else {
        return Ok(());
    };
    // The target may have ended the connection.
    if queue.post_receives(sent.len() + 2).is_err() {
        return Ok(());
    }
    for _ in 0..sent.len() + 2 {
        let Some(completion) = queue.response()? else {
            return Ok(());
        };
        let status = completion.status();
        if sent.contains(&completion.cid) && status.is_success() != may_succeed {
            return Err(format!("CID {}: {status}", completion.cid));
        }
    }
    Ok(())
}

/// One cell of the table: a change while a command waits.
fn check(change: &Change, kind: Kind, place: Place) -> Result<(), String> {
    let mut world = World::new()?;
    (change.prepare)(&mut world)?;
    let sent = begin(&mut world, kind, place)?;
    let was_executed = place == Place::Response;
    let before = world.medium();
    if !was_executed && before.range() != [BEFORE; RANGE_BYTES] {
        return Err("the command does not wait".to_owned());
    }
    if place == Place::LostConnection {
        world.victim.io.clear();
    }
    (change.make)(&mut world)?;
    let medium = world.medium();
    go_on(&mut world, &sent, was_executed)?;
    if place == Place::Buffer && kind == Kind::Read {
        let untouched = world.victim.io[0].memory()[at::READ]
            .iter()
            .all(|it| *it == AFTER);
        if !untouched {
            return Err("the read got data".to_owned());
        }
    }
    if world.medium() != medium {
        return Err("the command reached the medium after the change".to_owned());
    }
    Ok(())
}

/// Without a change the commands succeed and change the medium, if they do not read.
fn check_without_change(kind: Kind, place: Place) -> Result<(), String> {
    let mut world = World::new()?;
    (NONE.prepare)(&mut world)?;
    let sent = begin(&mut world, kind, place)?;
    go_on(&mut world, &sent, true)?;
    let is_changed = world.medium().range() != [BEFORE; RANGE_BYTES];
    match is_changed == (kind != Kind::Read) {
        true => Ok(()),
        false => Err("the medium does not have the right content".to_owned()),
    }
}

/// A change, a kind and a place.
type Cell = (&'static Change, Kind, Place);

fn cells() -> Vec<Cell> {
    let all = CHANGES.iter().chain([&NONE]).flat_map(|change| {
        let kinds = Kind::ALL.into_iter();
        let kinds = kinds.filter(|kind| change.is_of_reads || *kind != Kind::Read);
        kinds.flat_map(move |kind| PLACES.map(|place| (change, kind, place)))
    });
    let is_possible = |(change, kind, place): &Cell| {
        place.holds(*kind) && (change.name != NONE.name || *place != Place::LostConnection)
    };
    all.filter(is_possible).collect()
}

fn main() -> ExitCode {
    let (cells, next, failures) = (cells(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((change, kind, place)) =
                    cells.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let checked = match change.name == NONE.name {
                        true => check_without_change(*kind, *place),
                        false => check(change, *kind, *place),
                    };
                    if let Err(error) = checked {
                        let cell =
                            format!("{}, {kind:?} waits for {place:?}: {error}", change.name);
                        failures.lock().expect("no thread has panicked").push(cell);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread has panicked");
    for failure in &failures {
        println!("{failure}");
    }
    println!("{} of {} held", cells.len() - failures.len(), cells.len());
    match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A command and its data.
type WithData = (Command, Vec<u8>);
