//! Reliable connections.

use crate::pair::{Side, TRANSPORTS, pair};
use rnic::{Arm, Operation, Status};
use std::time::{Duration, Instant};
use wire::Tail;

fn fill(side: &mut Side, seed: usize) {
    side.memory
        .iter_mut()
        .enumerate()
        .for_each(|(index, byte)| *byte = (index * 7 + seed) as u8);
}

#[test]
fn messages_of_all_sizes_arrive() {
    for transport in TRANSPORTS {
        let (mut a, b) = pair(1 << 20, transport);
        fill(&mut a, 3);
        for (id, length) in [0, 1, 63, 64, 4096, 4097, 65_536, 1 << 20]
            .into_iter()
            .enumerate()
        {
            b.receive(id as u64, b.sge(0, length));
            a.post(id as u64, Operation::Send(Tail::None), a.sge(0, length));
            let received = b.wait(1)[0];
            assert_eq!(
                (received.id, received.status, received.length),
                (id as u64, Status::Success, length as u32)
            );
            assert_eq!(a.wait(1)[0].status, Status::Success);
            assert_eq!(a.memory[..length], b.memory[..length]);
        }
    }
}

#[test]
fn a_write_lands_while_the_target_is_away_and_a_read_brings_it_back() {
    for transport in TRANSPORTS {
        let (mut a, b) = pair(1 << 18, transport);
        fill(&mut a, 9);
        let half = 1 << 17;
        let remote = b.sge(0, half).address;
        let write = Operation::Write {
            address: remote,
            rkey: b.keys.rkey,
            immediate: None,
        };
        a.post(1, write, a.sge(0, half));
        assert_eq!(a.wait(1)[0].status, Status::Success);
        assert_eq!(b.byte(half - 1), a.byte(half - 1));
        a.post(
            2,
            Operation::Read {
                address: remote,
                rkey: b.keys.rkey,
            },
            a.sge(half, half),
        );
        assert_eq!(a.wait(1)[0].status, Status::Success);
        let (sent, back) = a.memory.split_at(half);
        assert_eq!(sent, back);
    }
}

#[test]
fn an_event_wakes_a_program_that_sleeps() {
    for transport in TRANSPORTS {
        let (a, b) = pair(4096, transport);
        for round in 0..20 {
            b.receive(round, b.sge(0, 64));
            b.device.arm_cq(b.cq, Arm::Any).unwrap();
            a.post(round, Operation::Send(Tail::None), a.sge(0, 64));
            assert_eq!(b.channel.next().unwrap(), 77);
            assert_eq!(b.wait(1)[0].id, round);
            assert_eq!(a.wait(1)[0].id, round);
        }
    }
}

#[test]
fn many_messages_in_flight_complete_in_order() {
    for transport in TRANSPORTS {
        let (a, b) = pair(64 << 10, transport);
        let total = 20_000;
        let (mut posted, mut received, mut sent, start) = (0, 0, 0, Instant::now());
        (0..200).for_each(|id| b.receive(id, b.sge(0, 4096)));
        while sent < total {
            while posted < total && posted < sent + 100 {
                a.post(
                    posted,
                    Operation::Send(Tail::None),
                    a.sge(0, 1 + (posted as usize * 37) % 4096),
                );
                posted += 1;
            }
            a.device.poll_cq(a.cq, 16, |completion| {
                assert_eq!((completion.id, completion.status), (sent, Status::Success));
                sent += 1;
            });
            let mut again = Vec::new();
            b.device
                .poll_cq(b.cq, 16, |completion| again.push(completion.id));
            for id in again {
                assert_eq!(id, received);
                received += 1;
                b.receive(id + 200, b.sge(0, 4096));
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{sent} sent: {:?}",
                a.device.link_counters()
            );
        }
    }
}
