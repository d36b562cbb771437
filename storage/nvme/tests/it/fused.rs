//! Compare and Write: two commands of which the second is right behind the first.

use nvme::controller::{Identity, Namespace};
use nvme::store::Store;
use wire::nvme::command::Blocks;
use wire::nvme::fabrics::Property;
use wire::nvme::tcp::{Data, Header, ReadyToTransfer, flag};
use wire::nvme::{Command, Fabrics, Io, Sgl, Status};

use crate::support::{BLOCK, BLOCKS, Host, SUBSYSTEM, io, nqn, pattern, target};

fn half(host: &mut Host, kind: Io, fuse: u8, cid: u16, data: &[u8]) {
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let command = Command {
        cid,
        flags: fuse,
        ..io(kind, 5, 1)
    }
    .with_sgl(sgl);
    host.io.send(&Header::Command(command), 0, data);
}

fn statuses(host: &mut Host, count: usize) -> Vec<(u16, Status)> {
    let mut found: Vec<_> = (0..count)
        .map(|_| host.io.response())
        .map(|it| (it.cid, it.status().plain()))
        .collect();
    found.sort_by_key(|(cid, _)| *cid);
    found
}

#[test]
fn compare_and_write_is_one_operation() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let (old, new) = (vec![0; BLOCK], pattern(8, BLOCK));
    half(&mut host, Io::Compare, 1, 100, &old);
    assert!(host.io.pdus.is_empty());
    half(&mut host, Io::Write, 2, 101, &new);
    assert_eq!(
        statuses(&mut host, 2),
        [(100, Status::SUCCESS), (101, Status::SUCCESS)]
    );
    assert_eq!(host.io.take(io(Io::Read, 5, 1), BLOCK).unwrap(), new);
    half(&mut host, Io::Compare, 1, 102, &old);
    half(&mut host, Io::Write, 2, 103, &old);
    let failed = [
        (102, Status::COMPARE_FAILURE),
        (103, Status::ABORTED_FUSED_FAILED),
    ];
    assert_eq!(statuses(&mut host, 2), failed);
    assert_eq!(host.io.take(io(Io::Read, 5, 1), BLOCK).unwrap(), new);
}

#[test]
fn halves_without_the_other_half_are_aborted() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let data = vec![0; BLOCK];
    half(&mut host, Io::Write, 2, 1, &data);
    assert_eq!(statuses(&mut host, 1), [(1, Status::ABORTED_FUSED_MISSING)]);
    half(&mut host, Io::Compare, 1, 2, &data);
    half(&mut host, Io::Write, 0, 3, &data);
    assert_eq!(
        statuses(&mut host, 2),
        [(2, Status::ABORTED_FUSED_MISSING), (3, Status::SUCCESS)]
    );
    half(&mut host, Io::Compare, 1, 4, &data);
    half(&mut host, Io::Compare, 2, 5, &data);
    assert_eq!(
        statuses(&mut host, 2),
        [
            (4, Status::ABORTED_FUSED_FAILED),
            (5, Status::INVALID_FIELD)
        ]
    );
    half(&mut host, Io::Write, 1, 6, &data);
    assert_eq!(statuses(&mut host, 1), [(6, Status::INVALID_FIELD)]);
    half(&mut host, Io::Compare, 1, 7, &data);
    half(&mut host, Io::Write, 2, 8, &data);
    assert_eq!(
        statuses(&mut host, 2),
        [(7, Status::SUCCESS), (8, Status::SUCCESS)]
    );
}

/// A command of a sequence. Its CID is its place.
fn first() -> Command {
    Command {
        flags: 1,
        ..io(Io::Compare, 5, 1)
    }
}

fn second() -> Command {
    Command {
        flags: 2,
        ..io(Io::Write, 5, 1)
    }
}

/// Sends commands with a block of data each, and expects these statuses.
#[track_caller]
fn expect(host: &mut Host, sequence: &[(Command, Status)]) {
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: BLOCK as u32,
    };
    for (cid, (command, _)) in (0..).zip(sequence) {
        let is_moving = matches!(Io::parse(command.opcode), Some(Io::Compare | Io::Write));
        let data = if is_moving {
            vec![0; BLOCK]
        } else {
            Vec::new()
        };
        let command = match (command.data, is_moving) {
            // The command has its own SGL.
            (own, _) if own != [0; 16] => *command,
            (_, true) => command.with_sgl(sgl),
            (_, false) => command.with_sgl(Sgl::Transport { length: 0 }),
        };
        host.io
            .send(&Header::Command(Command { cid, ..command }), 0, &data);
    }
    let expected: Vec<_> = (0..)
        .zip(sequence.iter().map(|(_, status)| *status))
        .collect();
    assert_eq!(statuses(host, sequence.len()), expected);
    assert_eq!(host.io.connection.data_bytes(), 0);
}

const OK: Status = Status::SUCCESS;
const MISSING: Status = Status::ABORTED_FUSED_MISSING;
const FAILED: Status = Status::ABORTED_FUSED_FAILED;
const INVALID: Status = Status::INVALID_FIELD;

/// An SGL that TCP does not have.
const KEYED: Sgl = Sgl::Keyed {
    address: 0,
    length: BLOCK as u32,
    key: 0,
    invalidate: false,
};

fn plain(kind: Io) -> Command {
    Command {
        flags: 0,
        ..io(kind, 5, 1)
    }
}

#[test]
fn the_second_command_is_right_behind_the_first() {
    let host = &mut Host::new(&target(), 1);
    let (one, two) = (first(), second());
    expect(host, &[(one, OK), (two, OK), (one, OK), (two, OK)]);
    expect(host, &[(two, MISSING), (one, OK), (two, OK)]);
    expect(
        host,
        &[(one, MISSING), (one, OK), (two, OK), (two, MISSING)],
    );
    let flush = plain(Io::Flush);
    expect(host, &[(one, OK), (two, OK), (one, MISSING), (flush, OK)]);
}

/// Also one that is refused, or of another command set.
#[test]
fn any_command_between_the_two_parts_them() {
    let host = &mut Host::new(&target(), 1);
    let unknown = Command {
        opcode: 0x7e,
        ..plain(Io::Flush)
    };
    let get = Property {
        wide: false,
        offset: 0x1c,
        value: 0,
    };
    for (between, status) in [
        (plain(Io::Flush), OK),
        (unknown, Status::INVALID_OPCODE),
        (get.to_command(Fabrics::PropertyGet, 0), INVALID),
        (plain(Io::Write).with_sgl(KEYED), Status::SGL_TYPE_INVALID),
    ] {
        expect(
            host,
            &[(first(), MISSING), (between, status), (second(), MISSING)],
        );
    }
}

#[test]
fn a_half_that_is_refused_takes_the_other_with_it() {
    let host = &mut Host::new(&target(), 1);
    let beyond = first().with_blocks(Blocks {
        start: BLOCKS,
        count: 1,
    });
    expect(
        host,
        &[
            (beyond, Status::LBA_OUT_OF_RANGE),
            (second(), FAILED),
            (second(), MISSING),
        ],
    );
    let (first_keyed, second_keyed) = (first().with_sgl(KEYED), second().with_sgl(KEYED));
    let sgl = Status::SGL_TYPE_INVALID;
    expect(
        host,
        &[(first(), FAILED), (second_keyed, sgl), (second(), MISSING)],
    );
    expect(host, &[(first_keyed, sgl), (second(), FAILED)]);
    let flush = Command {
        flags: 2,
        ..plain(Io::Flush)
    };
    expect(host, &[(first(), FAILED), (flush, INVALID)]);
}

#[test]
fn ranges_that_differ_are_the_fault_of_both() {
    let target = target();
    let identity = Identity::of(&nqn(SUBSYSTEM), 2);
    let other = Namespace::new(2, identity, BLOCK as u32, 1 << 20, Store::Null);
    target.add_namespace(&nqn(SUBSYSTEM), other).unwrap();
    let host = &mut Host::new(&target, 1);
    let of_another_range = Command {
        flags: 2,
        ..io(Io::Write, 6, 1)
    };
    expect(host, &[(first(), INVALID), (of_another_range, INVALID)]);
    let of_another_namespace = Command {
        nsid: 2,
        ..second()
    };
    expect(host, &[(first(), INVALID), (of_another_namespace, INVALID)]);
}

#[test]
fn the_reserved_value_of_fuse_is_invalid() {
    let host = &mut Host::new(&target(), 1);
    let reserved = Command {
        flags: 3,
        ..plain(Io::Write)
    };
    expect(host, &[(first(), MISSING), (reserved, INVALID)]);
}

/// Many pairs of a queue are under way at once; their data come in any order.
#[test]
fn the_data_of_pairs_come_in_any_order() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let mut asked: Vec<ReadyToTransfer> = Vec::new();
    for cid in 0..20 {
        let (kind, flags) = if cid % 2 == 0 {
            (Io::Compare, 1)
        } else {
            (Io::Write, 2)
        };
        let sgl = Sgl::Transport {
            length: BLOCK as u32,
        };
        let command = Command {
            cid,
            flags,
            ..io(kind, (cid / 2).into(), 1)
        }
        .with_sgl(sgl);
        host.io.send(&Header::Command(command), 0, &[]);
        let Header::ReadyToTransfer(ready) = host.io.pdu().header else {
            panic!("no R2T")
        };
        asked.push(ready);
    }
    // Multiples of 7 modulo 20.
    for place in (0..20).map(|number| number * 7 % 20) {
        let ReadyToTransfer {
            cid, tag, length, ..
        } = asked[place];
        let header = Header::HostData(Data {
            cid,
            tag,
            offset: 0,
            length,
        });
        let data = if cid % 2 == 0 {
            vec![0; BLOCK]
        } else {
            pattern(cid.into(), BLOCK)
        };
        host.io.send(&header, flag::LAST, &data);
    }
    assert_eq!(
        statuses(&mut host, 20),
        (0..20)
            .map(|cid| (cid, Status::SUCCESS))
            .collect::<Vec<_>>()
    );
    for cid in (1..20).step_by(2) {
        let read = host.io.take(io(Io::Read, cid / 2, 1), BLOCK).unwrap();
        assert!(read == pattern(cid, BLOCK));
    }
    assert_eq!(host.io.connection.data_bytes(), 0);
}

/// The position in the submission queue (SQHD) counts every command that came.
#[test]
fn commands_with_wrong_descriptors_take_an_entry_of_the_queue() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let before = host.io.plain(io(Io::Flush, 0, 1)).sq_head;
    host.io.send(
        &Header::Command(
            Command {
                cid: 9,
                ..io(Io::Write, 0, 1)
            }
            .with_sgl(KEYED),
        ),
        0,
        &[],
    );
    assert_eq!(
        host.io.response().status().plain(),
        Status::SGL_TYPE_INVALID
    );
    assert_eq!(host.io.plain(io(Io::Flush, 0, 1)).sq_head, before + 2);
}
