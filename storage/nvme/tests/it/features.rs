//! Get and Set Features: every feature acts or is refused with the status of the specification.

use buffer::Buffer;
use nvme::controller::{Outcome, Plan};
use wire::nvme::feature::{self, events};
use wire::nvme::tcp::Digests;
use wire::nvme::{Admin, Command, Io, Sgl, Status, log};

use crate::support::{
    BLOCK, Line, SUBSYSTEM, admin, bare_queue, io, memory_namespace, nqn, pattern, request_event,
    target,
};

const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// A supported feature: its number, whether it belongs to a namespace, its default in dword 0, a value that a
/// host may set, and bits of dword 11 that are reserved or that a controller without such a function refuses.
struct Expected(u8, bool, u32, u32, u32);

/// Of the 256 features all others are refused.
const SUPPORTED: &[Expected] = &[
    Expected(feature::ARBITRATION, false, 7, 0x0102_0303, 0xf8),
    Expected(feature::POWER, false, 0, 0x20, 0x0000_0101),
    Expected(feature::TEMPERATURE, false, 343, 340, 0xffc0_0000),
    Expected(feature::ERROR_RECOVERY, true, 0, 50, 0xffff_0000),
    Expected(feature::WRITE_CACHE, false, 1, 0, 2),
    Expected(feature::QUEUES, false, 127 | 127 << 16, 3 | 3 << 16, 0),
    Expected(feature::WRITE_ATOMICITY, false, 0, 1, 2),
    Expected(feature::EVENTS, false, 0, events::NAMESPACES, 1 << 9),
    Expected(feature::KEEP_ALIVE, false, 5000, 7000, 0),
    Expected(feature::COMMAND_SETS, false, 0, 0, 1 << 9),
    Expected(feature::RESERVATION_MASK, true, 0, 6, 1),
    Expected(feature::RESERVATION_PERSISTENCE, true, 0, 0, 2),
    Expected(feature::WRITE_PROTECTION, true, 0, 1, 8),
];
/// The features with a data structure, with its length.
const STRUCTURES: &[(u8, usize)] = &[
    (feature::TIMESTAMP, 8),
    (feature::HOST_BEHAVIOUR, 512),
    (feature::HOST_ID, 16),
];
const SELECT_CAPABILITIES: u32 = 3;

fn get(line: &mut Line, number: u8, select: u32, nsid: u32) -> Result<u64, Status> {
    let cdw10 = u32::from(number) | select << 8;
    let opcode = Admin::GetFeatures as u8;
    let cdw11 = u32::from(number == feature::HOST_ID);
    let command = Command {
        opcode,
        nsid,
        cdw10,
        cdw11,
        ..Command::default()
    };
    let length = STRUCTURES
        .iter()
        .find(|(structure, _)| *structure == number)
        .map(|(_, length)| *length);
    match length.filter(|_| select < SELECT_CAPABILITIES) {
        Some(length) => line.take(command, length).map(|_| 0),
        None => {
            let done = line.plain(command);
            if done.status().is_success() {
                Ok(done.result)
            } else {
                Err(done.status().plain())
            }
        }
    }
}

fn set(line: &mut Line, number: u8, nsid: u32, cdw11: u32) -> Status {
    set_with(line, number.into(), nsid, cdw11)
}

fn set_with(line: &mut Line, cdw10: u32, nsid: u32, cdw11: u32) -> Status {
    let opcode = Admin::SetFeatures as u8;
    let command = Command {
        opcode,
        nsid,
        cdw10,
        cdw11,
        ..Command::default()
    };
    let length = STRUCTURES
        .iter()
        .find(|(structure, _)| u32::from(*structure) == cdw10 & 0xff);
    let done = match length {
        Some((_, length)) => line.give(command, &vec![0; *length]),
        None => line.plain(command),
    };
    done.status().plain()
}

fn expected_capabilities(number: u8) -> Option<u64> {
    const CHANGEABLE: u64 = 1 << 2;
    const OF_NAMESPACE: u64 = 1 << 1;
    let plain = SUPPORTED.iter().find(|it| it.0 == number);
    let plain = plain.map(|it| CHANGEABLE | if it.1 { OF_NAMESPACE } else { 0 });
    let structure = STRUCTURES
        .iter()
        .find(|(structure, _)| *structure == number);
    let structure = structure.map(|_| {
        if number == feature::HOST_ID {
            0
        } else {
            CHANGEABLE
        }
    });
    plain.or(structure)
}

/// What Get Features answers without a value that a host has set.
fn expected(number: u8, select: u32, nsid: u32) -> Result<u64, Status> {
    let capabilities = expected_capabilities(number).ok_or(Status::INVALID_FIELD)?;
    match select {
        0..SELECT_CAPABILITIES => {}
        SELECT_CAPABILITIES => return Ok(capabilities),
        _ => return Err(Status::INVALID_FIELD),
    }
    let Some(Expected(_, of_namespace, default, ..)) = SUPPORTED.iter().find(|it| it.0 == number)
    else {
        return Ok(0);
    };
    let of_reservations = matches!(
        number,
        feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE
    );
    match nsid {
        _ if !of_namespace => Ok((*default).into()),
        1 => Ok((*default).into()),
        ALL_NAMESPACES if of_reservations => Err(Status::INVALID_FIELD),
        _ => Err(Status::INVALID_NAMESPACE),
    }
}

#[test]
fn get_features_answers_every_number_selection_and_namespace() {
    let target = target();
    let mut line = Line::initialized(&target, 1, Digests::default());
    assert!(
        line.connect_to(SUBSYSTEM, 0, 32, 0xffff, 0)
            .status()
            .is_success()
    );
    line.enable();
    for number in 0..=u8::MAX {
        for select in 0..8 {
            for nsid in [0, 1, 2, ALL_NAMESPACES] {
                let answer = get(&mut line, number, select, nsid);
                assert_eq!(
                    answer,
                    expected(number, select, nsid),
                    "{number:#x} {select} {nsid:#x}"
                );
            }
        }
        let reserved = Command {
            opcode: Admin::GetFeatures as u8,
            cdw10: u32::from(number) | 3 << 8 | 1 << 11,
            ..Command::default()
        };
        assert_eq!(
            line.plain(reserved).status().plain(),
            Status::INVALID_FIELD,
            "{number:#x}"
        );
    }
}

/// What Set Features answers for a value that is allowed.
fn expected_of_set(number: u8, nsid: u32) -> Status {
    let scope = SUPPORTED.iter().find(|it| it.0 == number).map(|it| it.1);
    match (scope, nsid) {
        _ if expected_capabilities(number).is_none() => Status::INVALID_FIELD,
        (Some(true), 1 | ALL_NAMESPACES) => Status::SUCCESS,
        (Some(true), _) | (_, 2) => Status::INVALID_NAMESPACE,
        (_, 1) => Status::FEATURE_NOT_NAMESPACE_SPECIFIC,
        _ if number == feature::HOST_ID => Status::COMMAND_SEQUENCE,
        _ => Status::SUCCESS,
    }
}

#[test]
fn set_features_answers_every_number_and_namespace() {
    const SAVE: u32 = 1 << 31;
    let target = target();
    let (mut line, _) = admin(&target, 1, Digests::default());
    for number in 0..=u8::MAX {
        let known = SUPPORTED.iter().find(|it| it.0 == number);
        let value = known.map_or(0, |it| it.3);
        for nsid in [0, 1, 2, ALL_NAMESPACES] {
            let done = set(&mut line, number, nsid, value);
            assert_eq!(done, expected_of_set(number, nsid), "{number:#x} {nsid:#x}");
            let saved = set_with(&mut line, u32::from(number) | SAVE, nsid, value);
            assert_eq!(saved, Status::FEATURE_NOT_SAVEABLE, "{number:#x} {nsid:#x}");
            let reserved = set_with(&mut line, u32::from(number) | 1 << 8, nsid, value);
            assert_eq!(reserved, Status::INVALID_FIELD, "{number:#x} {nsid:#x}");
        }
        let Some(Expected(_, of_namespace, default, value, reserved)) = known else {
            continue;
        };
        let nsid = u32::from(*of_namespace);
        for bit in (0..32)
            .map(|bit| 1 << bit)
            .filter(|bit| reserved & bit != 0)
        {
            assert_eq!(
                set(&mut line, number, nsid, bit),
                Status::INVALID_FIELD,
                "{number:#x} {bit:#x}"
            );
        }
        assert_eq!(
            get(&mut line, number, 0, nsid),
            Ok((*value).into()),
            "{number:#x}"
        );
        assert_eq!(
            get(&mut line, number, 1, nsid),
            Ok((*default).into()),
            "{number:#x}: the default"
        );
        assert_eq!(
            get(&mut line, number, 2, nsid),
            Ok((*default).into()),
            "{number:#x}: the saved value"
        );
    }
    let profile = set(&mut line, feature::COMMAND_SETS, 0, 1);
    assert_eq!(profile, Status::COMMAND_SETS_REJECTED);
}

#[test]
fn discovery_controllers_have_three_features() {
    let target = target();
    let mut line = Line::initialized(&target, 1, Digests::default());
    let discovery = wire::nvme::fabrics::DISCOVERY_NQN;
    assert!(
        line.connect_to(discovery, 0, 32, 0xffff, 0)
            .status()
            .is_success()
    );
    line.enable();
    for number in (0..=u8::MAX).filter(|it| STRUCTURES.iter().all(|(structure, _)| structure != it))
    {
        let is_there = matches!(number, feature::EVENTS | feature::KEEP_ALIVE);
        assert_eq!(
            get(&mut line, number, 0, 0).is_ok(),
            is_there,
            "{number:#x}"
        );
        let value = if number == feature::EVENTS {
            events::DISCOVERY
        } else {
            5000
        };
        assert_eq!(
            set(&mut line, number, 0, value).is_success(),
            is_there,
            "{number:#x}"
        );
    }
    assert_eq!(get(&mut line, feature::HOST_ID, 0, 0), Ok(0));
    let timestamp = Command {
        opcode: Admin::GetFeatures as u8,
        cdw10: feature::TIMESTAMP.into(),
        ..Command::default()
    };
    assert_eq!(
        line.plain(timestamp).status().plain(),
        Status::INVALID_FIELD
    );
    assert_eq!(
        set(&mut line, feature::EVENTS, 0, events::ANA),
        Status::INVALID_FIELD
    );
}

#[test]
fn the_broadcast_identifier_sets_the_feature_of_every_namespace() {
    let target = target();
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(7))
        .unwrap();
    let (mut line, _) = admin(&target, 1, Digests::default());
    let features = [
        (feature::ERROR_RECOVERY, 30),
        (feature::RESERVATION_MASK, 0b1010),
        (feature::WRITE_PROTECTION, 1),
        (feature::WRITE_PROTECTION, 0),
    ];
    for (number, value) in features {
        assert_eq!(
            set(&mut line, number, ALL_NAMESPACES, value),
            Status::SUCCESS,
            "{number:#x}"
        );
        for nsid in [1, 7] {
            assert_eq!(
                get(&mut line, number, 0, nsid),
                Ok(value.into()),
                "{number:#x} {nsid}"
            );
        }
        assert_eq!(set(&mut line, number, 7, 0), Status::SUCCESS);
        assert_eq!(
            get(&mut line, number, 0, 1),
            Ok(value.into()),
            "{number:#x}: of one namespace"
        );
    }
    // Without a folder for them, no reservation persists, and no namespace says that it would.
    assert_eq!(
        set(
            &mut line,
            feature::RESERVATION_PERSISTENCE,
            ALL_NAMESPACES,
            1
        ),
        Status::INVALID_FIELD
    );
}

#[test]
fn a_later_namespace_of_the_same_identifier_has_the_default_features() {
    let target = target();
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(7))
        .unwrap();
    let (mut line, _) = admin(&target, 1, Digests::default());
    assert_eq!(
        set(&mut line, feature::RESERVATION_MASK, ALL_NAMESPACES, 2),
        Status::SUCCESS
    );
    assert!(
        target
            .remove_namespace(&nqn(SUBSYSTEM), 7)
            .unwrap()
            .1
            .has_passed()
    );
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(7))
        .unwrap();
    assert_eq!(get(&mut line, feature::RESERVATION_MASK, 0, 7), Ok(0));
    assert_eq!(get(&mut line, feature::RESERVATION_MASK, 0, 1), Ok(2));
}

/// A namespace that stays read-only keeps the others from being changed halfway.
#[test]
fn a_feature_that_one_namespace_refuses_is_set_for_none() {
    let target = target();
    let (mut line, _) = admin(&target, 1, Digests::default());
    assert_eq!(
        set(&mut line, feature::WRITE_PROTECTION, ALL_NAMESPACES, 1),
        Status::SUCCESS
    );
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(9).with(1, true))
        .unwrap();
    let unprotected = set(&mut line, feature::WRITE_PROTECTION, ALL_NAMESPACES, 0);
    assert_eq!(unprotected, Status::FEATURE_NOT_CHANGEABLE);
    assert_eq!(get(&mut line, feature::WRITE_PROTECTION, 0, 1), Ok(1));
}

#[test]
fn persistence_is_set_for_every_namespace_that_keeps_reservations() {
    let target = target();
    let folder = tempfile::tempdir().unwrap();
    for nsid in [7, 8] {
        let namespace = memory_namespace(nsid)
            .persisted_in(folder.path(), &nqn(SUBSYSTEM))
            .unwrap();
        target.add_namespace(&nqn(SUBSYSTEM), namespace).unwrap();
    }
    let (mut line, _) = admin(&target, 1, Digests::default());
    let persist = |line: &mut Line| set(line, feature::RESERVATION_PERSISTENCE, ALL_NAMESPACES, 1);
    // Namespace 1 cannot keep any: none is changed.
    assert_eq!(persist(&mut line), Status::INVALID_FIELD);
    assert_eq!(
        get(&mut line, feature::RESERVATION_PERSISTENCE, 0, 7),
        Ok(0)
    );
    assert!(
        target
            .remove_namespace(&nqn(SUBSYSTEM), 1)
            .unwrap()
            .1
            .has_passed()
    );
    assert_eq!(persist(&mut line), Status::SUCCESS);
    for nsid in [7, 8] {
        assert_eq!(
            get(&mut line, feature::RESERVATION_PERSISTENCE, 0, nsid),
            Ok(1)
        );
    }
}

#[test]
fn a_disabled_write_cache_makes_every_write_durable() {
    let target = target();
    let (mut line, controller) = admin(&target, 1, Digests::default());
    let mut queue = bare_queue(&target, controller);
    let mut is_durable = |kind: Io| {
        let length = if kind == Io::Write { BLOCK } else { 0 };
        let sgl = Sgl::Transport {
            length: length as u32,
        };
        let Plan::Take(request) = queue.accept(&io(kind, 0, 1).with_sgl(sgl), length as u32, 0)
        else {
            panic!("refused")
        };
        let buffer = (length > 0).then(|| Buffer::zeroed(length));
        let Outcome::Task(task) = queue.execute(request, buffer, 0) else {
            panic!("no task")
        };
        format!("{task:?}").contains("durable: true")
    };
    for kind in [Io::Write, Io::WriteZeroes] {
        assert!(!is_durable(kind), "{kind:?}");
    }
    assert_eq!(set(&mut line, feature::WRITE_CACHE, 0, 0), Status::SUCCESS);
    for kind in [Io::Write, Io::WriteZeroes] {
        assert!(is_durable(kind), "{kind:?}");
    }
    assert_eq!(set(&mut line, feature::WRITE_CACHE, 0, 1), Status::SUCCESS);
    assert!(!is_durable(Io::Write));
    // A reset enables the cache again.
    assert_eq!(set(&mut line, feature::WRITE_CACHE, 0, 0), Status::SUCCESS);
    line.set_property(wire::nvme::property::CONFIGURATION, 0);
    line.enable();
    assert_eq!(get(&mut line, feature::WRITE_CACHE, 0, 0), Ok(1));
}

#[test]
fn a_temperature_beyond_a_threshold_is_a_warning_and_an_event() {
    const OVER: u32 = 0;
    const UNDER: u32 = 1 << 20;
    let target = target();
    for (threshold, kelvin) in [(OVER, 298), (UNDER, 298)] {
        let (mut line, _) = admin(&target, 1, Digests::default());
        let request = log::Request {
            page: log::HEALTH,
            specific: 0,
            retain: false,
            length: 512,
            offset: 0,
        };
        let warning = |line: &mut Line| line.take(request.to_command(0, 0), 512).unwrap()[0];
        assert_eq!(warning(&mut line), 0);
        assert_eq!(
            set(&mut line, feature::EVENTS, 0, events::HEALTH),
            Status::SUCCESS
        );
        request_event(&mut line, 900);
        assert!(line.pdus.is_empty());
        assert_eq!(
            set(&mut line, feature::TEMPERATURE, 0, threshold | kelvin),
            Status::SUCCESS
        );
        let event = line.response();
        assert_eq!((event.cid, event.result), (900, 0x02_0101));
        assert_eq!(warning(&mut line), 2);
        let away = if threshold == OVER { 350 } else { 200 };
        assert_eq!(
            set(&mut line, feature::TEMPERATURE, 0, threshold | away),
            Status::SUCCESS
        );
        assert_eq!(warning(&mut line), 0);
        // There are no further sensors.
        assert_eq!(
            set(&mut line, feature::TEMPERATURE, 0, 1 << 16 | 300),
            Status::INVALID_FIELD
        );
    }
}

#[test]
fn structures_of_features_are_kept_and_checked() {
    let target = target();
    let (mut line, _) = admin(&target, 1, Digests::default());
    let command = |kind: Admin, number: u8| Command {
        opcode: kind as u8,
        cdw10: number.into(),
        ..Command::default()
    };
    let mut behaviour = pattern(3, 512);
    behaviour[..3].copy_from_slice(&[1, 0, 1]);
    let set = command(Admin::SetFeatures, feature::HOST_BEHAVIOUR);
    assert!(line.give(set, &behaviour).status().is_success());
    assert_eq!(
        line.take(command(Admin::GetFeatures, feature::HOST_BEHAVIOUR), 512)
            .unwrap(),
        behaviour
    );
    for place in 0..3 {
        let mut wrong = vec![0; 512];
        wrong[place] = 2;
        assert_eq!(
            line.give(set, &wrong).status().plain(),
            Status::INVALID_FIELD
        );
    }
    // A timestamp of 0 is one that the host has set.
    let timestamp = |line: &mut Line| {
        line.take(command(Admin::GetFeatures, feature::TIMESTAMP), 8)
            .unwrap()
    };
    assert_eq!(timestamp(&mut line), [0; 8]);
    line.now_ns += 3_000_000_000;
    assert_eq!(timestamp(&mut line), 3000_u64.to_le_bytes());
    let set = command(Admin::SetFeatures, feature::TIMESTAMP);
    assert!(line.give(set, &[0; 8]).status().is_success());
    assert_eq!(timestamp(&mut line), (1_u64 << 49).to_le_bytes());
}
