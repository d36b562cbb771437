//! Several hosts and one namespace: reservations.

use wire::nvme::reservation::{
    AcquireData, RegisterData, RegistrantExtended, ReleaseData, ReportHead, ReservationType,
};
use wire::nvme::tcp::Header;
use wire::nvme::{Admin, Command, Io, Sgl, Status, log};

use crate::support::{BLOCK, Host, io, pattern, target};

fn reserve(kind: Io, cdw10: u32) -> Command {
    Command {
        opcode: kind as u8,
        nsid: 1,
        cdw10,
        ..Command::default()
    }
}

fn register(host: &mut Host, key: u64) {
    let data = RegisterData {
        current: 0,
        new: key,
    };
    let done = host
        .io
        .give(reserve(Io::ReservationRegister, 0), &data.to_bytes());
    assert!(done.status().is_success());
}

fn acquire(host: &mut Host, key: u64, kind: ReservationType) -> Status {
    let data = AcquireData {
        current: key,
        preempted: 0,
    };
    let command = reserve(Io::ReservationAcquire, (kind as u32) << 8);
    host.io.give(command, &data.to_bytes()).status().plain()
}

fn write(host: &mut Host) -> Status {
    host.io
        .give(io(Io::Write, 0, 1), &pattern(1, BLOCK))
        .status()
        .plain()
}

fn read(host: &mut Host) -> Status {
    host.io
        .take(io(Io::Read, 0, 1), BLOCK)
        .map_or_else(|status| status, |_| Status::SUCCESS)
}

#[test]
fn a_reservation_keeps_others_out() {
    let target = target();
    let (mut one, mut two) = (Host::new(&target, 1), Host::new(&target, 2));
    register(&mut one, 11);
    assert_eq!(
        acquire(&mut one, 11, ReservationType::WriteExclusive),
        Status::SUCCESS
    );
    assert_eq!(
        (write(&mut one), write(&mut two)),
        (Status::SUCCESS, Status::RESERVATION_CONFLICT)
    );
    assert_eq!(
        (read(&mut one), read(&mut two)),
        (Status::SUCCESS, Status::SUCCESS)
    );
    register(&mut two, 22);
    assert_eq!(
        acquire(&mut two, 22, ReservationType::WriteExclusive),
        Status::RESERVATION_CONFLICT
    );

    let report = Command {
        cdw10: 63,
        cdw11: 1,
        ..reserve(Io::ReservationReport, 0)
    };
    let bytes = two.io.take(report, 256).unwrap();
    let (head, _) = ReportHead::split(&bytes).unwrap();
    assert_eq!((head.kind, head.registrants), (1, 2));
    let (first, rest) = RegistrantExtended::split(&bytes[64..]).unwrap();
    let (second, _) = RegistrantExtended::split(rest).unwrap();
    assert_eq!((first.key, first.status, first.host_id), (11, 1, [1; 16]));
    assert_eq!(
        (second.key, second.status, second.host_id),
        (22, 0, [2; 16])
    );

    let release = reserve(
        Io::ReservationRelease,
        (ReservationType::WriteExclusive as u32) << 8,
    );
    let done = one
        .io
        .give(release, &ReleaseData { current: 11 }.to_bytes());
    assert!(done.status().is_success());
    assert_eq!(write(&mut two), Status::SUCCESS);
}

#[test]
fn a_preempted_host_gets_a_notice() {
    let target = target();
    let (mut one, mut two) = (Host::new(&target, 1), Host::new(&target, 2));
    register(&mut one, 11);
    register(&mut two, 22);
    assert_eq!(
        acquire(&mut one, 11, ReservationType::ExclusiveAccess),
        Status::SUCCESS
    );
    assert_eq!(read(&mut two), Status::RESERVATION_CONFLICT);
    let event = Command {
        cid: 500,
        opcode: Admin::AsyncEventRequest as u8,
        ..Command::default()
    };
    let event = event.with_sgl(Sgl::Transport { length: 0 });
    one.admin.send(&Header::Command(event), 0, &[]);
    let data = AcquireData {
        current: 22,
        preempted: 11,
    };
    let preempt = reserve(
        Io::ReservationAcquire,
        1 | (ReservationType::ExclusiveAccess as u32) << 8,
    );
    assert!(two.io.give(preempt, &data.to_bytes()).status().is_success());
    assert_eq!(
        (read(&mut one), read(&mut two)),
        (Status::RESERVATION_CONFLICT, Status::SUCCESS)
    );
    one.admin.work();
    assert_eq!(one.admin.response().result, 0x80_0006);
    let request = log::Request {
        page: log::RESERVATIONS,
        specific: 0,
        retain: false,
        length: 64,
        offset: 0,
    };
    let bytes = one.admin.take(request.to_command(0, 0), 64).unwrap();
    let (notice, _) = log::Reservation::split(&bytes).unwrap();
    assert_eq!((notice.kind, notice.nsid, notice.count), (1, 1, 1));
}

/// The six types.
const TYPES: [ReservationType; 6] = [
    ReservationType::WriteExclusive,
    ReservationType::ExclusiveAccess,
    ReservationType::WriteExclusiveRegistrants,
    ReservationType::ExclusiveAccessRegistrants,
    ReservationType::WriteExclusiveAll,
    ReservationType::ExclusiveAccessAll,
];

/// Sends a command that reads or writes blocks, with its data.
fn access(host: &mut Host, kind: Io) -> Status {
    let done = match kind {
        Io::Read => return read(host),
        Io::Write | Io::Compare => host.io.give(io(kind, 0, 1), &[0; BLOCK]),
        Io::DatasetManagement => host.io.give(
            Command {
                cdw10: 0,
                ..io(kind, 0, 1)
            },
            &[0; 16],
        ),
        Io::Copy => host.io.give(
            Command {
                cdw12: 0,
                ..io(kind, 8, 1)
            },
            &[0; 32],
        ),
        _ => host.io.plain(io(kind, 0, 1)),
    };
    done.status().plain()
}

/// Base figure 587, as SPDK and the Linux target have it: Flush is a write.
#[test]
fn each_type_lets_holder_registrants_and_others_do_what_the_specification_says() {
    const READS: [Io; 3] = [Io::Read, Io::Compare, Io::Verify];
    const WRITES: [Io; 5] = [
        Io::Write,
        Io::WriteZeroes,
        Io::DatasetManagement,
        Io::Copy,
        Io::Flush,
    ];
    // What a registrant that does not hold the reservation and an unregistered host may: read, write.
    let rights = |kind| match kind {
        ReservationType::WriteExclusive => [(true, false), (true, false)],
        ReservationType::ExclusiveAccess => [(false, false), (false, false)],
        ReservationType::WriteExclusiveRegistrants | ReservationType::WriteExclusiveAll => {
            [(true, true), (true, false)]
        }
        ReservationType::ExclusiveAccessRegistrants | ReservationType::ExclusiveAccessAll => {
            [(true, true), (false, false)]
        }
    };
    let target = target();
    let mut hosts = [1, 2, 3].map(|number| Host::new(&target, number));
    register(&mut hosts[0], 11);
    register(&mut hosts[1], 22);
    for kind in TYPES {
        assert_eq!(acquire(&mut hosts[0], 11, kind), Status::SUCCESS);
        let [registrant, other] = rights(kind);
        for (host, (reads, writes)) in hosts.iter_mut().zip([(true, true), registrant, other]) {
            let commands = READS
                .map(|it| (it, reads))
                .into_iter()
                .chain(WRITES.map(|it| (it, writes)));
            for (command, is_allowed) in commands {
                let wanted = if is_allowed {
                    Status::SUCCESS
                } else {
                    Status::RESERVATION_CONFLICT
                };
                assert_eq!(access(host, command), wanted, "{kind:?} {command:?}");
            }
        }
        let release = reserve(Io::ReservationRelease, (kind as u32) << 8);
        let done = hosts[0]
            .io
            .give(release, &ReleaseData { current: 11 }.to_bytes());
        assert!(done.status().is_success());
    }
}

/// Every command of a host that is the holder, a registrant, or neither, with its own key and a wrong one.
#[test]
fn reservation_commands_succeed_or_conflict_by_registrant_and_type() {
    for (kind, other_kind) in TYPES.into_iter().zip(TYPES.into_iter().cycle().skip(1)) {
        let by_all = matches!(
            kind,
            ReservationType::WriteExclusiveAll | ReservationType::ExclusiveAccessAll
        );
        // Release with the type, with another type, acquire with the type, with another type; the holder of
        // a reservation of all registrants is each of them.
        let holder = [
            Status::SUCCESS,
            Status::INVALID_FIELD,
            Status::SUCCESS,
            Status::RESERVATION_CONFLICT,
        ];
        let registrant = [
            Status::SUCCESS,
            Status::SUCCESS,
            Status::RESERVATION_CONFLICT,
            Status::RESERVATION_CONFLICT,
        ];
        let none = [Status::RESERVATION_CONFLICT; 4];
        let table = [
            (0, 11, holder),
            (1, 22, if by_all { holder } else { registrant }),
            (2, 33, none),
        ];
        for (host, key, wanted) in table {
            for (action, wanted) in wanted.into_iter().enumerate() {
                let target = target();
                let mut hosts = [1, 2, 3].map(|number| Host::new(&target, number));
                register(&mut hosts[0], 11);
                register(&mut hosts[1], 22);
                assert_eq!(acquire(&mut hosts[0], 11, kind), Status::SUCCESS);
                let mut act = |key| {
                    let named = if action % 2 == 0 { kind } else { other_kind };
                    if action >= 2 {
                        return acquire(&mut hosts[host], key, named);
                    }
                    let release = reserve(Io::ReservationRelease, (named as u32) << 8);
                    let data = ReleaseData { current: key }.to_bytes();
                    hosts[host].io.give(release, &data).status().plain()
                };
                assert_eq!(
                    act(99),
                    Status::RESERVATION_CONFLICT,
                    "{kind:?} host {host}: a wrong key"
                );
                assert_eq!(act(key), wanted, "{kind:?} host {host} action {action}");
            }
        }
    }
}

fn report(host: &mut Host) -> (ReportHead, Vec<RegistrantExtended>) {
    let command = Command {
        cdw11: 1,
        ..reserve(Io::ReservationReport, 256 / 4 - 1)
    };
    let bytes = host.io.take(command, 256).unwrap();
    let (head, _) = ReportHead::split(&bytes).unwrap();
    let listed = bytes[64..].chunks(64).take(head.registrants.into());
    (
        head,
        listed
            .map(|chunk| RegistrantExtended::split(chunk).unwrap().0)
            .collect(),
    )
}

/// Controllers are dynamic: a registration belongs to a host, and outlives its controllers.
#[test]
fn a_report_names_no_controller() {
    let target = target();
    let (mut one, mut two) = (Host::new(&target, 1), Host::new(&target, 2));
    register(&mut one, 11);
    register(&mut two, 22);
    let names = |host: &mut Host| {
        let (_, registrants) = report(host);
        registrants
            .iter()
            .map(|it| (it.controller_id, it.host_id[0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&mut two), [(0xffff, 1), (0xffff, 2)]);
    drop(one);
    assert_eq!(names(&mut two), [(0xffff, 1), (0xffff, 2)]);
}

/// Linux sets "persist through power loss" in every registration.
#[test]
fn a_registration_that_asks_for_persistence_needs_no_state_file() {
    const PERSIST: u32 = 3 << 30;
    let target = target();
    let mut host = Host::new(&target, 1);
    let act = |host: &mut Host, cdw10, current, new| {
        let data = RegisterData { current, new }.to_bytes();
        host.io
            .give(reserve(Io::ReservationRegister, cdw10 | PERSIST), &data)
            .status()
            .plain()
    };
    assert_eq!(act(&mut host, 0, 0, 5), Status::SUCCESS);
    let (head, registrants) = report(&mut host);
    assert_eq!((head.persists, registrants.len()), (0, 1));
    // Each registration that succeeds increments the generation, even if it changes nothing.
    assert_eq!(act(&mut host, 0, 0, 5), Status::SUCCESS);
    assert_eq!(act(&mut host, 2, 5, 6), Status::SUCCESS);
    assert_eq!(report(&mut host).0.generation, head.generation + 2);
    // The key 0 registers nothing. Linux replaces the key by 0 to unregister.
    assert_eq!(act(&mut host, 2, 5, 0), Status::RESERVATION_CONFLICT);
    assert_eq!(act(&mut host, 2, 6, 0), Status::SUCCESS);
    assert_eq!(act(&mut host, 0, 0, 0), Status::INVALID_FIELD);
    assert_eq!(report(&mut host).1.len(), 0);
}
