//! Receiving datagrams (IBTA 9.6.1.4, 9.8.3), and congestion notifications.

use super::Qp;
use super::attr::{QpType, State};
use super::requester::Step;
use crate::address::Arrival;
use crate::completion::{CompletionKind, Extra, NetworkHeader, Status};
use crate::config::CongestionConfig;
use crate::cq::Notice;
use crate::memory::{Gather, Memory, Payload};
use crate::resources::{Resources, completion};
use crate::sink::Sink;
use crate::time::{Instant, Nanos};
use core::net::{Ipv4Addr, Ipv6Addr};
use wire::grh::GRH_SIZE;
use wire::{Deth, Message, Packet, Tail};

/// Bytes of UDP header, BTH, DETH and ICRC: what a datagram's IP length has beyond the payload.
const DATAGRAM_OVERHEAD: u32 = 8 + 12 + 8 + 4;

/// At most one congestion notification per queue pair in this time, where the configuration does not say
/// (DCQCN paper, section 5: N = 50 us).
const NOTIFICATION_INTERVAL: Nanos = Nanos::from_micros(50);

impl Qp {
    /// Handles a datagram. One that does not fit is dropped and counted: UD promises nothing.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn handle_datagram(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        deth: Deth,
        tail: Tail,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        use State::{ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError};
        if !matches!(self.state, ReadyToReceive | ReadyToSend | SendQueueDrained | SendQueueError) {
            resources.counters.dropped_no_qp += 1;
            return;
        }
        if deth.qkey != self.attr.qkey {
            resources.counters.dropped_bad_qkey += 1;
            return;
        }
        let total = GRH_SIZE as u32 + payload.len();
        let room = match self.init.srq {
            Some(srq) => resources.srqs.get(srq.0 as usize).and_then(|srq| srq.queue.next_room()),
            None => self.receive.next_room(),
        };
        if room.is_none_or(|room| room < u64::from(total)) {
            resources.counters.dropped_no_receive += 1;
            return;
        }
        let srq = self.init.srq;
        if self.take_receive(resources, srq).is_err() {
            return;
        }
        let Some(id) = self.responder.receive.take() else { return };
        let status = self.fill_datagram(resources, arrival, payload, memory);
        let mut done = completion(self.qpn, id, status, CompletionKind::Receive, now);
        done.length = total;
        done.source = deth.source;
        done.grh = Some(match (arrival.source.ipv4(), arrival.destination.ipv4()) {
            (Some(_), Some(_)) => NetworkHeader::Ipv4,
            _ => NetworkHeader::Ipv6,
        });
        if let Tail::Immediate(bytes) = tail {
            done.extra = Extra::Immediate(bytes);
        }
        let notice = if packet.solicited { Notice::Solicited } else { Notice::Ordinary };
        resources.complete(self.receive_cq(resources, srq), done, notice);
        if status != Status::Success {
            self.fail(resources, now);
        }
    }

    fn fill_datagram(
        &mut self,
        resources: &mut Resources,
        arrival: &Arrival,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Status {
        let header = wire::grh::to_bytes(&ip_header(arrival, payload.len()));
        let header = Payload::Bytes(&header);
        let srq = self.init.srq;
        let filled = self
            .fill_receive(resources, srq, 0, header, memory)
            .and_then(|()| self.fill_receive(resources, srq, GRH_SIZE as u32, payload, memory));
        if filled.is_ok() { Status::Success } else { Status::LocalProtection }
    }

    /// A marked packet came: its sender is told, but not more often than the interval allows (IBTA A17.9.3).
    pub(crate) fn congestion_seen(&mut self, resources: &mut Resources, now: Instant) {
        resources.counters.np_ecn_marked_roce_packets += 1;
        let interval = match &resources.config.congestion {
            CongestionConfig::Dcqcn(dcqcn) => dcqcn.cnp_interval_ns,
            _ => NOTIFICATION_INTERVAL,
        };
        if self.kind != QpType::Ud && now >= self.responder.notify_after {
            self.responder.notify = true;
            self.responder.notify_after = now + interval;
        }
    }

    /// The peer saw marked packets of ours.
    pub(crate) fn handle_notification(&mut self, resources: &mut Resources, now: Instant) {
        resources.counters.rp_cnp_handled += 1;
        self.counters.rp_cnp_handled += 1;
        self.congestion.notified(now);
    }

    pub(super) fn send_notification(&mut self, resources: &mut Resources, sink: &mut impl Sink) -> Step {
        // BTH of a CNP: BECN set, PSN 0 (IBTA A17.9.3, figure 6).
        let psn = wire::Psn::new(0);
        let mut packet = Packet::new(wire::Service::Rc, self.attr.destination, psn, Message::Congestion);
        packet.becn = true;
        if sink.send(&self.path, &packet, Gather::EMPTY).is_ok() {
            resources.counters.np_cnp_sent += 1;
            self.count_sent(resources, 0);
        }
        Step::Sent
    }
}

/// The IP header that the packet came with, as far as a receiver can know it.
fn ip_header(arrival: &Arrival, payload: u32) -> wire::ip::Ip {
    let traffic_class = wire::ip::TrafficClass(arrival.traffic_class);
    let length = (payload.next_multiple_of(4) + DATAGRAM_OVERHEAD) as u16;
    match (arrival.source.ipv4(), arrival.destination.ipv4()) {
        (Some(source), Some(destination)) => wire::ip::Ip::V4(wire::ipv4::Ipv4 {
            traffic_class,
            total_length: length + 20,
            identification: wire::icrc::Identification::ZERO,
            ttl: arrival.hop_limit,
            protocol: wire::ip::PROTOCOL_UDP,
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
        }),
        _ => wire::ip::Ip::V6(wire::ipv6::Ipv6 {
            traffic_class,
            flow_label: 0,
            payload_length: length,
            next_header: wire::ip::PROTOCOL_UDP,
            hop_limit: arrival.hop_limit,
            source: Ipv6Addr::from(arrival.source.0),
            destination: Ipv6Addr::from(arrival.destination.0),
        }),
    }
}
