//! From the device's packets to sends of many segments.
//!
//! Packets in a row that go the same way are put into one buffer, payload copied from application memory, and
//! sent with one system call. Segments of one send are equally long but for the last, which may be shorter:
//! so an acknowledgement rides behind data.

use crate::counters::LinkCounters;
use crate::sys::memory;
use link::udp::{QPN_BITS, Route, SEGMENTS_MAX, SEND_BYTES_MAX, Socket};
use rnic::{Fault, Gather, Path, Sink};
use std::net::Ipv6Addr;
use wire::icrc::ICRC_SIZE;
use wire::opcode::MAX_HEADERS;
use wire::{Flow, Identification, Packet, ROCE_PORT, pad_of};

/// The batch that is being filled.
#[derive(Debug)]
pub(crate) struct Transmitter {
    socket: Option<Socket>,
    interface: u32,
    staging: Box<[u8]>,
    length: usize,
    segments: usize,
    segment: usize,
    /// A shorter segment was added: it is the last.
    closed: bool,
    /// This batch follows another one that was full.
    bulk: bool,
    /// Where the batch goes, and the socket of the group at the peer that it is for.
    path: Path,
    slot: u32,
    route: Route,
    flow: Flow,
    pub(crate) counters: LinkCounters,
}

impl Transmitter {
    pub(crate) fn new(socket: Socket, interface: u32) -> Self {
        let path = Path::default();
        Self {
            socket: Some(socket),
            interface,
            staging: vec![0; SEND_BYTES_MAX].into_boxed_slice(),
            length: 0,
            segments: 0,
            segment: 0,
            closed: false,
            bulk: false,
            path,
            slot: 0,
            route: route_of(&path, interface),
            flow: flow_between(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, ROCE_PORT),
            counters: LinkCounters::default(),
        }
    }

    /// Sends nothing any more.
    pub(crate) fn sever(&mut self) {
        self.socket = None;
    }

    /// Keeps a batch for what comes next, if it follows others: the network is busy with those, and a call
    /// saved is time saved on both sides. Otherwise sends it.
    pub(crate) fn hold(&mut self) {
        if !self.bulk || self.closed || self.segments == SEGMENTS_MAX {
            self.flush();
        }
    }

    /// Whether packets are kept back.
    pub(crate) fn is_holding(&self) -> bool {
        self.segments > 0
    }

    /// Sends what is in the batch.
    pub(crate) fn flush(&mut self) {
        if self.segments == 0 {
            return;
        }
        let bytes = self.staging.get(..self.length).unwrap_or_default();
        self.counters.sends += 1;
        self.counters.sent_datagrams += self.segments as u64;
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(&self.route, bytes, self.segment)
        {
            self.counters.note_send_error(&error, self.segments as u64);
        }
        (self.length, self.segments, self.closed, self.bulk) = (0, 0, false, false);
    }

    fn fits(&self, path: &Path, slot: u32, total: usize) -> bool {
        self.segments == 0
            || (!self.closed
                && total <= self.segment
                && self.segments < SEGMENTS_MAX
                && self.length + total <= self.staging.len()
                && slot == self.slot
                && *path == self.path)
    }

    fn begin(&mut self, path: &Path, slot: u32, total: usize) {
        (self.segment, self.slot) = (total, slot);
        if *path != self.path {
            self.path = *path;
            self.route = route_of(path, self.interface);
            self.flow = flow_between(self.route.source, self.route.destination, ROCE_PORT);
        }
    }
}

impl Sink for Transmitter {
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let mut headers = [0; MAX_HEADERS];
        let payload_length = payload.len() as usize;
        let pad = pad_of(payload_length);
        let Ok(headers_length) = packet.encode(pad, &mut headers) else {
            self.counters.unencodable += 1;
            return Ok(());
        };
        let transport = headers_length + payload_length + usize::from(pad);
        let total = transport + ICRC_SIZE;
        let slot = packet.dest.value() >> QPN_BITS;
        if !self.fits(path, slot, total) {
            self.flush();
            self.bulk = true;
        }
        if self.segments == 0 {
            self.begin(path, slot, total);
        }
        let Some(place) = self.staging.get_mut(self.length..self.length + total) else {
            self.counters.unencodable += 1;
            return Ok(());
        };
        let (body, icrc_place) = place.split_at_mut(transport);
        body[..headers_length].copy_from_slice(&headers[..headers_length]);
        gather(payload, &mut body[headers_length..headers_length + payload_length])?;
        body[headers_length + payload_length..].fill(0);
        let identification = Identification::ZERO.plus(self.segments as u16);
        let mut icrc = self.flow.seed(transport as u16, identification);
        icrc.transport(body);
        icrc_place.copy_from_slice(&icrc.finish());
        self.length += total;
        self.segments += 1;
        self.closed = total < self.segment;
        Ok(())
    }
}

fn gather(payload: Gather<'_>, mut out: &mut [u8]) -> Result<(), Fault> {
    match payload {
        Gather::Inline(bytes) => out.copy_from_slice(bytes),
        Gather::Pieces(pieces) => {
            for piece in pieces {
                let (part, rest) = out.split_at_mut(out.len().min(piece.length as usize));
                memory::read(piece, part)?;
                out = rest;
            }
        }
    }
    Ok(())
}

fn route_of(path: &Path, interface: u32) -> Route {
    Route {
        source: Ipv6Addr::from(path.source.0),
        destination: Ipv6Addr::from(path.destination.0),
        interface,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    }
}

/// The flow of packets from `source_port` to port 4791.
pub(crate) fn flow_between(source: Ipv6Addr, destination: Ipv6Addr, source_port: u16) -> Flow {
    match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
        (Some(source), Some(destination)) => Flow::ipv4(source, destination, source_port, ROCE_PORT),
        _ => Flow::ipv6(source, destination, source_port, ROCE_PORT),
    }
}
