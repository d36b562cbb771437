//! Every command gives back what it took: memory of its queue, and its place among those of its namespace.
//!
//! Commands of all kinds, right and wrong, fused and not, are sent in any order. Their data come at once,
//! later, damaged or never; rights change meanwhile; and the connection ends at any moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use nvme::controller::{Identity, Namespace, Target};
use nvme::store::{FileStore, Store};
use proptest::prelude::*;
use wire::nvme::command::Blocks;
use wire::nvme::tcp::{Data, Digests, Header, ReadyToTransfer, flag};
use wire::nvme::{Admin, Command, Io, Sgl, Status};

use crate::support::{BLOCK, Host, Line, SUBSYSTEM, nqn, pattern, target};

const BLOCKS: u64 = 64;
/// Every I/O command, and one that does not exist.
const KINDS: [u8; 13] = [
    Io::Flush as u8,
    Io::Write as u8,
    Io::Read as u8,
    Io::Compare as u8,
    Io::WriteZeroes as u8,
    Io::DatasetManagement as u8,
    Io::Verify as u8,
    Io::Copy as u8,
    Io::ReservationRegister as u8,
    Io::ReservationReport as u8,
    Io::ReservationAcquire as u8,
    Io::ReservationRelease as u8,
    0x7e,
];
const NAMESPACES: [u32; 3] = [1, 2, 3];

/// A command, and how its data come.
#[derive(Clone, Debug)]
struct Sent {
    kind: usize,
    nsid: u32,
    start: u64,
    count: u32,
    fuse: u8,
    way: Way,
    bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    InCapsule,
    Transport,
    /// The SGL names another length than the command.
    OtherLength,
    /// An SGL that TCP does not have.
    Keyed,
    /// Data in a capsule whose data digest is wrong.
    Damaged,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Sent),
    /// A fused pair; the two may differ.
    Pair(Sent, Sent),
    /// The data that an R2T asked for.
    Deliver {
        which: usize,
        damaged: bool,
    },
    /// Write protection of a namespace.
    Protect {
        nsid: u32,
        on: bool,
    },
    /// A reservation command of another host: register, acquire, release.
    OtherHost {
        nsid: u32,
        what: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    /// All data come, and all commands are answered.
    Answered,
    /// The connection ends as it is.
    Disconnected,
    /// The connection ends with commands that the engine has, and whose answers it has not taken.
    InKernel,
    /// The controller ends before the connection does.
    Removed,
}

fn sent() -> impl Strategy<Value = Sent> {
    let way = prop_oneof![
        4 => Just(Way::InCapsule),
        4 => Just(Way::Transport),
        1 => Just(Way::OtherLength),
        1 => Just(Way::Keyed),
        1 => Just(Way::Damaged),
    ];
    let nsid = prop_oneof![5 => 1..=3_u32, 1 => Just(9), 1 => Just(u32::MAX)];
    let start = prop_oneof![8 => 0..BLOCKS - 8, 1 => Just(BLOCKS * 100)];
    let fuse = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    (
        0..KINDS.len(),
        nsid,
        start,
        1..8_u32,
        fuse,
        way,
        any::<u32>(),
    )
        .prop_map(|(kind, nsid, start, count, fuse, way, bits)| Sent {
            kind,
            nsid,
            start,
            count,
            fuse,
            way,
            bits,
        })
}

fn pair() -> impl Strategy<Value = (Sent, Sent)> {
    (sent(), sent(), 0..8_u8).prop_map(|(one, other, differs)| {
        let first = Sent {
            kind: 3,
            fuse: 1,
            ..one
        };
        let (way, bits) = (other.way, other.bits);
        let second = match differs {
            0 => Sent {
                kind: 1,
                fuse: 2,
                ..other
            },
            1 => Sent { fuse: 2, ..other },
            _ => Sent {
                kind: 1,
                fuse: 2,
                way,
                bits,
                ..first.clone()
            },
        };
        (first, second)
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => sent().prop_map(Step::Send),
        4 => pair().prop_map(|(first, second)| Step::Pair(first, second)),
        6 => (any::<usize>(), prop::bool::weighted(0.2))
            .prop_map(|(which, damaged)| Step::Deliver { which, damaged }),
        1 => (1..=3_u32, any::<bool>()).prop_map(|(nsid, on)| Step::Protect { nsid, on }),
        1 => (1..=3_u32, 0..3_usize).prop_map(|(nsid, what)| Step::OtherHost { nsid, what }),
    ];
    prop::collection::vec(step, 1..40)
}

/// A command with its data.
struct Message {
    command: Command,
    /// The data that the host sends, or as many zeros as it receives.
    data: Vec<u8>,
    to_host: bool,
}

impl Message {
    fn without_data(command: Command) -> Self {
        Self::with_data(command, Vec::new())
    }

    fn with_data(command: Command, data: Vec<u8>) -> Self {
        Self {
            command,
            data,
            to_host: false,
        }
    }

    fn to_host(command: Command, length: usize) -> Self {
        Self {
            command,
            data: vec![0; length],
            to_host: true,
        }
    }
}

impl Sent {
    fn message(&self, cid: u16) -> Message {
        let opcode = KINDS[self.kind];
        let command = Command {
            opcode,
            cid,
            nsid: self.nsid,
            flags: self.fuse,
            ..Command::default()
        };
        let with_blocks = command.with_blocks(Blocks {
            start: self.start,
            count: self.count,
        });
        let length = self.count as usize * BLOCK;
        match Io::parse(opcode) {
            Some(Io::Write | Io::Compare) => {
                let flags = self.bit(0) << 30;
                let data = pattern(self.bit(1).into(), length);
                Message::with_data(or_into_cdw12(with_blocks, flags), data)
            }
            Some(Io::Read) => Message::to_host(with_blocks, length),
            Some(Io::WriteZeroes) => {
                let flags = self.bit(0) << 30 | self.bit(1) << 25;
                Message::without_data(or_into_cdw12(with_blocks, flags))
            }
            Some(Io::DatasetManagement) => self.deallocation(command),
            Some(Io::Copy) => self.copy(command),
            Some(
                kind @ (Io::ReservationRegister
                | Io::ReservationAcquire
                | Io::ReservationRelease
                | Io::ReservationReport),
            ) => self.reservation(kind, command),
            Some(Io::Verify) => Message::without_data(with_blocks),
            Some(Io::Flush) | None => Message::without_data(command),
        }
    }

    /// One of the random bits that vary a command.
    fn bit(&self, at: u32) -> u32 {
        self.bits >> at & 1
    }

    fn deallocation(&self, command: Command) -> Message {
        let range = [0_u32.to_le_bytes(), self.count.to_le_bytes()].concat();
        let range = [range, self.start.to_le_bytes().to_vec()].concat();
        let command = Command {
            cdw10: self.count - 1,
            cdw11: self.bit(0) << 2,
            ..command
        };
        Message::with_data(command, range.repeat(self.count as usize))
    }

    fn copy(&self, command: Command) -> Message {
        let range = [
            [0; 8],
            self.start.to_le_bytes(),
            u64::from(self.count - 1).to_le_bytes(),
            [0; 8],
        ];
        let command = Command {
            cdw10: self.bit(0) * 9,
            cdw12: self.bit(1),
            ..command
        };
        Message::with_data(command, range.concat().repeat(1 + self.bit(1) as usize))
    }

    fn reservation(&self, kind: Io, command: Command) -> Message {
        let keys = [7_u64.to_le_bytes(), 7_u64.to_le_bytes()].concat();
        let with = |cdw10| Command { cdw10, ..command };
        let bit = self.bit(0);
        match kind {
            Io::ReservationRegister => Message::with_data(with(bit | self.bit(1) << 3), keys),
            Io::ReservationAcquire => Message::with_data(with(bit | 1 << 8), keys),
            Io::ReservationRelease => Message::with_data(with(bit | 1 << 8), keys[..8].to_vec()),
            _ => {
                let report = Command {
                    cdw11: bit,
                    ..with(31)
                };
                Message::to_host(report, 128)
            }
        }
    }
}

fn or_into_cdw12(command: Command, flags: u32) -> Command {
    Command {
        cdw12: command.cdw12 | flags,
        ..command
    }
}

/// A host under test, and what it waits for.
struct Run {
    host: Host,
    other: Host,
    outstanding: BTreeSet<u16>,
    asked: Vec<ReadyToTransfer>,
    next_cid: u16,
}

impl Run {
    fn new(target: &Arc<Target>) -> Self {
        let digests = Digests {
            header: true,
            data: true,
        };
        Self {
            host: Host::with(target, 1, digests, 512, 0),
            other: Host::new(target, 2),
            outstanding: BTreeSet::new(),
            asked: Vec::new(),
            next_cid: 0,
        }
    }

    /// The bytes of a command, whose response is awaited from now on.
    fn encoded(&mut self, sent: &Sent) -> Vec<u8> {
        let cid = self.next_cid;
        self.next_cid += 1;
        self.outstanding.insert(cid);
        let Message {
            command,
            data,
            to_host,
        } = sent.message(cid);
        let length = data.len() as u32;
        let in_capsule =
            !to_host && !data.is_empty() && matches!(sent.way, Way::InCapsule | Way::Damaged);
        let sgl = match sent.way {
            _ if in_capsule => Sgl::InCapsule { offset: 0, length },
            Way::OtherLength => Sgl::Transport {
                length: length + 512,
            },
            Way::Keyed => Sgl::Keyed {
                address: 4096,
                length,
                key: 7,
                invalidate: false,
            },
            Way::InCapsule | Way::Damaged | Way::Transport => Sgl::Transport { length },
        };
        let data = if in_capsule { data } else { Vec::new() };
        let mut bytes = self
            .host
            .io
            .encode(&Header::Command(command.with_sgl(sgl)), 0, &data);
        if in_capsule
            && sent.way == Way::Damaged
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        bytes
    }

    fn send(&mut self, sent: &Sent) {
        let bytes = self.encoded(sent);
        self.host.io.bytes(&bytes);
        self.take_answers();
    }

    fn take_answers(&mut self) {
        while let Some(pdu) = self.host.io.pdus.pop_front() {
            match pdu.header {
                Header::Response(completion) => {
                    assert!(
                        self.outstanding.remove(&completion.cid),
                        "{completion:?} is the second answer"
                    );
                }
                Header::ReadyToTransfer(ready) => self.asked.push(ready),
                Header::ControllerData(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn deliver(&mut self, which: usize, damaged: bool) {
        if self.asked.is_empty() {
            return;
        }
        let ReadyToTransfer {
            cid, tag, length, ..
        } = self.asked.remove(which % self.asked.len());
        let header = Header::HostData(Data {
            cid,
            tag,
            offset: 0,
            length,
        });
        let mut bytes = self
            .host
            .io
            .encode(&header, flag::LAST, &pattern(0, length as usize));
        if damaged && let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        self.host.io.bytes(&bytes);
        self.take_answers();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(sent) => self.send(sent),
            Step::Pair(first, second) => {
                self.send(first);
                self.send(second);
            }
            Step::Deliver { which, damaged } => self.deliver(*which, *damaged),
            Step::Protect { nsid, on } => protect(&mut self.other.admin, *nsid, *on),
            Step::OtherHost { nsid, what } => {
                let kind = [
                    Io::ReservationRegister,
                    Io::ReservationAcquire,
                    Io::ReservationRelease,
                ][*what];
                let cdw10 = if *what == 0 { 1 << 3 } else { 2 << 8 };
                let keys = [9_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
                let data = if *what == 2 { &keys[..8] } else { &keys };
                let command = Command {
                    opcode: kind as u8,
                    nsid: *nsid,
                    cdw10,
                    ..Command::default()
                };
                self.other.io.give(command, data);
            }
        }
    }

    /// Sends the data of all commands, and expects all answers.
    fn complete(&mut self) {
        // A first command is not completed without a command behind it.
        let flush = Sent {
            kind: 0,
            nsid: 1,
            start: 0,
            count: 1,
            fuse: 0,
            way: Way::Transport,
            bits: 0,
        };
        self.send(&flush);
        while !self.asked.is_empty() {
            self.deliver(0, false);
        }
        assert!(
            self.outstanding.is_empty(),
            "{:?} were not answered",
            self.outstanding
        );
        assert_eq!(self.host.io.connection.data_bytes(), 0);
    }
}

fn protect(admin: &mut Line, nsid: u32, on: bool) {
    let opcode = Admin::SetFeatures as u8;
    let (cdw10, cdw11) = (0x84, on.into());
    let set = admin.plain(Command {
        opcode,
        nsid,
        cdw10,
        cdw11,
        ..Command::default()
    });
    assert!(set.status().is_success(), "{:?}", set.status());
}

fn file_namespace(path: &Path, nsid: u32) -> Namespace {
    let bytes = BLOCKS * BLOCK as u64;
    FileStore::extend(path, bytes).unwrap();
    let file = FileStore::open(path, BLOCK, false, true).unwrap();
    file.promise(bytes);
    let identity = Identity::of(&nqn(SUBSYSTEM), nsid);
    Namespace::new(
        nsid,
        identity,
        BLOCK as u32,
        bytes,
        Store::File(Arc::new(file)),
    )
}

/// Namespace 1 is in memory, 2 in a file, and 3 has no medium.
fn place(folder: &Path) -> Arc<Target> {
    let target = target();
    let name = nqn(SUBSYSTEM);
    target
        .add_namespace(&name, file_namespace(&folder.join("disk"), 2))
        .unwrap();
    let identity = Identity::of(&name, 3);
    let null = Namespace::new(
        3,
        identity,
        BLOCK as u32,
        BLOCKS * BLOCK as u64,
        Store::Null,
    );
    target.add_namespace(&name, null).unwrap();
    target
}

fn in_flight(target: &Target) -> u64 {
    let subsystem = target.subsystem(&nqn(SUBSYSTEM)).unwrap();
    subsystem.namespaces().iter().map(|it| it.in_flight()).sum()
}

/// Another host can still write, and compare and write.
fn is_usable(target: &Arc<Target>) {
    let mut host = Host::new(target, 3);
    let mut admin_of_all = Host::new(target, 2);
    for nsid in NAMESPACES {
        protect(&mut admin_of_all.admin, nsid, false);
        let clear = Command {
            opcode: Io::ReservationRegister as u8,
            nsid,
            cdw10: 1 << 3,
            ..Command::default()
        };
        let keys = [0_u64.to_le_bytes(), 3_u64.to_le_bytes()].concat();
        host.io.give(clear, &keys);
        let keys = 3_u64.to_le_bytes();
        let clear = Command {
            opcode: Io::ReservationRelease as u8,
            cdw10: 1,
            ..clear
        };
        assert!(host.io.give(clear, &keys).status().is_success());
        let half = |cid, kind: Io, flags| {
            let blocks = Blocks { start: 0, count: 1 };
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK as u32,
            };
            let command = Command {
                opcode: kind as u8,
                cid,
                flags,
                nsid,
                ..Command::default()
            };
            Header::Command(command.with_blocks(blocks).with_sgl(sgl))
        };
        let data = vec![0; BLOCK];
        let write = Command {
            opcode: Io::Write as u8,
            nsid,
            ..Command::default()
        };
        assert!(
            host.io
                .give(write.with_blocks(Blocks { start: 0, count: 1 }), &data)
                .status()
                .is_success()
        );
        host.io.send(&half(500, Io::Compare, 1), 0, &data);
        host.io.send(&half(501, Io::Write, 2), 0, &data);
        let statuses = [host.io.response().status(), host.io.response().status()];
        assert_eq!(statuses, [Status::SUCCESS; 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn whatever_becomes_of_commands_nothing_stays_in_use(
        steps in steps(),
        last in sent(),
        ending in prop_oneof![
            3 => Just(Ending::Answered),
            1 => Just(Ending::Disconnected),
            2 => Just(Ending::InKernel),
            1 => Just(Ending::Removed),
        ],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let target = place(folder.path());
        let mut run = Run::new(&target);
        steps.iter().for_each(|step| run.step(step));
        match ending {
            Ending::Answered => run.complete(),
            Ending::Disconnected => {}
            Ending::InKernel => {
                let writes = (0..8).map(|at| Sent {
                    kind: 1,
                    nsid: 2,
                    start: at,
                    count: 1,
                    fuse: 0,
                    way: Way::InCapsule,
                    bits: 0,
                });
                let all: Vec<u8> = writes.chain([last]).flat_map(|it| run.encoded(&it)).collect();
                run.host.io.begin_without_end(&all);
            }
            Ending::Removed => {
                let controller = run.host.controller;
                drop(run.host.admin);
                prop_assert!(target.controllers().iter().all(|it| it.id != controller));
                prop_assert!(run.host.io.closing() != nvme::tcp::Closing::No);
                drop(run.host.io);
                drop(run.other);
                prop_assert_eq!((in_flight(&target), target.controllers().len()), (0, 0));
                is_usable(&target);
                return Ok(());
            }
        }
        drop(run);
        prop_assert_eq!((in_flight(&target), target.controllers().len()), (0, 0));
        is_usable(&target);
    }
}

/// The commands that are executed without an error do not take memory either, however many there are.
#[test]
fn a_queue_survives_more_commands_than_its_memory_has_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let target = place(folder.path());
    let mut run = Run::new(&target);
    for (kind, fuse) in [(3, 1), (5, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 0)] {
        for bits in 0..4 {
            let one = Sent {
                kind,
                nsid: 2,
                start: 0,
                count: 1,
                fuse,
                way: Way::Transport,
                bits,
            };
            run.send(&one);
            if fuse == 1 {
                run.send(&Sent {
                    kind: 1,
                    fuse: 2,
                    ..one
                });
            }
            while !run.asked.is_empty() {
                run.deliver(0, false);
            }
            assert_eq!(run.host.io.connection.data_bytes(), 0, "{:#x}", KINDS[kind]);
        }
    }
    run.complete();
}
