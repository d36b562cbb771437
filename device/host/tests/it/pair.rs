//! Two open devices and a connected queue pair on each.

use host::{CompletionChannel, Device};
use rnic::{
    Access, AddressVector, AttrMask, Capacity, Completion, Cq, Data, Gid, Lkey, Mtu, Operation,
    QpAttr, QpInit, QpType, ReceiveRequest, RegionInit, RegionKeys, SendFlags, SendRequest, Sge,
    State,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Psn, Qpn};

/// Long enough for a busy machine; reaching it is a failure.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// 67 ms, and half a second with all retries.
const ACK_TIMEOUT: u8 = 14;

/// The transport between the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Packets,
    SharedMemory,
}

/// Both transports, for tests that run over each.
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Packets, Transport::SharedMemory];

pub(crate) struct Side {
    pub(crate) device: Arc<Device>,
    pub(crate) channel: Arc<CompletionChannel>,
    pub(crate) cq: Cq,
    pub(crate) qpn: Qpn,
    pub(crate) memory: Box<[u8]>,
    pub(crate) keys: RegionKeys,
    /// The code of its ACK timeout.
    pub(crate) timeout: u8,
}

impl Side {
    pub(crate) fn open(kind: QpType, bytes: usize) -> Self {
        let info = host::list()
            .into_iter()
            .find(|device| device.interface == "lo")
            .expect("lo is up");
        Self::of(Device::open(&info).expect("port 4791 is free"), kind, bytes)
    }

    fn of(device: Arc<Device>, kind: QpType, bytes: usize) -> Self {
        let memory = vec![0; bytes].into_boxed_slice();
        let address = memory.as_ptr() as u64;
        host::pin(address, bytes as u64, true).unwrap();
        let capacity = Capacity {
            send_wr: 256,
            receive_wr: 256,
            send_sge: 4,
            receive_sge: 4,
            inline: 64,
        };
        let (cq, qpn, keys) = device.with(|rnic, _| {
            let pd = rnic.alloc_pd().unwrap();
            let cq = rnic.cqs_mut().create(1024).unwrap();
            let access = Access::LOCAL_WRITE | Access::REMOTE;
            let init = RegionInit {
                address,
                length: bytes as u64,
                iova: address,
                access,
            };
            let keys = rnic.memory().register(pd, init).unwrap();
            let (pd_of_qp, cq_of_qp) = (Some(pd), Some(cq));
            let init = QpInit {
                kind,
                pd: pd_of_qp,
                xrcd: None,
                send_cq: cq_of_qp,
                receive_cq: cq_of_qp,
                srq: None,
                capacity,
                signal_all: true,
            };
            (cq, rnic.create_qp(&init).unwrap(), keys)
        });
        let channel = Arc::new(CompletionChannel::new().unwrap());
        device.attach_cq(cq, &channel, 77);
        Self {
            device,
            channel,
            cq,
            qpn,
            memory,
            keys,
            timeout: ACK_TIMEOUT,
        }
    }

    /// Registers memory of the caller, for peers to use.
    pub(crate) fn register(&self, address: u64, length: usize) -> RegionKeys {
        host::pin(address, length as u64, true).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let init = RegionInit {
            address,
            length: length as u64,
            iova: address,
            access,
        };
        self.device.with(|rnic, _| {
            let (_, queue) = rnic.query_qp(self.qpn).unwrap();
            rnic.memory().register(queue.pd.unwrap(), init).unwrap()
        })
    }

    /// Another queue pair of the same device, with a queue and memory of its own.
    pub(crate) fn beside(&self, bytes: usize) -> Self {
        Self::of(Arc::clone(&self.device), QpType::Rc, bytes)
    }

    /// Brings the queue pair to RTS, connected to `peer`.
    pub(crate) fn connect(&self, peer: &Self, transport: Transport) {
        self.connect_to(peer.qpn, transport);
    }

    /// Connects to a queue pair on the loopback interface. On a busy machine the other side may not answer
    /// the request for a channel in time: then it is repeated.
    pub(crate) fn connect_to(&self, peer: Qpn, transport: Transport) {
        let start = Instant::now();
        loop {
            self.bring_up(peer, transport);
            let channel = self.device.with(|rnic, _| rnic.channel(self.qpn).unwrap());
            if (channel != 0) == (transport == Transport::SharedMemory) {
                return;
            }
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "channel {channel}, {transport:?}"
            );
            let reset = QpAttr {
                state: State::Reset,
                ..QpAttr::default()
            };
            self.device
                .modify_qp(self.qpn, &reset, AttrMask::STATE)
                .unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Replaces the queue pair by a new one with the same parameters.
    pub(crate) fn renew(&mut self) {
        self.qpn = self.device.with(|rnic, _| {
            let (_, init) = rnic.query_qp(self.qpn).unwrap();
            rnic.destroy_qp(self.qpn).unwrap();
            rnic.create_qp(&init).unwrap()
        });
    }

    /// Connects like [`Side::connect_to`], to a peer that may have ended: then with packets.
    pub(crate) fn bring_up(&self, peer: Qpn, transport: Transport) {
        self.bring_up_towards(self.device.info().gids[1], peer, transport);
    }

    /// Connects to a queue pair at this address.
    pub(crate) fn bring_up_towards(&self, destination: Gid, peer: Qpn, transport: Transport) {
        let vector = AddressVector {
            destination,
            source_index: 1,
            ..Default::default()
        };
        let attr = |state| QpAttr {
            state,
            path_mtu: Mtu::B4096,
            destination: peer,
            access: Access::LOCAL_WRITE | Access::REMOTE,
            vector,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            timeout: self.timeout,
            retry_count: 7,
            rnr_retry: 7,
            receive_psn: Psn::new(100),
            send_psn: Psn::new(100),
            ..QpAttr::default()
        };
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let receive = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let send = AttrMask::STATE
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::SQ_PSN
            | AttrMask::MAX_QP_RD_ATOMIC;
        for (state, mask) in [
            (State::Init, init),
            (State::ReadyToReceive, receive),
            (State::ReadyToSend, send),
        ] {
            match transport {
                Transport::SharedMemory => {
                    self.device.modify_qp(self.qpn, &attr(state), mask).unwrap()
                }
                Transport::Packets => self
                    .device
                    .with(|rnic, now| rnic.modify_qp(self.qpn, &attr(state), mask, now))
                    .unwrap(),
            }
        }
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        let address = self.memory[offset..offset + length].as_ptr() as u64;
        Sge {
            address,
            length: length as u32,
            lkey: self.lkey(),
        }
    }

    pub(crate) fn lkey(&self) -> Lkey {
        self.keys.lkey
    }

    pub(crate) fn post(&self, id: u64, operation: Operation, sge: Sge) {
        let request = SendRequest {
            id,
            operation,
            flags: SendFlags::SIGNALED | SendFlags::SOLICITED,
            data: Data::Sges(&[sge]),
            destination: None,
            xrc_srq: None,
        };
        self.device.post_send(self.qpn, &request).unwrap();
    }

    pub(crate) fn receive(&self, id: u64, sge: Sge) {
        self.device
            .post_receive(self.qpn, &ReceiveRequest { id, sges: &[sge] })
            .unwrap();
    }

    /// Polls until there are `count` completions.
    pub(crate) fn wait(&self, count: usize) -> Vec<Completion> {
        let (mut found, start) = (Vec::new(), Instant::now());
        while found.len() < count {
            self.device
                .poll_cq(self.cq, 16, |completion| found.push(*completion));
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "{} of {count}: {:?}",
                found.len(),
                self.device.link_counters()
            );
        }
        found
    }

    /// The current value of a byte of the memory, as a program sees it that the device writes to.
    pub(crate) fn byte(&self, offset: usize) -> u8 {
        std::hint::black_box(&self.memory)[offset]
    }
}

pub(crate) fn pair(bytes: usize, transport: Transport) -> (Side, Side) {
    pair_of(
        Side::open(QpType::Rc, bytes),
        Side::open(QpType::Rc, bytes),
        transport,
    )
}

/// Bytes of a message of [`echo`].
pub(crate) const ECHO_BYTES: usize = 48;

/// Sends a message and waits for its answer, again and again; the side that does not begin answers. `wait`
/// returns when one receive has completed.
pub(crate) fn echo(side: &Side, rounds: u64, begins: bool, pause: Duration, wait: impl Fn(&Side)) {
    for round in 0..rounds {
        if begins {
            std::thread::sleep(pause);
            side.post(
                round,
                Operation::Send(wire::Tail::None),
                side.sge(0, ECHO_BYTES),
            );
        }
        wait(side);
        side.receive(round, side.sge(64, 64));
        if !begins {
            side.post(
                round,
                Operation::Send(wire::Tail::None),
                side.sge(0, ECHO_BYTES),
            );
        }
    }
}

/// Runs [`echo`] between two connected sides, over each transport: rounds, and the pause before each.
pub(crate) fn echo_over_each_transport(runs: &[(u64, Duration)], wait: impl Fn(&Side) + Sync) {
    for transport in TRANSPORTS {
        for &(rounds, pause) in runs {
            let (a, b) = pair(4096, transport);
            (0..8).for_each(|id| (a.receive(id, a.sge(64, 64)), b.receive(id, b.sge(64, 64))).0);
            std::thread::scope(|scope| {
                scope.spawn(|| echo(&b, rounds, false, pause, &wait));
                echo(&a, rounds, true, pause, &wait);
            });
        }
    }
}

/// Connects two existing sides.
pub(crate) fn pair_of(a: Side, b: Side, transport: Transport) -> (Side, Side) {
    a.connect(&b, transport);
    b.connect(&a, transport);
    (a, b)
}
