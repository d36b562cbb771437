//! A network that drops, duplicates, reorders, delays, corrupts and marks. Packets cross it as bytes, ICRC
//! included.

use super::arena::Arena;
use super::lane::{LANE, Lane};
use crate::dice::Dice;
use rnic::{Arrival, Fault, Gather, Gid, Instant, Path, Sink};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use wire::MAX_HEADERS;
use wire::icrc::{Flow, Identification, split_icrc};
use wire::{Packet, Qpn};

/// What the network does to a packet, in thousandths, and how long it may hold one back.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Faults {
    pub(super) drop: u64,
    pub(super) duplicate: u64,
    pub(super) corrupt: u64,
    pub(super) mark: u64,
    pub(super) late: u64,
    pub(super) late_ns_max: u64,
}

/// A packet on its way: what UDP carries, and what the IP header says.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    source: Gid,
    destination: Gid,
    source_port: u16,
    traffic_class: u8,
    /// It goes by the lane.
    pub(super) by_lane: bool,
}

/// One way takes at least this long.
const DELAY_NS: u64 = 1_000;

/// All packets in flight, by time of arrival and then by order of sending.
#[derive(Debug, Default)]
pub(super) struct Network {
    queue: BTreeMap<(Instant, u64), (usize, Frame)>,
    sent: u64,
    pub(super) faults: Faults,
    pub(super) corrupted: u64,
    pub(super) lane: Option<Lane>,
}

impl Network {
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next packet that has arrived by `now`, and at which side.
    pub(super) fn take(&mut self, now: Instant) -> Option<(usize, Frame)> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    fn carry(&mut self, to: usize, mut frame: Frame, now: Instant, dice: &mut Dice) {
        if frame.by_lane {
            return self.insert(to, frame, Instant(now.0 + DELAY_NS));
        }
        let faults = self.faults;
        if dice.per_mille(faults.drop) {
            return;
        }
        if dice.per_mille(faults.mark) {
            frame.traffic_class |= 3;
        }
        if dice.per_mille(faults.duplicate) {
            self.enqueue(to, frame.clone(), now, dice);
        }
        if dice.per_mille(faults.corrupt) {
            let bit = dice.below(frame.bytes.len() as u64 * 8) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.enqueue(to, frame, now, dice);
    }

    fn enqueue(&mut self, to: usize, frame: Frame, now: Instant, dice: &mut Dice) {
        let late = if dice.per_mille(self.faults.late) { dice.below(self.faults.late_ns_max) } else { 0 };
        self.insert(to, frame, Instant(now.0 + DELAY_NS + late));
    }

    fn insert(&mut self, to: usize, frame: Frame, at: Instant) {
        self.sent += 1;
        self.queue.insert((at, self.sent), (to, frame));
    }
}

/// Sends what the device of one side makes into the network.
pub(super) struct Port<'a> {
    pub(super) arena: &'a Arena,
    pub(super) network: &'a mut Network,
    pub(super) dice: &'a mut Dice,
    pub(super) to: usize,
    pub(super) now: Instant,
}

impl Sink for Port<'_> {
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let mut header = [0; MAX_HEADERS];
        let pad = wire::codec::pad_of(payload.len() as usize);
        let length = packet.encode(pad, &mut header).expect("the device makes packets that can be encoded");
        let mut bytes = header[..length].to_vec();
        self.arena.gather(payload, &mut bytes);
        bytes.resize(bytes.len() + usize::from(pad), 0);
        let mut icrc = flow(path.source, path.destination, path.source_port)
            .seed(bytes.len() as u16 + 4, Identification::ZERO);
        icrc.transport(&bytes);
        bytes.extend(icrc.finish());
        let frame = Frame {
            bytes,
            source: path.source,
            destination: path.destination,
            source_port: path.source_port,
            traffic_class: path.traffic_class,
            by_lane: path.lane == LANE,
        };
        self.network.carry(self.to, frame, self.now, self.dice);
        Ok(())
    }

    fn room(&mut self, path: &Path, _mtu: u32) -> u32 {
        match &self.network.lane {
            Some(lane) if path.lane == LANE => lane.room(self.dice),
            _ => 1,
        }
    }

    fn lane(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        let open = self.network.lane.as_ref().is_some_and(|lane| lane.is_open(1 - self.to));
        if open { LANE } else { 0 }
    }
}

fn flow(source: Gid, destination: Gid, source_port: u16) -> Flow {
    let address = |gid: Gid| Ipv4Addr::from(gid.ipv4().unwrap_or_default());
    Flow::ipv4(address(source), address(destination), source_port, wire::udp::ROCE_PORT)
}

impl Frame {
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
        };
        let (packet, payload) = Packet::parse(transport).ok()?;
        Some((arrival, packet, payload))
    }
}
