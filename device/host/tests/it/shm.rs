//! Direct execution on shared-memory channels, revoked grants, and channels that are full.

use crate::pair::{Side, Transport, pair};
use rnic::{
    Access, AttrMask, Data, Gid, Operation, QpAttr, RegionInit, SendFlags, SendRequest, State,
    Status,
};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::Duration;

fn direct(side: &Side) -> u64 {
    side.device.link_counters().shm_direct
}

#[test]
fn small_writes_and_reads_are_executed_by_the_requester() {
    let (mut a, b) = pair(4096, Transport::SharedMemory);
    a.memory
        .iter_mut()
        .enumerate()
        .for_each(|(index, byte)| *byte = index as u8);
    let remote = b.sge(0, 64).address;
    for round in 0..100u64 {
        let length = 1 + round as usize % 64;
        let write = Operation::Write {
            address: remote,
            rkey: b.keys.rkey,
            immediate: None,
        };
        a.post(round, write, a.sge(0, length));
        assert_eq!(a.wait(1)[0].status, Status::Success);
        assert_eq!(b.byte(length - 1), a.byte(length - 1));
        a.post(
            round,
            Operation::Read {
                address: remote,
                rkey: b.keys.rkey,
            },
            a.sge(1024, length),
        );
        assert_eq!(a.wait(1)[0].status, Status::Success);
        assert_eq!(a.byte(1024 + length - 1), b.byte(length - 1));
    }
    // All but the first request, with which the sender learns that the other side is ready.
    assert_eq!(direct(&a), 199);
    assert_eq!(b.device.link_counters().shm_received, 1);
}

#[test]
fn sends_after_directly_executed_writes_are_in_order() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let write = Operation::Write {
        address: b.sge(0, 8).address,
        rkey: b.keys.rkey,
        immediate: None,
    };
    for round in 0..100 {
        a.post(round, write, a.sge(0, 8));
        assert_eq!(a.wait(1)[0].status, Status::Success);
        b.receive(round, b.sge(64, 64));
        a.post(round, Operation::Send(wire::Tail::None), a.sge(0, 64));
        assert_eq!(
            (a.wait(1)[0].status, b.wait(1)[0].id),
            (Status::Success, round)
        );
    }
    assert!(direct(&a) > 0);
    let counters = a.device.with(|rnic, _| *rnic.port().counters());
    assert_eq!(
        (counters.packet_seq_err, counters.local_ack_timeout_err),
        (0, 0)
    );
}

/// Streams of long requests are measured: part of each is copied by the kernel, with requests before and
/// after it in the rings. All are executed in order.
#[test]
fn streams_of_long_requests_try_both_copy_methods_in_order() {
    const LENGTH: usize = 512 << 10;
    const REQUESTS: u64 = 96;
    let (mut a, b) = pair(2 * LENGTH, Transport::SharedMemory);
    a.memory[..LENGTH].fill(1);
    a.memory[LENGTH..].fill(2);
    let remote = b.sge(0, LENGTH).address;
    let run = |operation: Operation| {
        let before = direct(&a);
        for request in 0..REQUESTS {
            let half = if request % 2 == 0 { 0 } else { LENGTH };
            a.post(request, operation, a.sge(half, LENGTH));
        }
        let done = a.wait(REQUESTS as usize);
        let ids = done
            .iter()
            .map(|completion| (completion.id, completion.status));
        assert!(ids.eq((0..REQUESTS).map(|id| (id, Status::Success))));
        direct(&a) - before
    };
    let written = run(Operation::Write {
        address: remote,
        rkey: b.keys.rkey,
        immediate: None,
    });
    assert!(written > 0 && written < REQUESTS, "{written} by the kernel");
    assert!(
        (0..LENGTH).all(|index| b.byte(index) == 2),
        "the last WRITE is in place, and whole"
    );
    let read = run(Operation::Read {
        address: remote,
        rkey: b.keys.rkey,
    });
    assert!(read > 0 && read < REQUESTS, "{read} by the kernel");
    assert!(
        (0..2 * LENGTH).all(|index| a.byte(index) == 2),
        "both halves were read"
    );
    let counters = a.device.with(|rnic, _| *rnic.port().counters());
    assert_eq!(
        (counters.packet_seq_err, counters.local_ack_timeout_err),
        (0, 0)
    );
}

/// A stream of long SENDs tries both copy methods too: records with their payload, and records that refer to
/// it. Each message arrives whole and in order.
#[test]
fn streams_of_long_sends_try_both_copy_methods_in_order() {
    const LENGTH: usize = 300 << 10;
    const DEPTH: usize = 60;
    const MESSAGES: usize = 4 * DEPTH;
    let (mut a, mut b) = pair(DEPTH * LENGTH, Transport::SharedMemory);
    for first in (0..MESSAGES).step_by(DEPTH) {
        let mark = |message: usize, index: usize| ((first + message) * 31 + index / 4096) as u8;
        for message in 0..DEPTH {
            let bytes = &mut a.memory[message * LENGTH..][..LENGTH];
            bytes
                .iter_mut()
                .enumerate()
                .for_each(|(index, byte)| *byte = mark(message, index));
            b.receive((first + message) as u64, b.sge(message * LENGTH, LENGTH));
        }
        for message in 0..DEPTH {
            let sge = a.sge(message * LENGTH, LENGTH);
            a.post(
                (first + message) as u64,
                Operation::Send(wire::Tail::None),
                sge,
            );
        }
        let ids = (first..first + DEPTH).map(|id| (id as u64, Status::Success));
        assert!(
            b.wait(DEPTH)
                .iter()
                .map(|done| (done.id, done.status))
                .eq(ids.clone())
        );
        assert!(
            a.wait(DEPTH)
                .iter()
                .map(|done| (done.id, done.status))
                .eq(ids)
        );
        for message in 0..DEPTH {
            let is_it = |index: usize| b.byte(message * LENGTH + index) == mark(message, index);
            assert!((0..LENGTH).all(is_it), "message {}", first + message);
        }
        b.memory.fill(0);
    }
    let referred = a.device.link_counters();
    let (by_reference, records) = (referred.shm_by_reference, referred.shm_sent);
    assert!(
        by_reference > 0 && by_reference < records,
        "{by_reference} of {records} refer to their payload"
    );
    let counters = a.device.with(|rnic, _| *rnic.port().counters());
    assert_eq!(
        (counters.packet_seq_err, counters.local_ack_timeout_err),
        (0, 0)
    );
}

/// All hosts use the same queue pair numbers: a channel to a queue pair of this host must not be used for the
/// one with its number on another host.
#[test]
fn a_queue_pair_of_another_host_with_the_same_number_is_reached_by_packets() {
    let (mut a, b) = pair(4096, Transport::SharedMemory);
    a.renew();
    a.bring_up_towards(
        Gid::from_ipv4([192, 0, 2, 1]),
        b.qpn,
        Transport::SharedMemory,
    );
    assert_eq!(a.device.with(|rnic, _| rnic.channel(a.qpn).unwrap()), 0);
    a.renew();
    a.connect(&b, Transport::SharedMemory);
}

#[test]
fn a_wrong_key_is_refused_by_the_responder_itself() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let before = direct(&a);
    let rkey = wire::Rkey(b.keys.rkey.0 ^ 0x100);
    let write = Operation::Write {
        address: b.sge(0, 8).address,
        rkey,
        immediate: None,
    };
    a.post(1, write, a.sge(0, 8));
    assert_eq!(a.wait(1)[0].status, Status::RemoteAccess);
    assert_eq!(direct(&a), before);
    assert_eq!(
        b.device
            .with(|rnic, _| rnic.port().counters().sent_error_naks),
        1
    );
}

/// A message that the program has received is acknowledged before its queue pair stops, although the channel
/// is full of messages of its own side. The peer is stopped meanwhile; on a machine that runs it too late,
/// not every round counts.
#[test]
fn received_messages_are_acknowledged_before_a_queue_pair_stops() {
    let destroy = |b: &Side| b.device.destroy_qp(b.qpn).unwrap();
    let stop = |state| {
        move |b: &Side| {
            b.device
                .modify_qp(
                    b.qpn,
                    &QpAttr {
                        state,
                        ..QpAttr::default()
                    },
                    AttrMask::STATE,
                )
                .unwrap();
        }
    };
    let (reset, fail) = (stop(State::Reset), stop(State::Error));
    for (name, stops) in [
        ("destroy", &destroy as &dyn Fn(&Side)),
        ("RESET", &reset),
        ("ERR", &fail),
    ] {
        assert!(
            (0..ROUNDS).any(|_| stops_on_a_full_channel(stops) == Status::Success),
            "{name}"
        );
    }
}

const ROUNDS: usize = 10;
const FULL: usize = 1 << 20;

/// The status of a SEND to a queue pair that fills the channel, takes the message, and stops.
fn stops_on_a_full_channel(stops: &dyn Fn(&Side)) -> Status {
    let (a, b) = pair(FULL, Transport::SharedMemory);
    b.receive(1, b.sge(0, 64));
    let (held, is_held) = mpsc::channel();
    let (release, is_released) = mpsc::channel();
    std::thread::scope(|scope| {
        let a = &a;
        b.device.with(|rnic, now| {
            // It is in the ring before the other side fills its own.
            a.post(1, Operation::Send(wire::Tail::None), a.sge(0, 64));
            scope.spawn(move || {
                a.device.with(|_, _| {
                    held.send(()).unwrap();
                    is_released.recv().unwrap();
                });
            });
            is_held.recv().unwrap();
            let write = Operation::Write {
                address: a.sge(0, FULL).address,
                rkey: a.keys.rkey,
                immediate: None,
            };
            let request = SendRequest {
                id: 2,
                operation: write,
                flags: SendFlags::empty(),
                data: Data::Sges(&[b.sge(0, FULL)]),
                destination: None,
                xrc_srq: None,
            };
            rnic.post_send(b.qpn, &request, now).unwrap();
        });
        assert_eq!(b.wait(1)[0].id, 1);
        assert!(
            b.device.with(|rnic, _| rnic.has_stalled()),
            "the channel is full"
        );
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            release.send(()).unwrap();
        });
        stops(&b);
    });
    a.wait(1)[0].status
}

/// After deregistration no peer writes to the memory, also if one was executing a WRITE.
#[test]
fn deregistered_memory_is_not_written() {
    for round in 0..40u64 {
        let (a, b) = pair(4096, Transport::SharedMemory);
        let target: Vec<AtomicU8> = (0..4096).map(|_| AtomicU8::new(0)).collect();
        let address = target.as_ptr() as u64;
        let keys = b.device.with(|rnic, _| {
            let (_, init) = rnic.query_qp(b.qpn).unwrap();
            let access = Access::LOCAL_WRITE | Access::REMOTE;
            rnic.memory()
                .register(
                    init.pd.unwrap(),
                    RegionInit {
                        address,
                        length: 4096,
                        iova: address,
                        access,
                    },
                )
                .unwrap()
        });
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let write = Operation::Write {
                    address,
                    rkey: keys.rkey,
                    immediate: None,
                };
                loop {
                    a.post(1, write, a.sge(0, 4096));
                    let status = a.wait(1)[0].status;
                    if status != Status::Success {
                        return status;
                    }
                }
            });
            while direct(&a) < round {
                std::thread::yield_now();
            }
            b.device
                .with(|rnic, _| rnic.memory().deregister(keys.lkey))
                .unwrap();
            target
                .iter()
                .for_each(|byte| byte.store(7, Ordering::Relaxed));
            assert_eq!(writer.join().unwrap(), Status::RemoteAccess);
            assert!(
                target.iter().all(|byte| byte.load(Ordering::Relaxed) == 7),
                "round {round}"
            );
        });
    }
}
