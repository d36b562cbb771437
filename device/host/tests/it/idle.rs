//! Idle processes take no processor time. A separate process is measured, because other tests run in this
//! one.

use crate::kills::start;
use crate::pair::{Side, Transport, pair};
use rnic::{Arm, Operation, Status};
use std::io::Read;
use std::time::Duration;
use wire::Tail;

/// Duration of the measurement.
const IDLE: Duration = Duration::from_millis(1500);
/// Limit of clock ticks of 10 ms in that time: a thread that polled periodically would need more.
const TICKS_MAX: u64 = 3;
/// Time that the threads need which served the program until just now.
const SETTLING: Duration = Duration::from_millis(200);

/// Clock ticks of processors that this process has used, in its own code and in the kernel's.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, behind_name) = stat.rsplit_once(')').unwrap();
    // The 14th and 15th field; the first after the name is the third.
    behind_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}

fn while_nothing_happens(what: &str) {
    std::thread::sleep(SETTLING);
    let before = ticks();
    std::thread::sleep(IDLE);
    let taken = ticks() - before;
    assert!(taken <= TICKS_MAX, "{what}: {taken} ticks in {IDLE:?}");
}

fn send(from: &Side, to: &Side) {
    to.receive(1, to.sge(64, 64));
    from.post(1, Operation::Send(Tail::None), from.sge(0, 64));
}

/// The process that is measured, with this transport between its two devices.
pub(crate) fn idler(transport: &str) {
    let (a, b) = pair(
        4096,
        if transport == "shared memory" {
            Transport::SharedMemory
        } else {
            Transport::Packets
        },
    );
    for _ in 0..1000 {
        send(&a, &b);
        assert_eq!(
            (a.wait(1)[0].status, b.wait(1)[0].status),
            (Status::Success, Status::Success)
        );
    }
    while_nothing_happens("after polling");
    b.device.arm_cq(b.cq, Arm::Any).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| b.device.next_event(&b.channel).unwrap());
        while_nothing_happens("waiting for an event");
        send(&a, &b);
        assert_eq!(sleeper.join().unwrap(), 77);
    });
    drop(b.wait(1));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            b.device
                .wait_cq(b.cq, &mut [], Duration::ZERO, None)
                .unwrap()
        });
        while_nothing_happens("waiting for a queue");
        send(&a, &b);
        assert!(sleeper.join().unwrap().completions);
    });
    println!("idled");
}

#[test]
fn an_idle_program_takes_no_processor_time() {
    for transport in ["packets", "shared memory"] {
        let (mut idler, mut output) = start("idler", transport);
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(
            idler.wait().unwrap().success() && said.contains("idled"),
            "{transport}: {said}"
        );
    }
}
