//! The links: what is under way, and what it means when it arrives.

use super::delays::Thrower;
use super::events::Events;
use super::hops::Trace;
use super::results::{Captured, CapturedFrame};
use fabric::topology::{Extra, LinkConfig, Topology};
use fabric::{
    ECN_CE, Frame, Lane, LinkCounters, PAUSE_FRAME_BYTES, Packet, PacketId, Packets, PauseFrame, Pcg32, Rate,
    Span, Telemetry, Time, Wire,
};
use std::collections::{BTreeMap, VecDeque};

/// What the packets of the fabric carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) headers: wire::Packet,
    /// Bytes.
    pub(super) payload: u32,
    /// The flow that it belongs to.
    pub(super) flow: u32,
    /// The host that sent it.
    pub(super) from: u32,
    /// UDP source port.
    pub(super) source_port: u16,
}

/// One direction of a link, as it is for the whole run. Its number is that of the port that sends into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneInfo {
    pub(super) delay: Span,
    /// Earlier than the last bit: a switch that cuts through acts on the first ones.
    pub(super) head_start_ps_per_byte: u32,
    /// From a pause frame's arrival until it is obeyed.
    pub(super) response: Span,
    /// The receiver: index among the switches or hosts of its part, and its port, which is also the one that
    /// its pause frames stop.
    pub(super) node: u32,
    pub(super) port: u16,
    pub(super) part: u8,
    pub(super) to_host: bool,
    /// The sender.
    pub(super) from_node: u32,
    pub(super) from_port: u16,
    pub(super) from_host: bool,
    pub(super) from_part: u8,
    pub(super) crosses: bool,
    /// Whose chances of damage are.
    pub(super) config: LinkConfig,
    /// Packets are delayed by chance, and overtake each other.
    pub(super) overtakes: bool,
    /// It is captured, damages, or delays by chance: most are plain.
    pub(super) is_plain: bool,
    /// Link in the topology, and direction.
    pub(super) link: u32,
    pub(super) direction: u8,
    pub(super) watched: bool,
}

impl LaneInfo {
    /// A port without a link.
    pub(super) const UNUSED: Self = Self {
        delay: Span::ZERO,
        head_start_ps_per_byte: 0,
        response: Span::ZERO,
        node: u32::MAX,
        port: 0,
        part: 0,
        to_host: false,
        from_node: u32::MAX,
        from_port: 0,
        from_host: false,
        from_part: 0,
        crosses: false,
        config: LinkConfig::new(Rate::from_gbps(1), Span::ZERO),
        overtakes: false,
        is_plain: true,
        link: u32::MAX,
        direction: 0,
        watched: false,
    };

    /// Whether there is a link.
    pub(super) const fn is_used(&self) -> bool {
        self.link != u32::MAX
    }
}

/// What each event touches of a lane: two fit a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    delay: Span,
    pub(super) node: u32,
    pub(super) from_node: u32,
    pub(super) port: u16,
    pub(super) from_port: u16,
    pub(super) to_host: bool,
    pub(super) from_host: bool,
    /// Nothing more than a delay, and within this part.
    is_simple: bool,
}

const _: () = assert!(size_of::<Line>() <= 32, "two lines fit a cache line");

impl Line {
    fn new(info: &LaneInfo, part: u8, is_traced: bool) -> Self {
        Self {
            delay: info.delay,
            node: info.node,
            from_node: info.from_node,
            port: info.port,
            from_port: info.from_port,
            to_host: info.to_host,
            from_host: info.from_host,
            is_simple: !is_traced && info.is_plain && info.head_start_ps_per_byte == 0 && info.part == part,
        }
    }
}

/// What can happen; an event's key is the lane's number times four plus this.
pub(super) mod kind {
    /// A packet arrives: the one that the event names, or the first of a lane on which packets overtake each
    /// other.
    pub(in super::super) const ARRIVAL: u32 = 0;
    /// The port that sends into a lane is to be looked at.
    pub(in super::super) const WAKE: u32 = 1;
    /// A pause frame that came over a lane takes effect.
    pub(in super::super) const PAUSE: u32 = 2;
    /// A host's clock: lanes of hosts only.
    pub(in super::super) const CLOCK: u32 = 3;
}

/// What crosses from one part of the network to another.
#[derive(Clone, Debug)]
pub(super) enum Crossing {
    Packet { lane: u32, at: Time, packet: Packet, content: Content, telemetry: Option<Box<Telemetry>> },
    Pause { lane: u32, at: Time, frame: PauseFrame },
}

impl Crossing {
    /// When it arrives.
    pub(super) const fn at(&self) -> Time {
        match self {
            Self::Packet { at, .. } | Self::Pause { at, .. } => *at,
        }
    }
}

/// The lanes that end in one part of the network, and those that begin there.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) events: Events,
    pub(super) contents: Vec<Content>,
    pub(super) table: std::sync::Arc<[LaneInfo]>,
    pub(super) lanes: Vec<Line>,
    /// Packets under way, by lane, where they overtake each other.
    overtaking: BTreeMap<u32, Lane>,
    /// Pause frames under way, by lane: few lanes ever have any.
    pauses: Vec<VecDeque<(Time, PauseFrame)>>,
    /// What leaves for other parts, by part.
    pub(super) crossing: Vec<Vec<Crossing>>,
    throwers: Vec<Option<Box<Thrower>>>,
    pub(super) captured: Vec<Captured>,
    pub(super) trace: Option<Box<Trace>>,
    captured_max: usize,
    /// By link: from when until when it is down.
    outages: BTreeMap<u32, Vec<(Time, Time)>>,
    part: u8,
    pub(super) hops: u64,
    /// Packets that did not get to the end of a link.
    pub(super) damaged: u64,
    /// Frames that did not, by lane.
    pub(super) lost: BTreeMap<u32, LinkCounters>,
}

impl Wires {
    pub(super) fn new(
        (part, parts): (u8, usize),
        table: std::sync::Arc<[LaneInfo]>,
        events: Events,
        (captured_max, trace): (usize, Option<Box<Trace>>),
        seed: u64,
        topology: &Topology,
    ) -> Self {
        let thrower = |(lane, info): (usize, &LaneInfo)| {
            let new = |extra: Extra| {
                let random = Pcg32::new(seed, STREAM_LINKS + lane as u64);
                Box::new(Thrower::new(random, extra.chance, extra.base))
            };
            (!info.is_plain).then(|| new(topology.extra(info.link, info.direction)))
        };
        Self {
            events,
            contents: Vec::new(),
            lanes: table.iter().map(|info| Line::new(info, part, trace.is_some())).collect(),
            overtaking: BTreeMap::new(),
            pauses: vec![VecDeque::new(); table.len()],
            crossing: vec![Vec::new(); parts],
            throwers: table.iter().enumerate().map(thrower).collect(),
            captured: Vec::new(),
            trace,
            captured_max,
            outages: topology.outages().clone(),
            part,
            table,
            hops: 0,
            damaged: 0,
            lost: BTreeMap::new(),
        }
    }

    /// Puts a packet of a host's into the network.
    #[inline]
    pub(super) fn insert(
        &mut self,
        packet: Packet,
        content: Content,
        packets: &mut Packets,
    ) -> Option<PacketId> {
        let id = packets.insert(packet)?;
        match self.contents.get_mut(id.0 as usize) {
            Some(slot) => *slot = content,
            None => self.contents.push(content),
        }
        Some(id)
    }

    /// A packet leaves a port; its last bit at `end`.
    #[inline]
    pub(super) fn send(&mut self, lane: u32, id: PacketId, end: Time, packets: &mut Packets) {
        self.hops += 1;
        let line = &self.lanes[lane as usize];
        if !line.is_simple {
            return self.send_with_care(lane, id, end, packets);
        }
        self.events.push_packet(end + line.delay, lane * 4 + kind::ARRIVAL, id);
    }

    /// Over a lane that is captured, damages, delays by chance, leads to a switch that cuts through, or to
    /// another part.
    fn send_with_care(&mut self, lane: u32, id: PacketId, end: Time, packets: &mut Packets) {
        let info = self.table[lane as usize];
        let head_start = u64::from(info.head_start_ps_per_byte) * u64::from(packets[id].length);
        let mut at = Time((end + info.delay).0 - head_start);
        if let Some(trace) = &mut self.trace {
            trace.departs((lane, &info), (id, &packets[id]), end, &self.contents[id.0 as usize]);
        }
        if !info.is_plain {
            self.capture(&info, id, end, packets);
            if self.is_lost(lane, &info, u32::from(packets[id].length), (end, at)) {
                self.damaged += 1;
                self.lost_on(lane, id);
                packets.remove(id);
                return;
            }
            at += self.throwers[lane as usize].as_mut().map_or(Span::ZERO, |thrower| thrower.delay());
        }
        if info.part == self.part {
            self.under_way(lane, &info, id, at, packets);
        } else {
            let content = self.contents[id.0 as usize];
            let telemetry = packets.telemetry(id).map(Box::new);
            let packet = packets.remove(id);
            let crossing = Crossing::Packet { lane, at, packet, content, telemetry };
            self.crossing[usize::from(info.part)].push(crossing);
        }
    }

    /// A packet is lost on the lane that it left by.
    fn lost_on(&mut self, lane: u32, id: PacketId) {
        if let Some(trace) = &mut self.trace {
            trace.lost(lane, &self.table[lane as usize], &self.contents[id.0 as usize]);
        }
    }

    /// A packet is dropped by the node that sends into `lane`, where it arrived by the same link.
    pub(super) fn lost_towards(&mut self, lane: u32, id: PacketId) {
        let info = &self.table[lane as usize];
        if let Some(towards) = self.trace.as_ref().and_then(|trace| trace.lane_towards(info)) {
            self.lost_on(towards, id);
        }
    }

    fn under_way(&mut self, lane: u32, info: &LaneInfo, id: PacketId, at: Time, packets: &mut Packets) {
        if let Some(trace) = &mut self.trace {
            trace.under_way(id, at, packets[id].is_marked());
        }
        let key = lane * 4 + kind::ARRIVAL;
        if !info.overtakes {
            self.events.push_packet(at, key, id);
        } else if self.overtaking.entry(lane).or_default().insert(id, at, packets) {
            self.events.push(at, key);
        }
    }

    /// Whether a frame that leaves and would arrive then does not; which is counted.
    fn is_lost(&mut self, lane: u32, info: &LaneInfo, bytes: u32, (leaves, arrives): (Time, Time)) -> bool {
        let LinkConfig { loss, bit_errors, .. } = info.config;
        let wrong = bit_errors > 0 && self.throw_64(lane) < info.config.damage_by_bits(bytes);
        let damaged = wrong || loss > 0 && self.throw(lane) < loss;
        let down = self.is_down(info.link, leaves, arrives);
        if damaged || down {
            let counters = self.lost.entry(lane).or_default();
            *if down { &mut counters.lost } else { &mut counters.damaged } += 1;
        }
        damaged || down
    }

    /// Whether a link is down at some moment from one time until another.
    fn is_down(&self, link: u32, from: Time, until: Time) -> bool {
        let outages = self.outages.get(&link);
        outages.is_some_and(|all| all.iter().any(|(down, up)| *down <= until && from < *up))
    }

    fn throw(&mut self, lane: u32) -> u32 {
        self.throwers[lane as usize].as_mut().map_or(u32::MAX, |thrower| thrower.next_u32())
    }

    fn throw_64(&mut self, lane: u32) -> u64 {
        u64::from(self.throw(lane)) << 32 | u64::from(self.throw(lane))
    }

    /// A pause frame leaves a port.
    pub(super) fn send_pause(&mut self, lane: u32, frame: PauseFrame, end: Time) {
        let info = self.table[lane as usize];
        if info.watched && self.captured.len() < self.captured_max {
            let frame = CapturedFrame::Pause(frame);
            self.captured.push(Captured { at: end, link: info.link, direction: info.direction, frame });
        }
        let on_the_way = (end, end + info.delay);
        if !info.is_plain && self.is_lost(lane, &info, PAUSE_FRAME_BYTES, on_the_way) {
            return;
        }
        let at = end + info.delay + info.response;
        if info.part == self.part {
            self.pause_under_way(lane, at, frame);
        } else {
            self.crossing[usize::from(info.part)].push(Crossing::Pause { lane, at, frame });
        }
    }

    fn pause_under_way(&mut self, lane: u32, at: Time, frame: PauseFrame) {
        self.pauses[lane as usize].push_back((at, frame));
        self.events.push(at, lane * 4 + kind::PAUSE);
    }

    /// Takes in what comes from another part.
    pub(super) fn cross(&mut self, crossing: Crossing, packets: &mut Packets) {
        match crossing {
            Crossing::Packet { lane, at, packet, content, telemetry } => {
                let Some(id) = self.insert(packet, content, packets) else {
                    self.damaged += 1;
                    return;
                };
                telemetry.into_iter().for_each(|telemetry| packets.set_telemetry(id, *telemetry));
                let info = self.table[lane as usize];
                self.under_way(lane, &info, id, at, packets);
            }
            Crossing::Pause { lane, at, frame } => self.pause_under_way(lane, at, frame),
        }
    }

    /// Takes the packet that arrives now on a lane on which packets overtake each other. (One that was
    /// overtaken has an event too many.)
    pub(super) fn first(&mut self, now: Time, lane: u32, packets: &Packets) -> Option<PacketId> {
        let queue = self.overtaking.get_mut(&lane)?;
        if queue.first_at(packets) != Some(now) {
            return None;
        }
        let (id, next) = queue.pop(packets)?;
        if let Some(at) = next {
            self.events.push(at, lane * 4 + kind::ARRIVAL);
        }
        Some(id)
    }

    /// Takes the pause frame that takes effect now.
    pub(super) fn pause(&mut self, lane: u32) -> Option<PauseFrame> {
        self.pauses[lane as usize].pop_front().map(|(_, frame)| frame)
    }

    fn capture(&mut self, info: &LaneInfo, id: PacketId, end: Time, packets: &Packets) {
        if !info.watched || self.captured.len() >= self.captured_max {
            return;
        }
        let (packet, content) = (&packets[id], &self.contents[id.0 as usize]);
        let frame = CapturedFrame::Packet {
            from: content.from,
            flow: content.flow,
            source_port: content.source_port,
            tos: packet.tos,
            pcp: (packet.pcp != fabric::UNTAGGED).then_some(packet.pcp),
            hop_limit: packet.hop_limit,
            headers: content.headers,
            payload: content.payload,
        };
        self.captured.push(Captured { at: end, link: info.link, direction: info.direction, frame });
    }
}

/// Streams of the generator: links, switches and devices each have their own.
const STREAM_LINKS: u64 = 1 << 32;
pub(super) const STREAM_SWITCHES: u64 = 2 << 32;
pub(super) const STREAM_HOSTS: u64 = 3 << 32;
pub(super) const STREAM_STORES: u64 = 4 << 32;

/// The ports of one switch, as the switch sees them.
pub(super) struct Cables<'a> {
    pub(super) wires: &'a mut Wires,
    /// The lane of port 0.
    pub(super) first_lane: u32,
}

impl Wire for Cables<'_> {
    #[inline]
    fn send(&mut self, port: u16, frame: Frame, end: Time, packets: &mut Packets) {
        let lane = self.first_lane + u32::from(port);
        match frame {
            Frame::Packet(id) => self.wires.send(lane, id, end, packets),
            Frame::Pause(frame) => self.wires.send_pause(lane, frame, end),
        }
    }

    #[inline]
    fn wake(&mut self, port: u16, at: Time) {
        self.wires.events.push(at, (self.first_lane + u32::from(port)) * 4 + kind::WAKE);
    }

    fn dropped(&mut self, port: u16, id: PacketId, _why: fabric::Drop, packets: &mut Packets) {
        self.wires.lost_towards(self.first_lane + u32::from(port), id);
        packets.remove(id);
    }
}

/// ECT(0), which a sender that takes part in ECN sets (RFC 3168, section 5).
pub(super) const ECT_0: u8 = ECN_CE & 2;
