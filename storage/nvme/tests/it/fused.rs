//! Compare and Write: two commands of which the second is right behind the first.

use nvme::controller::{Identity, Namespace};
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

#[test]
fn the_second_command_is_right_behind_the_first() {
    const OK: Status = Status::SUCCESS;
    const MISSING: Status = Status::ABORTED_FUSED_MISSING;
    const FAILED: Status = Status::ABORTED_FUSED_FAILED;
    const INVALID: Status = Status::INVALID_FIELD;
    let target = target();
    let null = nvme::store::Store::Null;
    let other = Namespace::new(
        2,
        Identity::of(&nqn(SUBSYSTEM), 2),
        BLOCK as u32,
        1 << 20,
        null,
    );
    target.add_namespace(&nqn(SUBSYSTEM), other).unwrap();
    let host = &mut Host::new(&target, 1);
    let plain = |kind| Command {
        flags: 0,
        ..io(kind, 5, 1)
    };
    let keyed = Sgl::Keyed {
        address: 0,
        length: BLOCK as u32,
        key: 0,
        invalidate: false,
    };
    let get = Property {
        wide: false,
        offset: 0x1c,
        value: 0,
    }
    .to_command(Fabrics::PropertyGet, 0);
    let unknown = Command {
        opcode: 0x7e,
        ..plain(Io::Flush)
    };
    let beyond = |command: Command| {
        command.with_blocks(wire::nvme::command::Blocks {
            start: BLOCKS,
            count: 1,
        })
    };
    expect(
        host,
        &[(first(), OK), (second(), OK), (first(), OK), (second(), OK)],
    );
    expect(host, &[(second(), MISSING), (first(), OK), (second(), OK)]);
    expect(
        host,
        &[
            (first(), MISSING),
            (first(), OK),
            (second(), OK),
            (second(), MISSING),
        ],
    );
    // Any command between the two parts them, also one that is refused, or of another command set.
    expect(
        host,
        &[
            (first(), MISSING),
            (plain(Io::Flush), OK),
            (second(), MISSING),
        ],
    );
    expect(
        host,
        &[
            (first(), MISSING),
            (unknown, Status::INVALID_OPCODE),
            (second(), MISSING),
        ],
    );
    expect(
        host,
        &[(first(), MISSING), (get, INVALID), (second(), MISSING)],
    );
    let without_memory = plain(Io::Write).with_sgl(keyed);
    expect(
        host,
        &[
            (first(), MISSING),
            (without_memory, Status::SGL_TYPE_INVALID),
            (second(), MISSING),
        ],
    );
    // A half that is refused takes the other with it.
    let range = Status::LBA_OUT_OF_RANGE;
    expect(
        host,
        &[
            (beyond(first()), range),
            (second(), FAILED),
            (second(), MISSING),
        ],
    );
    expect(
        host,
        &[
            (first(), FAILED),
            (second().with_sgl(keyed), Status::SGL_TYPE_INVALID),
            (second(), MISSING),
        ],
    );
    expect(
        host,
        &[
            (first().with_sgl(keyed), Status::SGL_TYPE_INVALID),
            (second(), FAILED),
        ],
    );
    expect(
        host,
        &[
            (first(), FAILED),
            (
                Command {
                    flags: 2,
                    ..plain(Io::Flush)
                },
                INVALID,
            ),
        ],
    );
    // Ranges that differ are the fault of both.
    expect(
        host,
        &[
            (first(), INVALID),
            (
                Command {
                    flags: 2,
                    ..io(Io::Write, 6, 1)
                },
                INVALID,
            ),
        ],
    );
    expect(
        host,
        &[
            (first(), INVALID),
            (
                Command {
                    nsid: 2,
                    ..second()
                },
                INVALID,
            ),
        ],
    );
    expect(
        host,
        &[
            (first(), MISSING),
            (
                Command {
                    flags: 3,
                    ..plain(Io::Write)
                },
                INVALID,
            ),
        ],
    );
    expect(
        host,
        &[
            (first(), OK),
            (second(), OK),
            (first(), MISSING),
            (plain(Io::Flush), OK),
        ],
    );
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
    let sgl = Sgl::Keyed {
        address: 0,
        length: BLOCK as u32,
        key: 0,
        invalidate: false,
    };
    let before = host.io.plain(io(Io::Flush, 0, 1)).sq_head;
    host.io.send(
        &Header::Command(
            Command {
                cid: 9,
                ..io(Io::Write, 0, 1)
            }
            .with_sgl(sgl),
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
