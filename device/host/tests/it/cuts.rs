//! Memory that is unmapped: a peer truncates the file behind memory that it granted, or a program unmaps
//! memory that it has registered, and rockery's progress thread copies to it.

use crate::kills::{Card, SHORT_TIMEOUT, start};
use crate::pair::{Side, Transport, pair};
use crate::sys::Mapping;
use rnic::{Operation, QpType, Status};
use std::io::Read;
use std::time::{Duration, Instant};

const BYTES: usize = 4 << 20;
/// Bytes that remain.
const LEFT: usize = 4096;
/// Longer than the requests that the kernel copies: such a request needs the mapping.
const LONG: usize = 256 << 10;
const NOTHING: Card = Card::NONE;

fn sides() -> [Side; 2] {
    let first = Side {
        timeout: SHORT_TIMEOUT,
        ..Side::open(QpType::Rc, LONG)
    };
    let second = Side {
        timeout: SHORT_TIMEOUT,
        ..first.beside(LONG)
    };
    [first, second]
}

/// The process that grants memory, and truncates the file behind it.
pub(crate) fn owner() {
    let (sides, mapping) = (sides(), Mapping::new(c"rockery-test", BYTES));
    for side in &sides {
        let keys = side.register(mapping.address(), BYTES);
        Card::granting(side, keys, mapping.address()).write(std::io::stdout());
    }
    let mut input = std::io::stdin().lock();
    let peers = [(), ()].map(|()| Card::read(&mut input).unwrap());
    sides
        .iter()
        .zip(peers)
        .for_each(|(side, peer)| side.bring_up(peer.qpn, Transport::SharedMemory));
    NOTHING.write(std::io::stdout());
    let _ = Card::read(&mut input);
    mapping.truncate(LEFT);
    NOTHING.write(std::io::stdout());
    // It is killed, or ends when it executes a request on a truncated part of its own mapping.
    let _ = input.read(&mut [0]);
}

/// The process that writes to that memory.
pub(crate) fn writer() {
    let (mut owner, mut output) = start("owner", "");
    let (sides, grants) = (sides(), [(), ()].map(|()| Card::read(&mut output).unwrap()));
    let mut input = owner.stdin.take().unwrap();
    sides
        .iter()
        .for_each(|side| Card::of(side).write(&mut input));
    sides
        .iter()
        .zip(&grants)
        .for_each(|(side, grant)| side.bring_up(grant.qpn, Transport::SharedMemory));
    Card::read(&mut output).unwrap();
    let write = |grant: &Card, at: usize| Operation::Write {
        address: grant.address + at as u64,
        rkey: grant.rkey,
        immediate: None,
    };
    // The mapping is used from here on.
    let start = Instant::now();
    while sides[0].device.link_counters().shm_direct == 0 {
        sides[0].post(0, write(&grants[0], 0), sides[0].sge(0, LONG));
        assert_eq!(sides[0].wait(1)[0].status, Status::Success);
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the owner's file was not shown"
        );
    }
    NOTHING.write(&mut input);
    Card::read(&mut output).unwrap();
    // The second waits until the owner has answered the first. The program sleeps then: rockery's thread
    // executes it.
    sides[1].post(1, write(&grants[1], 0), sides[1].sge(0, LEFT));
    sides[1].post(2, write(&grants[1], BYTES / 2), sides[1].sge(0, LONG));
    std::thread::sleep(Duration::from_millis(500));
    let statuses: Vec<Status> = sides[1]
        .wait(2)
        .iter()
        .map(|completion| completion.status)
        .collect();
    println!(
        "alive: {} {}",
        statuses[0] == Status::Success,
        statuses[1] == Status::Success
    );
    let _ = owner.kill();
    owner.wait().unwrap();
}

#[test]
fn a_file_truncated_under_the_progress_thread_fails_only_the_request() {
    let (mut writer, mut output) = start("writer", "");
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(
        writer.wait().unwrap().success() && said.contains("alive: true false"),
        "{said}"
    );
}

#[test]
fn memory_unmapped_under_the_progress_thread_fails_only_the_request() {
    let (a, b) = pair(4096, Transport::Packets);
    let mapping = Mapping::new(c"rockery-test", LEFT);
    let (address, keys) = (mapping.address(), b.register(mapping.address(), LEFT));
    let write = Operation::Write {
        address,
        rkey: keys.rkey,
        immediate: None,
    };
    a.post(1, write, a.sge(0, 64));
    assert_eq!(a.wait(1)[0].status, Status::Success);
    mapping.take_pages();
    a.post(2, write, a.sge(0, 64));
    assert_ne!(a.wait(1)[0].status, Status::Success);
}

#[test]
fn an_atomic_on_unmapped_memory_fails_only_the_request() {
    for swaps in [false, true] {
        let (a, b) = pair(4096, Transport::Packets);
        let mapping = Mapping::new(c"rockery-test", LEFT);
        let (address, keys) = (mapping.address(), b.register(mapping.address(), LEFT));
        let rkey = keys.rkey;
        mapping.take_pages();
        let operation = match swaps {
            false => Operation::FetchAdd {
                address,
                rkey,
                add: 1,
            },
            true => Operation::CompareSwap {
                address,
                rkey,
                compare: 0,
                swap: 1,
            },
        };
        a.post(1, operation, a.sge(0, 8));
        assert_ne!(a.wait(1)[0].status, Status::Success);
    }
}
