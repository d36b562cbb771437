//! The adapter of a host: arriving packets go through the PCIe link to the device, and the device's packets
//! through the port.

use super::frame::{frame_bytes, is_data, kind};
use super::{Attachment, Context, Echoes, Host, Kind, gid, host_of};
use crate::world::collective::OF_WORKER;
use crate::world::event_key::{EventKey, EventKind};
use crate::world::life::Loss;
use crate::world::link_direction::{Content, TransportHeaders};
use crate::world::link_state::LinkState;
use crate::world::scenario::Forgery;
use crate::world::sriov_adapter::{FunctionDrops, Seat};
use fabric::{
    Egress, FRAME_OVERHEAD_BYTES, Next, Packet, PacketId, PauseFrame, PfcSignal, Telemetry, Time,
};
use rnic::simulation::Simulated as _;
use rnic::{
    Arrival, Fault, Gather, Instant, Memory, PacketKind, Path, Payload, Pending, Piece, Sink,
};
use wire::{Message, Service};

/// Memory of a host: no bytes are stored, only counted. Devices write each byte of a message once, however
/// often it is sent.
struct Phantom {
    written_bytes: u64,
}

impl Memory for Phantom {
    #[inline]
    fn write(&mut self, _: Piece, payload: Payload<'_>) -> Result<(), Fault> {
        self.written_bytes += u64::from(payload.len());
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

impl Host {
    /// A packet arrived.
    #[inline]
    pub(in crate::world) fn handle_packet(
        &mut self,
        now: Time,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        if self.seat.is_some() && !self.is_in_vlan(id, context) {
            self.function_drops.vlan += 1;
            return self.drop_arrived(id, context);
        }
        if self.uet.is_none() && context.packets[id].kind.is_trimmed() {
            // No other transport asks for what is missing: the packet is lost.
            return self.drop_arrived(id, context);
        }
        if self.egress.has_lanes() {
            self.receive_on_lane(id, context);
        }
        if self.pcie.is_some() {
            return self.store(now, id, context);
        }
        if self.is_live {
            return self.deliver(now, id, context);
        }
        self.take(now, id, context);
        self.pump(now, context);
    }

    /// Whether a packet is of the VLAN that the embedded switch has this function in.
    fn is_in_vlan(&self, id: PacketId, context: &Context<'_>) -> bool {
        let content = &context.links.contents[id.0 as usize];
        // A forged address does not change the tag: that is the sender's port's.
        let sender = match context.forgeries.get(&content.flow) {
            Some((sender, Forgery::Gid(pretended))) if *pretended == content.from => *sender,
            _ => content.from,
        };
        let vlan = |host: u32| context.attachments[host as usize].vlan;
        vlan(sender) == vlan(self.number)
    }

    /// Packets with payload cross the PCIe link first.
    pub(super) fn store(&mut self, now: Time, id: PacketId, context: &mut Context<'_>) {
        let payload = context.links.contents[id.0 as usize].payload;
        let shared = self
            .seat
            .map(|seat| &mut context.cards[seat.card as usize].slot);
        match &mut self.pcie {
            Some(pcie) if payload > 0 => match pcie.admit(now, id, payload, shared) {
                Some(signal) => self.signal(signal, context),
                None => self.drop_arrived(id, context),
            },
            _ => self.take(now, id, context),
        }
        self.pump(now, context);
    }

    /// Drops a packet that arrived.
    fn drop_arrived(&self, id: PacketId, context: &mut Context<'_>) {
        context.links.lost_towards(self.lane, id, Loss::Adapter);
        context.links.give_back(id);
        context.packets.remove(id);
    }

    /// Sends Xoff or Xon to the switch, where the adapter sends pause frames.
    pub(super) fn signal(&mut self, signal: PfcSignal, context: &Context<'_>) {
        let config = &context.kinds[usize::from(self.kind)].config;
        let classes = config.pfc.send & self.classes;
        if signal == PfcSignal::None || classes == 0 {
            return;
        }
        let priorities = (0..8).filter(|class| classes >> class & 1 == 1);
        priorities.for_each(|class| self.egress.signal(class, signal));
        if let Some(pcie) = self.pcie.as_mut().filter(|_| signal == PfcSignal::Xoff) {
            pcie.pauses_sent += 1;
        }
    }

    /// Handles packets and messages that the PCIe link has moved by now.
    #[inline(always)]
    pub(super) fn handle_pcie(&mut self, now: Time, context: &mut Context<'_>) {
        while let Some((id, signal)) = self.pcie.as_mut().and_then(|pcie| pcie.stored(now)) {
            self.signal(signal, context);
            self.take(now, id, context);
        }
        while let Some(poster) = self.pcie.as_mut().and_then(|pcie| pcie.posted(now)) {
            match poster & OF_WORKER {
                0 => self.post_to_device(now, poster as usize),
                _ => self.post_pipe(now, poster & !OF_WORKER),
            }
        }
        if self.pcie.as_mut().is_some_and(|pcie| pcie.looks(now)) {
            self.take_completions(now, context);
        }
    }

    /// The device takes a packet.
    #[inline]
    pub(super) fn take(&mut self, now: Time, id: PacketId, context: &mut Context<'_>) {
        if self.is_live {
            return self.deliver(now, id, context);
        }
        let content = context.links.contents[id.0 as usize];
        if let Some(telemetry) = context.packets.telemetry(id) {
            self.take_telemetry(&content, &telemetry, context.echoes);
        }
        let packet = context.packets.remove(id);
        if self.egress.has_lanes() {
            self.egress.release_on_lane(packet.pcp, packet.length);
        }
        let headers = match content.headers {
            TransportHeaders::Roce(headers) => headers,
            TransportHeaders::Uet(header) => {
                return self.take_uet(now, &content, header, &packet, context);
            }
        };
        context.receiving[content.flow as usize].note_packet(&headers);
        let arrival = Arrival {
            source: gid(content.from),
            destination: gid(self.number),
            traffic_class: packet.tos,
            hop_limit: packet.hop_limit,
            service_level: 0,
        };
        let payload = Payload::Phantom(content.payload);
        let kinds = context.kinds;
        let mut sink = PortSink {
            now,
            host: self.number,
            lane: self.lane,
            kind: &kinds[usize::from(self.kind)],
            egress: &mut self.egress,
            context: &mut *context,
            payload: 0,
            is_answer: false,
            seat: self.seat,
            drops: &mut self.function_drops,
            mixes: !self.classes.is_power_of_two(),
            stopped: &mut self.stopped,
            sent_bytes: [0; 2],
        };
        let at = Instant(now.ns());
        let mut memory = Phantom { written_bytes: 0 };
        self.device.handle_packet_and_answer(
            at,
            &arrival,
            &headers,
            payload,
            &mut memory,
            &mut sink,
        );
        if let Some(seat) = self.seat {
            let sent_bytes = sink.sent_bytes;
            context.cards[seat.card as usize].sent(seat.function, now, sent_bytes);
        }
        // Datagrams are written behind 40 bytes for the global route header (IBTA 11.4.1.2).
        let delivered = match headers.service {
            Service::Ud => u64::from(content.payload).min(memory.written_bytes),
            _ => memory.written_bytes,
        };
        context.receiving[content.flow as usize].delivered_bytes += delivered;
        self.look(now, context);
    }

    /// Takes the telemetry of a packet: that of data goes back with an acknowledgement, that of an answer is
    /// for the device.
    pub(super) fn take_telemetry(
        &mut self,
        content: &Content,
        telemetry: &Telemetry,
        echoes: &mut Echoes,
    ) {
        let Some(headers) = content.headers.roce() else {
            return;
        };
        if matches!(
            headers.message,
            Message::Write { .. } | Message::Send { .. }
        ) {
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
        let filled = hops
            .iter_mut()
            .zip(telemetry.hops())
            .map(|(to, from)| *to = hop(from))
            .count();
        self.device.handle_telemetry(headers.dest, &hops[..filled]);
    }

    /// The port is free, or a wake-up is due.
    #[inline]
    pub(in crate::world) fn handle_wake(&mut self, now: Time, context: &mut Context<'_>) {
        if self.egress.take_wake(now) {
            self.pump(now, context);
        }
    }

    /// A pause frame takes effect.
    pub(in crate::world) fn handle_pause(
        &mut self,
        now: Time,
        frame: PauseFrame,
        context: &mut Context<'_>,
    ) {
        self.pauses_received += 1;
        let pfc = &context.kinds[usize::from(self.kind)].profile.pfc;
        let goes_on = self.egress.handle_pause(frame, now, pfc);
        if let Some(trace) = &mut context.links.trace {
            trace.paused(self.lane, now, &self.egress);
        }
        if let Some(journal) = &mut context.links.journal {
            journal.pause_changed(self.lane, now, &self.egress);
        }
        if goes_on {
            self.pump(now, context);
        }
    }

    /// Sends packets that may leave now, and schedules a call for when more may.
    #[inline]
    pub(in crate::world) fn pump(&mut self, now: Time, context: &mut Context<'_>) {
        if self.is_live {
            return self.pump_live(now, context);
        }
        if self.uet.is_some() {
            return self.pump_uet(now, context);
        }
        if self.egress.has_lanes() {
            return self.pump_lanes(now, context);
        }
        // Most acknowledgements arrive while the port is busy, and what waits for it has its call scheduled.
        if self.egress.is_awaited(now) && self.pcie.is_none() && self.seat.is_none() {
            self.look(now, context);
            return self.set_clock(context.links);
        }
        self.send_more(now, context);
    }

    /// Sends what waits at the port, if the port is free. Returns the next moment at which more may leave.
    #[inline]
    pub(super) fn send_waiting(
        &mut self,
        now: Time,
        kind: &Kind,
        context: &mut Context<'_>,
    ) -> Time {
        self.egress.end_pauses(now);
        if !self.egress.has_more() || self.egress.free_at() > now {
            return Time::NEVER;
        }
        let next = self
            .egress
            .next(now, &kind.profile, context.packets, &mut self.random);
        match next {
            Next::Packet { id, end } => context.links.send(self.lane, id, end, context.packets),
            Next::Pause { frame, end } => context.links.send_pause(self.lane, frame, end),
            Next::Wait(at) => return at,
            // Ports with lanes have their own way to send.
            Next::Idle | Next::Credits { .. } | Next::Expired { .. } => {}
        }
        Time::NEVER
    }

    #[inline]
    fn send_more(&mut self, now: Time, context: &mut Context<'_>) {
        let kinds = context.kinds;
        let kind = &kinds[usize::from(self.kind)];
        let mut wake = self.send_waiting(now, kind, context);
        self.resume_classes();
        let mut readable_at = self
            .pcie
            .as_ref()
            .map_or(Time(0), |pcie| pcie.readable_at());
        if let Some(seat) = self.seat {
            let asks = self.device.pending() != Pending::Nothing && self.is_open(now);
            let card = &mut context.cards[seat.card as usize];
            readable_at = if asks {
                card.ask(seat.function, now).err().unwrap_or(now)
            } else {
                now
            };
        }
        let mut pending = self.device.pending() != Pending::Nothing;
        if pending {
            if readable_at > now {
                wake = readable_at;
            } else if self.is_open(now) {
                self.transmit_packet(now, kind, context);
                pending = self.device.pending() != Pending::Nothing;
            } else if let Some(until) = self.paused_until(self.classes) {
                wake = wake.min(until);
            }
        }
        if let Some(until) = self.paused_until(self.stopped) {
            wake = wake.min(until);
        }
        // Requests of an unreliable connection are complete with their last packet.
        if self.look(now, context) {
            pending = self.device.pending() != Pending::Nothing;
        }
        let has_more = self.egress.has_more();
        if (has_more || pending) && self.egress.free_at() > now {
            wake = self
                .egress
                .free_at()
                .max(if has_more { now } else { readable_at });
        }
        if self.egress.wants_wake(wake) {
            context
                .links
                .events
                .push(wake, EventKey::new(self.lane, EventKind::Wake));
        }
        self.set_clock(context.links);
    }

    /// Whether data of some class may leave at once.
    #[inline]
    fn is_open(&self, now: Time) -> bool {
        match self.classes.is_power_of_two() {
            true => self
                .egress
                .is_clear(self.classes.trailing_zeros() as u8, now),
            false => self.egress.is_open(self.classes, now),
        }
    }

    /// When the first pause of these classes ends, if any is paused.
    #[inline]
    pub(super) fn paused_until(&self, classes: u8) -> Option<Time> {
        if classes & self.egress.paused() == 0 {
            return None;
        }
        let classes = (0..8).filter(|class| classes >> class & 1 == 1);
        classes
            .filter_map(|class| self.egress.paused_until(class))
            .min()
    }

    /// Gives queue pairs their turn whose class was paused and is no longer.
    #[inline]
    fn resume_classes(&mut self) {
        if self.stopped & !self.egress.paused() != 0 {
            self.stopped = 0;
            self.device.resume();
        }
    }

    /// Has the device put a packet into the port's queue, and reads its payload over PCIe.
    #[inline]
    pub(super) fn transmit_packet(&mut self, now: Time, kind: &Kind, context: &mut Context<'_>) {
        let mut sink = PortSink {
            now,
            host: self.number,
            lane: self.lane,
            kind,
            egress: &mut self.egress,
            context: &mut *context,
            payload: 0,
            is_answer: false,
            seat: self.seat,
            drops: &mut self.function_drops,
            mixes: !self.classes.is_power_of_two(),
            stopped: &mut self.stopped,
            sent_bytes: [0; 2],
        };
        self.device.transmit(Instant(now.ns()), 1, &mut sink);
        let (payload, is_answer) = (sink.payload, sink.is_answer);
        let sent_bytes = sink.sent_bytes;
        if let Some(seat) = self.seat {
            let card = &mut context.cards[seat.card as usize];
            card.slot.read(now, payload, is_answer);
            card.sent(seat.function, now, sent_bytes);
        } else if let Some(pcie) = &mut self.pcie {
            pcie.read(now, payload, is_answer);
        }
    }

    /// Schedules the next moment at which the device, or a flow that begins, has to be called.
    #[inline(always)]
    pub(in crate::world) fn set_clock(&mut self, links: &mut LinkState) {
        let mut at = self
            .device
            .next_timeout()
            .map_or(Time::NEVER, |at| Time::from_ns(at.0));
        if self.has_plans() {
            at = at.min(self.planned_at());
        }
        if at < self.clocks.last().copied().unwrap_or(Time::NEVER) {
            self.clocks.push(at);
            links
                .events
                .push(at, EventKey::new(self.lane, EventKind::Clock));
        }
    }

    /// Whether programs, the PCIe link, storage or another transport may have to be called.
    #[inline]
    fn has_plans(&self) -> bool {
        let programs = !self.starts.is_empty() || !self.thinking.is_empty();
        programs || self.pcie.is_some() || self.store.is_some() || self.uet.is_some()
    }

    /// The time of their next call.
    fn planned_at(&self) -> Time {
        let start = self.starts.last().map_or(Time::NEVER, |index| {
            self.posters[*index as usize].flow.start
        });
        let slot = self
            .pcie
            .as_ref()
            .map_or(Time::NEVER, |pcie| pcie.next_at());
        let store = self
            .store
            .as_ref()
            .map_or(Time::NEVER, |store| store.next_at());
        let thought = self
            .thinking
            .peek()
            .map_or(Time::NEVER, |std::cmp::Reverse((at, _))| *at);
        let transport = self
            .uet
            .as_ref()
            .map_or(Time::NEVER, |endpoint| endpoint.next_at());
        start.min(slot).min(store).min(thought).min(transport)
    }
}

/// The digest of addresses and ports that switches hash.
#[inline]
pub(in crate::world) fn digest(source_port: u16, from: u32, to: u32) -> u32 {
    u32::from(source_port) ^ from.rotate_left(16) ^ to.wrapping_mul(0x9e37_79b1)
}

/// Where the device puts packets: the port of its host.
struct PortSink<'a, 'c> {
    now: Time,
    host: u32,
    lane: u32,
    kind: &'a Kind,
    egress: &'a mut Egress,
    /// By reference and not field by field: one is made for each packet.
    context: &'a mut Context<'c>,
    /// Bytes of payload that left.
    payload: u32,
    /// Whether it answers a READ.
    is_answer: bool,
    /// The place in a shared adapter, the counters of drops by its switch, and bytes of frames that left by
    /// the port and to other functions.
    seat: Option<Seat>,
    drops: &'a mut FunctionDrops,
    sent_bytes: [u64; 2],
    /// Whether data of the host has several classes, and those whose queue pairs wait for the end of a pause.
    mixes: bool,
    stopped: &'a mut u8,
}

impl Sink for PortSink<'_, '_> {
    type Channels = rnic::NoChannels;

    #[inline]
    fn asks_again_at(&self) -> Option<Instant> {
        Some(Instant(self.egress.free_at().ns()))
    }

    /// Data of a paused class lets that of others go first.
    #[inline]
    fn has_room(&mut self, path: &Path, kind: PacketKind) -> bool {
        if !self.mixes || kind == PacketKind::Acknowledgement {
            return true;
        }
        let own = self.context.marked.mark(path.flow_label - 1, self.host, 0);
        let class = own.unwrap_or(self.kind.marks[0]).class;
        let is_paused = self.egress.paused() >> class & 1 == 1;
        *self.stopped |= u8::from(is_paused) << class;
        !is_paused
    }

    #[inline]
    fn send(
        &mut self,
        path: &Path,
        headers: &wire::Packet,
        payload: Gather<'_>,
    ) -> Result<(), Fault> {
        let payload = payload.len();
        self.payload += payload;
        self.is_answer = matches!(headers.message, Message::ReadResponse { .. });
        let role = match headers.message {
            Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } => 1,
            Message::Congestion => 2,
            _ => 0,
        };
        let to = host_of(&path.destination);
        let Attachment { leaf, exit, .. } = self.context.attachments[to as usize];
        // The flow label is the flow's number, which is stored nowhere else here.
        let flow = path.flow_label - 1;
        let own = self.context.marked.mark(flow, self.host, role);
        let mark = own.unwrap_or(self.kind.marks[role]);
        let forgery = self.forgery(flow);
        if self.is_spoofed(forgery) {
            return Ok(());
        }
        let telemetry = match self.kind.telemetry_bytes {
            0 => None,
            _ => self.telemetry(role, headers, flow),
        };
        let room = telemetry.map_or(0, |_| self.kind.telemetry_bytes);
        let length =
            frame_bytes(self.kind.config.headers, headers, payload) + mark.tag_bytes + room;
        let entropy = match self.context.entropies.is_empty() {
            true => None,
            false => self.context.entropies.get(&flow).copied(),
        };
        let entropy = entropy.unwrap_or_else(|| digest(path.source_port, self.host, to));
        let mut packet = Packet::new(leaf, exit, length as u16, mark.tos, entropy);
        packet.pcp = mark.pcp;
        packet.hop_limit = mark.hop_limit;
        packet.put_into_class(mark.class);
        packet.kind = kind(&headers.message);
        let from = if let Forgery::Gid(pretended) = forgery {
            pretended
        } else {
            self.host
        };
        let content = Content {
            headers: TransportHeaders::Roce(*headers),
            payload,
            flow,
            from,
            source_port: path.source_port,
        };
        if self.seat.is_some() {
            let inside = self.context.attachments[self.host as usize].leaf == leaf;
            self.sent_bytes[usize::from(inside)] += u64::from(length + FRAME_OVERHEAD_BYTES);
        }
        let Context { links, packets, .. } = &mut *self.context;
        let id = links
            .insert(packet, content, packets)
            .ok_or(Fault::Unmapped)?;
        if let Some(telemetry) = telemetry {
            packets.set_telemetry(id, telemetry);
        }
        let is_clear = match self.mixes {
            false => self.egress.is_clear(mark.class, self.now),
            true => self.egress.is_open(1 << mark.class, self.now),
        };
        if is_clear {
            let end = self.egress.send_at_once(&packet, self.now);
            links.send(self.lane, id, end, packets);
        } else {
            self.egress.push(id, packets);
        }
        Ok(())
    }
}

impl PortSink<'_, '_> {
    /// The owner of the source address in a flow's packets.
    #[inline]
    fn forgery(&self, flow: u32) -> Forgery {
        if self.context.forgeries.is_empty() {
            return Forgery::None;
        }
        self.context
            .forgeries
            .get(&flow)
            .filter(|(by, _)| *by == self.host)
            .map_or(Forgery::None, |(_, what)| *what)
    }

    /// Whether the embedded switch drops a packet because of its source address, which it counts.
    fn is_spoofed(&mut self, forgery: Forgery) -> bool {
        self.seat
            .is_some_and(|seat| self.drops.forged(seat.guard, forgery))
    }

    /// The telemetry header of a packet: empty in data, which collects; acknowledgements return the one of
    /// data.
    fn telemetry(&mut self, role: usize, headers: &wire::Packet, flow: u32) -> Option<Telemetry> {
        if is_data(&headers.message) {
            return Some(Telemetry::EMPTY);
        }
        if role != 1 {
            return None;
        }
        self.context
            .echoes
            .remove(&(self.host, flow))
            .map(Telemetry::returned)
    }
}
