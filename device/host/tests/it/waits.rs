//! Programs that wait for completions and for descriptors of their own at once.

use crate::pair::{Side, TRANSPORTS, Transport, echo, echo_over_each_transport, pair};
use libc::{POLLIN, pollfd};
use rnic::{Operation, Status};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Time for which the programs poll before they sleep.
const POLLS: Duration = Duration::from_micros(100);

fn receive(side: &Side, others: &mut [pollfd]) -> u32 {
    loop {
        let mut received = 0;
        let end = side.device.wait_cq(side.cq, others, POLLS, None).unwrap();
        let is_ready = others.iter().any(|it| it.revents != 0);
        assert!(
            end.completions || is_ready,
            "nothing has ended the wait: {end:?}"
        );
        side.device.poll_cq(side.cq, 16, |completion| {
            assert_eq!(completion.status, Status::Success);
            received += u32::from(completion.kind == rnic::CompletionKind::Receive);
        });
        if received > 0 {
            return received;
        }
    }
}

/// Waits for one receive.
fn wait_for_one(side: &Side) {
    assert_eq!(receive(side, &mut []), 1);
}

#[test]
fn two_waiting_programs_wake_each_other() {
    let runs = [(2000, Duration::ZERO), (20, Duration::from_millis(12))];
    echo_over_each_transport(&runs, wait_for_one);
}

#[test]
fn a_wait_ends_with_a_descriptor_or_with_its_time() {
    for transport in TRANSPORTS {
        let (a, b) = pair(4096, transport);
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut others = [pollfd {
            fd: near.as_raw_fd(),
            events: POLLIN,
            revents: 0,
        }];
        let end = b
            .device
            .wait_cq(b.cq, &mut others, POLLS, Some(Duration::from_millis(5)))
            .unwrap();
        assert!(
            !end.completions && end.looked && others[0].revents == 0,
            "{transport:?}: {end:?}"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                far.write_all(&[1]).unwrap();
            });
            let end = b.device.wait_cq(b.cq, &mut others, POLLS, None).unwrap();
            assert!(
                !end.completions && end.looked && others[0].revents == POLLIN,
                "{transport:?}: {end:?}"
            );
        });
        // A descriptor that stays readable does not hide completions.
        b.receive(1, b.sge(0, 64));
        a.post(1, Operation::Send(wire::Tail::None), a.sge(0, 64));
        assert_eq!(receive(&b, &mut others), 1, "{transport:?}");
    }
}

/// Without an answer: the program takes the message, and waits for something else. Its acknowledgement is
/// sent nevertheless.
#[test]
fn a_program_that_waits_for_something_else_acknowledges() {
    for transport in TRANSPORTS {
        let (a, b) = pair(4096, transport);
        let (near, mut far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert_eq!(receive(&b, &mut []), 1);
                let mut others = [pollfd {
                    fd: near.as_raw_fd(),
                    events: POLLIN,
                    revents: 0,
                }];
                while others[0].revents == 0 {
                    b.device.wait_cq(b.cq, &mut others, POLLS, None).unwrap();
                }
            });
            b.receive(1, b.sge(0, 64));
            a.post(1, Operation::Send(wire::Tail::None), a.sge(0, 64));
            assert_eq!(a.wait(1)[0].status, Status::Success, "{transport:?}");
            far.write_all(&[1]).unwrap();
            waiting.join().unwrap();
        });
    }
}

/// One takes the progress thread's place, the other sleeps on the descriptor of its channel.
#[test]
fn two_threads_of_a_program_wait_for_two_queues() {
    let (a, b) = pair(4096, Transport::SharedMemory);
    let (c, d) = (a.beside(4096), b.beside(4096));
    c.connect(&d, Transport::SharedMemory);
    d.connect(&c, Transport::SharedMemory);
    (0..8).for_each(|id| (a.receive(id, a.sge(64, 64)), b.receive(id, b.sge(64, 64))).0);
    (0..8).for_each(|id| (c.receive(id, c.sge(64, 64)), d.receive(id, d.sge(64, 64))).0);
    std::thread::scope(|scope| {
        for (side, begins) in [(&a, true), (&b, false), (&c, true), (&d, false)] {
            scope.spawn(move || echo(side, 500, begins, Duration::ZERO, wait_for_one));
        }
    });
    assert!(Arc::ptr_eq(&a.device, &c.device));
}
