//! Receives datagrams, checks them, and passes their packets to the device.

use crate::capture::{Capture, Direction, Envelope};
use crate::counters::LinkCounters;
use crate::flow::{flow_between, identification};
use crate::sys::memory::ProcessMemory;
use link::udp::{Datagrams, RECEIVE_BYTES_MAX, Socket};
use rnic::{Arrival, Gid, Instant, Payload};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::RawFd;
use std::sync::Arc;
use wire::{Flow, Identification, Packet, split_icrc};

/// The sockets that a device receives from.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// One for each range of queue pair numbers; none in the child of a fork.
    sockets: Vec<Arc<Socket>>,
    /// One for each multicast group that the device has joined.
    groups: Vec<(Gid, Socket)>,
    /// Index of the socket that was last read.
    next: usize,
    buffer: Box<[u8]>,
    /// Addresses of the last datagrams, from which `flow` was computed: the next ones probably have the same.
    of: (Ipv6Addr, Ipv6Addr, u16),
    flow: Flow,
    capture: Option<Capture>,
}

impl Receiver {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        let none = Ipv6Addr::UNSPECIFIED;
        Self {
            sockets: vec![socket],
            groups: Vec::new(),
            next: 0,
            buffer: vec![0; RECEIVE_BYTES_MAX].into_boxed_slice(),
            of: (none, none, 0),
            flow: flow_between(none, none, 0),
            capture: Capture::from_environment(),
        }
    }

    /// Adds a socket to receive from.
    pub(crate) fn add(&mut self, socket: Socket) {
        self.sockets.push(Arc::new(socket));
    }

    /// Joins a multicast group. Returns the descriptor that becomes readable for it.
    pub(crate) fn join(&mut self, group: Gid, interface: u32) -> io::Result<RawFd> {
        let socket = Socket::join(group.into(), interface)?;
        let descriptor = socket.raw();
        self.groups.push((group, socket));
        Ok(descriptor)
    }

    /// Leaves a multicast group when the socket that this returns is dropped.
    pub(crate) fn leave(&mut self, group: Gid) -> Option<Socket> {
        let place = self.groups.iter().position(|(known, _)| *known == group)?;
        Some(self.groups.swap_remove(place).1)
    }

    /// Closes the sockets: in the child of a fork nothing is received.
    pub(crate) fn sever(&mut self) {
        self.sockets.clear();
        self.groups.clear();
        self.capture = None;
    }

    /// Receives the datagrams of one call, and passes their packets to the device. False when there were
    /// none.
    pub(crate) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        now: Instant,
        counters: &mut LinkCounters,
    ) -> bool {
        let Some(datagrams) = self.take() else {
            return false;
        };
        counters.receives += 1;
        let of = (
            datagrams.source,
            datagrams.destination,
            datagrams.source_port,
        );
        if of != self.of {
            self.of = of;
            self.flow = flow_between(of.0, of.1, of.2);
        }
        let arrival = arrival_of(&datagrams);
        let bytes = self.buffer.get(..datagrams.length).unwrap_or_default();
        if let Some(capture) = &mut self.capture
            && !capture.write(&envelope(&datagrams, &self.flow), bytes, datagrams.segment)
        {
            self.capture = None;
        }
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
        service_level: 0,
    }
}

impl Receiver {
    /// Receives from the next socket that has datagrams.
    fn take(&mut self) -> Option<Datagrams> {
        let groups = self.groups.iter().map(|(_, socket)| socket);
        for _ in 0..self.sockets.len() {
            self.next = if self.next + 1 < self.sockets.len() {
                self.next + 1
            } else {
                0
            };
            // An error was caused by an earlier send (ICMP): the socket can still be used.
            if let Ok(Some(datagrams)) = self.sockets[self.next].receive(&mut self.buffer) {
                return Some(datagrams);
            }
        }
        for socket in groups {
            if let Ok(Some(datagrams)) = socket.receive(&mut self.buffer) {
                return Some(datagrams);
            }
        }
        None
    }
}

fn envelope<'a>(datagrams: &Datagrams, flow: &'a Flow) -> Envelope<'a> {
    Envelope {
        direction: Direction::Received,
        source: datagrams.source,
        destination: datagrams.destination,
        source_port: datagrams.source_port,
        traffic_class: datagrams.traffic_class,
        hop_limit: datagrams.hop_limit,
        flow,
    }
}

/// The transport headers and payload of a datagram whose ICRC is right.
fn check_icrc<'a>(flow: &Flow, datagram: &'a [u8], index: u16) -> Option<&'a [u8]> {
    let (transport, _) = split_icrc(datagram)?;
    identification(flow, datagram, Identification::ZERO.plus(index)).map(|_| transport)
}
