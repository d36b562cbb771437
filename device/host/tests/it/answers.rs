//! Two programs that answer each other with WRITEs: each waits for its own to complete, then polls its memory
//! for the other's, and does not poll the completion queue meanwhile. Its progress thread serves the network,
//! and leaves it the time to answer.
//!
//! A requester whose SEND has been acknowledged executes the WRITEs on shared mappings that follow it,
//! although its program has not polled for the acknowledgement.

use crate::pair::{Side, Transport, pair};
use crate::sys::Mapping;
use rnic::{Operation, Status};
use std::time::{Duration, Instant};

/// Messages of a batch: few, so that on a busy machine some batch gets the cores for all of them.
const ROUNDS: u8 = 20;
/// Time limit for a batch without separate acknowledgements. On an idle machine the first is one; on a busy
/// one, the thread gives an answer 10 us, and the program may get no core in that time.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which the answering side sleeps first: the side that begins polls until the acknowledgement,
/// which is sent by the other progress thread while its program does not poll.
const AWAY: Duration = Duration::from_millis(1);

fn answer(side: &mut Side, to: Operation, begins: bool) {
    if !begins {
        std::thread::sleep(AWAY);
    }
    for number in 1..=ROUNDS {
        if !begins {
            wait_for(side, number);
        }
        side.memory[64] = number;
        side.post(1, to, side.sge(64, 1));
        assert_eq!(side.wait(1)[0].status, Status::Success);
        if begins {
            wait_for(side, number);
        }
    }
}

fn wait_for(side: &Side, number: u8) {
    while side.byte(0) != number {
        std::thread::yield_now();
    }
}

fn to(side: &Side) -> Operation {
    Operation::Write {
        address: side.sge(0, 1).address,
        rkey: side.keys.rkey,
        immediate: None,
    }
}

/// Sent alone, acknowledgements would end the peer's polling before the answer arrives, and so on back and
/// forth.
#[test]
fn acknowledgements_travel_with_the_answer() {
    let (mut a, mut b) = pair(4096, Transport::Packets);
    let mut batch = || {
        let before = b.device.link_counters().sends;
        let (to_a, to_b) = (to(&a), to(&b));
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&mut a, to_b, true));
            answer(&mut b, to_a, false);
        });
        b.device.link_counters().sends - before
    };
    // One call for an answer and its acknowledgement, or two.
    let as_it_should = u64::from(ROUNDS) * 3 / 2;
    let (begin, mut least) = (Instant::now(), u64::MAX);
    while least >= as_it_should && begin.elapsed() < TIMEOUT {
        least = least.min(batch());
    }
    assert!(
        least < as_it_should,
        "{ROUNDS} answers took {least} calls to send at least"
    );
}

/// A list of so many WRITEs is transmitted when it is posted, not at the next poll.
const LIST: u64 = 32;

/// A target of NVMe over RDMA has sent its last responses when it posts the data of the next ones, and
/// requests that are executed directly may not overtake a SEND.
#[test]
fn writes_behind_an_answered_send_are_executed_directly() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let shared = Mapping::new(c"rockery-test", 4096);
    let keys = b.register(shared.address(), 4096);
    let write = Operation::Write {
        address: shared.address(),
        rkey: keys.rkey,
        immediate: None,
    };
    let send = Operation::Send(wire::Tail::None);
    let (begin, mut round, mut direct_rounds) = (Instant::now(), 0, 0);
    while direct_rounds < 100 {
        b.receive(round, b.sge(0, 64));
        a.receive(round, a.sge(0, 64));
        a.post(round, send, a.sge(64, 64));
        b.wait(1);
        // The acknowledgement of the SEND is in the ring before the answer.
        b.post(round, send, b.sge(64, 64));
        let before = a.device.link_counters().shm_direct;
        for id in 0..LIST {
            a.post(id, write, a.sge(128, 64));
        }
        let direct = a.device.link_counters().shm_direct - before;
        // In the first rounds the mapping may not be announced yet.
        assert!(
            direct == LIST || direct_rounds == 0,
            "{direct} in round {round}"
        );
        assert!(
            direct == LIST || begin.elapsed() < TIMEOUT,
            "{direct} after {round} rounds"
        );
        direct_rounds += u32::from(direct == LIST);
        assert!(
            a.wait(LIST as usize + 2)
                .iter()
                .all(|it| it.status == Status::Success)
        );
        b.wait(1);
        round += 1;
    }
}
