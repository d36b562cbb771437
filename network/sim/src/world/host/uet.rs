//! Ultra Ethernet's transport at the host's port: packets of flows, and what receivers say about them.

use super::adapter::digest;
use super::frame::{Mark, uet_frame_bytes};
use super::{Attachment, Context, Host, Kind};
use crate::world::event_key::{EventKey, EventKind};
use crate::world::link_direction::{Content, TransportHeaders};
use crate::world::uet::{Header, Incoming, Outgoing};
use fabric::{Packet, PacketKind, Time};
use rnic::Status;
use wire::Qpn;

/// What switches choose next hops by: packets take paths by their entropy value, and are not sprayed.
const KIND: PacketKind = PacketKind::OTHER;

impl Host {
    /// A packet of the transport arrived.
    pub(super) fn take_uet(
        &mut self,
        now: Time,
        content: &Content,
        header: Header,
        packet: &Packet,
        context: &mut Context<'_>,
    ) {
        let Some(endpoint) = &mut self.uet else {
            return;
        };
        let incoming = Incoming {
            flow: content.flow,
            header,
            payload: content.payload,
            is_marked: packet.is_marked(),
            is_trimmed: packet.kind.is_trimmed(),
            at_last_hop: packet.kind.is_trimmed_at_last_hop(),
        };
        let answer = endpoint.take(now, &incoming);
        let receiving = &mut context.receiving[content.flow as usize];
        receiving.delivered_bytes += u64::from(answer.delivered);
        if let (Header::Data { psn, .. }, false) = (header, incoming.is_trimmed) {
            receiving.note_psn(psn as u32);
        }
        if let Some(packet) = answer.packet {
            self.emit_uet(now, &packet, context);
        }
        for _ in 0..answer.complete {
            let id = u64::from(content.flow);
            self.completed(now, id, Status::Success, Qpn::new(0), context);
        }
    }

    /// Handles timers and grants that are due.
    pub(super) fn handle_uet(&mut self, now: Time, context: &mut Context<'_>) {
        while let Some(flow) = self.uet.as_mut().and_then(|endpoint| endpoint.expire(now)) {
            let (id, status) = (u64::from(flow), Status::RetryExceeded);
            self.completed(now, id, status, Qpn::new(0), context);
        }
        while let Some(grant) = self.uet.as_mut().and_then(|endpoint| endpoint.grant(now)) {
            self.emit_uet(now, &grant, context);
        }
    }

    /// Sends packets that may leave now, and schedules a call for when more may.
    pub(super) fn pump_uet(&mut self, now: Time, context: &mut Context<'_>) {
        let kinds = context.kinds;
        let kind = &kinds[usize::from(self.kind)];
        let mut wake = self.send_waiting(now, kind, context);
        let paused = self.send_uet_data(now, kind, context);
        let pending = self
            .uet
            .as_ref()
            .is_some_and(|endpoint| endpoint.has_ready());
        if (pending || self.egress.has_more()) && self.egress.free_at() > now {
            wake = self.egress.free_at();
        } else if pending && let Some(until) = self.paused_until(paused) {
            wake = wake.min(until);
        }
        if self.egress.wants_wake(wake) {
            context
                .links
                .events
                .push(wake, EventKey::new(self.lane, EventKind::Wake));
        }
        self.set_clock(context.links);
    }

    /// Sends data while the port takes it. Flows whose class is paused let others go first; returns the
    /// classes of those.
    fn send_uet_data(&mut self, now: Time, kind: &Kind, context: &mut Context<'_>) -> u8 {
        let mut paused = 0;
        let mut passed = 0;
        while let Some((endpoint, flow)) = self
            .uet
            .as_mut()
            .and_then(|endpoint| endpoint.turn().map(|flow| (endpoint, flow)))
        {
            let own = context.marked.mark(flow, self.number, 0);
            let mark = own.unwrap_or(kind.marks[0]);
            let bit = 1 << mark.class;
            if self.egress.paused() & bit != 0 {
                paused |= bit;
                passed += 1;
                if passed >= endpoint.waiting() {
                    break;
                }
                endpoint.pass();
                continue;
            }
            if !self.egress.is_open(bit, now) {
                break;
            }
            if let Some(packet) = endpoint.send(now) {
                self.emit_marked(now, &packet, mark, context);
            }
        }
        paused
    }

    /// Sends a packet without payload, or queues it behind the frame that is leaving.
    fn emit_uet(&mut self, now: Time, packet: &Outgoing, context: &mut Context<'_>) {
        let own = context.marked.mark(packet.flow, self.number, 1);
        let mark = own.unwrap_or(context.kinds[usize::from(self.kind)].marks[1]);
        self.emit_marked(now, packet, mark, context);
    }

    fn emit_marked(
        &mut self,
        now: Time,
        outgoing: &Outgoing,
        mark: Mark,
        context: &mut Context<'_>,
    ) {
        let Attachment { leaf, exit, .. } = context.attachments[outgoing.to as usize];
        let headers = context.kinds[usize::from(self.kind)].config.headers;
        let length = uet_frame_bytes(headers, outgoing.payload) + mark.tag_bytes;
        // Each flow has its own paths: the value is the UDP source port, and flows differ in what is hashed.
        let entropy = digest(outgoing.entropy, self.number, outgoing.to)
            ^ outgoing.flow.wrapping_mul(0x85eb_ca6b);
        let mut packet = Packet::new(leaf, exit, length as u16, mark.tos, entropy);
        packet.pcp = mark.pcp;
        packet.hop_limit = mark.hop_limit;
        packet.put_into_class(mark.class);
        packet.kind = KIND;
        let content = Content {
            headers: TransportHeaders::Uet(outgoing.header),
            payload: outgoing.payload,
            flow: outgoing.flow,
            from: self.number,
            source_port: outgoing.entropy,
        };
        let Context { links, packets, .. } = context;
        let Some(id) = links.insert(packet, content, packets) else {
            return;
        };
        if self.egress.is_clear(mark.class, now) {
            let end = self.egress.send_at_once(&packet, now);
            links.send(self.lane, id, end, packets);
        } else {
            self.egress.push(id, packets);
        }
    }
}
