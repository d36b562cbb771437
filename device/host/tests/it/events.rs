//! Programs that sleep until an event.

use crate::pair::{ECHO_BYTES, Side, TRANSPORTS, Transport, echo_over_each_transport, pair};
use host::CompletionChannel;
use rnic::{Arm, Operation, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Waits for one receive as programs do: requests an event, polls once more, sleeps.
fn sleep_for_receive(side: &Side, length: u32) {
    loop {
        let mut received = 0;
        side.device.arm_cq(side.cq, Arm::Any).unwrap();
        side.device.poll_cq(side.cq, 16, |completion| {
            assert_eq!(completion.status, Status::Success);
            received +=
                u32::from(completion.kind == rnic::CompletionKind::Receive) * completion.length;
        });
        if received > 0 {
            assert_eq!(received, length);
            return;
        }
        assert_eq!(side.device.next_event(&side.channel).unwrap(), 77);
    }
}

#[test]
fn two_sleeping_programs_wake_each_other() {
    // Fast answers are polled for, slow ones are slept for.
    let runs = [(2000, Duration::ZERO), (40, Duration::from_micros(500))];
    echo_over_each_transport(&runs, |side| sleep_for_receive(side, ECHO_BYTES as u32));
}

/// Polls sleep for a bounded time where other threads need the cores, and are woken by their peer.
#[test]
fn two_polling_programs_answer_each_other_beside_computing_threads() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let rounds = 300;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _ends = Ends(&is_over);
        let answer = move |side: &Side, begins: bool| {
            for round in 0..rounds {
                side.receive(round, side.sge(64, 64));
                if begins {
                    side.post(round, Operation::Send(wire::Tail::None), side.sge(0, 48));
                    assert!(
                        side.wait(2)
                            .iter()
                            .all(|done| done.status == Status::Success)
                    );
                } else {
                    assert_eq!(side.wait(1)[0].status, Status::Success);
                    side.post(round, Operation::Send(wire::Tail::None), side.sge(0, 48));
                    assert_eq!(side.wait(1)[0].status, Status::Success);
                }
            }
        };
        let b = &b;
        let other = scope.spawn(move || answer(b, false));
        answer(&a, true);
        other.join().unwrap();
    });
}

/// Sets the flag when it is dropped, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another thread of the same program finds the event of the thread that sleeps.
#[test]
fn completions_polled_by_another_thread_wake_the_sleeping_one() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let idle = Arc::new(CompletionChannel::new().unwrap());
    b.device.arm_cq(b.cq, Arm::Any).unwrap();
    std::thread::scope(|scope| {
        let event = scope.spawn(|| b.device.next_event(&b.channel).unwrap());
        // Polling an empty queue of its own serves the device, and so the other one's.
        let other = b.device.with(|rnic, _| rnic.cqs_mut().create(8).unwrap());
        b.device.attach_cq(other, &idle, 5);
        b.receive(1, b.sge(0, 64));
        a.post(1, Operation::Send(wire::Tail::None), a.sge(0, 64));
        while !event.is_finished() {
            b.device.poll_cq(other, 1, |_| {});
        }
        assert_eq!(event.join().unwrap(), 77);
    });
}

/// One sleeps in place of the progress thread, the other on its descriptor.
#[test]
fn two_threads_sleep_for_two_queues() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let (second, channel) = (
        b.device.with(|rnic, _| rnic.cqs_mut().create(8).unwrap()),
        CompletionChannel::new(),
    );
    let channel = Arc::new(channel.unwrap());
    b.device.attach_cq(second, &channel, 78);
    b.device.arm_cq(b.cq, Arm::Any).unwrap();
    std::thread::scope(|scope| {
        let sleepers = [scope.spawn(|| b.device.next_event(&b.channel)), {
            std::thread::sleep(Duration::from_millis(2));
            scope.spawn(|| b.device.next_event(&channel))
        }];
        std::thread::sleep(Duration::from_millis(2));
        b.receive(1, b.sge(0, 64));
        a.post(1, Operation::Send(wire::Tail::None), a.sge(0, 64));
        let [first, other] = sleepers;
        assert_eq!(first.join().unwrap().unwrap(), 77);
        // The second queue's completion: a WRITE of this side, signalled on another channel.
        b.device.detach_cq(b.cq);
        b.device.attach_cq(b.cq, &channel, 79);
        b.device.arm_cq(b.cq, Arm::Any).unwrap();
        let write = Operation::Write {
            address: a.sge(0, 8).address,
            rkey: a.keys.rkey,
            immediate: None,
        };
        b.post(2, write, b.sge(0, 8));
        assert_eq!(other.join().unwrap().unwrap(), 79);
    });
}
