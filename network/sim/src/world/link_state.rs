//! The state of the links: packets and pause frames in flight, faults, and captures. One direction of a link
//! is a lane here, numbered by the port that sends into it.

use super::collective::LocalMessage;
use super::event_key::{EventKey, EventKind};
use super::events::Events;
use super::hops::{Departure, Trace};
use super::journal::Journal;
use super::life::Loss;
use super::link_direction::{Content, LinkDirection, LinkFrame};
use super::link_rng::LinkRng;
use super::results::LIVE_FLOW;
use super::results::{Captured, CapturedFrame};
use fabric::lanes::{CREDIT_PACKET_BYTES, CreditUpdate};
use fabric::topology::{Chance, Extra, LinkConfig, Topology};
use fabric::{
    ECN_CE, Frame, InFlight, LinkCounters, LinkNews, PAUSE_FRAME_BYTES, Packet, PacketId, Packets,
    PauseFrame, Pcg32, Span, Telemetry, Time, Wire,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The fields of a lane that each event touches: two lanes fit a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotDirection {
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

const _: () = assert!(
    size_of::<HotDirection>() <= 32,
    "two lines fit a cache line"
);

impl HotDirection {
    fn new(info: &LinkDirection, part: u8, is_recorded: bool) -> Self {
        Self {
            delay: info.delay,
            node: info.node,
            from_node: info.from_node,
            port: info.port,
            from_port: info.from_port,
            to_host: info.to_host,
            from_host: info.from_host,
            is_simple: !is_recorded
                && info.is_plain
                && info.head_start_ps_per_byte == 0
                && info.part == part,
        }
    }
}

/// A packet or pause frame that crosses from one part of the network to another, and so from one processor's
/// cache to another's. The packet holds the time of its arrival.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) enum Crossing {
    Packet {
        lane: u32,
        packet: Packet,
        content: Content,
        telemetry: Option<Box<Telemetry>>,
    },
    LinkFrame {
        lane: u32,
        at: Time,
        frame: LinkFrame,
    },
    /// Between two hosts that are one server.
    Local { host: u32, message: LocalMessage },
}

const _: () = assert!(size_of::<Crossing>() == 128, "two cache lines cross");

impl Crossing {
    /// When it arrives.
    pub(super) const fn at(&self) -> Time {
        match self {
            Self::Packet { packet, .. } => packet.arrives(),
            Self::LinkFrame { at, .. } => *at,
            Self::Local { message, .. } => message.at,
        }
    }
}

/// Number of this part of the network, and how many parts there are.
#[derive(Clone, Copy)]
pub(super) struct PartIndex {
    pub(super) part: u8,
    pub(super) parts: usize,
}

/// What is recorded of packets on links.
pub(super) struct LinkRecords {
    /// Frames that are captured at most.
    pub(super) captured_max: usize,
    /// Where each flow's data waits, if the scenario watches hops.
    pub(super) trace: Option<Box<Trace>>,
    /// The life of one queue pair, if the scenario watches one.
    pub(super) journal: Option<Box<Journal>>,
    /// The lane of messages between hosts that are one server, by host.
    pub(super) local_lanes: std::sync::Arc<[u32]>,
}

/// The lanes that end in one part of the network, and those that begin there.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) events: Events,
    pub(super) contents: Vec<Content>,
    pub(super) table: std::sync::Arc<[LinkDirection]>,
    pub(super) lanes: Vec<HotDirection>,
    /// Packets under way, by lane, where they overtake each other.
    overtaking: BTreeMap<u32, InFlight>,
    /// Pause frames under way, by lane: few lanes ever have any.
    link_frames: Vec<VecDeque<(Time, LinkFrame)>>,
    /// Packets and pause frames that leave for other parts, by part.
    pub(super) crossing: Vec<Vec<Crossing>>,
    rngs: Vec<Option<Box<LinkRng>>>,
    pub(super) captured: Vec<Captured>,
    pub(super) trace: Option<Box<Trace>>,
    pub(super) journal: Option<Box<Journal>>,
    captured_max: usize,
    /// By link: from when until when it is down.
    outages: BTreeMap<u32, Vec<(Time, Time)>>,
    part: u8,
    pub(super) hops: u64,
    /// Packets that did not get to the end of a link.
    pub(super) damaged: u64,
    /// Frames that did not, by lane.
    pub(super) lost: BTreeMap<u32, LinkCounters>,
    /// Tokens of packets of live hosts that were lost.
    pub(super) lost_tokens: Vec<u32>,
    /// Messages between hosts that are one server, by the host that they are for.
    local: BTreeMap<u32, BinaryHeap<Reverse<LocalMessage>>>,
    /// The lane of these, by host; none if no hosts are one server.
    local_lanes: std::sync::Arc<[u32]>,
}

impl LinkState {
    pub(super) fn new(
        PartIndex { part, parts }: PartIndex,
        table: std::sync::Arc<[LinkDirection]>,
        events: Events,
        records: LinkRecords,
        seed: u64,
        topology: &Topology,
    ) -> Self {
        let LinkRecords {
            captured_max,
            trace,
            journal,
            local_lanes,
        } = records;
        let is_recorded = trace.is_some() || journal.is_some();
        let rng = |(lane, info): (usize, &LinkDirection)| {
            let new = |extra: Extra| {
                let random = Pcg32::new(seed, STREAM_LINKS + lane as u64);
                Box::new(LinkRng::new(random, extra.chance, extra.base))
            };
            (!info.is_plain).then(|| new(topology.extra(info.link, info.direction)))
        };
        Self {
            events,
            contents: Vec::new(),
            lanes: table
                .iter()
                .map(|info| HotDirection::new(info, part, is_recorded))
                .collect(),
            overtaking: BTreeMap::new(),
            link_frames: vec![VecDeque::new(); table.len()],
            crossing: vec![Vec::new(); parts],
            rngs: table.iter().enumerate().map(rng).collect(),
            captured: Vec::new(),
            trace,
            journal,
            captured_max,
            outages: topology.outages().clone(),
            part,
            table,
            hops: 0,
            damaged: 0,
            lost: BTreeMap::new(),
            lost_tokens: Vec::new(),
            local: BTreeMap::new(),
            local_lanes,
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
        self.events.push_packet(
            end + line.delay,
            EventKey::new(lane, EventKind::Arrival),
            id,
        );
    }

    /// Over a lane that is captured, damages, delays by chance, leads to a switch that cuts through, or to
    /// another part.
    fn send_with_care(&mut self, lane: u32, id: PacketId, end: Time, packets: &mut Packets) {
        let info = self.table[lane as usize];
        let head_start = u64::from(info.head_start_ps_per_byte) * u64::from(packets[id].length);
        let mut at = Time((end + info.delay).0 - head_start);
        let departure = Departure {
            lane,
            id,
            packet: &packets[id],
            content: &self.contents[id.0 as usize],
            end,
        };
        if let Some(journal) = &mut self.journal {
            journal.departs(&departure, &info);
        }
        if let Some(trace) = &mut self.trace {
            trace.departs(departure, &info);
        }
        if !info.is_plain {
            self.capture(&info, id, end, packets);
            if self.is_lost(lane, &info, u32::from(packets[id].length), end, at) {
                self.damaged += 1;
                self.lost_on(lane, id);
                let is_down = self.is_down(info.link, end, at);
                if let Some(journal) = &mut self.journal {
                    let loss = if is_down { Loss::Down } else { Loss::Damaged };
                    journal.lost(&info, id, &self.contents[id.0 as usize], at, loss);
                }
                self.give_back(id);
                let packet = packets.remove(id);
                self.tell_lost(lane, &info, &packet, at);
                return;
            }
            at += self.rngs[lane as usize]
                .as_mut()
                .map_or(Span::ZERO, |rng| rng.delay());
        }
        if info.part == self.part {
            self.under_way(lane, &info, id, at, packets);
        } else {
            let content = self.contents[id.0 as usize];
            let telemetry = packets.telemetry(id).map(Box::new);
            let packet = packets.remove(id).arriving(at);
            let crossing = Crossing::Packet {
                lane,
                packet,
                content,
                telemetry,
            };
            self.crossing[usize::from(info.part)].push(crossing);
        }
    }

    /// Notes the token of a packet that is lost, if a live host sent it.
    pub(super) fn give_back(&mut self, id: PacketId) {
        let flow = self.contents[id.0 as usize].flow;
        if flow & LIVE_FLOW != 0 {
            self.lost_tokens.push(flow & !LIVE_FLOW);
        }
    }

    /// A packet is lost on the lane that it left by.
    fn lost_on(&mut self, lane: u32, id: PacketId) {
        if let Some(trace) = &mut self.trace {
            trace.lost(
                lane,
                &self.table[lane as usize],
                &self.contents[id.0 as usize],
            );
        }
    }

    /// A packet is dropped by the node that sends into `lane`, where it arrived by the same link.
    pub(super) fn lost_towards(&mut self, lane: u32, id: PacketId, loss: Loss) {
        let info = &self.table[lane as usize];
        if let Some(journal) = &mut self.journal {
            let now = journal.now;
            journal.lost(info, id, &self.contents[id.0 as usize], now, loss);
        }
        if let Some(towards) = self
            .trace
            .as_ref()
            .and_then(|trace| trace.lane_towards(info))
        {
            self.lost_on(towards, id);
        }
    }

    fn under_way(
        &mut self,
        lane: u32,
        info: &LinkDirection,
        id: PacketId,
        at: Time,
        packets: &mut Packets,
    ) {
        if let Some(trace) = &mut self.trace {
            trace.under_way(id, at, packets[id].is_marked());
        }
        if let Some(journal) = &mut self.journal {
            let content = &self.contents[id.0 as usize];
            journal.under_way(id, content, at, &packets[id]);
        }
        let key = EventKey::new(lane, EventKind::Arrival);
        if !info.overtakes {
            self.events.push_packet(at, key, id);
        } else if self
            .overtaking
            .entry(lane)
            .or_default()
            .insert(id, at, packets)
        {
            self.events.push(at, key);
        }
    }

    /// Whether a frame that leaves at one time and would arrive at another one does not; which is counted.
    fn is_lost(
        &mut self,
        lane: u32,
        info: &LinkDirection,
        bytes: u32,
        leaves: Time,
        arrives: Time,
    ) -> bool {
        let LinkConfig {
            loss, bit_errors, ..
        } = info.config;
        let wrong = bit_errors > 0 && self.random_u64(lane) < info.config.damage_by_bits(bytes);
        let damaged = wrong || loss > 0 && self.random_u32(lane) < loss;
        let down = self.is_down(info.link, leaves, arrives);
        if damaged || down {
            let counters = self.lost.entry(lane).or_default();
            *if down {
                &mut counters.lost
            } else {
                &mut counters.damaged
            } += 1;
        }
        damaged || down
    }

    /// Takes a link down from now on, or ends that.
    pub(super) fn set_link(&mut self, link: u32, up: bool, now: Time) {
        let outages = self.outages.entry(link).or_default();
        match outages
            .last_mut()
            .filter(|(_, until)| *until == Time::NEVER)
        {
            Some((_, until)) if up => *until = now,
            None if !up => outages.push((now, Time::NEVER)),
            _ => {}
        }
        let table = std::sync::Arc::make_mut(&mut self.table);
        for (info, hot) in table
            .iter_mut()
            .zip(&mut self.lanes)
            .filter(|(info, _)| info.link == link)
        {
            (info.is_plain, hot.is_simple) = (false, false);
        }
    }

    /// Gives a link another rate, delay, and chance of damage.
    pub(super) fn set_config(&mut self, link: u32, config: LinkConfig) {
        let table = std::sync::Arc::make_mut(&mut self.table);
        for (lane, info) in table
            .iter_mut()
            .enumerate()
            .filter(|(_, info)| info.link == link)
        {
            // The delay may include more than the cable's.
            let more = info.delay.0.saturating_sub(info.config.delay.0);
            info.delay = Span(config.delay.0 + more);
            (info.config, info.is_plain) = (config, false);
            (self.lanes[lane].delay, self.lanes[lane].is_simple) = (info.delay, false);
            let random = Pcg32::new(u64::from(link), STREAM_LINKS + lane as u64);
            self.rngs[lane]
                .get_or_insert_with(|| Box::new(LinkRng::new(random, Chance::None, Span::ZERO)));
        }
    }

    /// Begins or ends the capture of a link.
    pub(super) fn set_capture(&mut self, link: u32, on: bool, captured_max: usize) {
        self.captured_max = captured_max;
        let table = std::sync::Arc::make_mut(&mut self.table);
        for (info, hot) in table
            .iter_mut()
            .zip(&mut self.lanes)
            .filter(|(info, _)| info.link == link)
        {
            info.watched = on;
            (info.is_plain, hot.is_simple) = (false, false);
        }
    }

    /// Whether a link is down at some moment from one time until another.
    fn is_down(&self, link: u32, from: Time, until: Time) -> bool {
        let outages = self.outages.get(&link);
        outages.is_some_and(|all| all.iter().any(|(down, up)| *down <= until && from < *up))
    }

    fn random_u32(&mut self, lane: u32) -> u32 {
        self.rngs[lane as usize]
            .as_mut()
            .map_or(u32::MAX, |rng| rng.next_u32())
    }

    fn random_u64(&mut self, lane: u32) -> u64 {
        u64::from(self.random_u32(lane)) << 32 | u64::from(self.random_u32(lane))
    }

    /// A pause frame leaves a port.
    pub(super) fn send_pause(&mut self, lane: u32, frame: PauseFrame, end: Time) {
        let info = self.table[lane as usize];
        self.capture_frame(&info, end, CapturedFrame::Pause(frame));
        let arrives = end + info.delay;
        if !info.is_plain && self.is_lost(lane, &info, PAUSE_FRAME_BYTES, end, arrives) {
            return;
        }
        self.send_link_frame(
            lane,
            &info,
            arrives + info.response,
            LinkFrame::Pause(frame),
        );
    }

    /// A flow control packet leaves a port. A damaged one is as good as repeated when the next one is due,
    /// since its counts are absolute.
    pub(super) fn send_credits(&mut self, lane: u32, update: CreditUpdate, end: Time) {
        let info = self.table[lane as usize];
        self.capture_frame(&info, end, CapturedFrame::Credits(update));
        let mut at = end + info.delay;
        if !info.is_plain && self.is_lost(lane, &info, CREDIT_PACKET_BYTES, end, at) {
            at += info.repeats_after.unwrap_or_default();
        }
        let frame = LinkFrame::News(LinkNews::Credits(update));
        self.send_link_frame(lane, &info, at, frame);
    }

    /// The receiver of a lost packet hears of it with the next flow control packet that tells how much was
    /// sent (IBTA 7.9).
    fn tell_lost(&mut self, lane: u32, info: &LinkDirection, packet: &Packet, at: Time) {
        if let Some(after) = info.repeats_after {
            let (virtual_lane, length) = (packet.pcp, packet.length);
            let news = LinkNews::Lost {
                lane: virtual_lane,
                length,
            };
            self.send_link_frame(lane, info, at + after, LinkFrame::News(news));
        }
    }

    fn send_link_frame(&mut self, lane: u32, info: &LinkDirection, at: Time, frame: LinkFrame) {
        if info.part == self.part {
            self.link_frame_under_way(lane, at, frame);
        } else {
            self.crossing[usize::from(info.part)].push(Crossing::LinkFrame { lane, at, frame });
        }
    }

    fn link_frame_under_way(&mut self, lane: u32, at: Time, frame: LinkFrame) {
        // Frames that are repeated arrive after some that left later.
        let frames = &mut self.link_frames[lane as usize];
        let place = frames.iter().rposition(|(other, _)| *other <= at);
        frames.insert(place.map_or(0, |before| before + 1), (at, frame));
        self.events.push(at, EventKey::new(lane, EventKind::Pause));
    }

    /// Takes in a packet or pause frame from another part.
    pub(super) fn cross(&mut self, crossing: Crossing, packets: &mut Packets) {
        match crossing {
            Crossing::Packet {
                lane,
                packet,
                content,
                telemetry,
            } => {
                let at = packet.arrives();
                let Some(id) = self.insert(packet, content, packets) else {
                    self.damaged += 1;
                    return;
                };
                telemetry
                    .into_iter()
                    .for_each(|telemetry| packets.set_telemetry(id, *telemetry));
                let info = self.table[lane as usize];
                self.under_way(lane, &info, id, at, packets);
            }
            Crossing::LinkFrame { lane, at, frame } => self.link_frame_under_way(lane, at, frame),
            Crossing::Local { host, message } => self.local_under_way(host, message),
        }
    }

    /// Sends a message to a host of the same server.
    pub(super) fn send_local(&mut self, host: u32, message: LocalMessage) {
        let lane = self.local_lanes[host as usize];
        let part = self.table[lane as usize].part;
        if part == self.part {
            self.local_under_way(host, message);
        } else {
            self.crossing[usize::from(part)].push(Crossing::Local { host, message });
        }
    }

    fn local_under_way(&mut self, host: u32, message: LocalMessage) {
        self.local.entry(host).or_default().push(Reverse(message));
        let lane = self.local_lanes[host as usize];
        self.events
            .push(message.at, EventKey::new(lane, EventKind::Clock));
    }

    /// Takes the next message of a host's server that is due.
    pub(super) fn take_local(&mut self, host: u32, now: Time) -> Option<LocalMessage> {
        let messages = self.local.get_mut(&host)?;
        let is_due = messages
            .peek()
            .is_some_and(|Reverse(message)| message.at <= now);
        if is_due {
            messages.pop().map(|Reverse(message)| message)
        } else {
            None
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
            self.events
                .push(at, EventKey::new(lane, EventKind::Arrival));
        }
        Some(id)
    }

    /// Takes the pause frame or flow control packet that takes effect now.
    pub(super) fn link_frame(&mut self, lane: u32) -> Option<LinkFrame> {
        self.link_frames[lane as usize]
            .pop_front()
            .map(|(_, frame)| frame)
    }

    /// Keeps a frame of the link itself, if the link is captured.
    fn capture_frame(&mut self, info: &LinkDirection, end: Time, frame: CapturedFrame) {
        if info.watched && self.captured.len() < self.captured_max {
            self.captured.push(Captured {
                at: end,
                link: info.link,
                direction: info.direction,
                frame,
            });
        }
    }

    fn capture(&mut self, info: &LinkDirection, id: PacketId, end: Time, packets: &Packets) {
        if !info.watched || self.captured.len() >= self.captured_max {
            return;
        }
        let (packet, content) = (&packets[id], &self.contents[id.0 as usize]);
        // Scenarios with captures and another transport are refused.
        let Some(headers) = content.headers.roce().copied() else {
            return;
        };
        let frame = CapturedFrame::Packet {
            from: content.from,
            flow: content.flow,
            source_port: content.source_port,
            tos: packet.tos,
            pcp: (packet.pcp != fabric::UNTAGGED).then_some(packet.pcp),
            hop_limit: packet.hop_limit,
            headers,
            payload: content.payload,
        };
        self.captured.push(Captured {
            at: end,
            link: info.link,
            direction: info.direction,
            frame,
        });
    }
}

/// Streams of the generator: links, switches and devices each have their own.
const STREAM_LINKS: u64 = 1 << 32;
pub(super) const STREAM_SWITCHES: u64 = 2 << 32;
pub(super) const STREAM_HOSTS: u64 = 3 << 32;
pub(super) const STREAM_STORES: u64 = 4 << 32;
pub(super) const STREAM_FLOWS: u64 = 5 << 32;

/// The ports of one switch, as the switch sees them.
pub(super) struct SwitchPorts<'a> {
    pub(super) links: &'a mut LinkState,
    /// The lane of port 0.
    pub(super) first_lane: u32,
}

impl Wire for SwitchPorts<'_> {
    #[inline]
    fn send(&mut self, port: u16, frame: Frame, end: Time, packets: &mut Packets) {
        let lane = self.first_lane + u32::from(port);
        match frame {
            Frame::Packet(id) => self.links.send(lane, id, end, packets),
            Frame::Pause(frame) => self.links.send_pause(lane, frame, end),
            Frame::Credits(update) => self.links.send_credits(lane, update, end),
        }
    }

    #[inline]
    fn wake(&mut self, port: u16, at: Time) {
        self.links.events.push(
            at,
            EventKey::new(self.first_lane + u32::from(port), EventKind::Wake),
        );
    }

    fn dropped(&mut self, port: u16, id: PacketId, why: fabric::Drop, packets: &mut Packets) {
        let loss = match packets[id].kind.is_trimmed() {
            true => Loss::DroppedHeaders(why),
            false => Loss::Dropped(why),
        };
        self.links
            .lost_towards(self.first_lane + u32::from(port), id, loss);
        self.links.give_back(id);
        packets.remove(id);
    }
}

/// ECT(0), which a sender that takes part in ECN sets (RFC 3168, section 5).
pub(super) const ECT_0: u8 = ECN_CE & 2;
