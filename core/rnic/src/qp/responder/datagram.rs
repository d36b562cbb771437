//! Receiving datagrams (IBTA 9.6.1.4, 9.8.3).

use super::Responder;
use crate::address::Arrival;
use crate::completion::{Completion, CompletionKind, Extra, NetworkHeader, Status};
use crate::cq::Notice;
use crate::memory::{Memory, Payload};
use crate::qp::context::Context;
use crate::subnet::LidAddress;
use core::net::{Ipv4Addr, Ipv6Addr};
use wire::grh::GRH_SIZE;
use wire::{Message, Packet, Tail};

/// Bytes of UDP header, BTH, DETH and ICRC: what a datagram's IP length has beyond the payload.
const DATAGRAM_OVERHEAD: u32 = 8 + 12 + 8 + 4;

impl Responder {
    /// Handles a datagram. One that does not fit is dropped and counted, as UD permits.
    pub(in crate::qp) fn handle_datagram(
        &mut self,
        cx: &mut Context<'_>,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let Message::Datagram { deth, tail } = packet.message else {
            return;
        };
        if !cx.qp.is_receiving() {
            cx.resources.port.counters.dropped_no_qp += 1;
            return;
        }
        if deth.qkey != cx.qp.attr.qkey {
            cx.resources.port.counters.dropped_bad_qkey += 1;
            return;
        }
        let total = GRH_SIZE as u32 + payload.len();
        let srq = cx.qp.init.srq;
        let room = match srq {
            Some(srq) => cx
                .resources
                .srqs
                .get(srq)
                .and_then(|srq| srq.queue.next_room()),
            None => self.queue.next_room(),
        };
        if room.is_none_or(|room| room < u64::from(total)) {
            cx.resources.port.counters.dropped_no_receive += 1;
            return;
        }
        if self.take_receive(cx, srq).is_err() {
            return;
        }
        let Some(id) = self.receive.take() else {
            return;
        };
        let status = self.fill_datagram(cx, arrival, payload, memory);
        let mut done = cx.completion(id, status, CompletionKind::Receive);
        done.length = total;
        done.source = deth.source;
        match LidAddress::from_gid(arrival.source) {
            Some(source) => note_source(&mut done, cx, arrival, source),
            None => {
                done.grh = Some(match (arrival.source.ipv4(), arrival.destination.ipv4()) {
                    (Some(_), Some(_)) => NetworkHeader::Ipv4,
                    _ => NetworkHeader::Ipv6,
                });
            }
        }
        if let Tail::Immediate(bytes) = tail {
            done.extra = Extra::Immediate(bytes);
        }
        let notice = if packet.solicited {
            Notice::Solicited
        } else {
            Notice::Ordinary
        };
        cx.complete_receive(srq, done, notice);
        if status != Status::Success {
            cx.fail();
        }
    }

    fn fill_datagram(
        &self,
        cx: &mut Context<'_>,
        arrival: &Arrival,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Status {
        let header = match LidAddress::from_gid(arrival.source) {
            Some(source) => global_header(cx, arrival, source, payload.len()),
            None => wire::grh::to_bytes(&ip_header(arrival, payload.len())),
        };
        let header = Payload::Bytes(&header);
        let srq = cx.qp.init.srq;
        let filled = self
            .fill_receive(cx, srq, 0, header, memory)
            .and_then(|()| self.fill_receive(cx, srq, GRH_SIZE as u32, payload, memory));
        if filled.is_ok() {
            Status::Success
        } else {
            Status::LocalProtection
        }
    }
}

/// Notes what a completion of InfiniBand has besides.
fn note_source(done: &mut Completion, cx: &Context<'_>, arrival: &Arrival, source: LidAddress) {
    done.grh = source.guid.map(|_| NetworkHeader::Global);
    done.source_lid = source.lid;
    done.service_level = arrival.service_level;
    let destination = LidAddress::from_gid(arrival.destination);
    if let (Some(port), Some(destination)) = (&cx.resources.port.subnet, destination) {
        done.path_bits = (destination.lid & ((1 << port.lmc) - 1)) as u8;
    }
}

/// The next header of a GRH before a base transport header (IBTA 8.3.5).
const NEXT_HEADER_IBA: u8 = 0x1b;
/// Bytes of BTH, DETH and ICRC, which the length in a GRH includes.
const GLOBAL_OVERHEAD: u32 = 12 + 8 + 4;

/// The global route header of a packet of InfiniBand; zeros where it has none.
fn global_header(
    cx: &Context<'_>,
    arrival: &Arrival,
    source: LidAddress,
    payload: u32,
) -> [u8; GRH_SIZE] {
    let (Some(guid), Some(port)) = (source.guid, &cx.resources.port.subnet) else {
        return [0; GRH_SIZE];
    };
    let own = LidAddress::from_gid(arrival.destination);
    let destination = own.map_or(arrival.destination, |_| port.gid());
    wire::grh::to_bytes(&wire::ip::Ip::V6(wire::ipv6::Ipv6 {
        traffic_class: wire::TrafficClass(0),
        flow_label: 0,
        payload_length: (payload.next_multiple_of(4) + GLOBAL_OVERHEAD) as u16,
        next_header: NEXT_HEADER_IBA,
        hop_limit: arrival.hop_limit,
        source: Ipv6Addr::from(port.gid_of(guid.get()).0),
        destination: Ipv6Addr::from(destination.0),
    }))
}

/// The IP header of the packet, as far as a receiver knows it.
fn ip_header(arrival: &Arrival, payload: u32) -> wire::ip::Ip {
    let traffic_class = wire::TrafficClass(arrival.traffic_class);
    let length = (payload.next_multiple_of(4) + DATAGRAM_OVERHEAD) as u16;
    match (arrival.source.ipv4(), arrival.destination.ipv4()) {
        (Some(source), Some(destination)) => wire::ip::Ip::V4(wire::ipv4::Ipv4 {
            traffic_class,
            total_length: length + 20,
            identification: wire::Identification::ZERO,
            ttl: arrival.hop_limit,
            protocol: wire::udp::PROTOCOL_UDP,
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
        }),
        _ => wire::ip::Ip::V6(wire::ipv6::Ipv6 {
            traffic_class,
            flow_label: 0,
            payload_length: length,
            next_header: wire::udp::PROTOCOL_UDP,
            hop_limit: arrival.hop_limit,
            source: Ipv6Addr::from(arrival.source.0),
            destination: Ipv6Addr::from(arrival.destination.0),
        }),
    }
}
