//! Many devices of one process, each with a shared-memory channel of its own, and threads that poll late.

use crate::kills::setting;
use crate::pair::{Side, TRANSPORTS, Transport, pair_of};
use rnic::{Operation, QpType, Status};
use std::time::{Duration, Instant};
use wire::Tail;

/// Number of receivers of one device.
const RECEIVERS: &str = "ROCKERY_TEST_RECEIVERS";
const RECEIVERS_DEFAULT: u64 = 200;
/// Requests to each receiver.
const WINDOW: usize = 64;
/// Limit of polls of all devices before the test fails: far more than are needed.
const ROUNDS_MAX: usize = 100_000;
/// The code of the ACK timeout: 131 us, in which a thread cannot poll so many devices in turn.
const TIMEOUT: u8 = 5;
/// Longer than all ACK timeouts here, including the least one of shared-memory channels (67 ms).
const LATE: Duration = Duration::from_millis(200);

/// ACK timeouts, and packets that were retransmitted.
fn timeouts(side: &Side) -> (u64, u64) {
    let counters = side.device.with(|rnic, _| *rnic.port().counters());
    (
        counters.local_ack_timeout_err,
        counters.retransmitted_packets,
    )
}

/// Polls all devices in turn until each sender and each receiver has its remaining completions.
fn poll_in_turn(pairs: &[(Side, Side)], mut left: Vec<[usize; 2]>) {
    for _ in 0..ROUNDS_MAX {
        for ((sender, receiver), left) in pairs.iter().zip(&mut left) {
            for (side, left) in [sender, receiver].into_iter().zip(left) {
                side.device.poll_cq(side.cq, 16, |completion| {
                    assert_eq!(completion.status, Status::Success);
                    *left -= 1;
                });
            }
        }
        if left.iter().all(|left| *left == [0, 0]) {
            return;
        }
    }
    panic!("completions are missing: {left:?}");
}

/// Modelled on UCX's tests of failing peers: one thread polls one sender and 200 receivers in turn, with an
/// ACK timeout that is shorter than one round.
#[test]
fn a_thread_that_polls_many_devices_in_turn_exceeds_no_retries() {
    let sender = || Side {
        timeout: TIMEOUT,
        ..Side::open(QpType::Rc, 4096)
    };
    let (first, mut pairs) = (sender(), Vec::new());
    for _ in 0..setting(RECEIVERS, RECEIVERS_DEFAULT) {
        let beside = Side {
            timeout: TIMEOUT,
            ..first.beside(4096)
        };
        pairs.push(pair_of(beside, sender(), Transport::SharedMemory));
    }
    for _ in 0..3 {
        for (sender, receiver) in &pairs {
            (0..WINDOW as u64).for_each(|id| receiver.receive(id, receiver.sge(0, 64)));
            (0..WINDOW as u64)
                .for_each(|id| sender.post(id, Operation::Send(Tail::None), sender.sge(0, 64)));
        }
        poll_in_turn(&pairs, vec![[WINDOW, WINDOW]; pairs.len()]);
    }
}

/// The requester's process gets no processor for longer than the ACK timeout, and finds the acknowledgement
/// when it runs: that is no timeout.
#[test]
fn an_acknowledgement_that_has_arrived_but_was_not_taken_is_not_overdue() {
    for transport in TRANSPORTS {
        let side = || Side {
            timeout: TIMEOUT,
            ..Side::open(QpType::Rc, 4096)
        };
        let (a, b) = pair_of(side(), side(), transport);
        b.receive(1, b.sge(0, 64));
        a.post(1, Operation::Send(Tail::None), a.sge(0, 64));
        // Arrivals for `a` are not processed as long as this has its lock.
        let before = a.device.with(|rnic, _| {
            let (start, before) = (Instant::now(), *rnic.port().counters());
            b.wait(1);
            // Sends the owed acknowledgements.
            b.device.destroy_qp(b.qpn).unwrap();
            while start.elapsed() < LATE {
                std::thread::sleep(LATE / 10);
            }
            before
        });
        assert_eq!(a.wait(1)[0].status, Status::Success);
        let before = (before.local_ack_timeout_err, before.retransmitted_packets);
        assert_eq!(timeouts(&a), before, "{transport:?}");
    }
}
