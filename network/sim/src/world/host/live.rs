//! The port of a live host: see [`crate::world::LiveHosts`]. The PCIe slot of its adapter, and the state that
//! functions share, are those of simulated hosts.

use super::{Context, Host};
use crate::world::event_key::{EventKey, EventKind};
use crate::world::link_direction::{Content, TransportHeaders};
use crate::world::live::{Delivered, LivePacket, Offer};
use crate::world::results::LIVE_FLOW;
use crate::world::scenario::Forgery;
use fabric::{FRAME_OVERHEAD_BYTES, Next, Packet, PacketId, Time, UNTAGGED};
use wire::{Message, Psn, Qpn, Service};

impl Host {
    /// A packet arrived: it leaves the simulation.
    pub(super) fn deliver(&mut self, now: Time, id: PacketId, context: &mut Context<'_>) {
        let flow = context.links.contents[id.0 as usize].flow;
        let packet = context.packets.remove(id);
        if let Some(live) = context
            .live
            .as_deref_mut()
            .filter(|_| flow & LIVE_FLOW != 0)
        {
            let token = flow & !LIVE_FLOW;
            live.deliver(
                self.number,
                Delivered {
                    token,
                    tos: packet.tos,
                    hop_limit: packet.hop_limit,
                },
                now,
            );
        }
    }

    /// Sends packets that may leave now. Each queue holds one packet at most, and gets the next one when that
    /// has left: all others wait outside of the simulation.
    pub(super) fn pump_live(&mut self, now: Time, context: &mut Context<'_>) {
        self.egress.end_pauses(now);
        let mut later = self.refill(now, context);
        let mut wake = None;
        if self.egress.free_at() <= now && self.egress.has_more() {
            let fetched_at = self.fetched_at(now, context);
            let pause_due = self.egress.pause_due();
            if fetched_at > now && pause_due > now {
                wake = Some(fetched_at.min(pause_due));
            } else {
                let profile = &context.kinds[usize::from(self.kind)].profile;
                match self
                    .egress
                    .next(now, profile, context.packets, &mut self.random)
                {
                    Next::Packet { id, end } => {
                        self.fetch(now, id, context);
                        if self.is_spoofed(context.packets[id].class()) {
                            context.links.give_back(id);
                            context.packets.remove(id);
                        } else {
                            context.links.send(self.lane, id, end, context.packets);
                        }
                        later = self.refill(now, context);
                    }
                    Next::Pause { frame, end } => context.links.send_pause(self.lane, frame, end),
                    Next::Wait(at) => wake = Some(at),
                    Next::Idle | Next::Credits { .. } | Next::Expired { .. } => {}
                }
            }
        }
        if self.egress.free_at() > now && self.egress.has_more() {
            wake = Some(self.egress.free_at());
        }
        if let Some(at) = wake.filter(|at| self.egress.wants_wake(*at)) {
            context
                .links
                .events
                .push(at, EventKey::new(self.lane, EventKind::Wake));
        }
        let stored = self
            .pcie
            .as_ref()
            .map_or(Time::NEVER, |pcie| pcie.next_at());
        let later = later.min(stored);
        if later != Time::NEVER && self.wants_clock(later) {
            context
                .links
                .events
                .push(later, EventKey::new(self.lane, EventKind::Clock));
        }
    }

    /// When the adapter may fetch the next packet that waits: at once, where neither its PCIe slot nor other
    /// functions of the adapter hold it up.
    fn fetched_at(&self, now: Time, context: &mut Context<'_>) -> Time {
        if self.egress.occupied() & !self.egress.paused() == 0 {
            return now;
        }
        match self.seat {
            Some(seat) => {
                let card = &mut context.cards[seat.card as usize];
                card.ask(seat.function, now).err().unwrap_or(now)
            }
            None => self.pcie.as_ref().map_or(now, |pcie| pcie.readable_at()),
        }
    }

    /// The adapter fetches the packet that leaves.
    fn fetch(&mut self, now: Time, id: PacketId, context: &mut Context<'_>) {
        let content = &context.links.contents[id.0 as usize];
        let payload = content.payload;
        let message = content.headers.roce().map(|headers| headers.message);
        let is_answer = matches!(message, Some(Message::ReadResponse { .. }));
        if let Some(seat) = self.seat {
            let packet = &context.packets[id];
            let mut bytes = [0; 2];
            let inside = context.attachments[self.number as usize].leaf == packet.leaf;
            bytes[usize::from(inside)] = u64::from(packet.length) + u64::from(FRAME_OVERHEAD_BYTES);
            let card = &mut context.cards[seat.card as usize];
            card.slot.read(now, payload, is_answer);
            card.sent(seat.function, now, bytes);
        } else if let Some(pcie) = &mut self.pcie {
            pcie.read(now, payload, is_answer);
        }
    }

    /// Whether the embedded switch drops the packet that a class had because of its source address, which it
    /// counts.
    fn is_spoofed(&mut self, class: u8) -> bool {
        let forgery = match self.forged.map(|mask| mask >> class & 1 == 1) {
            [true, _] => Forgery::Gid(self.number),
            [_, true] => Forgery::Mac(self.number),
            _ => Forgery::None,
        };
        self.seat
            .is_some_and(|seat| self.function_drops.forged(seat.guard, forgery))
    }

    /// Whether a call at `at` has to be scheduled: no earlier one is on its way.
    pub(in crate::world) fn wants_clock(&mut self, at: Time) -> bool {
        let wanted = self.clocks.last().is_none_or(|next| at < *next);
        if wanted {
            self.clocks.push(at);
        }
        wanted
    }

    /// Fills the queues that are empty; returns the time of the next call.
    fn refill(&mut self, now: Time, context: &mut Context<'_>) -> Time {
        loop {
            let wanted = !self.egress.occupied();
            let Some(live) = context.live.as_deref_mut().filter(|_| wanted != 0) else {
                return Time::NEVER;
            };
            match live.pull(self.number, wanted, now) {
                Offer::Packet(packet) => self.insert_live(&packet, context),
                Offer::At(at) => return at,
                Offer::Nothing => return Time::NEVER,
            }
        }
    }

    fn insert_live(&mut self, live: &LivePacket, context: &mut Context<'_>) {
        let bit = 1 << (live.class & 7);
        let is = [
            matches!(live.forgery, Forgery::Gid(_)),
            matches!(live.forgery, Forgery::Mac(_)),
        ];
        for (mask, is) in self.forged.iter_mut().zip(is) {
            *mask = *mask & !bit | if is { bit } else { 0 };
        }
        let (leaf, exit) = match live.leaf {
            Some(leaf) => (leaf, 0),
            None => {
                let attachment = context.attachments.get(live.to as usize);
                attachment.map_or((u32::MAX, 0), |at| (at.leaf, at.exit))
            }
        };
        let mut packet = Packet::new(leaf, exit, live.length, live.tos, live.entropy);
        packet.pcp = live.pcp.unwrap_or(UNTAGGED);
        packet.hop_limit = live.hop_limit;
        packet.kind = live.kind;
        let headers = wire::Packet::new(Service::Rc, Qpn::new(0), Psn::new(0), Message::Congestion);
        let flow = live.token | LIVE_FLOW;
        let content = Content {
            headers: TransportHeaders::Roce(headers),
            payload: live.payload.into(),
            flow,
            from: self.number,
            source_port: 0,
        };
        match context.links.insert(packet, content, context.packets) {
            Some(id) => self.egress.enqueue(id, live.class & 7, context.packets),
            None => context.links.lost_tokens.push(live.token),
        }
    }
}
