//! Every change that revokes rights, and every place where a command of before it can wait: when the change
//! has returned, the command reaches the medium no more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nvme::auth::Credentials;
use nvme::controller::{Barrier, Hosts, Identity, Namespace, Port, Subsystem, Target, Transport};
use nvme::store::{FileStore, Store};
use nvme::tcp::Closing;
use wire::nvme::command::Blocks;
use wire::nvme::dsm::{CopyRange, Range};
use wire::nvme::log::AnaState;
use wire::nvme::reservation::{AcquireData, RegisterData, ReservationType};
use wire::nvme::tcp::{Digests, Header, flag};
use wire::nvme::{Admin, Command, Fuse, Io, Sgl, Status, property};

use crate::support::{BLOCK, BLOCKS, Hold, Host, Line, SUBSYSTEM, host_name, io, nqn, only};

/// The blocks that commands change.
const RANGE: Blocks = Blocks {
    start: 3000,
    count: 64,
};
/// What the medium has before.
const BEFORE: u8 = 0x11;
/// What commands write.
const AFTER: u8 = 0xbb;
/// The size after resizing: without [`RANGE`].
const RESIZED: u64 = 1024 * BLOCK as u64;
/// The keys of the victim and of the host that takes its rights.
const KEYS: [u64; 2] = [0xa, 0xb];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    /// Both halves are fused; whether the data of the second come first.
    CompareAndWrite {
        second_first: bool,
    },
    WriteZeroes,
    Deallocate,
    Copy,
}

const KINDS: [Kind; 7] = [
    Kind::Read,
    Kind::Write,
    Kind::CompareAndWrite {
        second_first: false,
    },
    Kind::CompareAndWrite { second_first: true },
    Kind::WriteZeroes,
    Kind::Deallocate,
    Kind::Copy,
];

/// Where a command waits while the change is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// For its data, after an R2T.
    Data,
    /// For the last data of a fused pair, whose first data have come.
    LastData,
    /// For a data buffer, before an R2T.
    Buffer,
    /// For the engine.
    Queue,
    /// For the kernel, or for the thread that takes the result.
    Engine,
    /// As before, and the connection ends.
    LostConnection,
    /// For the host, which does not read its response.
    Output,
}

const PLACES: [Place; 7] = [
    Place::Data,
    Place::LastData,
    Place::Buffer,
    Place::Queue,
    Place::Engine,
    Place::LostConnection,
    Place::Output,
];

impl Kind {
    /// Whether commands of this kind can wait there.
    fn waits_at(self, place: Place) -> bool {
        match place {
            Place::Data => !matches!(self, Self::Read | Self::WriteZeroes),
            Place::LastData => matches!(self, Self::CompareAndWrite { .. }),
            Place::Buffer => self != Self::WriteZeroes,
            Place::Queue | Place::Engine | Place::LostConnection | Place::Output => true,
        }
    }

    /// The commands, with the data that the host sends.
    fn commands(self) -> Vec<(Command, Vec<u8>)> {
        let Blocks { start, count } = RANGE;
        let bytes = count as usize * BLOCK;
        let fused = |kind, fuse: Fuse| Command {
            flags: (fuse as u8) | 1 << 6,
            ..io(kind, start, count)
        };
        match self {
            Self::Read => vec![(io(Io::Read, start, count), Vec::new())],
            Self::Write => vec![(io(Io::Write, start, count), vec![AFTER; bytes])],
            Self::CompareAndWrite { .. } => vec![
                (fused(Io::Compare, Fuse::First), vec![BEFORE; bytes]),
                (fused(Io::Write, Fuse::Second), vec![AFTER; bytes]),
            ],
            Self::WriteZeroes => vec![(io(Io::WriteZeroes, start, count), Vec::new())],
            Self::Deallocate => {
                let range = Range {
                    attributes: 0,
                    count,
                    start,
                };
                let command = Command {
                    cdw11: 4,
                    ..of_namespace(Io::DatasetManagement)
                };
                vec![(command, range.to_bytes().to_vec())]
            }
            Self::Copy => {
                let range = CopyRange {
                    start: 0,
                    count_less_one: count as u16 - 1,
                };
                let command = Command {
                    cdw10: start as u32,
                    ..of_namespace(Io::Copy)
                };
                vec![(command, range.to_bytes().to_vec())]
            }
        }
    }
}

fn of_namespace(kind: Io) -> Command {
    Command {
        opcode: kind as u8,
        nsid: 1,
        ..Command::default()
    }
}

/// A target with a namespace in a file, the victim with two I/O queues, and another host.
struct World {
    target: Arc<Target>,
    namespace: Arc<Namespace>,
    path: PathBuf,
    _folder: tempfile::TempDir,
    victim: Host,
    second_queue: Line,
    other: Host,
    /// Whether the command has ended, for a change in a thread.
    has_ended: Arc<AtomicBool>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let bytes = BLOCKS * BLOCK as u64;
        let mut content = vec![BEFORE; bytes as usize];
        content[..RANGE.count as usize * BLOCK].fill(AFTER);
        std::fs::write(&path, content).unwrap();
        let file = Arc::new(FileStore::open(&path, BLOCK, false, true).unwrap());
        file.promise(bytes);
        let identity = Identity::of(&nqn(SUBSYSTEM), 1);
        let namespace = Namespace::new(1, identity, BLOCK as u32, bytes, Store::File(file));
        let target = Arc::new(Target::new());
        let (serial, model) = ("serial".to_owned(), "model".to_owned());
        target
            .add_subsystem(Subsystem::new(nqn(SUBSYSTEM), serial, model, Hosts::Any))
            .unwrap();
        target.add_namespace(&nqn(SUBSYSTEM), namespace).unwrap();
        target.add_port(port());
        let namespace = target
            .subsystem(&nqn(SUBSYSTEM))
            .unwrap()
            .namespace(1)
            .unwrap();
        let (victim, other) = (Host::new(&target, 1), Host::new(&target, 2));
        let mut second_queue = Line::initialized(&target, 1, Digests::default());
        let connected = second_queue.connect_to(SUBSYSTEM, 2, 128, victim.controller, 0);
        assert!(connected.status().is_success());
        let has_ended = Arc::default();
        Self {
            target,
            namespace,
            path,
            _folder: folder,
            victim,
            second_queue,
            other,
            has_ended,
        }
    }

    /// What the file has behind the first blocks, which nothing changes.
    fn medium(&self) -> Vec<u8> {
        std::fs::read(&self.path)
            .unwrap()
            .split_off(RANGE.count as usize * BLOCK)
    }
}

fn port() -> Port {
    let address = "192.0.2.1:4420".parse().unwrap();
    Port {
        id: 1,
        transport: Transport::Tcp { tls: false },
        address,
        subsystems: None,
    }
}

/// A change that was begun.
enum Begun {
    Barrier(Barrier),
    /// A command of the other host on its I/O queue.
    Io,
    /// A command of the other host on its admin queue.
    Admin,
    /// A command of the victim on its second I/O queue.
    SecondQueue,
    /// A command of the victim on its admin queue.
    VictimAdmin,
    /// A thread, which says whether the command had ended when the change returned.
    Thread(Option<JoinHandle<bool>>),
}

impl Begun {
    fn has_returned(&mut self, world: &mut World) -> bool {
        let line = match self {
            Self::Barrier(barrier) => return barrier.has_passed(),
            Self::Thread(thread) => {
                if !world.has_ended.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                    return thread.as_ref().unwrap().is_finished();
                }
                return thread.take().unwrap().join().unwrap();
            }
            Self::Io => &mut world.other.io,
            Self::Admin => &mut world.other.admin,
            Self::SecondQueue => &mut world.second_queue,
            Self::VictimAdmin => &mut world.victim.admin,
        };
        line.work();
        let response = line.pdus.pop_front();
        if let Some(pdu) = &response {
            let Header::Response(completion) = &pdu.header else {
                panic!("{pdu:?}")
            };
            assert!(
                completion.status().is_success(),
                "{:?}",
                completion.status()
            );
        }
        response.is_some()
    }
}

/// A change that revokes rights of the victim.
struct Change {
    name: &'static str,
    /// Whether reads are refused too.
    of_reads: bool,
    prepare: fn(&mut World),
    make: fn(&mut World) -> Begun,
}

fn send(line: &mut Line, command: Command, data: &[u8]) {
    let sgl = match data.len() {
        0 => Sgl::Transport { length: 0 },
        length => Sgl::InCapsule {
            offset: 0,
            length: length as u32,
        },
    };
    let command = Command {
        cid: line.cid(),
        ..command
    }
    .with_sgl(sgl);
    line.send(&Header::Command(command), 0, data);
}

fn reserve(kind: Io, action: u32, reservation: ReservationType) -> Command {
    Command {
        cdw10: action | (reservation as u32) << 8,
        ..of_namespace(kind)
    }
}

fn succeed(line: &mut Line, command: Command, data: &[u8]) {
    assert!(line.give(command, data).status().is_success());
}

fn register_both(world: &mut World) {
    for (host, new) in [(&mut world.victim, KEYS[0]), (&mut world.other, KEYS[1])] {
        let data = RegisterData { current: 0, new }.to_bytes();
        succeed(&mut host.io, of_namespace(Io::ReservationRegister), &data);
    }
}

fn register_other(world: &mut World) {
    let data = RegisterData {
        current: 0,
        new: KEYS[1],
    }
    .to_bytes();
    succeed(
        &mut world.other.io,
        of_namespace(Io::ReservationRegister),
        &data,
    );
}

fn victim_reserves(world: &mut World) {
    register_both(world);
    let data = AcquireData {
        current: KEYS[0],
        preempted: 0,
    }
    .to_bytes();
    let command = reserve(Io::ReservationAcquire, 0, ReservationType::WriteExclusive);
    succeed(&mut world.victim.io, command, &data);
}

fn registrants_reserve(world: &mut World) {
    register_both(world);
    let data = AcquireData {
        current: KEYS[1],
        preempted: 0,
    }
    .to_bytes();
    let command = reserve(
        Io::ReservationAcquire,
        0,
        ReservationType::ExclusiveAccessRegistrants,
    );
    succeed(&mut world.other.io, command, &data);
}

fn acquire(world: &mut World, action: u32, reservation: ReservationType) -> Begun {
    let preempted = if action == 0 { 0 } else { KEYS[0] };
    let data = AcquireData {
        current: KEYS[1],
        preempted,
    }
    .to_bytes();
    send(
        &mut world.other.io,
        reserve(Io::ReservationAcquire, action, reservation),
        &data,
    );
    Begun::Io
}

fn nothing(_: &mut World) {}

fn set_property(world: &mut World, value: u32) -> Begun {
    let property = wire::nvme::fabrics::Property {
        wide: false,
        offset: property::CONFIGURATION,
        value: value.into(),
    };
    send(
        &mut world.victim.admin,
        property.to_command(wire::nvme::Fabrics::PropertySet, 0),
        &[],
    );
    Begun::VictimAdmin
}

const fn change(
    name: &'static str,
    of_reads: bool,
    prepare: fn(&mut World),
    make: fn(&mut World) -> Begun,
) -> Change {
    Change {
        name,
        of_reads,
        prepare,
        make,
    }
}

const RESERVATIONS: [Change; 6] = [
    change("acquire write exclusive", false, register_other, |world| {
        acquire(world, 0, ReservationType::WriteExclusive)
    }),
    change("acquire exclusive access", true, register_other, |world| {
        acquire(world, 0, ReservationType::ExclusiveAccess)
    }),
    change("preempt", false, victim_reserves, |world| {
        acquire(world, 1, ReservationType::WriteExclusive)
    }),
    change("preempt and abort", true, victim_reserves, |world| {
        acquire(world, 2, ReservationType::WriteExclusive)
    }),
    change(
        "preempt and abort without a reservation",
        true,
        register_both,
        |world| acquire(world, 2, ReservationType::WriteExclusive),
    ),
    change("unregister", true, registrants_reserve, |world| {
        let data = RegisterData {
            current: KEYS[0],
            new: 0,
        }
        .to_bytes();
        let command = Command {
            cdw10: 1,
            ..of_namespace(Io::ReservationRegister)
        };
        send(&mut world.second_queue, command, &data);
        Begun::SecondQueue
    }),
];

const OTHERS: [Change; 13] = [
    change("write protection", false, nothing, |world| {
        let opcode = Admin::SetFeatures as u8;
        let command = Command {
            opcode,
            nsid: 1,
            cdw10: 0x84,
            cdw11: 1,
            ..Command::default()
        };
        send(&mut world.other.admin, command, &[]);
        Begun::Admin
    }),
    change("reset of the controller", true, nothing, |world| {
        set_property(world, property::configuration::ENTRIES)
    }),
    change("shutdown of the controller", true, nothing, |world| {
        set_property(
            world,
            property::configuration::ENTRIES | property::configuration::ENABLE | 1 << 14,
        )
    }),
    change("ANA inaccessible", true, nothing, |world| {
        set_access(world, AnaState::Inaccessible)
    }),
    change("ANA persistent loss", true, nothing, |world| {
        set_access(world, AnaState::PersistentLoss)
    }),
    change("ANA change", true, nothing, |world| {
        set_access(world, AnaState::Change)
    }),
    change("hosts", true, nothing, |world| {
        Begun::Barrier(
            world
                .target
                .set_hosts(&nqn(SUBSYSTEM), only(&[&host_name(2)]))
                .unwrap(),
        )
    }),
    change("credentials", true, nothing, |world| {
        let credentials = Credentials {
            secrets: None,
            tls_key: None,
        };
        let host = nqn(&host_name(1));
        Begun::Barrier(
            world
                .target
                .set_credentials(&nqn(SUBSYSTEM), &host, Some(credentials))
                .unwrap(),
        )
    }),
    change("removal of the namespace", true, nothing, |world| {
        Begun::Barrier(world.target.remove_namespace(&nqn(SUBSYSTEM), 1).unwrap().1)
    }),
    change("removal of the subsystem", true, nothing, |world| {
        Begun::Barrier(world.target.remove_subsystem(&nqn(SUBSYSTEM)).unwrap())
    }),
    change("removal of the port", true, nothing, |world| {
        Begun::Barrier(world.target.remove_port(1))
    }),
    change("another port", true, nothing, |world| {
        Begun::Barrier(world.target.replace_port(port()))
    }),
    change("end of the target", true, nothing, |world| {
        Begun::Barrier(world.target.end())
    }),
];

const RESIZE: Change = change("resize", true, nothing, |world| {
    let (namespace, has_ended) = (Arc::clone(&world.namespace), Arc::clone(&world.has_ended));
    Begun::Thread(Some(std::thread::spawn(move || {
        namespace.resize(RESIZED).unwrap();
        has_ended.load(Ordering::SeqCst)
    })))
});

fn set_access(world: &mut World, access: AnaState) -> Begun {
    Begun::Barrier(
        world
            .target
            .set_access(&nqn(SUBSYSTEM), 1, 1, access)
            .unwrap(),
    )
}

/// The data of commands by CID, and where they were asked for.
type Owed = Vec<(u16, Vec<u8>)>;

/// Sends a command whose data, if any, are sent when they are asked for.
fn submit(line: &mut Line, command: Command, data: Vec<u8>, owed: &mut Owed) {
    let reads = command.opcode == Io::Read as u8;
    let length = if reads {
        RANGE.count * BLOCK as u32
    } else {
        data.len() as u32
    };
    let command = Command {
        cid: line.cid(),
        ..command
    }
    .with_sgl(Sgl::Transport { length });
    line.send(&Header::Command(command), 0, &[]);
    if !data.is_empty() {
        owed.push((command.cid, data));
    }
}

/// Sends the data that have been asked for; the PDUs that ask for nothing stay.
fn pay(line: &mut Line, owed: &mut Owed, most: usize) {
    for _ in 0..most {
        let asked = line.pdus.iter().position(|pdu| {
            matches!(&pdu.header, Header::ReadyToTransfer(ready)
                if owed.first().is_some_and(|(cid, _)| *cid == ready.cid))
        });
        let Some(pdu) = asked.and_then(|at| line.pdus.remove(at)) else {
            return;
        };
        let Header::ReadyToTransfer(ready) = pdu.header else {
            return;
        };
        let (cid, data) = owed.remove(0);
        let length = data.len() as u32;
        let header = wire::nvme::tcp::Data {
            cid,
            tag: ready.tag,
            offset: 0,
            length,
        };
        line.send(&Header::HostData(header), flag::LAST, &data);
    }
}

/// Begins the command, until it waits at the place.
fn begin(world: &mut World, kind: Kind, place: Place) -> Owed {
    let line = &mut world.victim.io;
    let mut owed = Vec::new();
    if place == Place::Buffer {
        // Writes of 1 MiB take all buffers.
        let most = nvme::limits::QUEUE_DATA_BYTES >> 20;
        for _ in 0..most {
            let write = io(Io::Write, 1024, 2048);
            submit(line, write, vec![AFTER; 1 << 20], &mut owed);
        }
        assert_eq!(line.pdus.len(), most);
    }
    let asked_before = line.pdus.len();
    for (command, data) in kind.commands() {
        submit(line, command, data, &mut owed);
    }
    if kind == (Kind::CompareAndWrite { second_first: true })
        && let [.., first, second] = &mut owed[..]
    {
        std::mem::swap(first, second);
    }
    match place {
        Place::Buffer => assert_eq!(line.pdus.len(), asked_before, "it waits for a buffer"),
        Place::Data => assert_eq!(line.pdus.len(), owed.len(), "it waits for its data"),
        Place::LastData => pay(line, &mut owed, 1),
        Place::Queue | Place::Engine | Place::LostConnection | Place::Output => {}
    }
    owed
}

/// One cell of the table: a change while a command waits.
fn check(change: &Change, kind: Kind, place: Place) {
    let at = format!("{}, {kind:?} waits at {place:?}", change.name);
    let mut world = World::new();
    (change.prepare)(&mut world);
    world.victim.io.hold = match place {
        Place::Data | Place::LastData | Place::Buffer => Hold::Nothing,
        Place::Queue => Hold::Tasks,
        Place::Engine | Place::LostConnection => Hold::Engine,
        Place::Output => Hold::Output,
    };
    let hold = world.victim.io.hold;
    if hold != Hold::Nothing && kind != Kind::WriteZeroes && kind != Kind::Read {
        // Up to the data nothing is held.
        world.victim.io.hold = Hold::Nothing;
    }
    let mut owed = begin(&mut world, kind, place);
    world.victim.io.hold = hold;
    let waits_for_host = matches!(place, Place::Data | Place::LastData | Place::Buffer);
    if !waits_for_host {
        pay(&mut world.victim.io, &mut owed, usize::MAX);
        assert!(owed.is_empty(), "{at}");
    }
    let is_over = waits_for_host || place == Place::Output;
    world.has_ended.store(is_over, Ordering::SeqCst);

    let mut begun = (change.make)(&mut world);
    if !is_over {
        assert!(
            !begun.has_returned(&mut world),
            "{at}: the change does not wait"
        );
        world.has_ended.store(true, Ordering::SeqCst);
        if place == Place::LostConnection {
            world.victim.io = Line::new(&world.target, 1);
        } else {
            world.victim.io.hold = Hold::Nothing;
            world.victim.io.work();
        }
    }
    assert!(
        begun.has_returned(&mut world),
        "{at}: the change does not return"
    );
    let medium = world.medium();
    if waits_for_host {
        let resized = if change.name == RESIZE.name {
            RESIZED
        } else {
            BLOCKS * BLOCK as u64
        };
        assert_eq!(
            medium.len() as u64,
            resized - RANGE.count as u64 * BLOCK as u64,
            "{at}"
        );
        assert!(
            medium.iter().all(|byte| *byte == BEFORE),
            "{at}: the command did not wait"
        );
    }
    come(&mut world, &mut owed, &at);
    assert!(
        world.medium() == medium,
        "{at}: the command reached the medium after the change"
    );
}

/// Lets the victim send and receive what is left: what has waited for it is refused, or its connection ends.
fn come(world: &mut World, owed: &mut Owed, at: &str) {
    let line = &mut world.victim.io;
    let is_late = !owed.is_empty();
    line.hold = Hold::Nothing;
    line.work();
    let asked_before = owed.len();
    pay(line, owed, usize::MAX);
    line.work();
    if line.closing() == Closing::Controller {
        return;
    }
    assert!(
        owed.is_empty() || asked_before == 0,
        "{at}: {} commands get no buffer",
        owed.len()
    );
    for pdu in line.pdus.drain(..).filter(|_| is_late) {
        match pdu.header {
            Header::Response(completion) => assert!(!completion.status().is_success(), "{at}"),
            other => panic!("{at}: {other:?}"),
        }
    }
}

fn check_all(changes: &[Change]) {
    for change in changes {
        for kind in KINDS
            .into_iter()
            .filter(|kind| change.of_reads || *kind != Kind::Read)
        {
            for place in PLACES.into_iter().filter(|place| kind.waits_at(*place)) {
                check(change, kind, place);
            }
        }
    }
}

#[test]
fn reservations_are_barriers() {
    check_all(&RESERVATIONS);
}

#[test]
fn features_and_administrative_changes_are_barriers() {
    check_all(&OTHERS);
}

#[test]
fn resizing_is_a_barrier() {
    check_all(&[RESIZE]);
}

/// A host that sends data late is told why they are refused.
#[test]
fn late_commands_get_the_status_of_the_change() {
    let table = [
        (&RESERVATIONS[0], Status::RESERVATION_CONFLICT),
        (&RESERVATIONS[2], Status::RESERVATION_CONFLICT),
        (&RESERVATIONS[4], Status::ABORTED_PREEMPTED),
        (&OTHERS[0], Status::NAMESPACE_WRITE_PROTECTED),
        (&OTHERS[3], Status::ANA_INACCESSIBLE),
        (&OTHERS[8], Status::INVALID_NAMESPACE),
        (&RESIZE, Status::LBA_OUT_OF_RANGE),
    ];
    for (change, expected) in table {
        for kind in [
            Kind::Write,
            Kind::CompareAndWrite {
                second_first: false,
            },
        ] {
            let mut world = World::new();
            (change.prepare)(&mut world);
            let mut owed = begin(&mut world, kind, Place::Data);
            world.has_ended.store(true, Ordering::SeqCst);
            let mut begun = (change.make)(&mut world);
            assert!(begun.has_returned(&mut world), "{}", change.name);
            let line = &mut world.victim.io;
            pay(line, &mut owed, usize::MAX);
            let mut found: Vec<_> = std::iter::from_fn(|| {
                (!line.pdus.is_empty())
                    .then(|| line.response())
                    .map(|it| (it.cid, it.status().plain()))
            })
            .collect();
            found.sort_by_key(|(cid, _)| *cid);
            let found: Vec<_> = found.into_iter().map(|(_, status)| status).collect();
            let expected = match kind {
                Kind::Write => vec![expected],
                _ => vec![Status::ABORTED_FUSED_FAILED, expected],
            };
            assert_eq!(found, expected, "{}", change.name);
        }
    }
}
