//! Congestion notification packets (IBTA A17.9.3): the notification point's side.

use super::Responder;
use crate::congestion::Signal;
use crate::memory::Gather;
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::step::Step;
use crate::sink::Sink;
use crate::time::Nanos;
use wire::{Message, Packet, Psn, Service};

/// Least time between two congestion notifications to one queue pair.
pub(in crate::qp) fn notification_interval(cx: &Context<'_>) -> Nanos {
    cx.resources.config.congestion.notification_interval()
}

impl Responder {
    /// Handles a marked packet: its sender is notified, but not more often than the interval allows. An
    /// algorithm that counts marks is told of each in the packet's acknowledgement.
    pub(in crate::qp) fn congestion_seen(&mut self, cx: &mut Context<'_>) {
        cx.resources.port.counters.np_ecn_marked_roce_packets += 1;
        if cx.qp.is_reliable() && cx.resources.config.congestion.signal() == Signal::Echoes {
            self.echo = true;
        } else if cx.qp.kind != QpType::Ud && cx.now >= self.notify_after {
            self.notify = true;
            self.notify_after = cx.now + notification_interval(cx);
        }
    }

    pub(super) fn send_notification(&mut self, cx: &mut Context<'_>, sink: &mut impl Sink) -> Step {
        // BTH of a CNP: BECN set, PSN 0 (IBTA A17.9.3, figure 6).
        let to = cx.qp.attr.destination;
        let mut packet = Packet::new(Service::Rc, to, Psn::new(0), Message::Congestion);
        packet.pkey = cx.resources.partition(cx.qp.attr.pkey_index);
        packet.becn = true;
        if sink.send(&cx.qp.path, &packet, Gather::EMPTY).is_ok() {
            cx.resources.port.counters.np_cnp_sent += 1;
            cx.count_sent(0);
        }
        Step::Sent
    }
}
