//! Packets and frames that enter the network: their addresses, marks and length, and where their bytes are.

use super::{FlightKind, Network, Outside};
use crate::device::{PAYLOAD_MAX, RINGS};
use crate::frame::infiniband_bytes;
use crate::marking::{Marked, marks};
use crate::tap::Taken;
use fabric::{PacketKind, Time};
use link::lab::Header;
use link::memory::Record;
use sim::world::{Delivered, Forgery, LiveHosts, LivePacket};
use std::net::Ipv6Addr;
use wire::Packet;

/// Ethernet with check sequence, IPv4, UDP, ICRC.
const OUTER_BYTES: usize = 14 + 4 + 20 + 8 + 4;
/// IPv6 headers are longer by so much.
const IPV6_MORE_BYTES: usize = 20;
/// An 802.1Q tag.
const TAG_BYTES: usize = 4;
/// The shortest frame (802.3 clause 3.2.8).
const FRAME_BYTES_MIN: usize = 64;

/// Payloads of more bytes stay in the ring of their device while the packet crosses the network.
const COPIED_MAX: u32 = 128;

/// A record that is about to enter the network.
pub(super) struct Entering<'a> {
    pub(super) record: &'a Record,
    pub(super) header: &'a Header,
    /// Bytes of transport headers.
    pub(super) transport: usize,
    pub(super) marking: Marked,
    pub(super) outside: Outside,
}

/// A ring from which packets enter: the index of the port, of the device there, and of its ring.
#[derive(Clone, Copy)]
struct RingPlace {
    port: usize,
    device: usize,
    ring: usize,
}

impl Network {
    /// The next packet of a device in the round; `Err` with the earliest time of later ones.
    pub(super) fn pull_device(
        &mut self,
        place: usize,
        classes: u8,
        now: Time,
    ) -> Result<LivePacket, Option<Time>> {
        let mut later: Option<Time> = None;
        let devices = self.ports[place].devices.len();
        for step in 0..devices {
            let at = (self.ports[place].next + step) % devices;
            for ring in 0..RINGS {
                let from = RingPlace {
                    port: place,
                    device: at,
                    ring,
                };
                match self.try_ring(from, classes, now) {
                    Ok(packet) => {
                        self.ports[place].next = (at + 1) % devices;
                        return Ok(packet);
                    }
                    Err(Some(time)) => later = Some(later.map_or(time, |later| later.min(time))),
                    Err(None) => {}
                }
            }
        }
        Err(later)
    }

    /// Takes records of a ring until one may enter the network. `Err`: when its next one may.
    fn try_ring(
        &mut self,
        from: RingPlace,
        classes: u8,
        now: Time,
    ) -> Result<LivePacket, Option<Time>> {
        let RingPlace {
            port: place,
            device: at,
            ring,
        } = from;
        loop {
            let port = &mut self.ports[place];
            if port.devices[at].is_blocked(ring, classes) {
                self.blocked = true;
                return Err(None);
            }
            let record = match port.devices[at].next(ring) {
                Ok(Some(record)) => record,
                Ok(None) => return Err(None),
                Err(_) => {
                    self.broken.push((port.host.number, port.devices[at].raw()));
                    return Err(None);
                }
            };
            let Some((header, transport)) = Header::parse(record.headers()) else {
                self.broken.push((port.host.number, port.devices[at].raw()));
                return Err(None);
            };
            let stamp = time_since(self.origin_ns, header.stamp);
            if stamp > now {
                return Err(Some(stamp));
            }
            let Ok((packet, _)) = Packet::parse(transport) else {
                let kept = port.devices[at].keep(ring, &record);
                port.devices[at].finish(&kept);
                continue;
            };
            let marking = marks(&port.host, &header, &packet);
            if classes >> marking.class & 1 == 0 {
                port.devices[at].block(ring, marking.class);
                self.blocked = true;
                return Err(None);
            }
            let kept = port.devices[at].keep(ring, &record);
            let outside = Outside {
                place: place as u32,
                device: at as u32,
                ring: kept,
            };
            let transport = transport.len();
            let made = self.take(
                place,
                Entering {
                    record: &record,
                    header: &header,
                    transport,
                    marking,
                    outside,
                },
            );
            if let (Some(tracking), Some(made)) = (&mut self.tracking, &made) {
                tracking.sent(made.to, &packet);
            }
            self.ports[place].devices[at].finish(&kept);
            if let Some(packet) = made {
                return Ok(packet);
            }
        }
    }

    /// Takes a record into the network; `None` when it is dropped or stays in its host.
    fn take(&mut self, place: usize, taken: Entering<'_>) -> Option<LivePacket> {
        if self.lids.is_some() {
            return self.take_by_lid(place, &taken);
        }
        let port = &mut self.ports[place];
        let (from, owner) = (
            port.host.number,
            self.addresses.get(&Ipv6Addr::from(taken.header.source)),
        );
        let forgery = if owner == Some(&from) {
            Forgery::None
        } else {
            Forgery::Gid(from)
        };
        // The embedded switch checks the packets of functions.
        if forgery != Forgery::None && port.host.function.is_none() {
            port.counters.forged += 1;
            return None;
        }
        let taken = Entering {
            marking: Marked {
                forgery,
                ..taken.marking
            },
            ..taken
        };
        let destination = Ipv6Addr::from(taken.header.destination);
        if is_group(destination) {
            return self.take_for_group(place, &taken);
        }
        let Some(to) = self.addresses.get(&destination).copied() else {
            self.ports[place].counters.no_destination += 1;
            return None;
        };
        self.enter(to, &taken)
    }

    /// Takes a packet for a multicast group: one for each other live host, all by the sender's port, because
    /// the switches of a lab do not replicate.
    fn take_for_group(&mut self, place: usize, taken: &Entering<'_>) -> Option<LivePacket> {
        let vlan = self.ports[place].host.vlan();
        let others: Vec<u32> = (0..)
            .zip(&self.ports)
            .filter(|(at, port)| *at != place && port.host.vlan() == vlan)
            .map(|(_, port)| port.host.number)
            .collect();
        let made: Vec<LivePacket> = others
            .into_iter()
            .filter_map(|to| self.enter(to, taken))
            .collect();
        self.ports[place].copies.extend(made);
        self.ports[place].copies.pop_front()
    }

    /// Takes a record into the network, for one host; `None` when it is lost or stays in its host.
    pub(super) fn enter(&mut self, to: u32, taken: &Entering<'_>) -> Option<LivePacket> {
        let place = taken.outside.place as usize;
        let Entering {
            header,
            transport,
            marking,
            ..
        } = *taken;
        let from = self.ports[place].host.number;
        let Some(token) = self.slot() else {
            self.ports[place].counters.lost += 1;
            return None;
        };
        let payload = self.fill(token, taken);
        self.ports[place].counters.rdma_sent += 1;
        if to == from {
            let at = Delivered {
                token,
                tos: marking.tos,
                hop_limit: header.hop_limit,
            };
            self.deliver(to, at, self.clock.now());
            return None;
        }
        let length = match &self.lids {
            Some(_) => infiniband_bytes(header, transport, payload),
            None => frame_bytes(header, marking.pcp, transport + payload.next_multiple_of(4)),
        };
        let source_port = u32::from(header.source_port);
        Some(LivePacket {
            to,
            leaf: self.leaf_of(to, header),
            class: marking.class,
            tos: marking.tos,
            pcp: marking.pcp,
            length: length as u16,
            payload: payload as u16,
            forgery: marking.forgery,
            entropy: entropy(source_port, from, to),
            hop_limit: header.hop_limit,
            kind: PacketKind::new(marking.operation, marking.is_data && payload > 0),
            token,
        })
    }

    /// Fills the slot of a packet; returns how long its payload is. A long one stays in its ring for now.
    fn fill(&mut self, token: u32, taken: &Entering<'_>) -> usize {
        let Entering {
            record,
            header,
            transport,
            ref outside,
            ..
        } = *taken;
        let payload = (record.length as usize).min(PAYLOAD_MAX);
        let flight = &mut self.flights[token as usize];
        flight.from = self.ports[outside.place as usize].host.number;
        flight.kind = FlightKind::Rdma(*header, transport);
        flight.length = transport + payload;
        flight.bytes[..transport].copy_from_slice(&record.headers()[Header::BYTES..]);
        if record.length <= COPIED_MAX || self.keeps {
            record.copy(&mut flight.bytes[transport..transport + payload]);
        } else {
            flight.payload = Some(*outside);
            self.outside.push(token);
            self.ports[outside.place as usize].devices[outside.device as usize]
                .share(&outside.ring);
        }
        payload
    }

    /// The next frame of a host's kernel.
    pub(super) fn pull_frame(&mut self, place: usize, classes: u8) -> Option<LivePacket> {
        loop {
            let port = &mut self.ports[place];
            let (from, marks) = (port.host.number, port.host.marks);
            let tap = port.tap.as_mut()?;
            let class = tap.next_class(&marks)?;
            if classes >> class & 1 == 0 {
                self.blocked = true;
                return None;
            }
            let token = self.slot()?;
            let flight = &mut self.flights[token as usize];
            (flight.from, flight.kind) = (from, FlightKind::Frame);
            let taken = self.ports[place].tap.as_mut()?.take(&mut flight.bytes);
            let Some(Taken {
                length,
                payload,
                wire_bytes,
                tos,
                hash,
                destination,
                source,
                source_ip,
            }) = taken
            else {
                self.free.push(token);
                continue;
            };
            flight.length = length;
            let forgery = self.forgery(place, source, source_ip);
            let port = &mut self.ports[place];
            // The embedded switch checks the packets of functions.
            if forgery != Forgery::None && port.host.function.is_none() {
                port.counters.forged += 1;
                self.free.push(token);
                continue;
            }
            let Some(to) = self
                .macs
                .get(&destination)
                .copied()
                .filter(|to| *to != from)
            else {
                port.counters.no_destination += 1;
                self.free.push(token);
                continue;
            };
            port.counters.frames_sent += 1;
            self.flights[token as usize].slice = payload;
            let pcp = if port.host.vlan() > 0 {
                marks[0].pcp
            } else {
                None
            };
            let tag = if pcp.is_some() { TAG_BYTES } else { 0 };
            return Some(LivePacket {
                to,
                leaf: None,
                class,
                tos,
                pcp,
                length: ((wire_bytes + 4).max(FRAME_BYTES_MIN) + tag) as u16,
                payload: wire_bytes as u16,
                forgery,
                entropy: entropy(hash, from, to),
                hop_limit: 64,
                kind: PacketKind::OTHER,
                token,
            });
        }
    }

    /// Whether a frame bears the IP address of another host, or the MAC address of another interface.
    pub(super) fn forgery(&self, place: usize, mac: [u8; 6], address: Ipv6Addr) -> Forgery {
        let host = &self.ports[place].host;
        match self.addresses.get(&address) {
            Some(owner) if *owner != host.number => Forgery::Gid(*owner),
            _ if mac != host.mac => Forgery::Mac(host.number),
            _ => Forgery::None,
        }
    }
}

/// Bytes of a RoCEv2 frame, from what follows the UDP header.
fn frame_bytes(header: &Header, pcp: Option<u8>, inner: usize) -> usize {
    let is_v6 = Ipv6Addr::from(header.destination)
        .to_ipv4_mapped()
        .is_none();
    let outer = OUTER_BYTES + if is_v6 { IPV6_MORE_BYTES } else { 0 };
    let tag = if pcp.is_some() { TAG_BYTES } else { 0 };
    (outer + inner).max(FRAME_BYTES_MIN) + tag
}

/// A stamp of the clock of devices as time of the network, which began at `origin_ns`.
fn time_since(origin_ns: u64, stamp_ns: u64) -> Time {
    Time(stamp_ns.saturating_sub(origin_ns).saturating_mul(1000))
}

/// Whether an address is that of a multicast group.
fn is_group(address: Ipv6Addr) -> bool {
    address
        .to_ipv4_mapped()
        .map_or(address.is_multicast(), |v4| v4.is_multicast())
}

/// The value that switches hash, computed as for the simulator's hosts.
pub(super) fn entropy(ports: u32, from: u32, to: u32) -> u32 {
    ports ^ from.rotate_left(16) ^ to.wrapping_mul(0x9e37_79b1)
}
