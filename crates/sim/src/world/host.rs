//! A host: the device, the port that it sends through, and the program that posts work to it.

use super::bus::{Slot, Tell};
use super::results::{HostResult, Latency, Order};
use super::scenario::{Flow, Headers, HostConfig, Marking, Transfer};
use super::storage::Store;
use super::wires::{Content, ECT_0, Wires, kind};
use fabric::config::Profile;
use fabric::{
    Egress, LinkCounters, Next, Packet, PacketId, Packets, PauseFrame, Pcg32, Telemetry, Time, UNTAGGED,
};
use rnic::{
    Arrival, Completion, Cq, Data, Destination, Device, Fault, Gather, Gid, Instant, Memory, Operation, Path,
    Payload, Pd, Pending, Piece, ReceiveRequest, RegionKeys, SendFlags, SendRequest, Sge, Sink, Status,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{Message, Qpn, Tail};

/// Where hosts' buffers lie in the address space that nobody has.
pub(super) const BUFFER_ADDRESS: u64 = 1 << 20;

/// Bytes that a frame has around the transport headers: Ethernet with check sequence, IPv4, UDP, ICRC.
const OUTER_BYTES: u32 = 14 + 4 + 20 + 8 + 4;

/// An 802.1Q tag.
const TAG_BYTES: u32 = 4;

/// The shortest frame (802.3 clause 3.2.8).
const FRAME_BYTES_MIN: u32 = 64;

/// Completions that are taken at once.
const POLL_MAX: usize = 64;

/// What the device needs to know about memory: it is always there.
struct Phantom;

impl Memory for Phantom {
    fn write(&mut self, _: Piece, _: Payload<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn fetch_add(&mut self, _: Piece, _: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn compare_swap(&mut self, _: Piece, _: u64, _: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn store(&mut self, _: Piece, _: [u8; 8]) -> Result<(), Fault> {
        Ok(())
    }
}

/// What hosts of one kind share.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) config: HostConfig,
    pub(super) profile: Profile,
    /// Data, acknowledgements, notifications.
    marks: [Mark; 3],
    /// Bytes that packets have for what switches tell.
    telemetry_bytes: u32,
}

/// A [`Marking`] as packets carry it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    class: u8,
    tos: u8,
    pcp: u8,
    tag_bytes: u32,
}

impl From<Marking> for Mark {
    fn from(marking: Marking) -> Self {
        Self {
            class: marking.class & 7,
            tos: marking.dscp << 2 | if marking.ecn { ECT_0 } else { 0 },
            pcp: marking.pcp.unwrap_or(UNTAGGED),
            tag_bytes: if marking.pcp.is_some() { TAG_BYTES } else { 0 },
        }
    }
}

impl Kind {
    pub(super) fn new(config: HostConfig, profile: Profile) -> Self {
        let marks = [config.data, config.acknowledgements, config.notifications].map(Mark::from);
        let telemetry_bytes = config.telemetry_bytes();
        Self { config, profile, marks, telemetry_bytes }
    }
}

/// The program's side of a flow, where its work is posted.
#[derive(Debug)]
pub(super) struct Poster {
    pub(super) flow: Flow,
    pub(super) number: u32,
    pub(super) qpn: Qpn,
    pub(super) peer_qpn: Qpn,
    /// Where datagrams go.
    pub(super) datagram: Option<Box<Destination>>,
    pub(super) peer: RegionKeys,
    pub(super) posted: u64,
    pub(super) completed: u64,
    pub(super) failed: bool,
    /// When each message that is under way was posted.
    pub(super) posts: VecDeque<Time>,
    pub(super) started: Time,
    pub(super) first_completion: Time,
    pub(super) last_completion: Time,
    pub(super) latency: Latency,
}

/// What arrives of a flow, at the receiver of its data.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiving {
    /// The highest PSN that arrived, and the last.
    highest: u32,
    last: u32,
    begun: bool,
    /// Data goes both ways: there is no order.
    pub(super) both_ways: bool,
    /// `highest`, counted on beyond 24 bits.
    count: u64,
    /// PSNs below it that have not come, counted likewise.
    missing: BTreeSet<u64>,
    pub(super) order: Order,
}

/// Where each host is attached, by host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    pub(super) leaf: u32,
    pub(super) exit: u16,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) number: u32,
    pub(super) kind: u16,
    pub(super) lane: u32,
    pub(super) device: Device,
    pub(super) egress: Egress,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    pub(super) keys: RegionKeys,
    /// Moments that were asked for and have not come, the next one last: each is asked for once.
    clocks: Vec<Time>,
    /// Flows that begin here, those that begin last first.
    pub(super) posters: Vec<Poster>,
    /// Indices into `posters`, by start, the first last.
    pub(super) starts: Vec<u32>,
    pub(super) pauses_received: u64,
    pub(super) slot: Option<Box<Slot>>,
    pub(super) store: Option<Box<Store>>,
    random: Pcg32,
}

/// What switches told in the last packet of each flow that a host received, until it sends that back.
pub(super) type Echoes = BTreeMap<(u32, u32), Telemetry>;

/// What a host works with that belongs to its part of the network.
pub(super) struct Surroundings<'a> {
    pub(super) packets: &'a mut Packets,
    pub(super) wires: &'a mut Wires,
    pub(super) kinds: &'a [Kind],
    pub(super) attachments: &'a [Attachment],
    pub(super) receiving: &'a mut [Receiving],
    /// Which poster of its host a flow is.
    pub(super) poster_of_flow: &'a [u32],
    pub(super) entropies: &'a BTreeMap<u32, u32>,
    pub(super) echoes: &'a mut Echoes,
    /// Flows that are not done.
    pub(super) unfinished: &'a mut u64,
}

impl Host {
    pub(super) fn new(
        (number, kind, lane): (u32, u16, u32),
        device: Device,
        (pd, cq, keys): (Pd, Cq, RegionKeys),
        egress: Egress,
        random: Pcg32,
    ) -> Self {
        Self {
            number,
            kind,
            lane,
            device,
            egress,
            pd,
            cq,
            keys,
            clocks: Vec::new(),
            posters: Vec::new(),
            starts: Vec::new(),
            pauses_received: 0,
            slot: None,
            store: None,
            random,
        }
    }

    /// What the host counted.
    pub(super) fn result(&self, now: Time) -> HostResult {
        HostResult {
            device: *self.device.counters(),
            queues: std::array::from_fn(|class| self.egress.counters(class, now)),
            pauses_received: self.pauses_received,
            incidents: self.egress.incidents().cloned().map(Box::new),
            link: LinkCounters::default(),
            pauses_sent: self.slot.as_ref().map_or(0, |slot| slot.pauses_sent),
            dropped: self.slot.as_ref().map_or(0, |slot| slot.dropped),
            receive_peak_bytes: self.slot.as_ref().map_or(0, |slot| slot.peak_bytes),
            bus_busy_ps: self.slot.as_ref().map_or(0, |slot| slot.busy_ps()),
            cores_busy_ps: self.store.as_ref().map_or_else(Vec::new, |store| store.cores_busy_ps()),
            memory_busy_ps: self.store.as_ref().map_or(0, |store| store.memory_busy_ps()),
            drives_busy_ps: self.store.as_ref().map_or_else(Vec::new, |store| store.drives_busy_ps()),
        }
    }

    /// A packet arrived.
    #[inline]
    pub(super) fn handle_packet(&mut self, now: Time, id: PacketId, around: &mut Surroundings<'_>) {
        if self.slot.is_some() {
            return self.store(now, id, around);
        }
        self.take(now, id, around);
        self.pump(now, around);
    }

    /// What has payload goes through the slot first.
    fn store(&mut self, now: Time, id: PacketId, around: &mut Surroundings<'_>) {
        let payload = around.wires.contents[id.0 as usize].payload;
        match &mut self.slot {
            Some(slot) if payload > 0 => match slot.admit(now, id, payload) {
                Some(tell) => self.tell(tell, around),
                None => {
                    around.wires.lost_towards(self.lane, id);
                    around.packets.remove(id);
                }
            },
            _ => self.take(now, id, around),
        }
        self.pump(now, around);
    }

    /// Tells the switch to stop, or to go on.
    fn tell(&mut self, tell: Tell, around: &Surroundings<'_>) {
        let config = &around.kinds[usize::from(self.kind)].config;
        let sends = config.pfc.send >> config.data.class & 1 == 1;
        if tell == Tell::Nothing || !sends {
            return;
        }
        self.egress.hold(config.data.class, tell == Tell::Stop);
        if let Some(slot) = self.slot.as_mut().filter(|_| tell == Tell::Stop) {
            slot.pauses_sent += 1;
        }
    }

    /// What the slot has done by now.
    fn handle_slot(&mut self, now: Time, around: &mut Surroundings<'_>) {
        while let Some((id, tell)) = self.slot.as_mut().and_then(|slot| slot.stored(now)) {
            self.tell(tell, around);
            self.take(now, id, around);
        }
        while let Some(poster) = self.slot.as_mut().and_then(|slot| slot.posted(now)) {
            self.post_to_device(now, poster as usize);
        }
        if self.slot.as_mut().is_some_and(|slot| slot.looks(now)) {
            self.take_completions(now, around);
        }
    }

    /// The device takes a packet.
    #[inline]
    fn take(&mut self, now: Time, id: PacketId, around: &mut Surroundings<'_>) {
        let content = around.wires.contents[id.0 as usize];
        if let Some(telemetry) = around.packets.telemetry(id) {
            self.take_telemetry(&content, &telemetry, around.echoes);
        }
        let packet = around.packets.remove(id);
        around.receiving[content.flow as usize].note(&content.headers);
        let arrival = Arrival {
            source: gid(content.from),
            destination: gid(self.number),
            traffic_class: packet.tos,
            hop_limit: packet.hop_limit,
        };
        let payload = Payload::Phantom(content.payload);
        let mut nic = Nic {
            now,
            host: self.number,
            lane: self.lane,
            kind: &around.kinds[usize::from(self.kind)],
            egress: &mut self.egress,
            packets: around.packets,
            wires: around.wires,
            attachments: around.attachments,
            entropies: around.entropies,
            echoes: around.echoes,
            payload: 0,
        };
        let at = Instant(now.ns());
        self.device.handle_packet_and_answer(at, &arrival, &content.headers, payload, &mut Phantom, &mut nic);
        self.look(now, around);
    }

    /// What a packet brings of telemetry: what came with data goes back with an acknowledgement, what came
    /// with an answer is for the device.
    fn take_telemetry(&mut self, content: &Content, telemetry: &Telemetry, echoes: &mut Echoes) {
        if matches!(content.headers.message, Message::Write { .. } | Message::Send { .. }) {
            echoes.insert((self.number, content.flow), *telemetry);
            return;
        }
        let hop = |hop: &fabric::Hop| rnic::Hop {
            port: hop.port,
            at: Instant(hop.at.ns()),
            sent_bytes: hop.sent_bytes,
            queued_bytes: hop.queued_bytes,
            rate_bps: hop.rate.bps(),
        };
        let mut hops = [rnic::Hop::default(); fabric::HOPS_MAX];
        let filled = hops.iter_mut().zip(telemetry.hops()).map(|(to, from)| *to = hop(from)).count();
        self.device.handle_telemetry(content.headers.dest, &hops[..filled]);
    }

    /// The program takes completions, when it sees any.
    fn look(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let there = self.device.has_completions(self.cq);
        if there && self.slot.as_mut().is_none_or(|slot| slot.sees(now)) {
            self.take_completions(now, around);
        }
    }

    /// The host's clock.
    pub(super) fn handle_clock(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if self.clocks.pop_if(|at| *at == now).is_none() {
            return;
        }
        let starts = |host: &Self| host.starts.last().map(|index| host.posters[*index as usize].flow.start);
        while starts(self).is_some_and(|start| start <= now) {
            if let Some(index) = self.starts.pop() {
                self.posters[index as usize].started = now;
                self.post(now, index as usize);
            }
        }
        self.device.handle_timeout(Instant(now.ns()));
        self.handle_slot(now, around);
        self.handle_store(now, around);
        self.look(now, around);
        self.pump(now, around);
    }

    /// The port is free, or was asked to be looked at.
    #[inline]
    pub(super) fn handle_wake(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if self.egress.take_wake(now) {
            self.pump(now, around);
        }
    }

    /// A pause frame takes effect.
    pub(super) fn handle_pause(&mut self, now: Time, frame: PauseFrame, around: &mut Surroundings<'_>) {
        self.pauses_received += 1;
        let pfc = &around.kinds[usize::from(self.kind)].profile.pfc;
        let goes_on = self.egress.handle_pause(frame, now, pfc);
        if let Some(trace) = &mut around.wires.trace {
            trace.paused(self.lane, now, &self.egress);
        }
        if goes_on {
            self.pump(now, around);
        }
    }

    /// Sends what may leave now, and asks to be called again when more may.
    #[inline]
    pub(super) fn pump(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let kind = &around.kinds[usize::from(self.kind)];
        let mut wake = None;
        self.egress.end_pauses(now);
        if self.egress.free_at() <= now && self.egress.has_more() {
            let next = self.egress.next(now, &kind.profile, around.packets, &mut self.random);
            match next {
                Next::Packet { id, end } => around.wires.send(self.lane, id, end, around.packets),
                Next::Pause { frame, end } => around.wires.send_pause(self.lane, frame, end),
                Next::Wait(at) => wake = Some(at),
                Next::Idle => {}
            }
        }
        let class = kind.marks[0].class;
        let readable_at = self.slot.as_ref().map_or(Time(0), |slot| slot.readable_at());
        if self.device.pending() != Pending::Nothing {
            if readable_at > now {
                wake = Some(readable_at);
            } else if self.egress.is_clear(class, now) {
                let mut nic = Nic {
                    now,
                    host: self.number,
                    lane: self.lane,
                    kind,
                    egress: &mut self.egress,
                    packets: around.packets,
                    wires: around.wires,
                    attachments: around.attachments,
                    entropies: around.entropies,
                    echoes: around.echoes,
                    payload: 0,
                };
                self.device.transmit(Instant(now.ns()), 1, &mut nic);
                let payload = nic.payload;
                if let Some(slot) = &mut self.slot {
                    slot.read(now, payload);
                }
            } else if let Some(until) = self.egress.paused_until(usize::from(class)) {
                wake = Some(wake.map_or(until, |at| at.min(until)));
            }
        }
        // What an unreliable connection sends is complete with its last packet.
        self.look(now, around);
        if self.egress.free_at() > now
            && (self.egress.has_more() || self.device.pending() != Pending::Nothing)
        {
            wake = Some(self.egress.free_at().max(if self.egress.has_more() { now } else { readable_at }));
        }
        if let Some(at) = wake.filter(|at| self.egress.wants_wake(*at)) {
            around.wires.events.push(at, self.lane * 4 + kind::WAKE);
        }
        self.set_clock(around.wires);
    }

    /// Asks for the next moment at which the device, or a flow that begins, wants to be called.
    #[inline]
    pub(super) fn set_clock(&mut self, wires: &mut Wires) {
        let device = self.device.next_timeout().map_or(Time::NEVER, |at| Time::from_ns(at.0));
        let start = self.starts.last().map_or(Time::NEVER, |index| self.posters[*index as usize].flow.start);
        let slot = self.slot.as_ref().map_or(Time::NEVER, |slot| slot.next_at());
        let store = self.store.as_ref().map_or(Time::NEVER, |store| store.next_at());
        let at = device.min(start).min(slot).min(store);
        if self.clocks.last().is_none_or(|next| at < *next) && at != Time::NEVER {
            self.clocks.push(at);
            wires.events.push(at, self.lane * 4 + kind::CLOCK);
        }
    }

    fn take_completions(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if self.store.is_some() {
            self.take_storage_completions(now, around);
        }
        loop {
            let mut done = [(0, Status::Success, 0); POLL_MAX];
            let mut count = 0;
            let took = self.device.poll_cq(self.cq, POLL_MAX, |completion: &Completion| {
                done[count] = (completion.id, completion.status, completion.qpn.value());
                count += 1;
            });
            for (id, status, qpn) in &done[..took] {
                self.completed(now, *id, *status, Qpn::new(*qpn), around);
            }
            if took < POLL_MAX {
                return;
            }
        }
    }

    pub(super) fn completed(
        &mut self,
        now: Time,
        id: u64,
        status: Status,
        qpn: Qpn,
        around: &mut Surroundings<'_>,
    ) {
        if id == RECEIVE_ID {
            if status == Status::Success {
                self.post_receive(now, qpn);
            }
            return;
        }
        let index = around.poster_of_flow[id as usize] as usize;
        let poster = &mut self.posters[index];
        let posted = poster.posts.pop_front();
        if status != Status::Success {
            if !std::mem::replace(&mut poster.failed, true) {
                *around.unfinished -= 1;
            }
            return;
        }
        if poster.completed == 0 {
            poster.first_completion = now;
        }
        poster.completed += 1;
        poster.last_completion = now;
        poster.latency.add(posted.map_or(0, |posted| (now - posted).0 / 1000));
        if poster.completed == poster.flow.messages {
            *around.unfinished -= 1;
        } else if poster.posted < poster.flow.messages {
            self.post(now, index);
        }
    }

    /// Posts as many messages as the flow's depth allows.
    fn post(&mut self, now: Time, index: usize) {
        let flow = self.posters[index].flow;
        if flow.operation.is_storage() {
            return self.begin_storage(now, index);
        }
        loop {
            let poster = &mut self.posters[index];
            if poster.posts.len() >= flow.depth as usize || poster.posted >= flow.messages || poster.failed {
                return;
            }
            poster.posted += 1;
            poster.posts.push_back(now);
            if !self.slot.as_mut().is_some_and(|slot| slot.post(now, index as u32)) {
                self.post_to_device(now, index);
            }
        }
    }

    fn post_to_device(&mut self, now: Time, index: usize) {
        let poster = &mut self.posters[index];
        let flow = poster.flow;
        let (address, rkey) = (BUFFER_ADDRESS, poster.peer.rkey);
        let operation = match flow.operation {
            Transfer::Write | Transfer::UnreliableWrite => {
                Operation::Write { address, rkey, immediate: None }
            }
            Transfer::Send | Transfer::Datagram => Operation::Send(Tail::None),
            Transfer::Read => Operation::Read { address, rkey },
            Transfer::StorageRead | Transfer::StorageWrite => return,
        };
        let sges = [Sge { address, length: flow.message_bytes, lkey: self.keys.lkey }];
        let request = SendRequest {
            id: u64::from(poster.number),
            operation,
            flags: SendFlags::SIGNALED,
            data: Data::Sges(&sges),
            destination: poster.datagram.as_deref().copied(),
            xrc_srq: None,
        };
        if self.device.post_send(poster.qpn, &request, Instant(now.ns())).is_err() {
            poster.failed = true;
        }
    }

    pub(super) fn post_receive(&mut self, now: Time, qpn: Qpn) {
        let sges = [Sge { address: BUFFER_ADDRESS, length: u32::MAX >> 1, lkey: self.keys.lkey }];
        let request = ReceiveRequest { id: RECEIVE_ID, sges: &sges };
        // A full receive queue is no harm: it is filled again with the next completion.
        let _full = self.device.post_receive(qpn, &request, Instant(now.ns()));
    }
}

/// Completions of receives have it; those of sends have the flow's number.
pub(super) const RECEIVE_ID: u64 = u64::MAX;

impl Receiving {
    #[inline]
    fn note(&mut self, headers: &wire::Packet) {
        if !is_data(&headers.message) || self.both_ways {
            return;
        }
        let psn = headers.psn.value();
        if !std::mem::replace(&mut self.begun, true) {
            (self.highest, self.last, self.count) = (psn, psn, 1 << 32);
        }
        let ahead = distance(psn, self.highest);
        self.order.note(ahead, distance(psn, self.last) < 0);
        self.order.note_gaps(ahead, self.count, &mut self.missing);
        self.last = psn;
        if ahead > 0 {
            self.highest = psn;
            self.count += u64::from(ahead.unsigned_abs());
        }
    }
}

/// From one PSN to another, in 24 bits.
fn distance(psn: u32, from: u32) -> i32 {
    ((psn.wrapping_sub(from) << 8) as i32) >> 8
}

/// The address of a host.
pub(super) fn gid(host: u32) -> Gid {
    let [_, b, c, d] = host.to_be_bytes();
    Gid::from_ipv4([10, b, c, d])
}

fn host_of(gid: &Gid) -> u32 {
    u32::from_be_bytes([0, gid.0[13], gid.0[14], gid.0[15]])
}

/// The adapter's sending half, while the device makes packets.
struct Nic<'a> {
    now: Time,
    host: u32,
    lane: u32,
    kind: &'a Kind,
    egress: &'a mut Egress,
    packets: &'a mut Packets,
    wires: &'a mut Wires,
    attachments: &'a [Attachment],
    entropies: &'a BTreeMap<u32, u32>,
    echoes: &'a mut Echoes,
    /// Bytes of payload that left.
    payload: u32,
}

impl Sink for Nic<'_> {
    #[inline]
    fn asks_again_at(&self) -> Option<Instant> {
        Some(Instant(self.egress.free_at().ns()))
    }

    #[inline]
    fn send(&mut self, path: &Path, headers: &wire::Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let payload = payload.len();
        self.payload += payload;
        let role = match headers.message {
            Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } => 1,
            Message::Congestion => 2,
            _ => 0,
        };
        let mark = self.kind.marks[role];
        let to = host_of(&path.destination);
        let Attachment { leaf, exit } = self.attachments[to as usize];
        // The flow label is the flow's number: nothing else knows it here.
        let flow = path.flow_label - 1;
        let telemetry = match self.kind.telemetry_bytes {
            0 => None,
            _ => self.telemetry(role, headers, flow),
        };
        let room = telemetry.map_or(0, |_| self.kind.telemetry_bytes);
        let length = frame_bytes(self.kind.config.headers, headers, payload) + mark.tag_bytes + room;
        let entropy = match self.entropies.is_empty() {
            true => None,
            false => self.entropies.get(&flow).copied(),
        };
        let digest =
            || u32::from(path.source_port) ^ self.host.rotate_left(16) ^ to.wrapping_mul(0x9e37_79b1);
        let entropy = entropy.unwrap_or_else(digest);
        let mut packet = Packet::new(leaf, exit, length as u16, mark.tos, entropy);
        packet.pcp = mark.pcp;
        packet.sprayable = is_data(&headers.message);
        let content =
            Content { headers: *headers, payload, flow, from: self.host, source_port: path.source_port };
        let id = self.wires.insert(packet, content, self.packets).ok_or(Fault)?;
        if let Some(telemetry) = telemetry {
            self.packets.set_telemetry(id, telemetry);
        }
        if self.egress.is_clear(mark.class, self.now) {
            self.packets.put_into_class(id, mark.class);
            let end = self.egress.send_at_once(&self.packets[id], self.now);
            self.wires.send(self.lane, id, end, self.packets);
        } else {
            self.egress.enqueue(id, mark.class, self.packets);
        }
        Ok(())
    }
}

impl Nic<'_> {
    /// What a packet has room for: data collects, acknowledgements return what data collected.
    fn telemetry(&mut self, role: usize, headers: &wire::Packet, flow: u32) -> Option<Telemetry> {
        if is_data(&headers.message) {
            return Some(Telemetry::EMPTY);
        }
        if role != 1 {
            return None;
        }
        self.echoes.remove(&(self.host, flow)).map(Telemetry::returned)
    }
}

/// What carries data, and what switches may spray.
fn is_data(message: &Message) -> bool {
    matches!(message, Message::Write { .. } | Message::Send { .. } | Message::ReadResponse { .. })
}

/// Bytes from the destination address to the check sequence.
#[inline]
fn frame_bytes(headers: Headers, packet: &wire::Packet, payload: u32) -> u32 {
    match headers {
        Headers::RoceV2 => {
            let transport = packet.opcode().map_or(12, |opcode| opcode.header_size() as u32);
            (OUTER_BYTES + transport + payload.next_multiple_of(4)).max(FRAME_BYTES_MIN)
        }
        Headers::Fixed { data, control } => payload + u32::from(if payload > 0 { data } else { control }),
    }
}
