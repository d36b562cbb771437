//! XRC domains that two devices share: a queue pair of one receives for a queue of the other.

use crate::bench::*;
use rnic::*;
use wire::{AtomicEth, Message, Packet, Position, Psn, Qpn, Service, Syndrome, Tail};

/// The lane between the two, at either end.
const LANE: u16 = 1;
const NAME: DomainName = DomainName { file: (1, 2), interface: 3 };
const NUMBERS: u32 = 0x100;
const OWNER_FIRST: u32 = 0x8000;

/// Keeps what is sent and what is handed on.
#[derive(Default)]
struct Out {
    sent: Vec<(Packet, Vec<u8>)>,
    visits: Vec<(Visit, Packet, Vec<u8>)>,
    owner: Option<Owner>,
    memory: Vec<u8>,
}

impl Sink for Out {
    fn send(&mut self, _path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let bytes = match payload {
            Gather::Inline(bytes) => bytes.to_vec(),
            Gather::Pieces(pieces) => {
                let at = |piece: &Piece| (piece.address - BASE) as usize;
                let part = |piece: &Piece| self.memory[at(piece)..at(piece) + piece.length as usize].to_vec();
                pieces.iter().flat_map(part).collect()
            }
        };
        self.sent.push((*packet, bytes));
        Ok(())
    }

    fn room(&mut self, path: &Path, mtu: u32) -> u32 {
        if path.lane == 0 { 1 } else { 8192 / mtu }
    }

    fn owner(&mut self, _holder: Qpn, srq: Qpn) -> Owner {
        let known = srq.value() >= OWNER_FIRST && srq.value() < OWNER_FIRST + NUMBERS;
        self.owner.unwrap_or(if known { Owner::Lane(LANE) } else { Owner::Nobody })
    }

    fn visit(&mut self, lane: u16, visit: &Visit, packet: &Packet, payload: &[u8]) {
        assert_eq!(lane, LANE);
        self.visits.push((*visit, *packet, payload.to_vec()));
    }
}

/// One device with the queue pair and a queue of its own, one with another queue.
struct Shared {
    holder: Bench,
    owner: Bench,
    here: Srq,
    there: Srq,
    here_cq: Cq,
    there_cq: Cq,
}

impl Shared {
    fn new() -> Self {
        Self::of(NAME)
    }

    fn of(owners: DomainName) -> Self {
        let (mut holder, mut owner) = (Bench::new(QpType::Rc), Bench::new(QpType::Rc));
        holder.device.set_srq_numbers(Qpn::new(0x1000), NUMBERS);
        owner.device.set_srq_numbers(Qpn::new(OWNER_FIRST), NUMBERS);
        let [(here, here_cq), (there, there_cq)] =
            [(&mut holder, NAME), (&mut owner, owners)].map(|(bench, name)| {
                let domain = bench.device.alloc_xrcd(Some(name)).unwrap();
                let cq = bench.device.create_cq(64).unwrap();
                (bench.device.create_srq(bench.pd, 16, 1, Some((domain, cq))).unwrap(), cq)
            });
        let xrcd = Some(Xrcd::from_value(0));
        let (pd, send_cq, receive_cq) = (None, None, None);
        let init = QpInit { pd, send_cq, receive_cq, xrcd, ..holder.init(QpType::XrcReceive) };
        holder.qpn = holder.device.create_qp(&init).unwrap();
        connect_xrc_receiver(&mut holder);
        Self { holder, owner, here, there, here_cq, there_cq }
    }

    fn post(&mut self, id: u64) {
        let sges = [Sge { address: BASE, length: 64, lkey: self.owner.keys.lkey }];
        self.owner.device.post_srq_receive(self.there, &ReceiveRequest { id, sges: &sges }).unwrap();
    }

    fn post_here(&mut self, id: u64) {
        let sges = [Sge { address: BASE, length: 64, lkey: self.holder.keys.lkey }];
        self.holder.device.post_srq_receive(self.here, &ReceiveRequest { id, sges: &sges }).unwrap();
    }

    /// The peer sends to a queue: `offset` is of its PSN.
    fn send(&mut self, offset: u32, srq: u32, message: Message, payload: &[u8]) {
        let psn = Psn::new(START + offset);
        let mut packet = Packet::new(Service::Xrc, self.holder.qpn, psn, message);
        packet.xrc_srq = Some(Qpn::new(srq));
        packet.ack_req = true;
        self.holder.receive_from(&self.holder.arrival(), &packet, payload);
    }

    fn number_there(&self) -> u32 {
        self.owner.device.srq_number(self.there).value()
    }

    fn number_here(&self) -> u32 {
        self.holder.device.srq_number(self.here).value()
    }

    /// What the holder hands on now, and has to say.
    fn hand_on(&mut self) -> (usize, Vec<(Packet, Vec<u8>)>) {
        let mut out = Out { memory: self.holder.memory.0.clone(), ..Out::default() };
        while self.holder.device.transmit(self.holder.now, 64, &mut out) > 0 {}
        let senders = Senders { first: self.holder.qpn, count: 1 };
        let count = out.visits.len();
        for (visit, packet, bytes) in out.visits {
            let payload = Payload::Bytes(&bytes);
            let Bench { device, memory, now, .. } = &mut self.owner;
            device.handle_visit(*now, LANE, senders, &visit, &packet, payload, memory);
        }
        (count, out.sent)
    }

    /// The owner's answers reach the holder.
    fn decide(&mut self) -> usize {
        let mut out = Out { memory: self.owner.memory.0.clone(), ..Out::default() };
        while self.owner.device.transmit(self.owner.now, 64, &mut out) > 0 {}
        let senders = Senders { first: Qpn::new(OWNER_FIRST), count: NUMBERS };
        let arrival = Arrival::default();
        for (packet, bytes) in &out.sent {
            let Bench { device, memory, now, .. } = &mut self.holder;
            device.handle_lane_packet(*now, &arrival, senders, packet, Payload::Bytes(bytes), memory);
        }
        out.sent.len()
    }

    /// Lets all go on until nothing is left to do. What the peer hears.
    fn settle(&mut self) -> Vec<(Packet, Vec<u8>)> {
        let mut heard = Vec::new();
        loop {
            let (visits, sent) = self.hand_on();
            let quiet = visits == 0 && sent.is_empty();
            heard.extend(sent);
            if self.decide() == 0 && quiet {
                return heard;
            }
        }
    }

    /// The same, of acknowledgements: PSN less `START`, syndrome, and messages completed.
    fn heard(&mut self) -> Vec<(u32, Syndrome, u32)> {
        let acknowledgement = |(packet, _): (Packet, Vec<u8>)| match packet.message {
            Message::Acknowledge(aeth) => Some((packet.psn.value() - START, aeth.syndrome, aeth.msn)),
            _ => None,
        };
        self.settle().into_iter().filter_map(acknowledgement).collect()
    }

    fn taken_there(&mut self) -> Vec<(u64, Status, Qpn)> {
        taken(&mut self.owner.device, self.there_cq)
    }

    fn taken_here(&mut self) -> Vec<(u64, Status, Qpn)> {
        taken(&mut self.holder.device, self.here_cq)
    }
}

fn taken(device: &mut Device, cq: Cq) -> Vec<(u64, Status, Qpn)> {
    let mut taken = Vec::new();
    device.poll_cq(cq, 64, |done| taken.push((done.id, done.status, done.qpn)));
    taken
}

#[test]
fn a_message_goes_to_the_device_that_has_the_queue() {
    let mut shared = Shared::new();
    let (there, qpn) = (shared.number_there(), shared.holder.qpn);
    shared.post(1);
    shared.post(2);
    shared.send(0, there, send(Position::First), &[7; MTU]);
    // Too long for the receive: the refusal is the owner's.
    shared.send(1, there, send(Position::Last), b"end");
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_INVALID_REQUEST, 0)]);
    assert_eq!(shared.taken_there(), [(1, Status::LocalLength, qpn)]);
    assert_eq!(shared.holder.events(), [Event::CommunicationEstablished(qpn), Event::QpRequestError(qpn)]);
    assert_eq!(shared.owner.events(), []);
    let mut shared = Shared::new();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"for you");
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
    assert_eq!(shared.taken_there(), [(1, Status::Success, shared.holder.qpn)]);
    assert_eq!(&shared.owner.memory.0[..7], b"for you");
}

#[test]
fn messages_to_both_devices_are_executed_in_their_order() {
    let mut shared = Shared::new();
    let (there, here, qpn) = (shared.number_there(), shared.number_here(), shared.holder.qpn);
    (1..=2).for_each(|id| shared.post(id));
    (3..=4).for_each(|id| shared.post_here(id));
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, here, send(Position::Only), b"b");
    assert_eq!(shared.taken_here(), [], "the first is not decided yet");
    shared.send(2, there, send(Position::Only), b"c");
    shared.send(3, here, send(Position::Only), b"d");
    assert_eq!(shared.heard().last(), Some(&(3, Syndrome::ACK, 4)));
    assert_eq!(shared.taken_there(), [1, 2].map(|id| (id, Status::Success, qpn)));
    assert_eq!(shared.taken_here(), [3, 4].map(|id| (id, Status::Success, qpn)));
    // And from then on without a detour.
    shared.post_here(5);
    shared.send(4, here, send(Position::Only), b"e");
    assert_eq!(shared.taken_here(), [(5, Status::Success, qpn)]);
    assert_eq!(shared.heard(), [(4, Syndrome::ACK, 5)]);
}

#[test]
fn an_owner_that_is_not_ready_turns_the_connection_back() {
    let mut shared = Shared::new();
    let (there, here, qpn) = (shared.number_there(), shared.number_here(), shared.holder.qpn);
    shared.post_here(9);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, there, send(Position::Only), b"b");
    shared.send(2, here, send(Position::Only), b"c");
    assert_eq!(shared.heard(), [(0, Syndrome::RnrNak(0), 0)]);
    assert_eq!((shared.taken_here(), shared.taken_there()), (vec![], vec![]));
    (1..=2).for_each(|id| shared.post(id));
    assert_eq!(shared.heard(), [], "a peer on the network comes by itself");
    // Behind the one that is awaited.
    shared.send(1, there, send(Position::Only), b"b");
    assert_eq!(shared.heard(), []);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, there, send(Position::Only), b"b");
    shared.send(2, here, send(Position::Only), b"c");
    assert_eq!(shared.heard().last(), Some(&(2, Syndrome::ACK, 3)));
    assert_eq!(shared.taken_there(), [1, 2].map(|id| (id, Status::Success, qpn)));
    assert_eq!(shared.taken_here(), [(9, Status::Success, qpn)]);
}

#[test]
fn a_peer_on_a_lane_is_told_when_the_owner_is_ready() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared.holder.device.set_lane(shared.holder.qpn, 2).unwrap();
    shared.send(0, there, send(Position::Only), b"a");
    assert_eq!(shared.heard(), [(0, Syndrome::RnrNak(0), 0)]);
    shared.post(1);
    assert_eq!(shared.heard(), [(0, READY, 0)]);
}

#[test]
fn memory_is_that_of_the_owner() {
    let mut shared = Shared::new();
    let (there, rkey) = (shared.number_there(), shared.owner.rkey());
    shared.send(0, there, write_only(BASE + 8, rkey, 4), b"mine");
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
    assert_eq!(&shared.owner.memory.0[8..12], b"mine");
    let long = wire::Reth { address: BASE, rkey, length: 3 * MTU as u32 + 5 };
    shared.send(1, there, Message::ReadRequest(long), &[]);
    let data = shared.settle();
    let positions: Vec<_> = data
        .iter()
        .map(|(packet, bytes)| match packet.message {
            Message::ReadResponse { position, aeth } => {
                (packet.psn.value() - START, position, aeth.map(|aeth| aeth.msn), bytes.len())
            }
            _ => panic!("{packet:?}"),
        })
        .collect();
    use Position::{First, Last, Middle};
    let expected =
        [(1, First, Some(2), MTU), (2, Middle, None, MTU), (3, Middle, None, MTU), (4, Last, Some(2), 5)];
    assert_eq!(positions, expected);
    let bytes: Vec<u8> = data.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, shared.owner.memory.0[..3 * MTU + 5]);
    // Its end was lost.
    let again = wire::Reth { address: BASE + 2 * MTU as u64, rkey, length: MTU as u32 + 5 };
    shared.send(3, there, Message::ReadRequest(again), &[]);
    let lengths: Vec<usize> = shared.settle().iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [MTU, 5]);
    let eth = AtomicEth { address: BASE, rkey, swap_add: 5, compare: 0 };
    let before = u64::from_ne_bytes(shared.owner.memory.0[..8].try_into().unwrap());
    for _ in 0..2 {
        // The second time it is only answered again.
        shared.send(5, there, Message::FetchAdd(eth), &[]);
        let answers = shared.settle();
        let original = |packet: &Packet| match packet.message {
            Message::AtomicAcknowledge { original, .. } => Some(original),
            _ => None,
        };
        assert_eq!(answers.iter().filter_map(|(packet, _)| original(packet)).collect::<Vec<_>>(), [before]);
    }
    let after = u64::from_ne_bytes(shared.owner.memory.0[..8].try_into().unwrap());
    assert_eq!(after, before.wrapping_add(5));
    // The holder's own key says nothing there.
    shared.send(6, there, write_only(BASE, wire::Rkey(rkey.0 ^ 0x100), 4), b"hers");
    assert_eq!(shared.heard(), [(6, Syndrome::NAK_REMOTE_ACCESS, 3)]);
}

#[test]
fn a_queue_of_nobody_and_one_of_another_domain_are_refused_in_their_turn() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, 0xff_0000, send(Position::Only), b"b");
    assert_eq!(shared.heard(), [(1, Syndrome::NAK_INVALID_REQUEST, 1)]);
    assert_eq!(shared.holder.state(), State::Error);
    let mut shared = Shared::of(DomainName { interface: 4, ..NAME });
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_INVALID_REQUEST, 0)]);
}

#[test]
fn who_waits_for_an_owner_that_is_gone_is_told() {
    let mut shared = Shared::new();
    let (there, qpn) = (shared.number_there(), shared.holder.qpn);
    shared.send(0, there, send(Position::Only), b"a");
    let (visits, _) = shared.hand_on();
    assert_eq!(visits, 1);
    shared.holder.device.close_lane(LANE, shared.holder.now);
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_REMOTE_OPERATIONAL, 0)]);
    assert_eq!(shared.holder.events(), [Event::CommunicationEstablished(qpn), Event::QpFatal(qpn)]);
}

#[test]
fn a_receive_that_was_begun_is_flushed_when_the_connection_ends() {
    for by_lane in [false, true] {
        let mut shared = Shared::new();
        let (there, qpn) = (shared.number_there(), shared.holder.qpn);
        let sges = [Sge { address: BASE, length: 4096, lkey: shared.owner.keys.lkey }];
        shared.owner.device.post_srq_receive(shared.there, &ReceiveRequest { id: 1, sges: &sges }).unwrap();
        shared.send(0, there, send(Position::First), &[1; MTU]);
        shared.settle();
        assert_eq!(shared.taken_there(), []);
        if by_lane {
            shared.owner.device.close_lane(LANE, shared.owner.now);
        } else {
            shared.holder.device.destroy_qp(qpn).unwrap();
            shared.settle();
        }
        assert_eq!(shared.taken_there(), [(1, Status::Flushed, qpn)]);
        assert_eq!(shared.owner.device.destroy_srq(shared.there), Ok(()));
        assert_eq!(shared.owner.device.dealloc_xrcd(Xrcd::from_value(0), shared.owner.now), Ok(()));
    }
}

#[test]
fn a_lane_that_is_still_to_come_is_waited_for() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    let mut out = Out { owner: Some(Owner::Asked), ..Out::default() };
    while shared.holder.device.transmit(shared.holder.now, 64, &mut out) > 0 {}
    assert!(out.visits.is_empty() && shared.holder.device.has_stalled());
    shared.holder.device.resume();
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
}

#[test]
fn a_peer_that_asks_again_for_what_is_not_decided_is_not_executed_twice() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    (1..=2).for_each(|id| shared.post(id));
    for offset in [0, 0, 2] {
        shared.send(offset, there, Message::Send { position: Position::Only, tail: Tail::None }, b"a");
    }
    // The gap is told when everything before it is decided.
    assert_eq!(shared.heard(), [(1, Syndrome::NAK_SEQUENCE, 1)]);
    assert_eq!(shared.taken_there().len(), 1);
}
