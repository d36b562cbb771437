//! Congestion notification packets (IBTA A17.9.3): the notification point's side.

use super::Responder;
use crate::config::CongestionConfig;
use crate::memory::Gather;
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::step::Step;
use crate::sink::Sink;
use crate::time::Nanos;
use wire::{Message, Packet, Psn, Service};

/// Default of the least interval between two congestion notifications per queue pair, where the configuration
/// sets none (DCQCN paper, section 5: N = 50 us).
const NOTIFICATION_INTERVAL: Nanos = Nanos::from_micros(50);

/// Least time between two congestion notifications to one queue pair.
pub(in crate::qp) fn notification_interval(cx: &Context<'_>) -> Nanos {
    match &cx.resources.config.congestion {
        CongestionConfig::Dcqcn(dcqcn) => dcqcn.cnp_interval_ns,
        _ => NOTIFICATION_INTERVAL,
    }
}

impl Responder {
    /// Handles a marked packet: its sender is notified, but not more often than the interval allows.
    pub(in crate::qp) fn congestion_seen(&mut self, cx: &mut Context<'_>) {
        cx.resources.port.counters.np_ecn_marked_roce_packets += 1;
        if cx.qp.kind != QpType::Ud && cx.now >= self.notify_after {
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
