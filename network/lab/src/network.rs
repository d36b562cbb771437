//! The edge of the simulated network: the ports of live hosts, and the packets that are in the network.

mod enter;
mod ip;
mod lids;
mod resolve;

pub(crate) use ip::{IpPort, MTU as IP_MTU, QPN as IP_QPN};
pub(crate) use lids::Lids;

use crate::capture::{LinkMarks, rdma_frame};
use crate::clock::Clock;
use crate::device::{Device, InRing};
use crate::frame::{VNET_BYTES, add_tag};
use crate::lateness::Lateness;
use crate::neighbours::{HostAddresses, Neighbours};
use crate::plan::LiveHost;
use crate::subnet_capture;
use crate::tap::{FRAME_MAX, Tap, set_tos};
use crate::tap_buffers::Slice;
use crate::tracking::Tracking;
use fabric::Time;
use infiniband::ipoib::AddressHandle;
use link::lab::Header;
use link::memory::Body;
use resolve::Asked;
use sim::world::{CapturedFrame, Delivered, LiveHosts, LivePacket, Offer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use wire::Packet;

/// Packets in the network at most; further ones are lost.
const FLIGHTS_MAX: usize = 1 << 16;

/// Devices of a host whose programs have ended and whose packets have not left, at most: packets of a class
/// that stays paused, or with stamps of a far future.
const LEAVING_MAX: usize = 16;

/// The queue pair number of packets for a multicast group (IBTA 10.5.2).
const GROUP: u32 = 0xff_ffff;

/// Packets that wait for a device without room at most; further ones are dropped.
const WAITING_MAX: usize = 8192;

/// The counters of a live host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct HostCounters {
    /// RoCEv2 packets of devices that entered the network.
    pub rdma_sent: u64,
    /// RoCEv2 packets that were handed to devices.
    pub rdma_received: u64,
    /// Frames of the kernel that entered the network.
    pub frames_sent: u64,
    /// Frames that were handed to the kernel.
    pub frames_received: u64,
    /// Packets and frames to addresses that no live host has.
    pub no_destination: u64,
    /// Packets with a source address that the host does not have.
    pub forged: u64,
    /// Packets for queue pairs that no attached device has, or has no room for.
    pub not_taken: u64,
    /// Packets that the network lost.
    pub lost: u64,
}

/// A host as the network sees it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) host: LiveHost,
    pub(crate) devices: Vec<Device>,
    pub(crate) tap: Option<Tap>,
    /// The interface of IP over InfiniBand, on such a port.
    pub(crate) ip: Option<IpPort>,
    /// Packets for a multicast group that have not left yet.
    copies: VecDeque<LivePacket>,
    /// Where the round over the devices goes on.
    next: usize,
    /// The network polls the port by itself, because its last poll returned a packet.
    pub(crate) asks: bool,
    pub(crate) counters: HostCounters,
    /// Addresses of the host that the file does not name.
    pub(crate) learned: Vec<IpAddr>,
    /// Questions of the host that were passed on.
    asked: Asked,
}

/// A packet that is in the network.
#[derive(Debug)]
struct Flight {
    from: u32,
    kind: FlightKind,
    /// Bytes of the packet; those of a payload that is still in a ring included, those in the memory of a tap
    /// not.
    length: usize,
    bytes: Box<[u8]>,
    /// Where the payload is, if it is not in `bytes`: in a ring of a device of the sender.
    payload: Option<Outside>,
    /// Where the payload of a frame is, if it is not in `bytes`: in the memory of the sender's tap.
    slice: Option<Slice>,
}

/// A payload that is still in a ring. It is copied when the packet is delivered, or when the network has come
/// to the time of the clock: so a payload is copied once where the packet takes no longer than that.
#[derive(Clone, Copy, Debug)]
struct Outside {
    /// The place of the port, and of the device there.
    place: u32,
    device: u32,
    ring: InRing,
}

#[derive(Clone, Copy, Debug)]
enum FlightKind {
    /// A packet of a device: its header, and so many bytes of transport headers before the payload.
    Rdma(Header, usize),
    /// A frame of the kernel, behind the header of a virtual network device.
    Frame,
    /// A packet of IP over InfiniBand, in a frame without addresses.
    Ip(AddressHandle),
}

/// The ports of all live hosts.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) ports: Vec<Port>,
    /// Index of the port of each host.
    index: Vec<Option<u32>>,
    addresses: BTreeMap<Ipv6Addr, u32>,
    macs: BTreeMap<[u8; 6], u32>,
    /// Where LIDs lead, if the network is an InfiniBand subnet.
    pub(crate) lids: Option<Lids>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Tokens of packets whose payload was left in a ring when they entered, delivered packets included.
    outside: Vec<u32>,
    /// Packets that have left the network, and may be in a capture that is not written yet.
    kept: Vec<u32>,
    /// A capture runs: slots are free again only when it is written.
    pub(crate) keeps: bool,
    /// The clock of the network, which begins with it.
    pub(crate) clock: Clock,
    /// When that was by the clock of devices, in nanoseconds.
    origin_ns: u64,
    /// The flows of a run that is measured.
    pub(crate) tracking: Option<Tracking>,
    pub(crate) lateness: Lateness,
    /// A packet waits because its class has one in the queue of the port, which calls again when that leaves.
    blocked: bool,
    /// A port has done something since this was last looked at.
    pub(crate) active: bool,
    /// Devices that broke their memory: host, descriptor of the socket.
    pub(crate) broken: Vec<(u32, i32)>,
}

impl Network {
    pub(crate) fn new(hosts: usize, ports: Vec<Port>, clock: Clock) -> Self {
        let mut index = vec![None; hosts];
        let (mut addresses, mut macs) = (BTreeMap::new(), BTreeMap::new());
        for (place, port) in (0_u32..).zip(&ports) {
            let host = &port.host;
            index[host.number as usize] = Some(place);
            addresses.insert(host.v4.to_ipv6_mapped(), host.number);
            addresses.insert(host.v6, host.number);
            addresses.insert(host.link_local, host.number);
            macs.insert(host.mac, host.number);
        }
        Self {
            ports,
            index,
            addresses,
            macs,
            lids: None,
            flights: Vec::new(),
            free: Vec::new(),
            outside: Vec::new(),
            kept: Vec::new(),
            keeps: false,
            clock,
            origin_ns: 0,
            tracking: None,
            lateness: Lateness::new(),
            blocked: false,
            active: false,
            broken: Vec::new(),
        }
    }

    /// Replaces the hosts, in the order of their ports, after their marks, variables, VLANs or MAC addresses
    /// have changed. ARP requests and neighbour solicitations are answered by the new ones from then on, and
    /// kernels of the VLAN are notified of a new MAC address.
    pub(crate) fn set_hosts(&mut self, hosts: &[LiveHost]) {
        self.macs = hosts.iter().map(|host| (host.mac, host.number)).collect();
        let before = self.ports.iter().map(|port| port.host.mac);
        let moved = before
            .zip(hosts)
            .filter(|(before, host)| *before != host.mac);
        let moved: Vec<&LiveHost> = moved.map(|(_, host)| host).collect();
        for (port, host) in self.ports.iter_mut().zip(hosts) {
            port.host.clone_from(host);
            port.devices.iter_mut().for_each(Device::unblock);
            let Some(tap) = &port.tap else {
                continue;
            };
            for other in moved
                .iter()
                .filter(|other| other.number != host.number && other.vlan() == host.vlan())
            {
                other
                    .addresses()
                    .announcements()
                    .iter()
                    .for_each(|frame| tap.put_control(frame));
            }
        }
        self.tell_neighbours();
    }

    /// Has the kernels of hosts take the MAC addresses that these have now; all of them or none.
    ///
    /// # Errors
    /// When a kernel refuses one.
    pub(crate) fn set_macs(&self, hosts: &[LiveHost]) -> io::Result<()> {
        let moved = || {
            self.ports
                .iter()
                .zip(hosts)
                .filter(|(port, host)| port.host.mac != host.mac)
        };
        let mut taps = moved().filter_map(|(port, host)| Some((port.tap.as_ref()?, host.mac)));
        let set = taps.try_for_each(|(tap, mac)| tap.set_mac(mac));
        if set.is_err() {
            moved()
                .filter_map(|(port, _)| Some((port.tap.as_ref()?, port.host.mac)))
                .for_each(|(tap, mac)| {
                    let _ = tap.set_mac(mac);
                });
        }
        set
    }

    /// Begins again: nothing is in the network, and nothing is counted yet. Its time begins at `origin` of
    /// the clock of devices.
    pub(crate) fn restart(&mut self, clock: Clock, origin: Time) {
        self.take_payloads();
        (self.clock, self.origin_ns, self.lateness) = (clock, origin.ns(), Lateness::new());
        let devices = || self.ports.iter().flat_map(|port| &port.devices);
        let waiting: BTreeSet<u32> = devices()
            .flat_map(|device| device.waiting.iter().copied())
            .collect();
        self.kept.clear();
        self.flights
            .iter_mut()
            .for_each(|flight| flight.slice = None);
        self.free = (0..self.flights.len() as u32)
            .filter(|token| !waiting.contains(token))
            .collect();
        for port in &mut self.ports {
            (port.asks, port.counters) = (false, HostCounters::default());
            port.copies.clear();
        }
    }

    /// Copies the payloads that are still in rings into the network, and gives their room back to the
    /// devices. Called before devices use that room, and before a device is detached.
    pub(crate) fn take_payloads(&mut self) {
        let mut tokens = std::mem::take(&mut self.outside);
        tokens.drain(..).for_each(|token| self.bring_in(token));
        self.outside = tokens;
    }

    /// Copies the payload of a packet, if that is still in a ring.
    fn bring_in(&mut self, token: u32) {
        let Flight {
            kind,
            length,
            bytes,
            payload,
            ..
        } = &mut self.flights[token as usize];
        if let (Some(outside), FlightKind::Rdma(_, transport)) = (&payload, &kind) {
            outside.ring.body.copy(&mut bytes[*transport..*length]);
        }
        self.let_go(token);
    }

    /// A packet has no payload in a ring any more.
    #[inline]
    fn let_go(&mut self, token: u32) {
        if let Some(Outside {
            place,
            device,
            ring,
        }) = self.flights[token as usize].payload.take()
        {
            self.ports[place as usize].devices[device as usize].finish(&ring);
        }
    }

    /// Has the slot of a packet used again.
    #[inline]
    fn give_back(&mut self, token: u32) {
        self.let_go(token);
        if self.keeps {
            return self.kept.push(token);
        }
        self.flights[token as usize].slice = None;
        self.free.push(token);
    }

    /// Frees the slots of packets that a capture may have needed.
    pub(crate) fn release_kept(&mut self) {
        self.kept
            .iter()
            .for_each(|token| self.flights[*token as usize].slice = None);
        self.free.append(&mut self.kept);
    }

    /// The bytes of a packet as they are on a link.
    pub(crate) fn frame_of(&self, token: u32, captured: &CapturedFrame) -> Option<Vec<u8>> {
        let CapturedFrame::Packet {
            tos,
            pcp,
            hop_limit,
            ..
        } = captured
        else {
            return None;
        };
        let Flight {
            from,
            kind,
            length,
            bytes,
            slice,
            ..
        } = self.flights.get(token as usize)?;
        let bytes = bytes.get(..*length)?;
        if let Some(lids) = &self.lids {
            let payload = slice.as_ref().map_or(&[][..], Slice::bytes);
            return match kind {
                FlightKind::Ip(to) => {
                    let frame = [bytes, payload].concat();
                    subnet_capture::ip_packet(to, lids.first_of(*from), &frame)
                }
                FlightKind::Rdma(header, transport) => {
                    let (transport, payload) = bytes.split_at_checked(*transport)?;
                    subnet_capture::device_packet(header, lids.prefix, transport, payload)
                }
                FlightKind::Frame => None,
            };
        }
        let vlan = self.ports[self.index_of_host(*from)?].host.vlan();
        let FlightKind::Rdma(header, transport) = kind else {
            let payload = slice.as_ref().map_or(&[][..], Slice::bytes);
            let mut frame = [bytes.get(VNET_BYTES..)?, payload].concat();
            set_tos(&mut frame, *tos);
            pcp.iter().for_each(|pcp| add_tag(&mut frame, *pcp, vlan));
            return Some(frame);
        };
        let mac = |address: [u8; 16]| {
            let host = self.addresses.get(&Ipv6Addr::from(address))?;
            Some(self.ports[self.index_of_host(*host)?].host.mac)
        };
        let macs = [mac(header.source)?, mac(header.destination)?];
        let marks = LinkMarks {
            tos: *tos,
            pcp: *pcp,
            vlan,
            hop_limit: *hop_limit,
        };
        let (transport, payload) = bytes.split_at_checked(*transport)?;
        Some(rdma_frame(header, marks, macs, transport, payload))
    }

    pub(crate) fn index_of_host(&self, host: u32) -> Option<usize> {
        self.index
            .get(host as usize)
            .copied()
            .flatten()
            .map(|place| place as usize)
    }

    /// A slot for a packet; `None` at the limit.
    fn slot(&mut self) -> Option<u32> {
        if let Some(token) = self.free.pop() {
            return Some(token);
        }
        if self.flights.len() >= FLIGHTS_MAX {
            return None;
        }
        let bytes = vec![0; FRAME_MAX].into_boxed_slice();
        self.flights.push(Flight {
            from: 0,
            kind: FlightKind::Frame,
            length: 0,
            bytes,
            payload: None,
            slice: None,
        });
        Some(self.flights.len() as u32 - 1)
    }

    /// Hands a packet to its device. Where the device has no room, because its process does not run, the
    /// packet waits for it: an adapter is never kept from its work. True when the packet waits.
    fn deliver_rdma(&mut self, place: usize, token: u32) -> bool {
        let flight = &self.flights[token as usize];
        let FlightKind::Rdma(_, transport) = &flight.kind else {
            return false;
        };
        let qpn = flight
            .bytes
            .get(5..8)
            .filter(|_| *transport >= 8)
            .map_or(0, |bytes| {
                u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2])
            });
        let port = &mut self.ports[place];
        if qpn == GROUP {
            // Devices hold the multicast groups of their queue pairs.
            let taken = port
                .devices
                .iter_mut()
                .filter(|device| device.waiting.is_empty() && !device.leaves);
            let taken = taken
                .filter_map(|device| write_to_device(device, flight).then_some(()))
                .count();
            *(if taken > 0 {
                &mut port.counters.rdma_received
            } else {
                &mut port.counters.not_taken
            }) += 1;
            return false;
        }
        let Some(device) = port.devices.iter_mut().find(|device| device.has(qpn)) else {
            port.counters.not_taken += 1;
            return false;
        };
        if device.waiting.is_empty() && write_to_device(device, flight) {
            port.counters.rdma_received += 1;
            return false;
        }
        if device.waiting.len() < WAITING_MAX {
            device.waiting.push_back(token);
            self.bring_in(token);
            return true;
        }
        port.counters.not_taken += 1;
        false
    }

    /// Hands packets to devices that had no room for them.
    fn deliver_waiting(&mut self) {
        for port in &mut self.ports {
            for device in &mut port.devices {
                while let Some(token) = device.waiting.front().copied() {
                    if !write_to_device(device, &self.flights[token as usize]) {
                        break;
                    }
                    device.waiting.pop_front();
                    self.free.push(token);
                    port.counters.rdma_received += 1;
                    self.active = true;
                }
            }
        }
    }

    /// A device's program has ended: the device is detached when all that it had sent has left, because a
    /// send that has completed is on its way.
    pub(crate) fn leave(&mut self, place: usize, fd: i32) {
        let devices = &mut self.ports[place].devices;
        let Some(device) = devices.iter_mut().find(|device| device.raw() == fd) else {
            return;
        };
        device.leaves = true;
        self.free.extend(std::mem::take(&mut device.waiting));
        let leaving: Vec<i32> = devices
            .iter()
            .filter(|one| one.leaves)
            .map(Device::raw)
            .collect();
        let surplus = leaving.len().saturating_sub(LEAVING_MAX);
        leaving
            .into_iter()
            .take(surplus)
            .for_each(|fd| self.detach(place, fd));
    }

    /// Detaches devices that have left.
    fn detach_leaving(&mut self) {
        for place in 0..self.ports.len() {
            let devices = self.ports[place].devices.iter();
            let left = devices
                .filter(|device| device.leaves && !device.has_record())
                .map(Device::raw);
            let left: Vec<i32> = left.collect();
            left.into_iter().for_each(|fd| self.detach(place, fd));
        }
    }

    /// Detaches a device; what it has not taken is dropped.
    pub(crate) fn detach(&mut self, place: usize, fd: i32) {
        self.take_payloads();
        let devices = &mut self.ports[place].devices;
        if let Some(at) = devices.iter().position(|device| device.raw() == fd) {
            let device = devices.remove(at);
            self.free.extend(device.waiting);
        }
    }

    /// Wakes the devices that sleep and have something to do, and passes on frames that were held back.
    pub(crate) fn flush(&mut self) {
        self.resolve();
        self.deliver_waiting();
        self.detach_leaving();
        for port in &mut self.ports {
            port.devices.iter_mut().for_each(Device::flush);
            if let Some(tap) = &mut port.tap {
                tap.flush();
            }
        }
    }
}

impl Network {
    /// The next packet of those for several hosts, if its class may leave.
    fn next_copy(&mut self, place: usize, classes: u8) -> Option<LivePacket> {
        let copies = &mut self.ports[place].copies;
        let may_leave = classes >> copies.front()?.class & 1 == 1;
        self.blocked |= !may_leave;
        if may_leave { copies.pop_front() } else { None }
    }
}

impl LiveHosts for Network {
    fn pull(&mut self, host: u32, classes: u8, now: Time) -> Offer {
        let Some(place) = self.index_of_host(host) else {
            return Offer::Nothing;
        };
        self.active = true;
        self.blocked = false;
        if let Some(copy) = self.next_copy(place, classes) {
            return Offer::Packet(copy);
        }
        let later = match self.pull_device(place, classes, now) {
            Ok(packet) => return Offer::Packet(packet),
            Err(later) => later,
        };
        let of_kernel = match self.ports[place].ip {
            Some(_) => self.pull_packet(place, classes),
            None => self.pull_frame(place, classes),
        };
        if let Some(packet) = of_kernel {
            return Offer::Packet(packet);
        }
        // Otherwise the network polls no more, and the loop has to wake it: a packet may have come meanwhile.
        self.ports[place].asks = later.is_some() || self.blocked;
        later.map_or(Offer::Nothing, Offer::At)
    }

    fn deliver(&mut self, host: u32, packet: Delivered, now: Time) {
        self.active = true;
        self.lateness.note_event(now, self.clock.now());
        let token = packet.token;
        let Some(place) = self.index_of_host(host) else {
            return self.give_back(token);
        };
        let flight = &mut self.flights[token as usize];
        if let FlightKind::Rdma(header, transport) = &mut flight.kind {
            let (transport, payload) = (&flight.bytes[..*transport], flight.length - *transport);
            if let Some(tracking) = &mut self.tracking
                && let Ok((parsed, _)) = Packet::parse(transport)
            {
                tracking.delivered(host, &parsed, payload);
            }
            header.stamp = now.0 / 1000 + self.origin_ns;
            let lids = self.lids.as_ref();
            if lids.is_none() {
                (header.traffic_class, header.hop_limit) = (packet.tos, packet.hop_limit);
            }
            if lids.is_some_and(|lids| !lids.is_for(host, header)) {
                self.ports[place].counters.not_taken += 1;
            } else if self.deliver_rdma(place, token) {
                return;
            }
        } else if let FlightKind::Ip(to) = flight.kind {
            let taken = self.deliver_packet(place, token, to);
            let counters = &mut self.ports[place].counters;
            *(if taken {
                &mut counters.frames_received
            } else {
                &mut counters.not_taken
            }) += 1;
        } else {
            let Flight {
                bytes,
                length,
                slice,
                ..
            } = flight;
            let (bytes, port) = (&mut bytes[..*length], &mut self.ports[place]);
            let taken = port
                .tap
                .as_mut()
                .is_some_and(|tap| tap.write_frame(bytes, slice.as_ref(), packet.tos));
            *(if taken {
                &mut port.counters.frames_received
            } else {
                &mut port.counters.not_taken
            }) += 1;
        }
        self.give_back(token);
    }

    fn lose(&mut self, token: u32) {
        let from = self.flights[token as usize].from;
        if let Some(place) = self.index_of_host(from) {
            self.ports[place].counters.lost += 1;
        }
        self.give_back(token);
    }
}

/// By VLAN, the addresses of its hosts.
pub(crate) fn neighbours_of(hosts: &[LiveHost]) -> BTreeMap<u16, Neighbours> {
    let mut found: BTreeMap<u16, Vec<HostAddresses>> = BTreeMap::new();
    for host in hosts {
        found.entry(host.vlan()).or_default().push(host.addresses());
    }
    found
        .into_iter()
        .map(|(vlan, hosts)| (vlan, hosts.into()))
        .collect()
}

/// Writes a packet of a device into the ring of another one.
fn write_to_device(device: &mut Device, flight: &Flight) -> bool {
    let FlightKind::Rdma(header, transport) = &flight.kind else {
        return true;
    };
    let (transport, payload) = flight.bytes[..flight.length].split_at(*transport);
    match &flight.payload {
        Some(outside) => {
            let body: &Body = &outside.ring.body;
            let fill = |place: &mut [u8]| {
                body.copy(place);
            };
            device.write_packet(header, transport, payload.len(), fill)
        }
        None => device.write_packet(header, transport, payload.len(), |place| {
            place.copy_from_slice(payload)
        }),
    }
}

impl Port {
    /// The port of a host with the descriptor of its interface, and a socket by which that of IP over
    /// InfiniBand is changed.
    pub(crate) fn made(
        host: &LiveHost,
        tap: Option<OwnedFd>,
        socket: Option<OwnedFd>,
        known: Neighbours,
    ) -> Self {
        if !host.is_infiniband {
            return Self::new(host.clone(), tap.map(|tap| Tap::new(tap, known)));
        }
        let mut port = Self::new(host.clone(), tap.map(Tap::of_ip));
        if let (Some(ip), Some(tap)) = (&mut port.ip, &port.tap) {
            ip.socket = socket;
            // The link comes up with the broadcast group.
            tap.set_carrier(false);
        }
        port
    }

    pub(crate) fn new(host: LiveHost, tap: Option<Tap>) -> Self {
        let counters = HostCounters::default();
        let ip = host.is_infiniband.then(IpPort::new);
        Self {
            host,
            devices: Vec::new(),
            tap,
            ip,
            copies: VecDeque::new(),
            next: 0,
            asks: false,
            counters,
            learned: Vec::new(),
            asked: Asked::default(),
        }
    }

    /// Whether a packet of a device waits: its record contains the time at which it was made.
    #[inline]
    pub(crate) fn has_stamped(&self) -> bool {
        self.devices.iter().any(Device::has_record)
    }

    /// Whether anything waits to be sent.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        !self.copies.is_empty()
            || self.devices.iter().any(Device::has_record)
            || self.tap.as_ref().is_some_and(Tap::has_frame)
    }
}

#[cfg(test)]
mod tests;
