//! Number of descriptors of a device.

use crate::kills::start;
use crate::pair::{Side, Transport, pair_of};
use rnic::{Operation, QpType, Status};
use wire::Tail;

/// The number that UCX assumes for each device that it opens (its tests open hundreds).
const DEVICE_MAX: usize = 16;
/// Number of descriptors of the peer's end of a shared-memory channel: its socket, the wake-up socket, and
/// the completion channel of the test.
const PEERS_END: usize = 3;
/// Queue pairs that send packets, one after the other: enough for every source port.
const QUEUES: usize = 200;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A device with a completion channel, and a shared-memory channel to `peer`, that has sent packets from all
/// ports.
fn device(peer: &Side) -> (Side, Side) {
    let pair = pair_of(
        Side::open(QpType::Rc, 4096),
        peer.beside(4096),
        Transport::SharedMemory,
    );
    let [mut ours, mut theirs] = [&pair.0, &pair.1].map(|side| side.beside(64));
    for _ in 0..QUEUES {
        ours.renew();
        theirs.renew();
        ours.bring_up(theirs.qpn, Transport::Packets);
        theirs.bring_up(ours.qpn, Transport::Packets);
        theirs.receive(1, theirs.sge(0, 8));
        ours.post(1, Operation::Send(Tail::None), ours.sge(0, 8));
        assert_eq!(
            (ours.wait(1)[0].status, theirs.wait(1)[0].status),
            (Status::Success, Status::Success)
        );
    }
    [ours, theirs]
        .iter()
        .for_each(|side| side.device.detach_cq(side.cq));
    pair
}

/// The process that counts: devices of other tests must not be opened or closed meanwhile.
pub(crate) fn counter() {
    let peer = Side::open(QpType::Rc, 4096);
    // The descriptors that all devices of a process share are open from here on.
    let first = device(&peer);
    let before = open_descriptors();
    let second = device(&peer);
    println!("took {}.", open_descriptors() - before);
    drop((first, second));
}

#[test]
fn a_device_takes_no_more_than_sixteen_descriptors() {
    let (mut counter, mut output) = start("counter", "");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut output, &mut said).unwrap();
    assert!(counter.wait().unwrap().success(), "{said}");
    let (_, took) = said.split_once("took ").unwrap();
    let took: usize = took.split('.').next().unwrap().parse().unwrap();
    assert!(took <= DEVICE_MAX + PEERS_END, "{took} descriptors");
}
