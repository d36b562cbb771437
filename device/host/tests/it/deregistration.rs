//! Memory is deregistered while a peer writes to it directly, thousands of times: afterwards it is not
//! written any more, and the peer is refused.

use crate::kills::setting;
use crate::pair::{Side, Transport, pair};
use crate::sys::Mapping;
use rnic::{Operation, RegionKeys, Status};

/// Number of deregistrations.
const ROUNDS: &str = "ROCKERY_TEST_DEREGISTRATIONS";
const ROUNDS_DEFAULT: u64 = 1000;
const BYTES: usize = 4096;
/// The value that the owner stores in deregistered memory.
const OWN: u8 = 0xee;
/// Rounds differ in how many requests were executed before.
const LEAD: u64 = 8;

/// Writes to a region until a WRITE fails.
fn write_until_refused(a: &Side, address: u64, keys: RegionKeys) -> Status {
    let write = Operation::Write {
        address,
        rkey: keys.rkey,
        immediate: None,
    };
    loop {
        a.post(1, write, a.sge(0, BYTES));
        match a.wait(1)[0].status {
            Status::Success => {}
            refused => return refused,
        }
    }
}

/// In turn, private memory of the owner, which the kernel copies to, and a mapping of both processes.
#[test]
fn nothing_is_written_to_memory_that_was_deregistered() {
    let (mut a, mut b) = pair(BYTES, Transport::SharedMemory);
    let [private, shared] = [
        Mapping::private(BYTES),
        Mapping::new(c"rockery-test", BYTES),
    ];
    for round in 0..setting(ROUNDS, ROUNDS_DEFAULT) {
        let memory = if round % 2 == 0 { &private } else { &shared };
        let (address, before) = (memory.address(), a.device.link_counters().shm_direct);
        let keys = b.register(address, BYTES);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_refused(&a, address, keys));
            while a.device.link_counters().shm_direct < before + round % LEAD {
                assert!(!writer.is_finished(), "refused in round {round}");
                std::thread::yield_now();
            }
            b.device
                .with(|rnic, _| rnic.memory().deregister(keys.lkey))
                .unwrap();
            (0..BYTES).for_each(|at| memory.set(at, OWN));
            assert_eq!(writer.join().unwrap(), Status::RemoteAccess);
            assert!((0..BYTES).all(|at| memory.byte(at) == OWN), "round {round}");
        });
        a.renew();
        b.renew();
        a.connect(&b, Transport::SharedMemory);
        b.connect(&a, Transport::SharedMemory);
    }
}
