//! Connecting, properties, Identify, features, log pages and events.

use nvme::controller::Hosts;
use nvme::tcp::Closing;
use wire::nvme::discovery::{Entry, Head};
use wire::nvme::fabrics::DISCOVERY_NQN;
use wire::nvme::feature::{self, events};
use wire::nvme::identify::{self, cns};
use wire::nvme::log::{self, AnaGroup, AnaHead, AnaState};
use wire::nvme::tcp::{Digests, Header};
use wire::nvme::{Admin, Command, Io, Sgl, Status, property, text};

use crate::support::{
    BLOCK, BLOCKS, Host, Line, SUBSYSTEM, admin, host_name, io, memory_namespace, nqn, only,
    pattern, request_event, target, target_for,
};

fn identify(line: &mut Line, kind: u8, nsid: u32) -> Result<Vec<u8>, Status> {
    let command = Command {
        opcode: Admin::Identify as u8,
        cdw10: kind.into(),
        nsid,
        ..Command::default()
    };
    line.take(command, 4096)
}

fn page(line: &mut Line, page: u8, length: u64) -> Result<Vec<u8>, Status> {
    let request = log::Request {
        page,
        specific: 0,
        retain: false,
        length,
        offset: 0,
    };
    line.take(request.to_command(0, 0), length as usize)
}

#[test]
fn connect_checks_its_fields() {
    let target = target_for(only(&[&host_name(1)]));
    let refused = |number, subsystem: &str, queue, controller| {
        let mut line = Line::initialized(&target, number, Digests::default());
        let completion = line.connect_to(subsystem, queue, 32, controller, 0);
        (completion.status().plain(), completion.result)
    };
    let in_data = |offset: u64| (Status::CONNECT_INVALID_PARAMETERS, offset | 1 << 16);
    assert_eq!(
        refused(2, SUBSYSTEM, 0, 0xffff).0,
        Status::CONNECT_INVALID_HOST
    );
    assert_eq!(
        refused(1, "nqn.2024-01.org.example:none", 0, 0xffff),
        in_data(256)
    );
    assert_eq!(refused(1, "disk", 0, 0xffff), in_data(256));
    assert_eq!(refused(1, SUBSYSTEM, 0, 5), in_data(16));
    assert_eq!(refused(1, SUBSYSTEM, 1, 5), in_data(16));
    let (_admin, controller) = admin(&target, 1, Digests::default());
    assert_eq!(
        refused(1, SUBSYSTEM, 5, controller),
        (Status::CONNECT_INVALID_PARAMETERS, 42)
    );
    assert_eq!(
        refused(2, SUBSYSTEM, 1, controller).0,
        Status::CONNECT_INVALID_HOST
    );
    assert_eq!(refused(1, SUBSYSTEM, 1, controller).0, Status::SUCCESS);
}

/// The initiator of SPDK sends a HOSTNQN of zeros: it is accepted where every host is.
#[test]
fn a_host_without_a_name_is_accepted_where_every_host_is() {
    let connected = |target: &_, queue, controller| {
        let mut line = Line::initialized(target, 1, Digests::default());
        let completion = line.connect_as("", SUBSYSTEM, queue, 32, controller, 0);
        (line, completion.status().plain(), completion.result as u16)
    };
    let open = target();
    let (mut line, status, controller) = connected(&open, 0, 0xffff);
    assert_eq!(status, Status::SUCCESS);
    line.enable();
    let queues = Command {
        opcode: Admin::SetFeatures as u8,
        cdw10: feature::QUEUES.into(),
        ..Command::default()
    };
    assert!(line.plain(queues).status().is_success());
    // A named host with the same Host Identifier is another host.
    let mut other = Line::initialized(&open, 1, Digests::default());
    let refused = other
        .connect_to(SUBSYSTEM, 1, 32, controller, 0)
        .status()
        .plain();
    assert_eq!(refused, Status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(connected(&open, 1, controller).1, Status::SUCCESS);
    let listed = &open.controllers()[0].host;
    assert_eq!(
        listed.as_str(),
        "nqn.2014-08.org.nvmexpress:uuid:01010101-0101-0101-0101-010101010101"
    );
    // A host without an NQN is not on a list of allowed hosts, even if the list has the NQN that is derived
    // for it.
    for name in [host_name(1), listed.to_string()] {
        let closed = target_for(only(&[&name]));
        assert_eq!(
            connected(&closed, 0, 0xffff).1,
            Status::CONNECT_INVALID_HOST
        );
    }
    assert!(
        open.set_hosts(&nqn(SUBSYSTEM), only(&[&host_name(1)]))
            .unwrap()
            .has_passed()
    );
    assert!(line.connection.queue().is_over());
}

#[test]
fn nothing_but_connect_comes_first_and_only_once() {
    let target = target();
    let mut line = Line::initialized(&target, 1, Digests::default());
    assert_eq!(
        line.property(true, property::CAPABILITIES).status().plain(),
        Status::COMMAND_SEQUENCE
    );
    assert_eq!(
        line.plain(io(Io::Flush, 0, 1)).status().plain(),
        Status::COMMAND_SEQUENCE
    );
    assert!(
        line.connect_to(SUBSYSTEM, 0, 32, 0xffff, 0)
            .status()
            .is_success()
    );
    assert_eq!(
        line.connect_to(SUBSYSTEM, 0, 32, 0xffff, 0)
            .status()
            .plain(),
        Status::COMMAND_SEQUENCE
    );
}

#[test]
fn a_controller_is_switched_on_and_off() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let capabilities =
        property::Capabilities::parse(host.admin.property(true, property::CAPABILITIES).result);
    assert_eq!(capabilities.entries_max, 1023);
    assert_eq!(
        host.admin.property(false, property::VERSION).result,
        0x2_0000
    );
    let wrong = host
        .admin
        .property(false, property::CAPABILITIES)
        .status()
        .plain();
    assert_eq!(wrong, Status::INVALID_FIELD);
    assert!(host.io.plain(io(Io::Flush, 0, 1)).status().is_success());
    let command = Command {
        opcode: Admin::KeepAlive as u8,
        ..Command::default()
    };
    assert!(host.admin.plain(command).status().is_success());
    assert!(
        host.admin
            .set_property(property::CONFIGURATION, 0)
            .status()
            .is_success()
    );
    assert_eq!(host.admin.property(false, property::STATUS).result, 0);
    assert_eq!(host.io.closing(), Closing::Controller);
    // A controller that is not ready executes Fabrics commands only.
    assert_eq!(
        host.admin.plain(command).status().plain(),
        Status::COMMAND_SEQUENCE
    );
    host.admin.enable();
    let shutdown = property::configuration::SHUTDOWN_NORMAL | property::configuration::ENABLE;
    host.admin
        .set_property(property::CONFIGURATION, shutdown.into());
    assert_eq!(host.admin.property(false, property::STATUS).result, 8);
    // Shutdown leaves CC as the host wrote it, and the controller starts again with a reset.
    assert_eq!(
        host.admin.property(false, property::CONFIGURATION).result,
        u64::from(shutdown)
    );
    assert_eq!(
        host.admin.plain(command).status().plain(),
        Status::COMMAND_SEQUENCE
    );
    host.admin.set_property(property::CONFIGURATION, 0);
    assert_eq!(host.admin.property(false, property::STATUS).result, 0);
    host.admin.enable();
    assert!(host.admin.plain(command).status().is_success());
}

#[test]
fn identify_describes_controllers_and_namespaces() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let (controller, _) =
        identify::Controller::split(&identify(&mut host.admin, cns::CONTROLLER, 0).unwrap())
            .unwrap();
    assert_eq!(controller.controller_id, host.controller);
    assert_eq!(text::text_of(&controller.subsystem), Some(SUBSYSTEM));
    assert_eq!(
        (text::text_of(&controller.serial), controller.kind),
        (Some("serial"), 1)
    );
    let (namespace, _) =
        identify::Namespace::split(&identify(&mut host.admin, cns::NAMESPACE, 1).unwrap()).unwrap();
    assert_eq!((namespace.size, namespace.format), (BLOCKS, 0));
    assert_eq!(
        identify(&mut host.admin, cns::NAMESPACE, 2).unwrap(),
        vec![0; 4096]
    );
    assert_eq!(
        identify(&mut host.admin, cns::NAMESPACE, 0),
        Err(Status::INVALID_NAMESPACE)
    );
    let active = identify(&mut host.admin, cns::ACTIVE, 0).unwrap();
    assert_eq!(active[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let descriptors = identify(&mut host.admin, cns::DESCRIPTORS, 1).unwrap();
    assert_eq!(
        [&descriptors[..2], &descriptors[20..22]],
        [[3, 16], [2, 16]]
    );
    assert_eq!(descriptors[4..20], memory_namespace(1).identity().uuid);
    let own = host.controller.to_le_bytes();
    for kind in [cns::CONTROLLERS, cns::NAMESPACE_CONTROLLERS] {
        let controllers = identify(&mut host.admin, kind, 1).unwrap();
        assert_eq!(controllers[..6], [1, 0, own[0], own[1], 0, 0], "{kind:#x}");
    }
    let elsewhere = identify(&mut host.admin, cns::NAMESPACE_CONTROLLERS, 2);
    assert_eq!(elsewhere, Err(Status::INVALID_NAMESPACE));
    assert_eq!(
        identify(&mut host.admin, 0xff, 1),
        Err(Status::INVALID_FIELD)
    );
    let short = Command {
        opcode: Admin::Identify as u8,
        cdw10: 1,
        ..Command::default()
    };
    assert_eq!(
        host.admin.take(short, 4095),
        Err(Status::SGL_LENGTH_INVALID)
    );
}

#[test]
fn features_are_kept_and_unknown_ones_refused() {
    let target = target();
    let mut host = Host::new(&target, 1);
    let set = |host: &mut Host, number: u8, value| {
        let opcode = Admin::SetFeatures as u8;
        let command = Command {
            opcode,
            cdw10: number.into(),
            cdw11: value,
            ..Command::default()
        };
        host.admin.plain(command).status().plain()
    };
    let current = |host: &mut Host, number: u8| {
        let opcode = Admin::GetFeatures as u8;
        let completion = host.admin.plain(Command {
            opcode,
            cdw10: number.into(),
            ..Command::default()
        });
        (completion.status().plain(), completion.result)
    };
    assert_eq!(set(&mut host, feature::TEMPERATURE, 300), Status::SUCCESS);
    assert_eq!(
        current(&mut host, feature::TEMPERATURE),
        (Status::SUCCESS, 300)
    );
    assert_eq!(
        current(&mut host, feature::KEEP_ALIVE),
        (Status::SUCCESS, 5000)
    );
    assert_eq!(
        current(&mut host, feature::QUEUES),
        (Status::SUCCESS, 3 | 3 << 16)
    );
    assert_eq!(
        set(&mut host, feature::QUEUES, 0xffff_ffff),
        Status::INVALID_FIELD
    );
    assert_eq!(set(&mut host, 0xc0, 1), Status::INVALID_FIELD);
    assert_eq!(current(&mut host, 0xc0).0, Status::INVALID_FIELD);
    let opcode = Admin::GetFeatures as u8;
    let host_id = Command {
        opcode,
        cdw10: feature::HOST_ID.into(),
        cdw11: 1,
        ..Command::default()
    };
    assert_eq!(host.admin.take(host_id, 16).unwrap(), [1; 16]);
}

#[test]
fn log_pages_tell_what_happened() {
    let target = target();
    let mut host = Host::new(&target, 1);
    host.io.take(io(Io::Read, 0, 8), 8 * BLOCK).unwrap();
    host.io.take(io(Io::Read, BLOCKS, 1), BLOCK).unwrap_err();
    let (health, _) =
        log::Health::split(&page(&mut host.admin, log::HEALTH, 512).unwrap()).unwrap();
    assert_eq!(
        (health.reads, health.units_read, health.error_entries),
        (1, 1, 1)
    );
    let (error, _) = log::Error::split(&page(&mut host.admin, log::ERRORS, 64).unwrap()).unwrap();
    assert_eq!((error.queue_id, error.lba, error.nsid), (1, BLOCKS, 1));
    let commands = page(&mut host.admin, log::COMMANDS, 4096).unwrap();
    let supported = |at: usize| commands[at * 4] & 1 == 1;
    assert!(supported(Admin::Identify as usize) && supported(256 + Io::Copy as usize));
    assert!(!supported(0x80) && !supported(256 + 0x79));
    assert_eq!(
        page(&mut host.admin, 0x99, 512),
        Err(Status::INVALID_LOG_PAGE)
    );
    let far = log::Request {
        page: log::HEALTH,
        specific: 0,
        retain: true,
        length: 64,
        offset: 4096,
    };
    assert_eq!(
        host.admin.take(far.to_command(0, 0), 64),
        Err(Status::INVALID_FIELD)
    );
    let long = log::Request {
        length: 1 << 30,
        offset: 0,
        ..far
    };
    let long = Command {
        cid: 9,
        ..long.to_command(9, 0)
    }
    .with_sgl(Sgl::Transport { length: 1 << 30 });
    host.admin.send(&Header::Command(long), 0, &[]);
    assert_eq!(
        host.admin.response().status().plain(),
        Status::INVALID_FIELD
    );
}

fn enable_events(line: &mut Line, events: u32) {
    let opcode = Admin::SetFeatures as u8;
    let command = Command {
        opcode,
        cdw10: feature::EVENTS.into(),
        cdw11: events,
        ..Command::default()
    };
    assert!(line.plain(command).status().is_success());
}

#[test]
fn hosts_hear_of_namespaces_that_change() {
    let target = target();
    let mut host = Host::new(&target, 1);
    enable_events(&mut host.admin, events::NAMESPACES | events::ANA);
    request_event(&mut host.admin, 900);
    assert!(host.admin.pdus.is_empty());
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(7))
        .unwrap();
    host.admin.work();
    let event = host.admin.response();
    assert_eq!((event.cid, event.result), (900, 0x04_0002));
    let changed = page(&mut host.admin, log::CHANGED_NAMESPACES, 4096).unwrap();
    assert_eq!(changed[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        page(&mut host.admin, log::CHANGED_NAMESPACES, 4096).unwrap()[0],
        0
    );
    host.io
        .take(
            Command {
                nsid: 7,
                ..io(Io::Read, 0, 1)
            },
            BLOCK,
        )
        .unwrap();
    assert!(
        target
            .remove_namespace(&nqn(SUBSYSTEM), 7)
            .unwrap()
            .1
            .has_passed()
    );
    let gone = host.io.take(
        Command {
            nsid: 7,
            ..io(Io::Read, 0, 1)
        },
        BLOCK,
    );
    assert_eq!(gone, Err(Status::INVALID_NAMESPACE));
}

#[test]
fn hosts_protect_namespaces_from_being_written() {
    let target = target();
    let mut host = Host::new(&target, 1);
    enable_events(&mut host.admin, events::NAMESPACES);
    let set = |host: &mut Host, nsid: u32, state: u32| {
        let (opcode, cdw10) = (Admin::SetFeatures as u8, feature::WRITE_PROTECTION.into());
        let command = Command {
            opcode,
            nsid,
            cdw10,
            cdw11: state,
            ..Command::default()
        };
        host.admin.plain(command).status().plain()
    };
    let current = |host: &mut Host| {
        let (opcode, cdw10) = (Admin::GetFeatures as u8, feature::WRITE_PROTECTION.into());
        host.admin
            .plain(Command {
                opcode,
                nsid: 1,
                cdw10,
                ..Command::default()
            })
            .result
    };
    let write = |host: &mut Host, seed| {
        host.io
            .give(io(Io::Write, 0, 1), &pattern(seed, BLOCK))
            .status()
            .plain()
    };
    let attributes = |host: &mut Host| identify(&mut host.admin, cns::NAMESPACE, 1).unwrap()[99];
    assert_eq!((current(&mut host), attributes(&mut host)), (0, 0));
    assert_eq!(write(&mut host, 1), Status::SUCCESS);
    assert_eq!(set(&mut host, 1, 1), Status::SUCCESS);
    assert_eq!((current(&mut host), attributes(&mut host)), (1, 1));
    request_event(&mut host.admin, 900);
    assert_eq!(host.admin.response().result, 0x04_0002);
    assert_eq!(write(&mut host, 2), Status::NAMESPACE_WRITE_PROTECTED);
    let zeroes = host.io.plain(io(Io::WriteZeroes, 0, 1)).status().plain();
    assert_eq!(zeroes, Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(
        host.io.take(io(Io::Read, 0, 1), BLOCK).unwrap(),
        pattern(1, BLOCK)
    );
    assert_eq!(set(&mut host, 1, 2), Status::INVALID_FIELD);
    assert_eq!(set(&mut host, 2, 0), Status::INVALID_NAMESPACE);
    assert_eq!(set(&mut host, 1, 0), Status::SUCCESS);
    assert_eq!(write(&mut host, 2), Status::SUCCESS);
    // A namespace that the configuration makes read-only stays read-only.
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(8).with(1, true))
        .unwrap();
    assert_eq!(set(&mut host, 8, 0), Status::FEATURE_NOT_CHANGEABLE);
}

#[test]
fn event_requests_have_a_limit_and_can_be_aborted() {
    let target = target();
    let mut host = Host::new(&target, 1);
    (1000..1004).for_each(|cid| request_event(&mut host.admin, cid));
    assert!(host.admin.pdus.is_empty());
    request_event(&mut host.admin, 1004);
    assert_eq!(
        host.admin.response().status().plain(),
        Status::AER_LIMIT_EXCEEDED
    );
    let abort = Command {
        opcode: Admin::Abort as u8,
        cdw10: 1001 << 16,
        ..Command::default()
    };
    let cid = host.admin.cid();
    let abort = Command { cid, ..abort }.with_sgl(Sgl::Transport { length: 0 });
    host.admin.send(&Header::Command(abort), 0, &[]);
    let mut answers = [host.admin.response(), host.admin.response()]
        .map(|it| (it.cid, it.status().plain(), it.result));
    answers.sort_by_key(|(cid, ..)| *cid);
    assert_eq!(
        answers,
        [
            (cid, Status::SUCCESS, 0),
            (1001, Status::ABORT_REQUESTED, 0)
        ]
    );
}

#[test]
fn access_can_be_taken_away_and_given_back() {
    let target = target();
    let mut host = Host::new(&target, 1);
    enable_events(&mut host.admin, events::ANA);
    request_event(&mut host.admin, 900);
    assert!(
        target
            .set_access(&nqn(SUBSYSTEM), 1, 1, AnaState::Inaccessible)
            .unwrap()
            .has_passed()
    );
    host.admin.work();
    assert_eq!(host.admin.response().result, 0x0c_0302);
    let bytes = page(&mut host.admin, log::ANA, 64).unwrap();
    let (head, rest) = AnaHead::split(&bytes).unwrap();
    let (group, rest) = AnaGroup::split(rest).unwrap();
    assert_eq!((head.changes, head.groups), (1, 1));
    assert_eq!(
        (group.group, group.namespaces, group.state, rest[0]),
        (1, 1, 3, 1)
    );
    let refused = host.io.take(io(Io::Read, 0, 1), BLOCK);
    assert_eq!(refused, Err(Status::ANA_INACCESSIBLE));
    assert!(
        target
            .set_access(&nqn(SUBSYSTEM), 1, 1, AnaState::NonOptimized)
            .unwrap()
            .has_passed()
    );
    host.io.take(io(Io::Read, 0, 1), BLOCK).unwrap();
}

#[test]
fn a_keep_alive_timeout_ends_the_controller() {
    let target = target();
    let mut host = Host::new(&target, 1);
    host.admin.now_ns += 4_900_000_000;
    host.admin.work();
    assert_eq!(host.admin.closing(), Closing::No);
    // Commands on any queue restart the keep alive timer.
    host.io.now_ns = host.admin.now_ns;
    host.io.take(io(Io::Read, 0, 1), BLOCK).unwrap();
    host.admin.now_ns += 4_900_000_000;
    host.admin.work();
    assert_eq!(host.admin.closing(), Closing::No);
    let alive = Command {
        opcode: Admin::KeepAlive as u8,
        ..Command::default()
    };
    assert!(host.admin.plain(alive).status().is_success());
    host.admin.now_ns += 5_000_000_000;
    host.admin.work();
    assert_eq!(host.admin.closing(), Closing::Controller);
    drop(host.admin);
    assert_eq!(host.io.closing(), Closing::Controller);
    assert!(target.controllers().is_empty());
}

#[test]
fn discovery_shows_each_host_what_it_may_use() {
    let target = target_for(only(&[&host_name(1)]));
    let entries = |number| {
        let mut line = Line::initialized(&target, number, Digests::default());
        assert!(
            line.connect_to(DISCOVERY_NQN, 0, 32, 0xffff, 0)
                .status()
                .is_success()
        );
        line.enable();
        let bytes = page(&mut line, log::DISCOVERY, 4096).unwrap();
        let (head, mut rest) = Head::split(&bytes).unwrap();
        let mut found = Vec::new();
        for _ in 0..head.count {
            let (entry, behind) = Entry::split(rest).unwrap();
            let of = |field: &[u8]| text::text_of(field).unwrap().to_owned();
            found.push((of(&entry.subsystem), of(&entry.address), of(&entry.service)));
            rest = behind;
        }
        assert_eq!(
            identify(&mut line, cns::NAMESPACE, 1),
            Err(Status::INVALID_FIELD)
        );
        found
    };
    let own = (
        DISCOVERY_NQN.to_owned(),
        "192.0.2.1".to_owned(),
        "4420".to_owned(),
    );
    let disk = (
        SUBSYSTEM.to_owned(),
        "192.0.2.1".to_owned(),
        "4420".to_owned(),
    );
    assert_eq!(entries(1), [own.clone(), disk]);
    assert_eq!(entries(2), [own]);
}

#[test]
fn persistent_discovery_hears_of_changes() {
    let target = target();
    let mut line = Line::initialized(&target, 1, Digests::default());
    assert!(
        line.connect_to(DISCOVERY_NQN, 0, 32, 0xffff, 0)
            .status()
            .is_success()
    );
    line.enable();
    enable_events(&mut line, events::DISCOVERY);
    request_event(&mut line, 77);
    assert!(
        target
            .set_hosts(&nqn(SUBSYSTEM), Hosts::Any)
            .unwrap()
            .has_passed()
    );
    line.work();
    assert_eq!(line.response().result, 0x70_f002);
}

#[test]
fn hosts_that_lose_their_permission_lose_their_connections() {
    let target = target();
    let host = Host::new(&target, 1);
    assert!(
        target
            .set_hosts(&nqn(SUBSYSTEM), only(&[&host_name(2)]))
            .unwrap()
            .has_passed()
    );
    assert_eq!(
        (host.admin.closing(), host.io.closing()),
        (Closing::Controller, Closing::Controller)
    );
    assert!(
        target.controllers().is_empty(),
        "a closed controller is not listed"
    );
}
