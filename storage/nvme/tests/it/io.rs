//! Reading, writing, and the other I/O commands.

use nvme::tcp::Closing;
use wire::nvme::dsm::{CopyRange, Range};
use wire::nvme::fabrics::CONNECT_NO_FLOW_CONTROL;
use wire::nvme::tcp::{Digests, Header};
use wire::nvme::{Command, Io, Sgl, Status};

use crate::support::{BLOCK, BLOCKS, Host, io, pattern, target};

#[test]
fn written_data_are_read_by_every_transfer_method() {
    let both = Digests {
        header: true,
        data: true,
    };
    for (digests, attributes) in [
        (Digests::default(), 0),
        (both, 0),
        (both, CONNECT_NO_FLOW_CONTROL),
    ] {
        let target = target();
        let mut host = Host::with(&target, 1, digests, 128, attributes);
        // In-capsule data up to the limit, then by R2T, in one PDU and in many, up to the longest transfer.
        for (index, blocks) in [1, 8, 32, 33, 100, 2048].into_iter().enumerate() {
            let data = pattern(index as u64, blocks as usize * BLOCK);
            let write = io(Io::Write, 7, blocks);
            if blocks <= 32 {
                assert!(host.io.give(write, &data).status().is_success());
                assert_eq!(
                    host.io.take(io(Io::Read, 7, blocks), data.len()).unwrap(),
                    data
                );
            }
            for piece in [data.len(), 4096, 1000] {
                let data = pattern(piece as u64, data.len());
                assert!(
                    host.io
                        .give_when_asked(write, &data, piece)
                        .status()
                        .is_success()
                );
                assert!(host.io.take(io(Io::Read, 7, blocks), data.len()).unwrap() == data);
            }
        }
    }
}

#[test]
fn bytes_may_come_one_by_one() {
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
    let data = pattern(1, BLOCK);
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: BLOCK as u32,
    };
    let command = io(Io::Write, 3, 1).with_sgl(sgl);
    for byte in host.io.encode(&Header::Command(command), 0, &data) {
        assert!(host.io.pdus.is_empty());
        host.io.bytes(&[byte]);
    }
    assert!(host.io.response().status().is_success());
    assert_eq!(host.io.take(io(Io::Read, 3, 1), BLOCK).unwrap(), data);
}

#[test]
fn blocks_outside_the_namespace_are_refused() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let read = |host: &mut Host, start, count| {
        host.io
            .take(io(Io::Read, start, count), count as usize * BLOCK)
            .map(drop)
    };
    assert_eq!(read(&mut host, BLOCKS - 1, 1), Ok(()));
    assert_eq!(read(&mut host, BLOCKS, 1), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(
        read(&mut host, BLOCKS - 1, 2),
        Err(Status::LBA_OUT_OF_RANGE)
    );
    assert_eq!(read(&mut host, u64::MAX, 1), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(read(&mut host, 0, 2049), Err(Status::INVALID_FIELD));
    let elsewhere = Command {
        nsid: 2,
        ..io(Io::Read, 0, 1)
    };
    assert_eq!(
        host.io.take(elsewhere, BLOCK),
        Err(Status::INVALID_NAMESPACE)
    );
    for described in [0, BLOCK - 1, BLOCK + 1, 2 * BLOCK] {
        assert_eq!(
            host.io.take(io(Io::Read, 0, 1), described),
            Err(Status::SGL_LENGTH_INVALID)
        );
        let data = pattern(1, described);
        if described > 0 {
            let refused = host.io.give(io(Io::Write, 0, 1), &data);
            assert_eq!(refused.status().plain(), Status::SGL_LENGTH_INVALID);
        }
    }
    let with_protection = Command {
        cdw12: 1 << 29,
        ..io(Io::Read, 0, 1)
    };
    assert_eq!(
        host.io.take(with_protection, BLOCK),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(
        host.io
            .plain(Command {
                opcode: 0x7e,
                ..io(Io::Read, 0, 1)
            })
            .status()
            .plain(),
        Status::INVALID_OPCODE
    );
    assert_eq!(host.io.closing(), Closing::No);
}

#[test]
fn descriptors_that_tcp_does_not_have_are_refused() {
    let target = target();
    let mut host = Host::new(&target, 1);
    for (sgl, status) in [
        (
            Sgl::Keyed {
                address: 1,
                length: 512,
                key: 2,
                invalidate: false,
            },
            Status::SGL_TYPE_INVALID,
        ),
        (
            Sgl::Address {
                address: 1,
                length: 512,
            },
            Status::SGL_TYPE_INVALID,
        ),
        (
            Sgl::Segment {
                offset: 0,
                length: 16,
                last: true,
            },
            Status::SGL_TYPE_INVALID,
        ),
        (
            Sgl::InCapsule {
                offset: 8,
                length: 0,
            },
            Status::SGL_OFFSET_INVALID,
        ),
        (
            Sgl::InCapsule {
                offset: 0,
                length: 512,
            },
            Status::SGL_LENGTH_INVALID,
        ),
    ] {
        host.io
            .send(&Header::Command(io(Io::Read, 0, 1).with_sgl(sgl)), 0, &[]);
        assert_eq!(host.io.response().status().plain(), status, "{sgl:?}");
    }
    let mut odd = io(Io::Read, 0, 1).with_sgl(Sgl::Transport { length: 512 });
    odd.data[15] = 0x77;
    host.io.send(&Header::Command(odd), 0, &[]);
    assert_eq!(
        host.io.response().status().plain(),
        Status::SGL_TYPE_INVALID
    );
    let without = Command {
        flags: 0,
        ..io(Io::Read, 0, 1)
    };
    host.io.send(&Header::Command(without), 0, &[]);
    assert!(!host.io.response().status().is_success());
}

/// A host that has written 16 blocks, and these blocks.
fn host_with_data() -> (Host, Vec<u8>) {
    let mut host = Host::new(&target(), 1);
    let data = pattern(9, 16 * BLOCK);
    let written = host.io.give(io(Io::Write, 0, 16), &data);
    assert!(written.status().is_success());
    (host, data)
}

/// Expects that the 16 blocks are these, by reading them.
#[track_caller]
fn expect_data(host: &mut Host, expected: &[u8]) {
    assert!(host.io.take(io(Io::Read, 0, 16), 16 * BLOCK).unwrap() == expected);
}

#[test]
fn blocks_of_write_zeroes_are_zero() {
    let (mut host, mut data) = host_with_data();
    let zeroed = host.io.plain(io(Io::WriteZeroes, 2, 2));
    assert!(zeroed.status().is_success());
    data[2 * BLOCK..4 * BLOCK].fill(0);
    expect_data(&mut host, &data);
}

#[test]
fn deallocated_blocks_are_zero() {
    let (mut host, mut data) = host_with_data();
    let range = Range {
        attributes: 0,
        count: 2,
        start: 6,
    };
    let discard = Command {
        nsid: 1,
        opcode: Io::DatasetManagement as u8,
        cdw11: 4,
        ..Command::default()
    };
    let discarded = host.io.give(discard, &range.to_bytes());
    assert!(discarded.status().is_success());
    data[6 * BLOCK..8 * BLOCK].fill(0);
    expect_data(&mut host, &data);
    // Linux always sends a buffer for 256 ranges.
    let mut page = range.to_bytes().to_vec();
    page.resize(4096, 0xff);
    assert!(host.io.give(discard, &page).status().is_success());
    let beyond = Range {
        start: BLOCKS,
        ..range
    };
    let refused = host.io.give(discard, &beyond.to_bytes());
    assert_eq!(refused.status().plain(), Status::LBA_OUT_OF_RANGE);
    expect_data(&mut host, &data);
}

/// The destination overlaps the source that is read last.
#[test]
fn copied_blocks_are_those_of_the_sources() {
    let (mut host, mut data) = host_with_data();
    let sources = [
        CopyRange {
            start: 8,
            count_less_one: 1,
        },
        CopyRange {
            start: 0,
            count_less_one: 0,
        },
    ];
    let copy = Command {
        nsid: 1,
        opcode: Io::Copy as u8,
        cdw10: 1,
        cdw12: 1,
        ..Command::default()
    };
    let bytes: Vec<u8> = sources.iter().flat_map(CopyRange::to_bytes).collect();
    assert!(host.io.give(copy, &bytes).status().is_success());
    let copied = [&data[8 * BLOCK..10 * BLOCK], &data[..BLOCK]].concat();
    data[BLOCK..4 * BLOCK].copy_from_slice(&copied);
    expect_data(&mut host, &data);
}

#[test]
fn flush_and_verify_succeed() {
    let (mut host, _) = host_with_data();
    for kind in [Io::Flush, Io::Verify] {
        assert!(
            host.io.plain(io(kind, 0, 16)).status().is_success(),
            "{kind:?}"
        );
    }
    let everywhere = Command {
        nsid: u32::MAX,
        opcode: Io::Flush as u8,
        ..Command::default()
    };
    assert!(host.io.plain(everywhere).status().is_success());
}

#[test]
fn compare_says_whether_anything_differs() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let mut data = pattern(4, 4 * BLOCK);
    assert!(
        host.io
            .give(io(Io::Write, 9, 4), &data)
            .status()
            .is_success()
    );
    assert!(
        host.io
            .give(io(Io::Compare, 9, 4), &data)
            .status()
            .is_success()
    );
    data[2 * BLOCK] ^= 1;
    let differs = host.io.give_when_asked(io(Io::Compare, 9, 4), &data, 1024);
    assert_eq!(differs.status().plain(), Status::COMPARE_FAILURE);
}

#[test]
fn many_commands_wait_for_buffers_and_all_are_answered() {
    let target = target();
    let mut host = Host::new(&target, 1);
    // 100 MiB of reads at once: more than the buffers of a queue.
    let length = 1 << 20;
    let mut bytes = Vec::new();
    for cid in 0..100 {
        let command = Command {
            cid,
            ..io(Io::Read, 0, 2048)
        }
        .with_sgl(Sgl::Transport { length });
        bytes.extend(host.io.encode(&Header::Command(command), 0, &[]));
    }
    host.io.bytes(&bytes);
    let answered: Vec<u16> = host
        .io
        .pdus
        .iter()
        .filter_map(|pdu| match pdu.header {
            Header::Response(completion) => Some(completion.cid),
            _ => None,
        })
        .collect();
    assert_eq!(answered, (0..100).collect::<Vec<_>>());
}
