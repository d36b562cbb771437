//! Sends the device's packets on the network, many with one system call.
//!
//! Packets with the same addresses are put into one buffer, with the payload copied from application memory,
//! and sent with one system call. All segments of one send have the same length except the last, which may be
//! shorter: so an acknowledgement can follow data. There is a buffer for each source port, so that packets of
//! many queue pairs that send alternately are still batched.

use crate::capture::{Capture, Direction, Envelope};
use crate::counters::LinkCounters;
use crate::faults::PacketFaults;
use crate::flow::flow_between;
use crate::log::HOST;
use crate::settings;
use crate::source_ports::{PORTS, SourcePorts, index_of};
use crate::sys::memory;
use link::udp::{QPN_BITS, Route, SEGMENTS_MAX, SEND_BYTES_MAX, Socket};
use rnic::{Fault, Gather, Gid, Path, Sink};
use std::io;
use std::sync::Arc;
use wire::icrc::ICRC_SIZE;
use wire::opcode::MAX_HEADERS;
use wire::{Flow, Identification, Packet, pad_of};

/// The packets that are about to be sent, and the sockets to send them from.
#[derive(Debug)]
pub(crate) struct Transmitter {
    sockets: SourcePorts,
    interface: u32,
    /// Limit of datagrams per call.
    segments_max: usize,
    /// Whether the kernel has divided a batch: it divides others too, then.
    divides: bool,
    /// One for each source port.
    batches: Vec<Batch>,
    /// Bit mask of the batches with packets.
    filled: u32,
    /// What watches packets or changes them; mostly nothing.
    observer: Option<Observer>,
    pub(crate) counters: LinkCounters,
}

/// The capture and the faults of packets.
#[derive(Debug)]
struct Observer {
    capture: Option<Capture>,
    faults: Option<PacketFaults>,
}

impl Observer {
    /// The observer that the environment asks for.
    fn from_environment(interface: u32) -> Option<Self> {
        let observer = Self {
            capture: Capture::from_environment(),
            faults: PacketFaults::of_process(interface),
        };
        (observer.capture.is_some() || observer.faults.is_some()).then_some(observer)
    }

    /// Writes packets into the capture, as they are sent.
    fn capture(&mut self, way: &Way, packets: &[u8], segment: usize) {
        if let Some(capture) = &mut self.capture
            && !capture.write(&envelope(&way.route, way.port, &way.flow), packets, segment)
        {
            self.capture = None;
        }
    }

    /// The faults, where packets meet some at this moment.
    fn faults(&mut self) -> Option<&mut PacketFaults> {
        self.faults.as_mut().filter(|faults| faults.take_packets())
    }
}

const _: () = assert!(PORTS <= u32::BITS as usize, "a bit for each batch");

/// Packets that are sent with one system call.
#[derive(Debug, Default)]
struct Batch {
    staging: Box<[u8]>,
    length: usize,
    segments: usize,
    segment: usize,
    /// Whether a shorter segment was added: it is the last.
    closed: bool,
    /// Whether this batch follows another one that was full.
    bulk: bool,
    /// Destination, and the index of the peer's socket in its group on port 4791.
    to: Option<(Destination, u32)>,
    way: Option<Way>,
}

/// The way of packets with the same addresses and source port.
#[derive(Debug)]
struct Way {
    socket: Arc<Socket>,
    port: u16,
    route: Route,
    flow: Flow,
}

/// The addresses that the packets of a batch have in common, besides the source port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Destination {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    hop_limit: u8,
}

impl Transmitter {
    pub(crate) fn new(socket: Arc<Socket>, interface: u32) -> Self {
        let segments = settings::segmentation() && socket.can_segment();
        Self {
            sockets: SourcePorts::new(socket),
            interface,
            segments_max: if segments { SEGMENTS_MAX } else { 1 },
            divides: false,
            batches: (0..PORTS).map(|_| Batch::default()).collect(),
            filled: 0,
            observer: Observer::from_environment(interface),
            counters: LinkCounters::default(),
        }
    }

    /// Closes the sockets: in the child of a fork nothing is sent.
    pub(crate) fn sever(&mut self) {
        self.sockets.sever();
        self.batches
            .iter_mut()
            .for_each(|batch| (batch.to, batch.way) = (None, None));
        self.observer = None;
    }

    /// Holds back batches that follow a full one, for further packets: the network is busy with the full one,
    /// and each system call saved gains time at both ends. Sends the other batches.
    pub(crate) fn hold(&mut self) {
        for index in bits(self.filled) {
            let batch = &self.batches[index];
            if !batch.bulk || batch.closed || batch.segments == self.segments_max {
                self.flush_batch(index);
            }
        }
    }

    /// Whether packets are held back.
    pub(crate) fn is_holding(&self) -> bool {
        self.filled != 0
    }

    /// Sends all batches.
    pub(crate) fn flush(&mut self) {
        bits(self.filled).for_each(|index| self.flush_batch(index));
    }

    fn flush_batch(&mut self, index: usize) {
        self.filled &= !(1 << index);
        let segments = self.batches[index].segments as u64;
        self.counters.sends += 1;
        self.counters.sent_datagrams += segments;
        if let Err(error) = self.send_batch(index) {
            self.counters.note_send_error(&error, segments);
            let to = self.batches[index].way.as_ref();
            let to = to.map(|way| way.route.destination);
            tracing::debug!(target: HOST, ?to, segments, "packets not sent: {error}");
        }
        let batch = &mut self.batches[index];
        (batch.length, batch.segments, batch.closed, batch.bulk) = (0, 0, false, false);
    }

    /// Sends the packets of a batch, or leaves them to the faults that they meet.
    fn send_batch(&mut self, index: usize) -> io::Result<()> {
        let batch = &mut self.batches[index];
        let packets = batch.staging.get_mut(..batch.length).unwrap_or_default();
        let Some(way) = batch.way.as_ref() else {
            return Ok(());
        };
        let mut observer = self.observer.as_mut();
        if let Some(observer) = &mut observer
            && observer.faults().is_some()
        {
            number_singly(&way.flow, packets, batch.segment);
            observer.capture(way, packets, batch.segment);
            if let Some(faults) = observer.faults() {
                faults.pass(&way.socket, &way.route, packets, batch.segment);
            }
            return Ok(());
        }
        // How the first packets leave that are to be divided is known when they have left.
        let is_known = batch.segments <= 1 || self.divides;
        if let Some(observer) = observer.as_mut().filter(|_| is_known) {
            observer.capture(way, packets, batch.segment);
        }
        let mut sent = way.socket.send(&way.route, packets, batch.segment);
        // The address may have been removed meanwhile.
        let unbound = match sent.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::EINVAL | libc::EADDRNOTAVAIL)) if way.socket.is_bound_to_address() => {
                self.sockets.unbound(index, way.port)
            }
            _ => None,
        };
        let socket = unbound.as_ref().unwrap_or(&way.socket);
        if unbound.is_some() {
            sent = socket.send(&way.route, packets, batch.segment);
        }
        // The kernel divides a batch only where the interface computes the checksums of its packets. Routes
        // through IPsec and some tunnels have none that does, and before Linux 6.11 interfaces without
        // checksum offload are refused too. Packets leave one at a time, from now on.
        if let Err(error) = &sent
            && batch.segments > 1
            && error.raw_os_error() == Some(libc::EIO)
        {
            tracing::warn!(target: HOST, "no UDP segmentation offload on this route: {error}");
            self.segments_max = 1;
            self.counters.sends += batch.segments as u64;
            number_singly(&way.flow, packets, batch.segment);
            let mut each = packets.chunks(batch.segment.max(1));
            sent = each.try_for_each(|packet| socket.send(&way.route, packet, packet.len()));
        } else if sent.is_ok() && batch.segments > 1 {
            self.divides = true;
        }
        if let Some(observer) = observer.filter(|_| !is_known) {
            observer.capture(way, packets, batch.segment);
        }
        sent
    }
}

/// Makes the ICRCs of packets that leave one by one. The kernel numbers the packets of a segmented send in
/// the header of IPv4, which the ICRC covers, and a single packet has the number 0.
fn number_singly(flow: &Flow, packets: &mut [u8], segment: usize) {
    for packet in packets.chunks_mut(segment.max(1)) {
        let (transport, place) = packet.split_at_mut(packet.len().saturating_sub(ICRC_SIZE));
        let mut icrc = flow.seed(transport.len() as u16, Identification::ZERO);
        icrc.transport(transport);
        place.copy_from_slice(&icrc.finish());
    }
}

/// The positions of the bits that are set.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = mask.checked_ilog2()?;
        mask &= !(1 << index);
        Some(index as usize)
    })
}

impl Batch {
    fn fits(&self, to: (Destination, u32), total: usize, segments_max: usize) -> bool {
        self.segments == 0
            || (!self.closed
                && total <= self.segment
                && self.segments < segments_max
                && self.length + total <= self.staging.len()
                && self.to == Some(to))
    }

    /// Begins a batch with its first packet. `open` finds the way where the addresses are not the last ones.
    fn begin(
        &mut self,
        to: (Destination, u32),
        total: usize,
        open: impl FnOnce(&Destination) -> Option<Way>,
    ) {
        if self.staging.is_empty() {
            self.staging = vec![0; SEND_BYTES_MAX].into_boxed_slice();
        }
        self.segment = total;
        if self.to != Some(to) || self.way.is_none() {
            self.to = Some(to);
            self.way = open(&to.0);
        }
    }

    /// Adds a packet; `None` if it is longer than the longest packet that can be sent.
    fn push(&mut self, headers: &[u8], payload: Gather<'_>, pad: u8) -> Option<Result<(), Fault>> {
        let length = payload.len() as usize;
        let transport = headers.len() + length + usize::from(pad);
        let total = transport + ICRC_SIZE;
        let place = self.staging.get_mut(self.length..self.length + total)?;
        let (body, icrc_place) = place.split_at_mut(transport);
        body[..headers.len()].copy_from_slice(headers);
        if let Err(fault) = gather(payload, &mut body[headers.len()..headers.len() + length]) {
            return Some(Err(fault));
        }
        body[headers.len() + length..].fill(0);
        let identification = Identification::ZERO.plus(self.segments as u16);
        let mut icrc = self
            .way
            .as_ref()?
            .flow
            .seed(transport as u16, identification);
        icrc.transport(body);
        icrc_place.copy_from_slice(&icrc.finish());
        self.length += total;
        self.segments += 1;
        self.closed = total < self.segment;
        Some(Ok(()))
    }
}

impl Sink for Transmitter {
    type Channels = rnic::NoChannels;

    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        let mut headers = [0; MAX_HEADERS];
        let pad = pad_of(payload.len() as usize);
        let Ok(headers_length) = packet.encode(pad, &mut headers) else {
            self.counters.unencodable += 1;
            return Ok(());
        };
        let total = headers_length + payload.len() as usize + usize::from(pad) + ICRC_SIZE;
        let to = (Destination::of(path), packet.dest.value() >> QPN_BITS);
        let index = index_of(path.source_port);
        if !self.batches[index].fits(to, total, self.segments_max) {
            let goes_on = self.batches[index].to == Some(to);
            self.flush_batch(index);
            self.batches[index].bulk = goes_on;
        }
        if self.batches[index].segments == 0 {
            let Self {
                sockets, interface, ..
            } = self;
            self.batches[index].begin(to, total, |destination| {
                let route = destination.route(*interface);
                let (socket, port) = sockets.open(index, &route)?;
                let flow = flow_between(route.source, route.destination, port);
                Some(Way {
                    socket,
                    port,
                    route,
                    flow,
                })
            });
        }
        match self.batches[index].push(&headers[..headers_length], payload, pad) {
            Some(Ok(())) => self.filled |= 1 << index,
            Some(Err(fault)) => return Err(fault),
            None => self.counters.unencodable += 1,
        }
        Ok(())
    }
}

pub(crate) fn gather(payload: Gather<'_>, mut out: &mut [u8]) -> Result<(), Fault> {
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

impl Destination {
    fn of(path: &Path) -> Self {
        let Path {
            source,
            destination,
            traffic_class,
            hop_limit,
            ..
        } = *path;
        Self {
            source,
            destination,
            traffic_class,
            hop_limit,
        }
    }

    fn route(&self, interface: u32) -> Route {
        Route {
            source: self.source.into(),
            destination: self.destination.into(),
            interface,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

fn envelope<'a>(route: &Route, source_port: u16, flow: &'a Flow) -> Envelope<'a> {
    Envelope {
        direction: Direction::Sent,
        source: route.source,
        destination: route.destination,
        source_port,
        traffic_class: route.traffic_class,
        hop_limit: route.hop_limit,
        flow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn packets_that_leave_one_by_one_have_the_icrc_of_single_packets() {
        const SEGMENT: usize = 60;
        let here = Ipv4Addr::new(127, 77, 3, 1).to_ipv6_mapped();
        let flow = flow_between(here, here, 0xf800);
        // The last packet of a batch may be shorter.
        let batch: Vec<u8> = (0..2 * SEGMENT + 32).map(|index| index as u8).collect();
        let mut singles = batch.clone();
        number_singly(&flow, &mut singles, SEGMENT);
        for (packet, before) in singles.chunks(SEGMENT).zip(batch.chunks(SEGMENT)) {
            let (transport, icrc) = wire::split_icrc(packet).unwrap();
            assert_eq!(transport, &before[..before.len() - ICRC_SIZE]);
            let mut single = flow.seed(transport.len() as u16, Identification::ZERO);
            single.transport(transport);
            assert_eq!(icrc, single.finish());
        }
    }
}
