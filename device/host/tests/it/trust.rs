//! The queue pair numbers that a process of the same user claims are compared with the agent's table.

use crate::kills::{Card, start};
use crate::pair::{Side, Transport, pair_of};
use crate::sys;
use host::OpenDomain;
use rnic::{Operation, QpType, Status};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use wire::{Qpn, Tail};

/// Version of the handshake of a shared-memory channel.
const HELLO_VERSION: u32 = 5;
const HELLO_BYTES: usize = 20;
const WELCOME: u8 = 1;
/// Bits of a queue pair number within a range.
const QPN_BITS: u32 = 14;

fn slot(qpn: Qpn) -> u32 {
    qpn.value() >> QPN_BITS
}

/// Sends a Hello to the process with queue pair `to`, as the owner of `from`; whether it is accepted.
fn is_accepted(from: Qpn, to: Qpn) -> bool {
    let socket = sys::connect(&format!("rockery-shm-{}", slot(to))).unwrap();
    let (_writer, _reader, memory) = link::memory::create().unwrap();
    let words = [HELLO_VERSION, slot(from), slot(to), 0, 0];
    let hello: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(hello.len(), HELLO_BYTES);
    sys::send(&socket, &hello, memory.as_raw_fd());
    let mut answer = [0; 64];
    sys::receive(&socket, &mut answer) > 0 && answer[0] == WELCOME
}

/// The process that claims another one's queue pair numbers. It reads two of them, and prints whether it is
/// accepted as the owner of the second one, and of its own.
pub(crate) fn forger() {
    let mut input = std::io::stdin().lock();
    let [victim, other] = [(), ()].map(|()| Card::read(&mut input).unwrap().qpn);
    let own = Side::open(QpType::Rc, 4096);
    println!(
        "believed {} {}",
        is_accepted(other, victim),
        is_accepted(own.qpn, victim)
    );
}

#[test]
fn a_process_cannot_claim_another_ones_queue_pair_numbers() {
    let [victim, other] = [(), ()].map(|()| Side::open(QpType::Rc, 4096));
    let (mut forger, mut output) = start("forger", "");
    let mut input = forger.stdin.take().unwrap();
    [&victim, &other]
        .iter()
        .for_each(|side| Card::of(side).write(&mut input));
    input.flush().unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(
        forger.wait().unwrap().success() && said.contains("believed false true"),
        "{said}"
    );
}

/// A stopped agent, which continues when this is dropped.
struct Stopped(i32);

impl Stopped {
    /// Stops the agent of this network namespace.
    fn agent() -> Self {
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let is_agent = |process: &String| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            name.trim() == "rockery-agent" && namespace(process) == namespace("self")
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let agent = { names }.find(is_agent).unwrap().parse().unwrap();
        sys::stop(agent, true);
        Self(agent)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        sys::stop(self.0, false);
    }
}

/// The agent assigns ranges of queue pair numbers and keeps the list of XRC domains. Open devices connect and
/// work while it is stopped, also while a thread waits for its answer.
#[test]
fn devices_connect_and_work_while_the_agent_is_stopped() {
    let [a, b] = [(), ()].map(|()| Side::open(QpType::Rc, 4096));
    let domain = OpenDomain {
        file: Some((1, 2)),
        make: true,
        anew: false,
    };
    let agent = Stopped::agent();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| a.device.open_domain(domain));
        let (a, b) = pair_of(a.beside(4096), b.beside(4096), Transport::SharedMemory);
        for round in 0..100 {
            b.receive(round, b.sge(0, 64));
            a.post(round, Operation::Send(Tail::None), a.sge(0, 64));
            assert_eq!(
                (a.wait(1)[0].status, b.wait(1)[0].status),
                (Status::Success, Status::Success)
            );
        }
        assert!(!asks.is_finished(), "the agent did not answer yet");
        drop(agent);
        let domain = asks.join().unwrap().unwrap();
        a.device.close_domain(domain).unwrap();
    });
    drop(Side::open(QpType::Rc, 4096));
}

/// An answer that arrives after the timeout of its request is not taken for that of the next one.
#[test]
fn a_late_answer_of_the_agent_is_not_the_next_ones() {
    let a = Side::open(QpType::Rc, 4096);
    let open = |inode, make| OpenDomain {
        file: Some((3, inode)),
        make,
        anew: false,
    };
    let agent = Stopped::agent();
    assert!(
        a.device.open_domain(open(1, true)).is_err(),
        "the agent is stopped"
    );
    drop(agent);
    // No process has the domain open, and it must not be created: the late answer was a success.
    assert!(a.device.open_domain(open(2, false)).is_err());
    let domain = a.device.open_domain(open(2, true)).unwrap();
    a.device.close_domain(domain).unwrap();
}
