//! XRC domains that two devices share: a queue pair of one receives for a queue of the other.

use crate::bench::*;
use rnic::*;
use wire::{AtomicEth, Message, Packet, Position, Psn, Qpn, Service, Syndrome, Tail};

/// Number of the shared-memory channel between the two devices, at either end.
const CHANNEL: u16 = 1;
const NAME: DomainName = DomainName {
    file: (1, 2),
    interface: 3,
};
const NUMBERS: u32 = 0x100;
const OWNER_FIRST: u32 = 0x8000;

/// Records sent and forwarded packets.
#[derive(Default)]
struct Out {
    sent: Vec<(Packet, Vec<u8>)>,
    forwarded: Vec<(ForwardedRequest, Packet, Vec<u8>)>,
    owner: Option<SrqOwner>,
    memory: Vec<u8>,
}

impl Sink for Out {
    type Channels = Self;

    fn send(&mut self, _path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let bytes = match payload {
            Gather::Inline(bytes) => bytes.to_vec(),
            Gather::Pieces(pieces) => {
                let at = |piece: &Piece| (piece.address - BASE) as usize;
                let part = |piece: &Piece| {
                    self.memory[at(piece)..at(piece) + piece.length as usize].to_vec()
                };
                pieces.iter().flat_map(part).collect()
            }
        };
        self.sent.push((*packet, bytes));
        Ok(())
    }

    fn channels(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl DirectExecution for Out {
    fn execute(&mut self, _at: &DirectPath<'_>, _work: DirectWork<'_>) -> usize {
        0
    }
}

impl StreamStatistics for Out {
    const MEASURED_FROM: u32 = 0;

    fn advice(&mut self, _path: &Path, _request: StreamedRequest) -> Advice {
        Advice::BY_CHANNEL
    }

    fn record(&mut self, _path: &Path, _request: StreamedRequest, _decision: Decision) {}
}

impl ChannelRings for Out {
    fn room(&mut self, path: &Path, mtu: u32) -> u32 {
        if path.channel == 0 { 1 } else { 8192 / mtu }
    }

    fn datagram_channel(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        0
    }

    fn srq_owner(&mut self, _front_end: Qpn, srq: Qpn) -> SrqOwner {
        let known = srq.value() >= OWNER_FIRST && srq.value() < OWNER_FIRST + NUMBERS;
        self.owner.unwrap_or(if known {
            SrqOwner::Channel(CHANNEL)
        } else {
            SrqOwner::Absent
        })
    }

    fn forward(
        &mut self,
        channel: u16,
        request: &ForwardedRequest,
        packet: &Packet,
        payload: &[u8],
    ) {
        assert_eq!(channel, CHANNEL);
        self.forwarded.push((*request, *packet, payload.to_vec()));
    }
}

/// One device with the queue pair and a queue of its own, and one with another queue.
struct Shared {
    front_end: Bench,
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
        let (mut front_end, mut owner) = (Bench::new(QpType::Rc), Bench::new(QpType::Rc));
        front_end
            .device
            .srqs()
            .set_numbers(Qpn::new(0x1000), NUMBERS);
        owner
            .device
            .srqs()
            .set_numbers(Qpn::new(OWNER_FIRST), NUMBERS);
        let [(here, here_cq), (there, there_cq)] = [(&mut front_end, NAME), (&mut owner, owners)]
            .map(|(bench, name)| {
                let domain = bench.device.alloc_xrcd(Some(name)).unwrap();
                let cq = bench.device.cqs_mut().create(64).unwrap();
                (
                    bench
                        .device
                        .srqs()
                        .create(bench.pd, 16, 1, Some((domain, cq)))
                        .unwrap(),
                    cq,
                )
            });
        let xrcd = Some(Xrcd::from_value(0));
        let (pd, send_cq, receive_cq) = (None, None, None);
        let init = QpInit {
            pd,
            send_cq,
            receive_cq,
            xrcd,
            ..front_end.init(QpType::XrcReceive)
        };
        front_end.qpn = front_end.device.create_qp(&init).unwrap();
        connect_xrc_receiver(&mut front_end);
        Self {
            front_end,
            owner,
            here,
            there,
            here_cq,
            there_cq,
        }
    }

    fn post(&mut self, id: u64) {
        let sges = [Sge {
            address: BASE,
            length: 64,
            lkey: self.owner.keys.lkey,
        }];
        self.owner
            .device
            .srqs()
            .post_receive(self.there, &ReceiveRequest { id, sges: &sges })
            .unwrap();
    }

    fn post_here(&mut self, id: u64) {
        let sges = [Sge {
            address: BASE,
            length: 64,
            lkey: self.front_end.keys.lkey,
        }];
        self.front_end
            .device
            .srqs()
            .post_receive(self.here, &ReceiveRequest { id, sges: &sges })
            .unwrap();
    }

    /// The peer sends to a queue; `offset` is that of the PSN.
    fn send(&mut self, offset: u32, srq: u32, message: Message, payload: &[u8]) {
        let psn = Psn::new(START + offset);
        let mut packet = Packet::new(Service::Xrc, self.front_end.qpn, psn, message);
        packet.xrc_srq = Some(Qpn::new(srq));
        packet.ack_req = true;
        self.front_end
            .receive_from(&self.front_end.arrival(), &packet, payload);
    }

    fn number_there(&mut self) -> u32 {
        self.owner.device.srqs().number(self.there).value()
    }

    fn number_here(&mut self) -> u32 {
        self.front_end.device.srqs().number(self.here).value()
    }

    /// Number of requests that the front end forwards now, and the packets that it sends to its peer.
    fn forward(&mut self) -> (usize, Vec<(Packet, Vec<u8>)>) {
        let mut out = Out {
            memory: self.front_end.memory.0.clone(),
            ..Out::default()
        };
        while self
            .front_end
            .device
            .transmit(self.front_end.now, 64, &mut out)
            > 0
        {}
        let senders = Senders {
            first: self.front_end.qpn,
            count: 1,
        };
        let count = out.forwarded.len();
        for (request, packet, bytes) in out.forwarded {
            let payload = Payload::Bytes(&bytes);
            let Bench {
                device,
                memory,
                now,
                ..
            } = &mut self.owner;
            device.shm().handle_forwarded(
                *now,
                Channel {
                    number: CHANNEL,
                    senders,
                },
                &request,
                &packet,
                payload,
                memory,
            );
        }
        (count, out.sent)
    }

    /// Delivers the owner's answers to the front end.
    fn decide(&mut self) -> usize {
        let mut out = Out {
            memory: self.owner.memory.0.clone(),
            ..Out::default()
        };
        while self.owner.device.transmit(self.owner.now, 64, &mut out) > 0 {}
        let senders = Senders {
            first: Qpn::new(OWNER_FIRST),
            count: NUMBERS,
        };
        let arrival = Arrival::default();
        for (packet, bytes) in &out.sent {
            let Bench {
                device,
                memory,
                now,
                ..
            } = &mut self.front_end;
            device.shm().handle_packet(
                *now,
                &arrival,
                senders,
                packet,
                Payload::Bytes(bytes),
                memory,
            );
        }
        out.sent.len()
    }

    /// Runs both devices until nothing is left to do. Returns the packets that the peer receives.
    fn settle(&mut self) -> Vec<(Packet, Vec<u8>)> {
        let mut heard = Vec::new();
        loop {
            let (forwarded, sent) = self.forward();
            let quiet = forwarded == 0 && sent.is_empty();
            heard.extend(sent);
            if self.decide() == 0 && quiet {
                return heard;
            }
        }
    }

    /// The acknowledgements that the peer receives: PSN less `START`, syndrome, and messages completed.
    fn heard(&mut self) -> Vec<(u32, Syndrome, u32)> {
        let acknowledgement = |(packet, _): (Packet, Vec<u8>)| match packet.message {
            Message::Acknowledge(aeth) => {
                Some((packet.psn.value() - START, aeth.syndrome, aeth.msn))
            }
            _ => None,
        };
        self.settle()
            .into_iter()
            .filter_map(acknowledgement)
            .collect()
    }

    fn taken_there(&mut self) -> Vec<(u64, Status, Qpn)> {
        taken(&mut self.owner.device, self.there_cq)
    }

    fn taken_here(&mut self) -> Vec<(u64, Status, Qpn)> {
        taken(&mut self.front_end.device, self.here_cq)
    }
}

fn taken(device: &mut Device, cq: Cq) -> Vec<(u64, Status, Qpn)> {
    let mut taken = Vec::new();
    device
        .cqs_mut()
        .poll(cq, 64, |done| taken.push((done.id, done.status, done.qpn)));
    taken
}

#[test]
fn a_message_goes_to_the_device_that_has_the_queue() {
    let mut shared = Shared::new();
    let (there, qpn) = (shared.number_there(), shared.front_end.qpn);
    shared.post(1);
    shared.post(2);
    shared.send(0, there, send(Position::First), &[7; MTU]);
    // Too long for the receive: the owner refuses it.
    shared.send(1, there, send(Position::Last), b"end");
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_INVALID_REQUEST, 0)]);
    assert_eq!(shared.taken_there(), [(1, Status::LocalLength, qpn)]);
    assert_eq!(
        shared.front_end.events(),
        [
            Event::CommunicationEstablished(qpn),
            Event::QpRequestError(qpn)
        ]
    );
    assert_eq!(shared.owner.events(), []);
    let mut shared = Shared::new();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"for you");
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
    assert_eq!(
        shared.taken_there(),
        [(1, Status::Success, shared.front_end.qpn)]
    );
    assert_eq!(&shared.owner.memory.0[..7], b"for you");
}

#[test]
fn messages_to_both_devices_are_executed_in_their_order() {
    let mut shared = Shared::new();
    let (there, here, qpn) = (
        shared.number_there(),
        shared.number_here(),
        shared.front_end.qpn,
    );
    (1..=2).for_each(|id| shared.post(id));
    (3..=4).for_each(|id| shared.post_here(id));
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, here, send(Position::Only), b"b");
    assert_eq!(shared.taken_here(), [], "the first is not decided yet");
    shared.send(2, there, send(Position::Only), b"c");
    shared.send(3, here, send(Position::Only), b"d");
    assert_eq!(shared.heard().last(), Some(&(3, Syndrome::ACK, 4)));
    assert_eq!(
        shared.taken_there(),
        [1, 2].map(|id| (id, Status::Success, qpn))
    );
    assert_eq!(
        shared.taken_here(),
        [3, 4].map(|id| (id, Status::Success, qpn))
    );
    // From then on without forwarding.
    shared.post_here(5);
    shared.send(4, here, send(Position::Only), b"e");
    assert_eq!(shared.taken_here(), [(5, Status::Success, qpn)]);
    assert_eq!(shared.heard(), [(4, Syndrome::ACK, 5)]);
}

#[test]
fn an_owner_that_is_not_ready_turns_the_connection_back() {
    let mut shared = Shared::new();
    let (there, here, qpn) = (
        shared.number_there(),
        shared.number_here(),
        shared.front_end.qpn,
    );
    shared.post_here(9);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, there, send(Position::Only), b"b");
    shared.send(2, here, send(Position::Only), b"c");
    assert_eq!(shared.heard(), [(0, Syndrome::RnrNak(0), 0)]);
    assert_eq!(
        (shared.taken_here(), shared.taken_there()),
        (vec![], vec![])
    );
    (1..=2).for_each(|id| shared.post(id));
    assert_eq!(shared.heard(), [], "a peer on the network comes by itself");
    // After the one that is expected.
    shared.send(1, there, send(Position::Only), b"b");
    assert_eq!(shared.heard(), []);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, there, send(Position::Only), b"b");
    shared.send(2, here, send(Position::Only), b"c");
    assert_eq!(shared.heard().last(), Some(&(2, Syndrome::ACK, 3)));
    assert_eq!(
        shared.taken_there(),
        [1, 2].map(|id| (id, Status::Success, qpn))
    );
    assert_eq!(shared.taken_here(), [(9, Status::Success, qpn)]);
}

#[test]
fn a_peer_on_a_shared_memory_channel_is_told_when_the_owner_is_ready() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared
        .front_end
        .device
        .shm()
        .set_channel(shared.front_end.qpn, 2)
        .unwrap();
    shared.send(0, there, send(Position::Only), b"a");
    assert_eq!(shared.heard(), [(0, Syndrome::RnrNak(0), 0)]);
    shared.post(1);
    assert_eq!(shared.heard(), [(0, READY, 0)]);
}

/// A READ response: PSN less `START`, position, MSN, and number of bytes.
fn read_response(sent: &(Packet, Vec<u8>)) -> (u32, Position, Option<u32>, usize) {
    let (packet, bytes) = sent;
    let Message::ReadResponse { position, aeth } = packet.message else {
        panic!("{packet:?}")
    };
    let psn = packet.psn.value() - START;
    (psn, position, aeth.map(|aeth| aeth.msn), bytes.len())
}

/// The original value in the answer to an atomic.
fn atomic_result(sent: &(Packet, Vec<u8>)) -> Option<u64> {
    match sent.0.message {
        Message::AtomicAcknowledge { original, .. } => Some(original),
        _ => None,
    }
}

#[test]
fn memory_is_that_of_the_owner() {
    let mut shared = Shared::new();
    let (there, rkey) = (shared.number_there(), shared.owner.rkey());
    shared.send(0, there, write_only(BASE + 8, rkey, 4), b"mine");
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
    assert_eq!(&shared.owner.memory.0[8..12], b"mine");
    let long = wire::Reth {
        address: BASE,
        rkey,
        length: 3 * MTU as u32 + 5,
    };
    shared.send(1, there, Message::read(long), &[]);
    let data = shared.settle();
    use Position::{First, Last, Middle};
    let expected = [
        (1, First, Some(2), MTU),
        (2, Middle, None, MTU),
        (3, Middle, None, MTU),
        (4, Last, Some(2), 5),
    ];
    assert_eq!(data.iter().map(read_response).collect::<Vec<_>>(), expected);
    let bytes: Vec<u8> = data.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, shared.owner.memory.0[..3 * MTU + 5]);
    // The end of the READ was lost.
    let again = wire::Reth {
        address: BASE + 2 * MTU as u64,
        rkey,
        length: MTU as u32 + 5,
    };
    shared.send(3, there, Message::read(again), &[]);
    let lengths: Vec<usize> = shared
        .settle()
        .iter()
        .map(|(_, bytes)| bytes.len())
        .collect();
    assert_eq!(lengths, [MTU, 5]);
    let eth = AtomicEth {
        address: BASE,
        rkey,
        swap_add: 5,
        compare: 0,
    };
    let before = u64::from_ne_bytes(shared.owner.memory.0[..8].try_into().unwrap());
    for _ in 0..2 {
        // The second time the stored result is returned.
        shared.send(5, there, Message::FetchAdd(eth), &[]);
        let answers = shared.settle();
        let originals: Vec<u64> = answers.iter().filter_map(atomic_result).collect();
        assert_eq!(originals, [before]);
    }
    let after = u64::from_ne_bytes(shared.owner.memory.0[..8].try_into().unwrap());
    assert_eq!(after, before.wrapping_add(5));
    // The front end's own key is not valid there.
    shared.send(
        6,
        there,
        write_only(BASE, wire::Rkey(rkey.0 ^ 0x100), 4),
        b"hers",
    );
    assert_eq!(shared.heard(), [(6, Syndrome::NAK_REMOTE_ACCESS, 3)]);
}

#[test]
fn unknown_srqs_and_srqs_of_another_domain_are_refused_in_psn_order() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    shared.send(1, 0xff_0000, send(Position::Only), b"b");
    assert_eq!(shared.heard(), [(1, Syndrome::NAK_INVALID_REQUEST, 1)]);
    assert_eq!(shared.front_end.state(), State::Error);
    let mut shared = Shared::of(DomainName {
        interface: 4,
        ..NAME
    });
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_INVALID_REQUEST, 0)]);
}

#[test]
fn a_request_forwarded_to_an_ended_srq_owner_is_nacked() {
    let mut shared = Shared::new();
    let (there, qpn) = (shared.number_there(), shared.front_end.qpn);
    shared.send(0, there, send(Position::Only), b"a");
    let (forwarded, _) = shared.forward();
    assert_eq!(forwarded, 1);
    shared
        .front_end
        .device
        .shm()
        .close_channel(CHANNEL, shared.front_end.now);
    assert_eq!(shared.heard(), [(0, Syndrome::NAK_REMOTE_OPERATIONAL, 0)]);
    assert_eq!(
        shared.front_end.events(),
        [Event::CommunicationEstablished(qpn), Event::QpFatal(qpn)]
    );
}

#[test]
fn a_receive_that_was_begun_is_flushed_when_the_connection_ends() {
    for by_channel in [false, true] {
        let mut shared = Shared::new();
        let (there, qpn) = (shared.number_there(), shared.front_end.qpn);
        let sges = [Sge {
            address: BASE,
            length: 4096,
            lkey: shared.owner.keys.lkey,
        }];
        shared
            .owner
            .device
            .srqs()
            .post_receive(shared.there, &ReceiveRequest { id: 1, sges: &sges })
            .unwrap();
        shared.send(0, there, send(Position::First), &[1; MTU]);
        shared.settle();
        assert_eq!(shared.taken_there(), []);
        if by_channel {
            shared
                .owner
                .device
                .shm()
                .close_channel(CHANNEL, shared.owner.now);
        } else {
            shared.front_end.device.destroy_qp(qpn).unwrap();
            shared.settle();
        }
        assert_eq!(shared.taken_there(), [(1, Status::Flushed, qpn)]);
        assert_eq!(shared.owner.device.srqs().destroy(shared.there), Ok(()));
        assert_eq!(
            shared
                .owner
                .device
                .dealloc_xrcd(Xrcd::from_value(0), shared.owner.now),
            Ok(())
        );
    }
}

#[test]
fn a_shared_memory_channel_that_is_still_to_come_is_waited_for() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    shared.post(1);
    shared.send(0, there, send(Position::Only), b"a");
    let mut out = Out {
        owner: Some(SrqOwner::Pending),
        ..Out::default()
    };
    while shared
        .front_end
        .device
        .transmit(shared.front_end.now, 64, &mut out)
        > 0
    {}
    assert!(out.forwarded.is_empty() && shared.front_end.device.has_stalled());
    shared.front_end.device.resume();
    assert_eq!(shared.heard(), [(0, Syndrome::ACK, 1)]);
}

#[test]
fn a_peer_that_asks_again_for_what_is_not_decided_is_not_executed_twice() {
    let mut shared = Shared::new();
    let there = shared.number_there();
    (1..=2).for_each(|id| shared.post(id));
    for offset in [0, 0, 2] {
        shared.send(
            offset,
            there,
            Message::Send {
                position: Position::Only,
                tail: Tail::None,
            },
            b"a",
        );
    }
    // The NAK of the gap is sent when everything before it is decided.
    assert_eq!(shared.heard(), [(1, Syndrome::NAK_SEQUENCE, 1)]);
    assert_eq!(shared.taken_there().len(), 1);
}
