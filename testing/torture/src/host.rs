//! One side of the torture: a device, its memory, and where it is.

use super::arena::{Arena, BASE, Slot};
use super::channel::{CHANNEL, ShmChannel};
use super::network::{LossyNetwork, Port};
use rnic::{
    Access, AddressVector, AttrMask, Capacity, Completion, Config, Cq, Device, Direct,
    DirectExecution, DirectPath, DirectRequest, DirectWork, Event, Gather, Gid, Instant, Memory,
    Mtu, Payload, Pd, QpAttr, QpInit, QpType, ReceiveRequest, RegionInit, RegionKeys, Sge, State,
};
use sim::random::RunRng;
use wire::{Psn, Qpn};

/// One of the two hosts: its device, its memory, and the keys and queues that the test uses.
#[derive(Debug)]
pub(super) struct TestHost {
    pub(super) device: Device,
    pub(super) arena: Arena,
    pub(super) keys: RegionKeys,
    pub(super) cq: Cq,
    pd: Pd,
    gid: Gid,
    free: usize,
}

/// Ends a channel where its time has come, and resumes queue pairs that wait for room.
pub(super) fn tend(channel: &mut ShmChannel, hosts: &mut [TestHost; 2], now: Instant) {
    for (side, host) in hosts.iter_mut().enumerate() {
        if channel.end(side, now) {
            host.device.shm().close_channel(CHANNEL, now);
        }
        host.device.resume();
    }
}

/// Attributes that both ends of a connection share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) mtu: Mtu,
    pub(super) timeout: u8,
    pub(super) rd_atomic: u8,
    pub(super) psns: [Psn; 2],
}

/// Rights of the one region.
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

/// The queue key of all datagrams.
pub(super) const QKEY: u32 = 0x1234;

/// An RNR timer of 10 us.
const RNR_TIMER_CODE: u8 = 1;

impl TestHost {
    pub(super) fn new(
        config: Config,
        side: usize,
        arena_bytes: usize,
        rng: &mut RunRng,
    ) -> Result<Self, rnic::Error> {
        Self::with_seed(config, side, arena_bytes, rng.seed())
    }

    pub(super) fn with_seed(
        config: Config,
        side: usize,
        arena_bytes: usize,
        seed: [u8; 32],
    ) -> Result<Self, rnic::Error> {
        let mut device = Device::new(config, seed);
        device.add_qpn_range(Qpn::new(0x1000 * (side as u32 + 1)), 64);
        let gid = Gid::from_ipv4([10, 0, 0, side as u8 + 1]);
        device.port_mut().set_gid(0, Some(gid));
        device.port_mut().set_active_mtu(Mtu::B4096);
        let pd = device.alloc_pd()?;
        let arena = Arena::new(arena_bytes);
        let init = RegionInit {
            address: BASE,
            length: arena.length(),
            iova: BASE,
            access: RIGHTS,
        };
        let keys = device.memory().register(pd, init)?;
        let cq = device.cqs_mut().create(4096)?;
        Ok(Self {
            device,
            arena,
            keys,
            cq,
            pd,
            gid,
            free: 0,
        })
    }

    /// A part of the arena that no other region has.
    pub(super) fn allot(&mut self, length: usize) -> Slot {
        let slot = Slot {
            offset: self.free,
            length,
        };
        self.free = (self.free + length).next_multiple_of(64);
        assert!(
            self.free as u64 <= self.arena.length(),
            "the arena is too small for the plan"
        );
        slot
    }

    pub(super) fn sge(&self, slot: Slot) -> Sge {
        Sge {
            address: slot.address(),
            length: slot.length as u32,
            lkey: self.keys.lkey,
        }
    }

    pub(super) fn create_qp(&mut self, kind: QpType) -> Result<Qpn, rnic::Error> {
        let capacity = Capacity {
            send_wr: 32,
            receive_wr: 64,
            send_sge: 4,
            receive_sge: 2,
            inline: 64,
        };
        self.device.create_qp(&QpInit {
            kind,
            pd: Some(self.pd),
            xrcd: None,
            send_cq: Some(self.cq),
            receive_cq: Some(self.cq),
            srq: None,
            capacity,
            signal_all: false,
        })
    }

    pub(super) fn vector_to(&self, peer: Gid) -> AddressVector {
        AddressVector {
            destination: peer,
            hop_limit: 64,
            traffic_class: 2,
            ..AddressVector::default()
        }
    }

    pub(super) fn gid(&self) -> Gid {
        self.gid
    }

    /// Brings a queue pair to RTS.
    pub(super) fn connect(
        &mut self,
        kind: QpType,
        qpn: Qpn,
        peer: (Gid, Qpn),
        side: usize,
        how: &Connection,
    ) -> Result<(), rnic::Error> {
        let attr = QpAttr {
            port: 1,
            access: RIGHTS,
            qkey: QKEY,
            path_mtu: how.mtu,
            destination: peer.1,
            receive_psn: how.psns[1 - side],
            send_psn: how.psns[side],
            vector: self.vector_to(peer.0),
            max_rd_atomic: how.rd_atomic,
            max_dest_rd_atomic: how.rd_atomic,
            min_rnr_timer: RNR_TIMER_CODE,
            timeout: how.timeout,
            retry_count: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        for (state, mask) in steps(kind) {
            self.device.modify_qp(
                qpn,
                &QpAttr { state, ..attr },
                mask | AttrMask::STATE,
                Instant(0),
            )?;
        }
        Ok(())
    }

    pub(super) fn post_receive(
        &mut self,
        qpn: Qpn,
        id: u64,
        slot: Slot,
        now: Instant,
    ) -> Result<(), rnic::Error> {
        let sges = [self.sge(slot)];
        self.device
            .post_receive(qpn, &ReceiveRequest { id, sges: &sges }, now)
    }

    /// Sends all that waits. Returns the device's events.
    pub(super) fn pump(
        &mut self,
        to: usize,
        now: Instant,
        network: &mut LossyNetwork,
        rng: &mut RunRng,
    ) -> Vec<Event> {
        let mut port = Port {
            arena: &self.arena,
            network,
            rng,
            to,
            now,
        };
        while self.device.transmit(now, 64, &mut port) > 0 {}
        core::iter::from_fn(|| self.device.poll_event()).collect()
    }

    pub(super) fn completions(&mut self) -> Vec<Completion> {
        let mut taken = Vec::new();
        self.device
            .cqs_mut()
            .poll(self.cq, usize::MAX, |completion| taken.push(*completion));
        taken
    }
}

fn steps(kind: QpType) -> [(State, AttrMask); 3] {
    use AttrMask as M;
    let connect = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let retry = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    let (init, receive, send) = match kind {
        QpType::Ud => (M::QKEY, M::empty(), M::SQ_PSN),
        QpType::Uc => (M::ACCESS_FLAGS, connect, M::SQ_PSN),
        _ => (
            M::ACCESS_FLAGS,
            connect | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
            M::SQ_PSN | retry,
        ),
    };
    [
        (State::Init, init | M::PKEY_INDEX | M::PORT),
        (State::ReadyToReceive, receive),
        (State::ReadyToSend, send),
    ]
}

/// The memory of a host as the other one has it mapped.
pub(super) struct SharedPeer<'a> {
    pub(super) host: &'a mut TestHost,
    /// Memory of the host that executes requests.
    pub(super) arena: &'a mut Arena,
}

impl DirectExecution for SharedPeer<'_> {
    /// Executes a request, where the host grants it.
    fn execute(&mut self, at: &DirectPath<'_>, work: DirectWork<'_>) -> usize {
        let DirectWork::One(request) = work else {
            return 0;
        };
        usize::from(self.execute_one(at, &request))
    }
}

impl SharedPeer<'_> {
    fn execute_one(&mut self, at: &DirectPath<'_>, request: &DirectRequest<'_>) -> bool {
        let (reth, theirs) = (&request.reth, &mut *self.arena);
        let need = match request.direct {
            Direct::Write(_) => Access::REMOTE_WRITE,
            Direct::Read(_) => Access::REMOTE_READ,
            Direct::FetchAdd { .. } | Direct::CompareSwap { .. } => Access::REMOTE_ATOMIC,
        };
        let TestHost { device, arena, .. } = &mut *self.host;
        let grants = device.grants();
        let queue = grants
            .queue(at.to)
            .filter(|queue| queue.peer == at.from && queue.access.contains(need));
        let piece = queue.and_then(|queue| {
            grants
                .region(reth.rkey)?
                .piece(queue.pd, at.to, reth.address, reth.length, need)
        });
        let Some(piece) = piece else { return false };
        match request.direct {
            Direct::Write(bytes) => {
                let mut copy = Vec::new();
                theirs.gather(bytes, &mut copy);
                arena.write(piece, Payload::Bytes(&copy)).is_ok()
            }
            Direct::Read(into) => {
                let mut copy = Vec::new();
                arena.gather(Gather::Pieces(&[piece]), &mut copy);
                theirs.scatter(into, &copy)
            }
            Direct::FetchAdd { add, into } => {
                let before = arena.fetch_add(piece, add);
                before.is_ok_and(|before| theirs.scatter(into, &before.to_ne_bytes()))
            }
            Direct::CompareSwap {
                compare,
                swap,
                into,
            } => {
                let before = arena.compare_swap(piece, compare, swap);
                before.is_ok_and(|before| theirs.scatter(into, &before.to_ne_bytes()))
            }
        }
    }
}
