//! Commands with a data structure: longer data are accepted, shorter data are refused.

use wire::nvme::dsm::{self, CopyRange, Range};
use wire::nvme::reservation::{AcquireData, RegisterData, ReleaseData, ReservationType};
use wire::nvme::tcp::{Header, flag};
use wire::nvme::{Admin, Command, Io, Sgl, Status, feature, identify, log};

use crate::support::{BLOCK, Host, Line, io, pattern, target};

const MDTS_BYTES: usize = 1 << 20;

fn reservation(kind: Io, cdw10: u32) -> Command {
    Command {
        opcode: kind as u8,
        nsid: 1,
        cdw10,
        ..Command::default()
    }
}

/// Commands on an I/O queue with the structure that each needs. In this order each succeeds.
fn structures() -> Vec<(Command, Vec<u8>)> {
    let kind = (ReservationType::WriteExclusive as u32) << 8;
    let discard = Command {
        cdw10: 1,
        cdw11: dsm::DEALLOCATE,
        ..reservation(Io::DatasetManagement, 0)
    };
    let ranges = [4, 9]
        .map(|start| {
            Range {
                attributes: 0,
                count: 2,
                start,
            }
            .to_bytes()
        })
        .concat();
    let copy = Command {
        cdw12: 0,
        ..io(Io::Copy, 40, 1)
    };
    vec![
        (
            reservation(Io::ReservationRegister, 0),
            RegisterData { current: 0, new: 5 }.to_bytes().to_vec(),
        ),
        (
            reservation(Io::ReservationAcquire, kind),
            AcquireData {
                current: 5,
                preempted: 0,
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            reservation(Io::ReservationRelease, kind),
            ReleaseData { current: 5 }.to_bytes().to_vec(),
        ),
        // Clear, and a registration for the next round.
        (
            reservation(Io::ReservationRelease, 1),
            ReleaseData { current: 5 }.to_bytes().to_vec(),
        ),
        (discard, ranges),
        (
            copy,
            CopyRange {
                start: 20,
                count_less_one: 3,
            }
            .to_bytes()
            .to_vec(),
        ),
    ]
}

#[test]
fn longer_data_than_the_structure_are_accepted_and_shorter_ones_refused() {
    let target = target();
    let mut host = Host::new(&target, 1);
    assert!(
        host.io
            .give(io(Io::Write, 0, 32), &pattern(1, 32 * BLOCK))
            .status()
            .is_success()
    );
    for more in [0, 8, 512, 8192] {
        for (command, structure) in structures() {
            let opcode = command.opcode;
            for short in [0, structure.len() / 2, structure.len() - 1] {
                let done = match short {
                    0 => host.io.plain(command),
                    _ => host.io.give(command, &structure[..short]),
                };
                assert_eq!(
                    done.status().plain(),
                    Status::SGL_LENGTH_INVALID,
                    "{opcode:#x} {short}"
                );
            }
            // What comes behind the structure has no meaning.
            let longer = [&structure[..], &vec![0xff; more]].concat();
            let done = host.io.give(command, &longer);
            assert_eq!(done.status(), Status::SUCCESS, "{opcode:#x} {more}");
            if opcode == Io::DatasetManagement as u8 {
                assert_eq!(
                    host.io.take(io(Io::Read, 4, 2), 2 * BLOCK).unwrap(),
                    vec![0; 2 * BLOCK]
                );
            }
        }
    }
    let copied = host.io.take(io(Io::Read, 40, 4), 4 * BLOCK).unwrap();
    assert_eq!(copied, pattern(1, 32 * BLOCK)[20 * BLOCK..24 * BLOCK]);
    // Data that the target asks for as well, up to the longest transfer.
    let (register, keys) = structures().remove(0);
    let longest = [keys, vec![0xff; MDTS_BYTES - 16]].concat();
    assert!(
        host.io
            .give_when_asked(register, &longest, 64 << 10)
            .status()
            .is_success()
    );
    let beyond = register.with_sgl(Sgl::Transport {
        length: MDTS_BYTES as u32 + 1,
    });
    host.io.send(&Header::Command(beyond), 0, &[]);
    assert_eq!(host.io.response().status().plain(), Status::INVALID_FIELD);
}

#[test]
fn structures_of_set_features_may_have_data_behind_them() {
    let target = target();
    let mut host = Host::new(&target, 1);
    for (number, length) in [(feature::TIMESTAMP, 8), (feature::HOST_BEHAVIOUR, 512)] {
        let command = |kind: Admin| Command {
            opcode: kind as u8,
            cdw10: u32::from(number),
            ..Command::default()
        };
        for described in [length, length + 8, 4096] {
            let done = host
                .admin
                .give(command(Admin::SetFeatures), &vec![0; described]);
            assert_eq!(done.status(), Status::SUCCESS, "{number:#x} {described}");
        }
        let short = host
            .admin
            .give(command(Admin::SetFeatures), &vec![0; length - 1]);
        assert_eq!(short.status().plain(), Status::SGL_LENGTH_INVALID);
        assert_eq!(
            host.admin.take(command(Admin::GetFeatures), length - 1),
            Err(Status::SGL_LENGTH_INVALID)
        );
        assert_eq!(
            returned(&mut host.admin, command(Admin::GetFeatures), 4096),
            length
        );
    }
}

/// The number of bytes that a command returns into a buffer of `described` bytes.
fn returned(line: &mut Line, command: Command, described: u32) -> usize {
    let command = Command {
        cid: line.cid(),
        ..command
    }
    .with_sgl(Sgl::Transport { length: described });
    line.send(&Header::Command(command), 0, &[]);
    let pdu = line.pdu();
    let Header::ControllerData(data) = pdu.header else {
        panic!("{:?}", pdu.header)
    };
    assert_eq!(
        (data.cid, data.offset, data.length as usize),
        (command.cid, 0, pdu.data.len())
    );
    if pdu.flags & flag::SUCCESS == 0 {
        assert!(line.response().status().is_success());
    }
    pdu.data.len()
}

#[test]
fn a_longer_buffer_receives_the_structure_alone() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let identify = Command {
        opcode: Admin::Identify as u8,
        cdw10: identify::cns::CONTROLLER.into(),
        ..Command::default()
    };
    assert_eq!(returned(&mut host.admin, identify, 8192), 4096);
    let health = log::Request {
        page: log::HEALTH,
        specific: 0,
        retain: false,
        length: 512,
        offset: 0,
    };
    assert_eq!(
        returned(&mut host.admin, health.to_command(0, 0), 4096),
        512
    );
    let report = Command {
        cdw11: 1,
        ..reservation(Io::ReservationReport, 64 / 4 - 1)
    };
    assert_eq!(returned(&mut host.io, report, 4096), 64);
    for (line, command, short) in [
        (&mut host.admin, health.to_command(0, 0), 511),
        (&mut host.io, report, 60),
    ] {
        assert_eq!(line.take(command, short), Err(Status::SGL_LENGTH_INVALID));
    }
}
