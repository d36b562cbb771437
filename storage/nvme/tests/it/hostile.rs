//! Hosts that violate the protocol: each gets an error that names the violation, and other hosts are not
//! affected.

use nvme::tcp::Closing;
use proptest::prelude::*;
use wire::nvme::tcp::{
    CommonHeader, Data, Digests, Fatal, Header, Initialize, Kind, Terminate, flag,
};
use wire::nvme::{Command, Io, Sgl, Status};

use crate::support::{BLOCK, Host, Line, RESPONSE, fabrics_nothing, io, pattern, target};

/// The C2HTermReq of the target.
fn termination(line: &mut Line) -> Terminate {
    match line.pdus.pop_back().map(|pdu| pdu.header) {
        Some(Header::ControllerTermination(terminate)) => terminate,
        other => panic!("{other:?} instead of a termination"),
    }
}

fn fault_after(bytes: &[u8]) -> (u16, Closing) {
    let target = target();
    let mut host = Host::new(&target, 1);
    host.io.bytes(bytes);
    (termination(&mut host.io).status, host.io.closing())
}

#[test]
fn inconsistent_headers_end_the_connection() {
    let (good, _) = wire::nvme::tcp::Frame::header(Kind::Command, 0, Digests::default(), 512, 4);
    let lies = [
        CommonHeader { kind: 0x42, ..good },
        CommonHeader {
            kind: Kind::Response as u8,
            header_length: 24,
            data_offset: 0,
            length: 24,
            flags: 0,
        },
        CommonHeader {
            header_length: 8,
            ..good
        },
        CommonHeader {
            data_offset: 70,
            ..good
        },
        CommonHeader { length: 8, ..good },
        CommonHeader {
            length: u32::MAX,
            ..good
        },
        CommonHeader {
            length: 72 + 20_000,
            ..good
        },
        CommonHeader {
            flags: flag::HEADER_DIGEST,
            ..good
        },
    ];
    for lie in lies {
        let bytes = [&lie.to_bytes()[..], &[0; 64]].concat();
        let (status, closing) = fault_after(&bytes);
        assert!(
            matches!(closing, Closing::Fault(fatal) if fatal as u16 == status),
            "{lie:?}"
        );
    }
}

#[test]
fn unsolicited_data_end_the_connection() {
    let data = |tag, cid, offset, length: u32, claimed: u32, flags| {
        let target = target();
        let mut host = Host::new(&target, 1);
        let sgl = Sgl::Transport {
            length: 4 * BLOCK as u32,
        };
        let write = Command {
            cid: 7,
            ..io(Io::Write, 0, 4)
        }
        .with_sgl(sgl);
        host.io.send(&Header::Command(write), 0, &[]);
        let Header::ReadyToTransfer(ready) = host.io.pdu().header else {
            panic!("no R2T")
        };
        let header = Data {
            cid,
            tag: ready.tag + tag,
            offset,
            length: claimed,
        };
        host.io.send(
            &Header::HostData(header),
            flags,
            &pattern(1, length as usize),
        );
        match host.io.closing() {
            Closing::Fault(fatal) => Some(fatal),
            _ => None,
        }
    };
    let all = 4 * BLOCK as u32;
    assert_eq!(data(0, 7, 0, all, all, flag::LAST), None);
    assert_eq!(
        data(1, 7, 0, all, all, flag::LAST),
        Some(Fatal::HeaderField)
    );
    assert_eq!(
        data(0, 8, 0, all, all, flag::LAST),
        Some(Fatal::HeaderField)
    );
    assert_eq!(data(0, 7, 4, 512, 512, 0), Some(Fatal::DataRange));
    assert_eq!(
        data(0, 7, 0, all + 4, all + 4, flag::LAST),
        Some(Fatal::DataRange)
    );
    assert_eq!(data(0, 7, 0, 512, 1024, 0), Some(Fatal::HeaderField));
    assert_eq!(
        data(0, 7, 0, 512, 512, flag::LAST),
        Some(Fatal::HeaderField)
    );
    assert_eq!(data(0, 7, 0, all, all, 0), Some(Fatal::HeaderField));
}

const BOTH_DIGESTS: Digests = Digests {
    header: true,
    data: true,
};

/// Writes a block, with one bit of the PDU flipped.
fn write_damaged(host: &mut Host, at: usize) {
    let command = io(Io::Write, 0, 1).with_sgl(Sgl::InCapsule {
        offset: 0,
        length: BLOCK as u32,
    });
    let mut bytes = host
        .io
        .encode(&Header::Command(command), 0, &pattern(1, BLOCK));
    bytes[at] ^= 4;
    host.io.bytes(&bytes);
}

#[test]
fn damaged_headers_end_the_connection() {
    let target = target();
    for at in [10, 73] {
        let mut host = Host::with(&target, 2, BOTH_DIGESTS, 128, 0);
        write_damaged(&mut host, at);
        assert_eq!(
            host.io.closing(),
            Closing::Fault(Fatal::HeaderDigest),
            "byte {at}"
        );
    }
}

#[test]
fn damaged_data_in_a_capsule_end_the_command() {
    let target = target();
    let mut host = Host::with(&target, 1, BOTH_DIGESTS, 128, 0);
    for at in [80, 200, 72 + 4 + BLOCK] {
        write_damaged(&mut host, at);
        assert_eq!(
            host.io.response().status(),
            Status::TRANSIENT_TRANSPORT,
            "byte {at}"
        );
    }
    assert_eq!(
        host.io.take(io(Io::Read, 0, 1), BLOCK).unwrap(),
        vec![0; BLOCK]
    );
}

/// The second of three PDUs with data is damaged: the command fails when all data have arrived.
#[test]
fn damaged_data_that_were_asked_for_end_the_command() {
    let target = target();
    let mut host = Host::with(&target, 1, BOTH_DIGESTS, 128, 0);
    let write = Command {
        cid: 9,
        ..io(Io::Write, 0, 3)
    }
    .with_sgl(Sgl::Transport {
        length: 3 * BLOCK as u32,
    });
    host.io.send(&Header::Command(write), 0, &[]);
    let Header::ReadyToTransfer(ready) = host.io.pdu().header else {
        panic!("no R2T")
    };
    for part in 0..3 {
        let header = Data {
            cid: 9,
            tag: ready.tag,
            offset: (part * BLOCK) as u32,
            length: BLOCK as u32,
        };
        let flags = if part == 2 { flag::LAST } else { 0 };
        let mut bytes = host
            .io
            .encode(&Header::HostData(header), flags, &pattern(1, BLOCK));
        bytes[100] ^= u8::from(part == 1);
        host.io.bytes(&bytes);
    }
    assert_eq!(host.io.response().status(), Status::TRANSIENT_TRANSPORT);
    assert_eq!(
        host.io.take(io(Io::Read, 0, 3), 3 * BLOCK).unwrap(),
        vec![0; 3 * BLOCK]
    );
}

/// Half of a fused pair was damaged: neither half is executed, and both are completed.
#[test]
fn damaged_halves_take_the_other_with_them() {
    let target = target();
    let mut host = Host::with(
        &target,
        1,
        Digests {
            header: true,
            data: true,
        },
        128,
        0,
    );
    for damaged in [0, 1] {
        let half = |cid, kind, fuse: u8| {
            let command = Command {
                cid,
                flags: fuse,
                ..io(kind, 0, 1)
            };
            command.with_sgl(Sgl::InCapsule {
                offset: 0,
                length: BLOCK as u32,
            })
        };
        for (number, (kind, fuse)) in [(Io::Compare, 1), (Io::Write, 2)].into_iter().enumerate() {
            let header = Header::Command(half(number as u16, kind, fuse));
            let mut bytes = host.io.encode(&header, 0, &vec![0; BLOCK]);
            bytes[100] ^= u8::from(number == damaged);
            host.io.bytes(&bytes);
        }
        let mut answers = [host.io.response(), host.io.response()];
        answers.sort_by_key(|it| it.cid);
        assert_eq!(answers[damaged].status(), Status::TRANSIENT_TRANSPORT);
        assert!(!answers[1 - damaged].status().is_success());
    }
    assert_eq!(
        host.io.take(io(Io::Read, 0, 1), BLOCK).unwrap(),
        vec![0; BLOCK]
    );
}

#[test]
fn initializing_is_first_and_once() {
    let target = target();
    let request = Header::InitializeRequest(Initialize::default());
    let mut line = Line::new(&target, 1);
    line.send(&Header::Command(fabrics_nothing()), 0, &[]);
    assert_eq!(line.closing(), Closing::Fault(Fatal::Sequence));
    let mut line = Line::initialized(&target, 1, Digests::default());
    line.send(&request, 0, &[]);
    assert_eq!(line.closing(), Closing::Fault(Fatal::Sequence));
    let mut line = Line::new(&target, 1);
    line.send(
        &Header::InitializeRequest(Initialize {
            format: 1,
            ..Initialize::default()
        }),
        0,
        &[],
    );
    assert_eq!(line.closing(), Closing::Fault(Fatal::Unsupported));
}

#[test]
fn more_commands_than_the_queue_has_end_the_connection() {
    let target = target();
    let mut host = Host::with(&target, 1, Digests::default(), 4, 0);
    for cid in 0..4 {
        let write = Command {
            cid,
            ..io(Io::Write, 0, 1)
        }
        .with_sgl(Sgl::Transport {
            length: BLOCK as u32,
        });
        host.io.send(&Header::Command(write), 0, &[]);
        assert_eq!(host.io.closing(), Closing::No);
    }
    let write = Command {
        cid: 9,
        ..io(Io::Write, 0, 1)
    }
    .with_sgl(Sgl::Transport {
        length: BLOCK as u32,
    });
    host.io.send(&Header::Command(write), 0, &[]);
    assert_eq!(host.io.closing(), Closing::Fault(Fatal::Sequence));
}

#[test]
fn a_host_that_takes_no_responses_is_not_read_from() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let flush = io(Io::Flush, 0, 1).with_sgl(Sgl::Transport { length: 0 });
    let elsewhere = Command { nsid: 9, ..flush };
    let bytes = host
        .io
        .encode(&Header::Command(elsewhere), 0, &[])
        .repeat(500);
    let connection = &mut host.io.connection;
    let mut accepted = 0;
    while connection.wants_input() {
        let mut room = connection.room();
        let take = room[1].len().min(bytes.len());
        assert!(take > 0, "no room, and it wants more");
        room[1][..take].copy_from_slice(&bytes[..take]);
        connection.received(take, 0);
        accepted += take / 72;
        assert!(accepted < 10_000);
    }
    // Waiting commands are completed when the host reads again.
    host.io.work();
    let answers = host
        .io
        .pdus
        .iter()
        .filter(|pdu| pdu.header.kind() == RESPONSE)
        .count();
    assert_eq!(answers, accepted);
}

/// The bytes of a command, whether they are made plausible, an opcode, and the number of blocks of data.
fn commands() -> impl Strategy<Value = ([u8; 32], bool, u8, usize)> {
    (
        prop::array::uniform32(any::<u8>()),
        any::<bool>(),
        0..8_u8,
        0..3_usize,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 1..500usize) {
        let target = target();
        let mut fresh = Line::new(&target, 1);
        bytes.chunks(cut).for_each(|part| fresh.bytes(part));
        let mut host = Host::new(&target, 1);
        bytes.chunks(cut).for_each(|part| host.io.bytes(part));
    }

    #[test]
    fn no_command_makes_it_panic(
        commands in prop::collection::vec(commands(), 1..40)
    ) {
        let target = target();
        let mut host = Host::new(&target, 1);
        for (bytes, small, opcode, data) in commands {
            let whole: Vec<u8> = bytes.iter().chain(&bytes).copied().collect();
            let (mut command, _) = Command::split(&whole).unwrap();
            command.opcode = match opcode { 0 => command.opcode, n => Io::ALL[usize::from(n)] as u8 };
            if small {
                (command.nsid, command.cdw11, command.cdw12) = (1, 0, command.cdw12 & 0xf);
                command.cdw10 &= 0xfff;
            }
            command.flags &= 3;
            let data = vec![7; data * BLOCK];
            let length = data.len() as u32;
            let sgl = match length {
                0 => Sgl::Transport { length: BLOCK as u32 },
                length => Sgl::InCapsule { offset: 0, length },
            };
            let command = command.with_sgl(sgl);
            host.io.send(&Header::Command(command), 0, &data);
            host.admin.send(&Header::Command(command), 0, &data);
        }
    }
}
