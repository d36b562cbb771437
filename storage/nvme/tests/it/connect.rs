//! Connect: each of its parameters is accepted, or refused with the offset of the wrong one.

use std::sync::Arc;

use nvme::controller::Target;
use wire::nvme::fabrics::{Connect, ConnectData, DISCOVERY_NQN};
use wire::nvme::tcp::Digests;
use wire::nvme::{Admin, Command, Io, Status, feature, identify, property, text};

use crate::support::{Line, SUBSYSTEM, host_name, target};

const ADMIN: Connect = Connect {
    format: 0,
    queue_id: 0,
    size: 31,
    attributes: 0,
    keep_alive_ms: 5000,
};
const IO: Connect = Connect {
    queue_id: 1,
    ..ADMIN
};

fn data(controller_id: u16) -> ConnectData {
    ConnectData {
        host_id: [1; 16],
        controller_id,
        subsystem: text::zeroed(SUBSYSTEM),
        host: text::zeroed(&host_name(1)),
    }
}

/// A new connection after Connect, with its status and dword 0.
fn connect(target: &Arc<Target>, fields: Connect, data: &ConnectData) -> (Line, Status, u64) {
    let mut line = Line::initialized(target, 1, Digests::default());
    let done = line.give(fields.to_command(0), &data.to_bytes());
    (line, done.status(), done.result)
}

/// Asserts that Connect is refused for the parameter at `offset` of the command, or of its data.
#[track_caller]
fn assert_invalid(
    target: &Arc<Target>,
    fields: Connect,
    data: &ConnectData,
    offset: u64,
    in_data: bool,
) {
    let (_line, status, result) = connect(target, fields, data);
    let wanted = (
        Status::CONNECT_INVALID_PARAMETERS.permanent(),
        offset | u64::from(in_data) << 16,
    );
    assert_eq!((status, result), wanted, "{fields:?}");
}

fn get(line: &mut Line, number: u8) -> u64 {
    let opcode = Admin::GetFeatures as u8;
    let done = line.plain(Command {
        opcode,
        cdw10: number.into(),
        ..Command::default()
    });
    assert!(done.status().is_success());
    done.result
}

fn set(line: &mut Line, number: u8, cdw11: u32) -> Status {
    let opcode = Admin::SetFeatures as u8;
    line.plain(Command {
        opcode,
        cdw10: number.into(),
        cdw11,
        ..Command::default()
    })
    .status()
    .plain()
}

#[test]
fn wrong_parameters_of_an_admin_queue_are_named() {
    let target = target();
    let (dynamic, admin) = (data(0xffff), ADMIN);
    let (_line, status, result) = connect(&target, Connect { format: 1, ..admin }, &dynamic);
    assert_eq!((status.plain(), result), (Status::INCOMPATIBLE_FORMAT, 40));
    for size in [0, 1024, u16::MAX] {
        assert_invalid(&target, Connect { size, ..admin }, &dynamic, 44, false);
    }
    // Controllers are dynamic: neither one with the settings of an earlier one, nor a particular one.
    for controller_id in [0, 1, 0xfffe] {
        assert_invalid(&target, admin, &data(controller_id), 16, true);
    }
    assert_invalid(
        &target,
        admin,
        &ConnectData {
            host_id: [0; 16],
            ..dynamic
        },
        0,
        true,
    );
    for name in ["nqn.2024-01.org.example:other", "disk", ""] {
        let other = ConnectData {
            subsystem: text::zeroed(name),
            ..dynamic
        };
        assert_invalid(&target, admin, &other, 256, true);
    }
    let unterminated = ConnectData {
        host: [b'n'; 256],
        ..dynamic
    };
    assert_invalid(&target, admin, &unterminated, 512, true);
    let discovery = ConnectData {
        subsystem: text::zeroed(DISCOVERY_NQN),
        ..dynamic
    };
    let anonymous = ConnectData {
        host_id: [0; 16],
        ..discovery
    };
    assert_invalid(&target, admin, &anonymous, 0, true);
    assert!(target.controllers().is_empty());
}

#[test]
fn wrong_parameters_of_an_io_queue_are_named() {
    let target = target();
    let (mut admin, status, id) = connect(&target, ADMIN, &data(0xffff));
    assert!(status.is_success());
    let own = data(id as u16);
    let (_line, status, _) = connect(&target, IO, &own);
    assert_eq!(
        status.plain(),
        Status::COMMAND_SEQUENCE,
        "before the controller is enabled"
    );
    admin.enable();
    for controller_id in [0, id as u16 + 1, 0xfffe, 0xffff] {
        assert_invalid(&target, IO, &data(controller_id), 16, true);
    }
    for size in [0, 1024] {
        assert_invalid(&target, Connect { size, ..IO }, &own, 44, false);
    }
    for queue_id in [129, u16::MAX] {
        assert_invalid(&target, Connect { queue_id, ..IO }, &own, 42, false);
    }
    assert_invalid(
        &target,
        IO,
        &ConnectData {
            host: text::zeroed(&host_name(2)),
            ..own
        },
        512,
        true,
    );
    let anonymous = ConnectData {
        host_id: [0; 16],
        ..own
    };
    assert_invalid(&target, IO, &anonymous, 0, true);
    let (_first, status, _) = connect(&target, IO, &own);
    assert!(status.is_success());
    assert_invalid(&target, IO, &own, 42, false);
}

/// The targets of Linux and SPDK accept an I/O queue with another Host Identifier than the admin queue, too.
/// It gives no other rights: the registrant of a reservation is the host of the admin queue.
#[test]
fn the_host_identifier_of_an_io_queue_is_that_of_its_admin_queue() {
    let target = target();
    let (mut admin, _, id) = connect(&target, ADMIN, &data(0xffff));
    admin.enable();
    let other = ConnectData {
        host_id: [2; 16],
        ..data(id as u16)
    };
    let (mut queue, status, controller) = connect(&target, IO, &other);
    assert_eq!((status, controller), (Status::SUCCESS, id));
    let register = Command {
        opcode: Io::ReservationRegister as u8,
        nsid: 1,
        ..Command::default()
    };
    let keys = [0_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    assert!(queue.give(register, &keys).status().is_success());
    // The extended structures: a header of 64 bytes, and 64 bytes for each registrant.
    let report = Command {
        opcode: Io::ReservationReport as u8,
        nsid: 1,
        cdw10: 128 / 4 - 1,
        cdw11: 1,
        ..Command::default()
    };
    let report = queue.take(report, 128).expect("a report");
    assert_eq!(report[64 + 16..][..16], [1; 16]);
}

#[test]
fn an_io_queue_needs_no_set_features() {
    let target = target();
    let (mut admin, _, id) = connect(&target, ADMIN, &data(0xffff));
    admin.enable();
    assert_eq!(get(&mut admin, feature::QUEUES), 127 | 127 << 16);
    let own = data(id as u16);
    let last = Connect {
        queue_id: 128,
        ..IO
    };
    let queues = [connect(&target, IO, &own), connect(&target, last, &own)];
    assert!(queues.iter().all(|(_, status, _)| status.is_success()));
    // The number of queues cannot change while there are any.
    assert_eq!(
        set(&mut admin, feature::QUEUES, 0),
        Status::COMMAND_SEQUENCE
    );
    drop(queues);
    assert_eq!(
        set(&mut admin, feature::QUEUES, 1 | 3 << 16),
        Status::SUCCESS
    );
    assert_eq!(get(&mut admin, feature::QUEUES), 1 | 1 << 16);
    assert_invalid(&target, Connect { queue_id: 3, ..IO }, &own, 42, false);
    // After a reset there are as many as for a new controller.
    admin.set_property(property::CONFIGURATION, 0);
    admin.enable();
    assert_eq!(get(&mut admin, feature::QUEUES), 127 | 127 << 16);
}

#[test]
fn keep_alive_timeouts_have_the_granularity_that_identify_reports() {
    let target = target();
    for (asked, granted) in [(0, 0), (1, 1000), (5000, 5000), (5001, 6000)] {
        let (mut line, _, _) = connect(
            &target,
            Connect {
                keep_alive_ms: asked,
                ..ADMIN
            },
            &data(0xffff),
        );
        line.enable();
        let command = Command {
            opcode: Admin::Identify as u8,
            cdw10: 1,
            ..Command::default()
        };
        let bytes = line.take(command, 4096).unwrap();
        let (controller, _) = identify::Controller::split(&bytes).unwrap();
        assert_eq!(u32::from(controller.keep_alive) * 100, 1000);
        assert_eq!(get(&mut line, feature::KEEP_ALIVE), granted);
        assert_eq!(set(&mut line, feature::KEEP_ALIVE, 1500), Status::SUCCESS);
        assert_eq!(get(&mut line, feature::KEEP_ALIVE), 2000);
    }
}

#[test]
fn capabilities_and_timeouts_agree() {
    let target = target();
    let (mut line, _, _) = connect(&target, ADMIN, &data(0xffff));
    let capabilities = line.property(true, property::CAPABILITIES).result;
    let ready_timeouts = line.property(false, property::READY_TIMEOUTS).result;
    // CRMS: ready with media support, as version 2.0 requires, and not independent of media.
    assert_eq!(capabilities >> 59 & 3, 1);
    assert_eq!(
        (ready_timeouts & 0xffff, ready_timeouts >> 16),
        (capabilities >> 24 & 0xff, 0)
    );
}
