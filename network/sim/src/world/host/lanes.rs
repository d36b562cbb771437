//! A host with an InfiniBand port: packets leave when their lane has credits, and arriving ones occupy the
//! lane's receive buffer until they are in memory.

use super::{Context, Host};
use crate::world::event_key::{EventKey, EventKind};
use fabric::{LinkNews, Next, PacketId, Time};
use rnic::Pending;

impl Host {
    /// A packet has arrived in a lane.
    pub(super) fn receive_on_lane(&mut self, id: PacketId, context: &Context<'_>) {
        let packet = &context.packets[id];
        self.egress.receive_on_lane(packet.pcp, packet.length);
    }

    /// A flow control packet has arrived, or a packet has not.
    pub(in crate::world) fn handle_news(
        &mut self,
        now: Time,
        news: LinkNews,
        context: &mut Context<'_>,
    ) {
        let goes_on = self.egress.handle_news(news, now);
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

    /// Sends what may leave now, and schedules a call for when more may. The device has one packet of data
    /// ready in its lane, which waits there for credits.
    pub(super) fn pump_lanes(&mut self, now: Time, context: &mut Context<'_>) {
        let kinds = context.kinds;
        let kind = &kinds[usize::from(self.kind)];
        let lane = kind.marks[0].class;
        let readable_at = self
            .pcie
            .as_ref()
            .map_or(Time(0), |pcie| pcie.readable_at());
        let is_free = self.egress.free_at() <= now;
        let is_empty = |host: &Self| host.egress.occupied() >> lane & 1 == 0;
        let mut wake = Time::NEVER;
        if is_free && is_empty(self) && self.device.pending() != Pending::Nothing {
            if readable_at > now {
                wake = readable_at;
            } else {
                self.transmit_packet(now, kind, context);
            }
        }
        if is_free && self.egress.has_more() {
            let next = self
                .egress
                .next(now, &kind.profile, context.packets, &mut self.random);
            match next {
                Next::Packet { id, end } => context.links.send(self.lane, id, end, context.packets),
                Next::Credits { update, end } => {
                    context.links.send_credits(self.lane, update, end);
                }
                Next::Wait(at) => wake = wake.min(at),
                // Lifetimes are those of switches, and there are no pauses.
                Next::Expired { .. } | Next::Pause { .. } | Next::Idle => {}
            }
        }
        self.look(now, context);
        let pending = self.device.pending() != Pending::Nothing;
        let has_more = self.egress.has_more();
        if self.egress.free_at() > now && (has_more || pending) {
            let free_at = self.egress.free_at();
            wake = if has_more {
                free_at
            } else {
                free_at.max(readable_at)
            };
        }
        if self.egress.wants_wake(wake) {
            let key = EventKey::new(self.lane, EventKind::Wake);
            context.links.events.push(wake, key);
        }
        self.set_clock(context.links);
    }
}
