//! From received datagrams to the device.

use crate::counters::LinkCounters;
use crate::sys::memory::ProcessMemory;
use crate::transmit::flow_between;
use link::udp::{Datagrams, RECEIVE_BYTES_MAX, Socket};
use rnic::{Arrival, Gid, Instant, Payload};
use std::io;
use std::net::Ipv6Addr;
use wire::{Flow, Identification, Packet, explain_identification, split_icrc};

/// Takes datagrams off the socket.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: Option<Socket>,
    buffer: Box<[u8]>,
    /// The flow of the last datagrams: the next ones are probably of the same.
    of: (Ipv6Addr, Ipv6Addr, u16),
    flow: Flow,
}

impl Receiver {
    pub(crate) fn new(socket: Socket) -> Self {
        let none = Ipv6Addr::UNSPECIFIED;
        Self {
            socket: Some(socket),
            buffer: vec![0; RECEIVE_BYTES_MAX].into_boxed_slice(),
            of: (none, none, 0),
            flow: flow_between(none, none, 0),
        }
    }

    /// Receives nothing any more.
    pub(crate) fn sever(&mut self) {
        self.socket = None;
    }

    /// Takes what one call gives, and hands its packets to the device. False when nothing was there.
    pub(crate) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        now: Instant,
        counters: &mut LinkCounters,
    ) -> bool {
        let Some(socket) = &self.socket else { return false };
        let datagrams = match socket.receive(&mut self.buffer) {
            Ok(Some(datagrams)) => datagrams,
            // An ICMP error that an earlier send caused: the socket goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Ok(None) | Err(_) => return false,
        };
        counters.receives += 1;
        let of = (datagrams.source, datagrams.destination, datagrams.source_port);
        if of != self.of {
            self.of = of;
            self.flow = flow_between(of.0, of.1, of.2);
        }
        let arrival = arrival_of(&datagrams);
        let bytes = self.buffer.get(..datagrams.length).unwrap_or_default();
        for (index, datagram) in bytes.chunks(datagrams.segment.max(1)).enumerate() {
            counters.received_datagrams += 1;
            let Some(transport) = check_icrc(&self.flow, datagram, index as u16) else {
                counters.corrupt += 1;
                continue;
            };
            match Packet::parse(transport) {
                Ok((packet, payload)) => {
                    let payload = Payload::Bytes(payload);
                    rnic.handle_packet(now, &arrival, &packet, payload, &mut ProcessMemory);
                }
                Err(_) => counters.malformed += 1,
            }
        }
        true
    }
}

fn arrival_of(datagrams: &Datagrams) -> Arrival {
    Arrival {
        source: Gid(datagrams.source.octets()),
        destination: Gid(datagrams.destination.octets()),
        traffic_class: datagrams.traffic_class,
        hop_limit: datagrams.hop_limit,
    }
}

/// The transport part of a datagram whose ICRC is right. The IPv4 header is not seen, so its identification
/// is guessed: the position in a segmented send, which is what we send; otherwise whatever explains the
/// difference.
fn check_icrc<'a>(flow: &Flow, datagram: &'a [u8], index: u16) -> Option<&'a [u8]> {
    let (transport, received) = split_icrc(datagram)?;
    let assumed = Identification::ZERO.plus(index);
    let mut icrc = flow.seed(u16::try_from(transport.len()).ok()?, assumed);
    icrc.transport(transport);
    let computed = icrc.finish();
    let is_right = computed == received
        || explain_identification(computed, received, assumed, transport.len()).is_some();
    is_right.then_some(transport)
}
