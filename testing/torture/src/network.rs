//! A network that drops, duplicates, reorders, delays, corrupts and marks. Packets cross it as bytes, ICRC
//! included.

use super::arena::Arena;
use super::channel::{CHANNEL, ShmChannel};
use rnic::{
    Advice, Arrival, ChannelRings, Decision, DirectExecution, DirectPath, DirectWork, Execution,
    Fault, ForwardedRequest, Gather, Gid, Instant, Path, Sink, SrqOwner, StreamStatistics,
    StreamedRequest,
};
use sim::random::RunRng;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use wire::MAX_HEADERS;
use wire::icrc::{Flow, split_icrc};
use wire::ipv4::Identification;
use wire::{Packet, Qpn};

/// The faults of the network: their chances per packet, in thousandths, and how long it may hold one back.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Faults {
    pub(super) drop: u64,
    pub(super) duplicate: u64,
    pub(super) corrupt: u64,
    pub(super) mark: u64,
    pub(super) late: u64,
    pub(super) late_ns_max: u64,
}

/// A packet on its way: the payload of UDP, and fields of the IP header.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    bytes: Vec<u8>,
    source: Gid,
    destination: Gid,
    source_port: u16,
    traffic_class: u8,
    /// Whether it travels by the channel.
    pub(super) by_channel: bool,
}

/// One way takes at least this long.
const DELAY_NS: u64 = 1_000;

/// All packets in flight, by time of arrival and then by order of sending.
#[derive(Debug, Default)]
pub(super) struct LossyNetwork {
    queue: BTreeMap<(Instant, u64), (usize, Datagram)>,
    sent: u64,
    pub(super) faults: Faults,
    pub(super) corrupted: u64,
    pub(super) channel: Option<ShmChannel>,
}

impl LossyNetwork {
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next packet that has arrived by `now`, and at which side.
    pub(super) fn take(&mut self, now: Instant) -> Option<(usize, Datagram)> {
        let entry = self
            .queue
            .first_entry()
            .filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    fn carry(&mut self, to: usize, mut frame: Datagram, now: Instant, rng: &mut RunRng) {
        if frame.by_channel {
            return self.insert(to, frame, Instant(now.0 + DELAY_NS));
        }
        let faults = self.faults;
        if rng.per_mille(faults.drop) {
            return;
        }
        if rng.per_mille(faults.mark) {
            frame.traffic_class |= 3;
        }
        if rng.per_mille(faults.duplicate) {
            self.enqueue(to, frame.clone(), now, rng);
        }
        if rng.per_mille(faults.corrupt) {
            let bit = rng.below(frame.bytes.len() as u64 * 8) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.enqueue(to, frame, now, rng);
    }

    fn enqueue(&mut self, to: usize, frame: Datagram, now: Instant, rng: &mut RunRng) {
        let late = if rng.per_mille(self.faults.late) {
            rng.below(self.faults.late_ns_max)
        } else {
            0
        };
        self.insert(to, frame, Instant(now.0 + DELAY_NS + late));
    }

    fn insert(&mut self, to: usize, frame: Datagram, at: Instant) {
        self.sent += 1;
        self.queue.insert((at, self.sent), (to, frame));
    }
}

/// Sends the packets of one side's device into the network.
pub(super) struct Port<'a> {
    pub(super) arena: &'a Arena,
    pub(super) network: &'a mut LossyNetwork,
    pub(super) rng: &'a mut RunRng,
    pub(super) to: usize,
    pub(super) now: Instant,
}

impl Sink for Port<'_> {
    type Channels = Self;

    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let mut header = [0; MAX_HEADERS];
        let pad = wire::codec::pad_of(payload.len() as usize);
        let length = packet
            .encode(pad, &mut header)
            .expect("the device makes packets that can be encoded");
        let mut bytes = header[..length].to_vec();
        self.arena.gather(payload, &mut bytes);
        bytes.resize(bytes.len() + usize::from(pad), 0);
        let mut icrc = flow(path.source, path.destination, path.source_port)
            .seed(bytes.len() as u16 + 4, Identification::ZERO);
        icrc.transport(&bytes);
        bytes.extend(icrc.finish());
        let frame = Datagram {
            bytes,
            source: path.source,
            destination: path.destination,
            source_port: path.source_port,
            traffic_class: path.traffic_class,
            by_channel: path.channel == CHANNEL,
        };
        self.network.carry(self.to, frame, self.now, self.rng);
        Ok(())
    }

    fn channels(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl ChannelRings for Port<'_> {
    fn room(&mut self, path: &Path, _mtu: u32) -> u32 {
        match &self.network.channel {
            Some(channel) if path.channel == CHANNEL => channel.room(self.rng),
            _ => 1,
        }
    }

    fn datagram_channel(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        let open = self
            .network
            .channel
            .as_ref()
            .is_some_and(|channel| channel.is_open(1 - self.to));
        if open { CHANNEL } else { 0 }
    }

    fn srq_owner(&mut self, _front_end: Qpn, _srq: Qpn) -> SrqOwner {
        SrqOwner::Absent
    }

    fn forward(
        &mut self,
        _channel: u16,
        _request: &ForwardedRequest,
        _packet: &Packet,
        _payload: &[u8],
    ) {
    }
}

impl DirectExecution for Port<'_> {
    fn execute(&mut self, _at: &DirectPath<'_>, _work: DirectWork<'_>) -> usize {
        0
    }
}

/// No request is executed directly in a turn, but they wait as they would for it.
impl StreamStatistics for Port<'_> {
    const MEASURED_FROM: u32 = 0;

    fn advice(&mut self, _path: &Path, request: StreamedRequest) -> Advice {
        let execution = if request.is_heard {
            match self.rng.below(20) {
                0 => Execution::Later,
                1..4 => Execution::Direct,
                _ => Execution::ByChannel,
            }
        } else {
            Execution::ByChannel
        };
        Advice {
            execution,
            ..Advice::BY_CHANNEL
        }
    }

    fn record(&mut self, _path: &Path, _request: StreamedRequest, _decision: Decision) {}
}

fn flow(source: Gid, destination: Gid, source_port: u16) -> Flow {
    let address = |gid: Gid| Ipv4Addr::from(gid.ipv4().unwrap_or_default());
    Flow::ipv4(
        address(source),
        address(destination),
        source_port,
        wire::udp::ROCE_PORT,
    )
}

impl Datagram {
    /// The packet inside, unless it is damaged.
    pub(super) fn open(&self) -> Option<(Arrival, Packet, &[u8])> {
        let (transport, carried) = split_icrc(&self.bytes)?;
        let mut icrc = flow(self.source, self.destination, self.source_port)
            .seed(self.bytes.len() as u16, Identification::ZERO);
        icrc.transport(transport);
        if icrc.finish() != carried {
            return None;
        }
        let arrival = Arrival {
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: 64,
            service_level: 0,
        };
        let (packet, payload) = Packet::parse(transport).ok()?;
        Some((arrival, packet, payload))
    }
}
