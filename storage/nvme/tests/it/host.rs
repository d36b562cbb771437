//! The host against a target that behaves as other targets may: alignment, timers, refusals, formats.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use buffer::Buffer;
use nvme::Nqn;
use nvme::host::{Client, HostError, Job, Lost, Options, Payload, bench, transfer};
use wire::nvme::identify::Controller;
use wire::nvme::property::{READY_WITH_MEDIA, status};
use wire::nvme::tcp::{Digests, Initialize};
use wire::nvme::{Io, Status, opcode};

use crate::live::{options, read, write};
use crate::peer::{BLOCK, Behaviour, IN_CAPSULE, Peer};
use crate::support::{SUBSYSTEM, nqn, pattern};

fn connect(peer: &Peer) -> Result<Client, HostError> {
    Client::connect(peer.address, &nqn(SUBSYSTEM), &options(1, false))
}

fn answering(change: impl FnOnce(&mut Behaviour)) -> Peer {
    let mut behaviour = Behaviour::default();
    change(&mut behaviour);
    Peer::start(behaviour)
}

#[test]
fn data_begin_at_the_alignment_that_the_target_requires() {
    for alignment in 0..=31 {
        let peer = answering(|it| it.response.alignment = alignment);
        let mut client = connect(&peer).unwrap();
        let mut queue = client.queues(1, 4).unwrap().remove(0);
        for (blocks, is_in_capsule) in [(1, true), (16, false)] {
            let data = pattern(u64::from(alignment), blocks * BLOCK);
            assert_eq!(data.len() <= IN_CAPSULE, is_in_capsule);
            write(&mut queue, 1, 5, &data);
            assert!(
                read(&mut queue, 1, 5, data.len()).unwrap() == data,
                "CPDA {alignment}"
            );
        }
        // Connect of both queues and the first write were capsules, the second write was an H2CData PDU.
        let lengths: Vec<usize> = peer.seen().data.iter().map(|(_, length)| *length).collect();
        assert_eq!(lengths, [1024, 1024, BLOCK, 16 * BLOCK]);
        for (offset, length) in &peer.seen().data {
            let multiple = (alignment + 1) * 4;
            assert_eq!(
                offset % multiple,
                0,
                "CPDA {alignment}: {length} bytes at {offset}"
            );
        }
    }
}

#[test]
fn data_are_divided_as_the_target_requires() {
    for (limit, most) in [(4096, 4096), (4099, 4096), (10_000, 10_000)] {
        let peer = answering(|it| it.response.limit = limit);
        let mut queue = connect(&peer).unwrap().queues(1, 4).unwrap().remove(0);
        let data = pattern(1, 8 * BLOCK);
        write(&mut queue, 1, 0, &data);
        assert!(read(&mut queue, 1, 0, data.len()).unwrap() == data);
        let parts: Vec<usize> = peer.seen().data[2..]
            .iter()
            .map(|(_, length)| *length)
            .collect();
        let rest = data.len() % most;
        let whole = vec![most; data.len() / most];
        let expected = if rest == 0 {
            whole
        } else {
            [whole, vec![rest]].concat()
        };
        assert_eq!(parts, expected, "MAXH2CDATA {limit}");
    }
}

#[test]
fn an_icresp_that_cannot_be_followed_is_refused_by_field() {
    let good = Behaviour::default().response;
    let wrong = [
        ("PFV", Initialize { format: 1, ..good }),
        (
            "CPDA",
            Initialize {
                alignment: 32,
                ..good
            },
        ),
        (
            "MAXH2CDATA",
            Initialize {
                limit: 2048,
                ..good
            },
        ),
        (
            "DGST",
            Initialize {
                digests: Digests {
                    header: true,
                    data: false,
                }
                .bits(),
                ..good
            },
        ),
        (
            "DGST",
            Initialize {
                digests: Digests {
                    header: false,
                    data: true,
                }
                .bits(),
                ..good
            },
        ),
    ];
    for (expected, response) in wrong {
        let error = connect(&answering(|it| it.response = response)).unwrap_err();
        assert!(
            matches!(error, HostError::Initialize { field, .. } if field == expected),
            "{error}"
        );
        assert!(error.to_string().contains(expected), "{error}");
    }
}

fn quick(timeout_ms: u64) -> Options {
    Options {
        keep_alive_timeout: Duration::from_millis(timeout_ms),
        ..options(1, false)
    }
}

#[test]
fn a_bench_and_a_silent_host_stay_connected_by_keep_alive() {
    // Without traffic based keep alive, and with (CTRATT.TBKAS).
    for attributes in [0, 1 << 6] {
        let peer = answering(|it| {
            it.demands_keep_alive = true;
            it.controller.attributes = attributes;
        });
        let mut client = Client::connect(peer.address, &nqn(SUBSYSTEM), &quick(1000)).unwrap();
        let namespace = client.namespace(1).unwrap();
        let mut queues = client.queues(1, 4).unwrap();
        let (write, random, bytes, depth, block, target) = (false, true, BLOCK, 4, true, None);
        let (warm_up, time) = (Duration::ZERO, Duration::from_secs(3));
        let job = Job {
            write,
            random,
            bytes,
            depth,
            warm_up,
            time,
            block,
            target,
        };
        let figures = bench(&mut queues, &namespace, &job).unwrap();
        assert_eq!(figures.errors, 0);
        let during = peer.seen().keep_alives;
        assert!(during >= 3, "{during}");
        // No command of the user for longer than the timeout.
        std::thread::sleep(Duration::from_secs(2));
        assert!(peer.seen().keep_alives > during);
        assert!(read(&mut queues[0], 1, 0, BLOCK).is_ok());
        assert_eq!(peer.seen().connects[0].0.keep_alive_ms, 1000);
        assert_eq!(
            peer.seen().connects[1].0.keep_alive_ms,
            0,
            "the timer belongs to the admin queue"
        );
    }
}

#[test]
fn a_target_that_does_not_answer_keep_alive_is_given_up() {
    let peer = answering(|it| it.answers_keep_alive = false);
    let mut client = Client::connect(peer.address, &nqn(SUBSYSTEM), &quick(400)).unwrap();
    let namespace = client.namespace(1).unwrap();
    let mut queues = client.queues(1, 4).unwrap();
    let (write, random, bytes, depth, block, target) = (false, true, BLOCK, 4, true, None);
    let (warm_up, time) = (Duration::ZERO, Duration::from_secs(60));
    let job = Job {
        write,
        random,
        bytes,
        depth,
        warm_up,
        time,
        block,
        target,
    };
    let error = bench(&mut queues, &namespace, &job).unwrap_err();
    let timeout = Duration::from_millis(400);
    assert!(
        matches!(&error, HostError::KeepAlive(Lost::Unanswered(time)) if *time == timeout),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("did not answer Keep Alive within 0.4 s"),
        "{error}"
    );
    assert!(
        matches!(client.namespace(1), Err(HostError::KeepAlive(_))),
        "the admin queue too"
    );
}

#[test]
fn without_a_timeout_there_is_no_keep_alive() {
    let peer = answering(|_| {});
    let mut client = Client::connect(peer.address, &nqn(SUBSYSTEM), &quick(0)).unwrap();
    let mut queue = client.queues(1, 4).unwrap().remove(0);
    std::thread::sleep(Duration::from_millis(300));
    assert!(read(&mut queue, 1, 0, BLOCK).is_ok());
    let seen = peer.seen();
    assert_eq!((seen.keep_alives, seen.connects[0].0.keep_alive_ms), (0, 0));
}

#[test]
fn the_host_waits_until_the_controller_is_ready() {
    let late = Duration::from_millis(1200);
    // 3 units of 500 ms by CAP.TO; by CRTO.CRWMT, which is longer than CAP.TO.
    for (timeout, crto, modes) in [(3, 0, 0), (1, 20 << 16 | 3, READY_WITH_MEDIA)] {
        let peer = answering(|it| {
            it.ready_after = late;
            it.capabilities = it.capabilities & !(0xff << 24) | timeout << 24 | modes;
            it.ready_timeouts = crto;
        });
        let begun = Instant::now();
        connect(&peer).unwrap();
        assert!(begun.elapsed() >= late);
    }
    let peer = answering(|it| it.ready_after = Duration::from_secs(3600));
    let error = connect(&peer).unwrap_err();
    assert!(
        matches!(error, HostError::NotReady(time) if time == Duration::from_millis(500)),
        "{error}"
    );
    let peer = answering(|it| it.status = u64::from(status::READY | status::FATAL));
    let error = connect(&peer).unwrap_err();
    assert!(matches!(error, HostError::Fatal(3)), "{error}");
}

#[test]
fn the_configuration_follows_the_capabilities() {
    let entries = 6 << 16 | 4 << 20 | 1;
    let (nvm, all, none) = (1 << 37, 1 << 43, 1 << 44);
    for (sets, page, expected) in [
        (nvm, 0, entries),
        (nvm | all, 0, entries),
        (all, 2, entries | 6 << 4 | 2 << 7),
        (none, 0, entries | 7 << 4),
    ] {
        let peer =
            answering(|it| it.capabilities = it.capabilities & !(1 << 37) | sets | page << 48);
        connect(&peer).unwrap();
        assert_eq!(peer.seen().configuration, expected, "{sets:#x}");
    }
}

/// Fields that Identify Controller has today or may get are no error, whatever they hold.
#[test]
fn unknown_fields_of_identify_are_no_error() {
    let known = Behaviour::default().controller;
    let ones = Controller::split(&[0xff; 4096]).unwrap().0;
    let Controller {
        command_capsule,
        response_capsule,
        transfer_max,
        ana_transition,
        ..
    } = known;
    let Controller {
        retry_delay1,
        retry_delay2,
        retry_delay3,
        in_capsule_offset,
        ..
    } = known;
    let controller = Controller {
        command_capsule,
        response_capsule,
        transfer_max,
        ana_transition,
        retry_delay1,
        retry_delay2,
        retry_delay3,
        in_capsule_offset,
        ..ones
    };
    let peer = answering(|it| it.controller = controller);
    let mut client = connect(&peer).unwrap();
    let mut queue = client.queues(1, 4).unwrap().remove(0);
    let data = pattern(3, BLOCK);
    write(&mut queue, 1, 0, &data);
    assert!(read(&mut queue, 1, 0, BLOCK).unwrap() == data);
}

#[test]
fn queues_are_no_deeper_than_the_controller_allows() {
    for (entries, commands, expected) in [(127, 0, 127), (127, 16, 16), (7, 16, 7), (1, 0, 1)] {
        let peer = answering(|it| {
            it.capabilities = it.capabilities & !0xffff | entries;
            it.controller.commands_max = commands;
        });
        let queue = connect(&peer).unwrap().queues(1, 500).unwrap().remove(0);
        assert_eq!(queue.depth(), expected, "MQES {entries}, MAXCMD {commands}");
        assert_eq!(usize::from(peer.seen().connects[1].0.size), expected);
    }
    let peer = answering(|it| it.queues = 2);
    let error = connect(&peer).unwrap().queues(3, 4).unwrap_err();
    assert!(
        matches!(
            error,
            HostError::Queues {
                wanted: 3,
                granted: 2
            }
        ),
        "{error}"
    );
}

#[test]
fn formats_that_are_not_supported_are_named() {
    let namespace = |change: fn(&mut Behaviour)| connect(&answering(change)).unwrap().namespace(1);
    assert_eq!(
        namespace(|it| it.late_format = true).unwrap().block_size,
        BLOCK
    );
    let error = namespace(|it| it.format = (0, 17)).unwrap_err();
    assert!(
        error.to_string().contains("blocks of 2^17 bytes"),
        "{error}"
    );
    let error = namespace(|it| it.format = (8, 12)).unwrap_err();
    assert!(error.to_string().contains("8 bytes of metadata"), "{error}");
    // One block is longer than a transfer: MDTS 1 is 8 KiB.
    let error = namespace(|it| (it.format, it.controller.transfer_max) = ((0, 16), 1)).unwrap_err();
    assert!(error.to_string().contains("8192 bytes"), "{error}");
}

#[test]
fn a_list_of_namespaces_of_several_pages_is_read_whole() {
    let all: Vec<u32> = (1..=2500).map(|index| 3 * index).collect();
    let peer = answering(|it| it.namespaces = all.clone());
    assert_eq!(connect(&peer).unwrap().namespace_ids().unwrap(), all);
    let exactly: Vec<u32> = (1..=1024).collect();
    let peer = answering(|it| it.namespaces = exactly.clone());
    assert_eq!(connect(&peer).unwrap().namespace_ids().unwrap(), exactly);
}

fn refusing(code: u8, statuses: Vec<Status>) -> Peer {
    answering(|it| it.refusals = HashMap::from([(code, statuses)]))
}

#[test]
fn commands_are_repeated_after_transient_errors() {
    let code = Io::Write as u8;
    for status in [
        Status::COMMAND_INTERRUPTED,
        Status::NAMESPACE_NOT_READY,
        Status::TRANSIENT_TRANSPORT,
    ] {
        let peer = refusing(code, vec![status; 5]);
        let mut client = connect(&peer).unwrap();
        let mut queue = client.queues(1, 4).unwrap().remove(0);
        let data = pattern(4, 16 * BLOCK);
        write(&mut queue, 1, 0, &data);
        assert!(
            read(&mut queue, 1, 0, data.len()).unwrap() == data,
            "{status}"
        );
        assert_eq!(peer.seen().commands[&code], 6);
    }
    let fail = |statuses: Vec<Status>| {
        let peer = refusing(code, statuses);
        let mut queue = connect(&peer).unwrap().queues(1, 4).unwrap().remove(0);
        let command = transfer(Io::Write, 1, 0, 1);
        let error = queue
            .call("Write", command, Payload::Out(Buffer::zeroed(BLOCK), BLOCK))
            .unwrap_err();
        assert_eq!(queue.outstanding(), 0);
        let HostError::Status { status, .. } = error else {
            panic!("{error}")
        };
        (status, peer.seen().commands[&code])
    };
    let interrupted = Status::COMMAND_INTERRUPTED;
    assert_eq!(
        fail(vec![interrupted; 9]),
        (interrupted, 6),
        "five retries, as Linux"
    );
    let permanent = interrupted.permanent();
    assert_eq!(fail(vec![permanent]), (permanent, 1), "do not retry (DNR)");
}

#[test]
fn an_ana_transition_is_waited_for() {
    let code = Io::Read as u8;
    let peer = answering(|it| {
        it.refusals = HashMap::from([(code, vec![Status::ANA_TRANSITION; 12])]);
        it.controller.ana_transition = 60;
    });
    let mut queue = connect(&peer).unwrap().queues(1, 4).unwrap().remove(0);
    assert!(read(&mut queue, 1, 0, BLOCK).is_ok());
    assert_eq!(peer.seen().commands[&code], 13);
}

#[test]
fn the_host_asks_for_retry_delays_and_keeps_them() {
    let code = Io::Read as u8;
    let second = Status(Status::COMMAND_INTERRUPTED.0 | 2 << 11);
    let peer = answering(|it| {
        it.refusals = HashMap::from([(code, vec![second])]);
        (it.controller.retry_delay1, it.controller.retry_delay2) = (1, 5);
    });
    let mut queue = connect(&peer).unwrap().queues(1, 4).unwrap().remove(0);
    assert_eq!(
        peer.seen().host_behaviour,
        1,
        "advanced command retry enable (ACRE)"
    );
    let begun = Instant::now();
    assert!(read(&mut queue, 1, 0, BLOCK).is_ok());
    assert!(begun.elapsed() >= Duration::from_millis(500), "CRDT2");
    assert_eq!(peer.seen().commands[&code], 2);
}

#[test]
fn a_busy_target_is_asked_again() {
    let busy = Status::CONTROLLER_BUSY;
    let peer = refusing(opcode::FABRICS, vec![busy; 2]);
    assert!(connect(&peer).is_ok());
    let status = |statuses: Vec<Status>| match connect(&refusing(opcode::FABRICS, statuses)) {
        Err(HostError::Status { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(vec![busy.permanent()]), busy.permanent());
    let refused = Status::CONNECT_INVALID_HOST;
    assert_eq!(status(vec![refused]), refused, "repeating does not help");
    assert_eq!(status(vec![busy; 50]), busy, "not for ever");
}

#[test]
fn names_are_sent_as_they_were_typed() {
    let longest = "x".repeat(223);
    for (subsystem, host) in [
        ("nvmet-test", "host"),
        ("testnqn", SUBSYSTEM),
        (&longest, "a b"),
        ("ü", "h"),
    ] {
        let name = |text: &str| Nqn::as_typed(text).unwrap();
        let options = Options {
            host: name(host),
            ..options(1, false)
        };
        let peer = answering(|_| {});
        Client::connect(peer.address, &name(subsystem), &options).unwrap();
        let (_, sent_subsystem, sent_host) = peer.seen().connects.remove(0);
        assert_eq!((&sent_subsystem[..], &sent_host[..]), (subsystem, host));
    }
    for wrong in ["", "a\0b", &"x".repeat(224)] {
        assert!(Nqn::as_typed(wrong).is_err(), "{wrong:?}");
    }
    // If the target refuses them, the error says what may be wrong.
    let peer = refusing(
        opcode::FABRICS,
        vec![Status::CONNECT_INVALID_PARAMETERS.permanent()],
    );
    let error = Client::connect(
        peer.address,
        &Nqn::as_typed("disk").unwrap(),
        &options(1, false),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("\"disk\" was sent as it is"),
        "{error}"
    );
    assert!(error.to_string().contains("begins with nqn."), "{error}");
}
