//! One device with one queue pair, a peer that consists of packets, and memory in a vector.

use rnic::*;
use wire::{Aeth, Message, Packet, Position, Psn, Qpn, Reth, Rkey, Service, Syndrome, Tail};

pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const MTU: usize = 1024;
/// PSN of the first packet in either direction.
pub(crate) const START: u32 = 0x100;
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x4711);
/// The syndrome with which a responder on a shared-memory channel announces a posted receive.
pub(crate) const READY: Syndrome = Syndrome::Reserved(0x40);
pub(crate) const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

pub(crate) fn us() -> Gid {
    Gid::from_ipv4([10, 0, 0, 1])
}

pub(crate) fn peer() -> Gid {
    Gid::from_ipv4([10, 0, 0, 2])
}

/// Memory with the first address [`BASE`].
#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    fn at(&mut self, piece: Piece) -> &mut [u8] {
        let offset = (piece.address - BASE) as usize;
        &mut self.0[offset..offset + piece.length as usize]
    }

    fn word(&mut self, piece: Piece) -> u64 {
        u64::from_ne_bytes(self.at(piece)[..8].try_into().unwrap())
    }
}

impl Memory for Bytes {
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault> {
        if let Payload::Bytes(bytes) = payload {
            self.at(piece).copy_from_slice(bytes);
        }
        Ok(())
    }

    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault> {
        let before = self.word(piece);
        self.at(piece)
            .copy_from_slice(&before.wrapping_add(add).to_ne_bytes());
        Ok(before)
    }

    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault> {
        let before = self.word(piece);
        if before == compare {
            self.at(piece).copy_from_slice(&swap.to_ne_bytes());
        }
        Ok(before)
    }

    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault> {
        self.at(piece).copy_from_slice(&bytes);
        Ok(())
    }
}

/// Records the sent packets.
#[derive(Debug, Default)]
pub(crate) struct Sent(pub(crate) Vec<(Packet, u32)>);

impl Sink for Sent {
    type Channels = NoChannels;

    fn send(&mut self, _path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        self.0.push((*packet, payload.len()));
        Ok(())
    }
}

pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) memory: Bytes,
    pub(crate) now: Instant,
    pub(crate) qpn: Qpn,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) keys: RegionKeys,
}

impl Bench {
    pub(crate) fn new(kind: QpType) -> Self {
        Self::with(kind, Config::default(), ALL)
    }

    pub(crate) fn with(kind: QpType, config: Config, access: Access) -> Self {
        let mut device = Device::new(config, [3; 32]);
        device.add_qpn_range(Qpn::new(0x1000), 4096);
        device.port_mut().set_gid(0, Some(us()));
        device.port_mut().set_active_mtu(Mtu::B4096);
        let pd = device.alloc_pd().unwrap();
        let memory = Bytes((0..65536u32).map(|index| (index % 251) as u8).collect());
        let init = RegionInit {
            address: BASE,
            length: memory.0.len() as u64,
            iova: BASE,
            access,
        };
        let keys = device.memory().register(pd, init).unwrap();
        let cq = device.cqs_mut().create(1024).unwrap();
        let mut bench = Self {
            device,
            memory,
            now: Instant(0),
            qpn: Qpn::new(0),
            pd,
            cq,
            keys,
        };
        bench.qpn = bench.connected(kind);
        bench
    }

    /// Connects one more queue pair to the same peer.
    pub(crate) fn connected(&mut self, kind: QpType) -> Qpn {
        let qpn = self.device.create_qp(&self.init(kind)).unwrap();
        connect(&mut self.device, kind, qpn);
        qpn
    }

    pub(crate) fn init(&self, kind: QpType) -> QpInit {
        QpInit {
            kind,
            pd: Some(self.pd),
            xrcd: None,
            send_cq: Some(self.cq),
            receive_cq: Some(self.cq),
            srq: None,
            capacity: Capacity {
                send_wr: 64,
                receive_wr: 64,
                send_sge: 2,
                receive_sge: 2,
                inline: 64,
            },
            signal_all: false,
        }
    }

    pub(crate) fn arrival(&self) -> Arrival {
        Arrival {
            source: peer(),
            destination: us(),
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
        }
    }

    /// The peer sends a packet with PSN `START + offset`.
    pub(crate) fn receive(&mut self, offset: u32, message: Message, payload: &[u8]) {
        let mut packet = Packet::new(Service::Rc, self.qpn, Psn::new(START + offset), message);
        packet.ack_req = true;
        self.receive_from(&self.arrival(), &packet, payload);
    }

    pub(crate) fn receive_from(&mut self, arrival: &Arrival, packet: &Packet, payload: &[u8]) {
        self.device.handle_packet(
            self.now,
            arrival,
            packet,
            Payload::Bytes(payload),
            &mut self.memory,
        );
    }

    /// Calls [`Self::receive`] with the shared-memory channel to the peer as origin.
    pub(crate) fn receive_by_channel(&mut self, offset: u32, message: Message, payload: &[u8]) {
        let mut packet = Packet::new(Service::Rc, self.qpn, Psn::new(START + offset), message);
        packet.ack_req = true;
        let (arrival, senders) = (
            self.arrival(),
            Senders {
                first: PEER_QPN,
                count: 1,
            },
        );
        let payload = Payload::Bytes(payload);
        self.device.shm().handle_packet(
            self.now,
            &arrival,
            senders,
            &packet,
            payload,
            &mut self.memory,
        );
    }

    /// All packets that the device sends now.
    pub(crate) fn sent(&mut self) -> Vec<(Packet, u32)> {
        let mut sink = Sent::default();
        while self.device.transmit(self.now, 64, &mut sink) > 0 {}
        sink.0
    }

    /// The acknowledgements that the device sends now: PSN less `START`, and syndrome.
    pub(crate) fn answers(&mut self) -> Vec<(u32, Syndrome)> {
        let acknowledgement = |(packet, _): (Packet, u32)| match packet.message {
            Message::Acknowledge(aeth) => Some((packet.psn.value() - START, aeth.syndrome)),
            _ => None,
        };
        self.sent()
            .into_iter()
            .filter_map(acknowledgement)
            .collect()
    }

    /// The PSNs, less `START`, of the packets that the device sends now.
    pub(crate) fn sent_psns(&mut self) -> Vec<u32> {
        self.sent()
            .iter()
            .map(|(packet, _)| packet.psn.value() - START)
            .collect()
    }

    pub(crate) fn acknowledge(&mut self, offset: u32, syndrome: Syndrome) {
        self.receive(offset, Message::Acknowledge(Aeth { syndrome, msn: 0 }), &[]);
    }

    pub(crate) fn post_receive(&mut self, id: u64, length: u32) {
        let sges = [Sge {
            address: BASE,
            length,
            lkey: self.keys.lkey,
        }];
        self.device
            .post_receive(self.qpn, &ReceiveRequest { id, sges: &sges }, self.now)
            .unwrap();
    }

    pub(crate) fn post(&mut self, id: u64, operation: Operation, length: u32) {
        let sges = [Sge {
            address: BASE,
            length,
            lkey: self.keys.lkey,
        }];
        self.post_sges(id, operation, &sges).unwrap();
    }

    /// The same, with other flags than [`SendFlags::SIGNALED`].
    pub(crate) fn post_with(
        &mut self,
        id: u64,
        operation: Operation,
        length: u32,
        flags: SendFlags,
    ) {
        let sges = [Sge {
            address: BASE,
            length,
            lkey: self.keys.lkey,
        }];
        self.post_request(id, operation, &sges, flags).unwrap();
    }

    pub(crate) fn post_sges(
        &mut self,
        id: u64,
        operation: Operation,
        sges: &[Sge],
    ) -> Result<(), Error> {
        self.post_request(id, operation, sges, SendFlags::SIGNALED)
    }

    fn post_request(
        &mut self,
        id: u64,
        operation: Operation,
        sges: &[Sge],
        flags: SendFlags,
    ) -> Result<(), Error> {
        let data = Data::Sges(sges);
        let request = SendRequest {
            id,
            operation,
            flags,
            data,
            destination: None,
            xrc_srq: None,
        };
        self.device.post_send(self.qpn, &request, self.now)
    }

    /// Completions that wait: id and status.
    pub(crate) fn completions(&mut self) -> Vec<(u64, Status)> {
        let mut taken = Vec::new();
        self.device
            .cqs_mut()
            .poll(self.cq, 1024, |done| taken.push((done.id, done.status)));
        taken
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    pub(crate) fn state(&self) -> State {
        self.device.query_qp(self.qpn).unwrap().0.state
    }

    /// Lets time pass up to the next timeout.
    pub(crate) fn wait(&mut self) {
        self.now = self.device.next_timeout().expect("a timer runs");
        self.device.handle_timeout(self.now);
    }

    pub(crate) fn rkey(&self) -> Rkey {
        self.keys.rkey
    }
}

pub(crate) fn connect(device: &mut Device, kind: QpType, qpn: Qpn) {
    connect_from(device, kind, qpn, Psn::new(START), Mtu::B1024);
}

/// Connects with these PSNs and this path MTU.
pub(crate) fn connect_from(device: &mut Device, kind: QpType, qpn: Qpn, first: Psn, path_mtu: Mtu) {
    use AttrMask as M;
    let attr = QpAttr {
        access: ALL,
        qkey: 7,
        path_mtu,
        destination: PEER_QPN,
        receive_psn: first,
        send_psn: first,
        vector: AddressVector {
            destination: peer(),
            ..AddressVector::default()
        },
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 24,
        timeout: 14,
        retry_count: 2,
        rnr_retry: 2,
        ..QpAttr::default()
    };
    let path = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let retry = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    let (init, receive, send) = match kind {
        QpType::Ud => (M::QKEY, M::empty(), M::empty()),
        QpType::Uc => (M::ACCESS_FLAGS, path, M::empty()),
        _ => (
            M::ACCESS_FLAGS,
            path | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
            retry,
        ),
    };
    let steps = [
        (State::Init, init | M::PKEY_INDEX | M::PORT),
        (State::ReadyToReceive, receive),
        (State::ReadyToSend, send | M::SQ_PSN),
    ];
    for (state, mask) in steps {
        device
            .modify_qp(qpn, &QpAttr { state, ..attr }, mask | M::STATE, Instant(0))
            .unwrap();
    }
}

pub(crate) fn send(position: Position) -> Message {
    Message::Send {
        position,
        tail: Tail::None,
    }
}

pub(crate) fn write(position: Position, reth: Option<Reth>) -> Message {
    Message::Write {
        position,
        reth,
        tail: Tail::None,
    }
}

pub(crate) fn write_only(address: u64, rkey: Rkey, length: u32) -> Message {
    write(
        Position::Only,
        Some(Reth {
            address,
            rkey,
            length,
        }),
    )
}

/// The same for the bench's queue pair, which only receives.
pub(crate) fn connect_xrc_receiver(bench: &mut Bench) {
    use AttrMask as M;
    let attr = QpAttr {
        access: ALL,
        path_mtu: Mtu::B1024,
        destination: PEER_QPN,
        receive_psn: Psn::new(START),
        vector: AddressVector {
            destination: peer(),
            ..AddressVector::default()
        },
        max_dest_rd_atomic: 4,
        ..QpAttr::default()
    };
    let receive =
        M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let init = M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT;
    for (state, mask) in [(State::Init, init), (State::ReadyToReceive, receive)] {
        let attr = QpAttr { state, ..attr };
        bench
            .device
            .modify_qp(bench.qpn, &attr, mask | M::STATE, bench.now)
            .unwrap();
    }
}
