//! IP over InfiniBand at the edge of the network: packets of a host's kernel leave by LID. Those whose
//! neighbour is known leave at once; the host's interface gets the others.

use super::{FlightKind, Network};
pub(crate) use crate::ip_frames::QPN;
use crate::ip_frames::{BEFORE_PACKET, IpFrame, ether_type};
use crate::tap::Taken;
use crate::tap_buffers::Slice;
use fabric::PacketKind;
use infiniband::ipoib::{
    self, AddressHandle, Link, ether_type as types, is_discovery, shares_partition,
};
use infiniband::lid::FIRST_MULTICAST;
use sim::world::{Forgery, LivePacket};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Packets that wait for the interface of a host at most; further ones are dropped.
const WAITING_MAX: usize = 1_024;
/// Virtual lanes of data of every port.
const VIRTUAL_LANES: u8 = 8;
/// Bytes of LRH, BTH, DETH, the encapsulation header, ICRC and VCRC.
const OUTER_BYTES: usize = 8 + 12 + 8 + 4 + 4 + 2;
/// Bytes of a global route header.
const GLOBAL_ROUTE_BYTES: usize = 40;
/// The MTU of an interface before the broadcast group says another one.
pub(crate) const MTU: u16 = 2044;

/// What the network knows of a host's interface.
#[derive(Debug)]
pub(crate) struct IpPort {
    /// How packets for neighbours are addressed.
    pub(crate) handles: BTreeMap<IpAddr, AddressHandle>,
    pub(crate) link: Option<Link>,
    /// The MTU that the kernel's interface was given.
    pub(crate) mtu: u16,
    /// Packets of the host for other addresses.
    pub(crate) unresolved: Vec<IpFrame>,
    /// Packets from the network that are for the interface, or for groups.
    pub(crate) arrived: Vec<(AddressHandle, IpFrame)>,
    /// A socket in the network namespace of the host.
    pub(crate) socket: Option<OwnedFd>,
}

impl IpPort {
    pub(crate) fn new() -> Self {
        Self {
            handles: BTreeMap::new(),
            link: None,
            mtu: MTU,
            unresolved: Vec::new(),
            arrived: Vec::new(),
            socket: None,
        }
    }

    /// Whether something waits for the interface.
    pub(crate) fn has_work(&self) -> bool {
        !self.unresolved.is_empty() || !self.arrived.is_empty()
    }

    /// Whether a packet is for the host's kernel, and needs no look of the interface.
    fn is_direct(&self, to: &AddressHandle, bytes: &[u8]) -> bool {
        let has_keys = self
            .link
            .is_some_and(|link| to.q_key == link.q_key && shares_partition(to.p_key, link.p_key));
        let packet = bytes.get(BEFORE_PACKET..).unwrap_or_default();
        let is_ip = match ether_type(bytes) {
            types::IPV4 => true,
            types::IPV6 => !is_discovery(packet),
            _ => false,
        };
        has_keys && is_ip && to.qpn == QPN
    }
}

impl Network {
    /// The next packet of a host's kernel that leaves.
    pub(super) fn pull_packet(&mut self, place: usize, classes: u8) -> Option<LivePacket> {
        loop {
            let port = &mut self.ports[place];
            let (tap, ip) = (port.tap.as_mut()?, port.ip.as_ref()?);
            let to = ipoib::destination_of(tap.next_packet()?);
            let handle = to.and_then(|to| ip.handles.get(&to).copied());
            if handle.is_some_and(|handle| classes >> lane(&handle) & 1 == 0) {
                self.blocked = true;
                return None;
            }
            let token = self.slot()?;
            let flight = &mut self.flights[token as usize];
            let taken = self.ports[place].tap.as_mut()?.take(&mut flight.bytes);
            let Some(taken) = taken else {
                self.free.push(token);
                continue;
            };
            if self.forgery(place, self.ports[place].host.mac, taken.source_ip) != Forgery::None {
                self.ports[place].counters.forged += 1;
                self.free.push(token);
                continue;
            }
            let Some(handle) = handle else {
                self.wait_for_interface(place, token, &taken);
                continue;
            };
            let flight = &mut self.flights[token as usize];
            (flight.length, flight.slice) = (taken.length, taken.payload);
            let packet_bytes = taken.wire_bytes - (BEFORE_PACKET - crate::frame::VNET_BYTES);
            if let Some(packet) = self.depart(place, token, handle, (packet_bytes, taken.hash)) {
                return Some(packet);
            }
        }
    }

    /// The interface looks at a packet, of which a copy is made.
    fn wait_for_interface(&mut self, place: usize, token: u32, taken: &Taken) {
        let bytes = self.flights[token as usize].bytes.get(..taken.length);
        let payload = taken.payload.as_ref().map_or(&[][..], Slice::bytes);
        let frame = IpFrame([bytes.unwrap_or_default(), payload].concat());
        self.free.push(token);
        let port = &mut self.ports[place];
        match &mut port.ip {
            Some(ip) if ip.unresolved.len() < WAITING_MAX => ip.unresolved.push(frame),
            _ => port.counters.lost += 1,
        }
    }

    /// A packet in its slot leaves for the host that has the LID; `size` has the bytes of the packet, and the
    /// digest of its flow. `None` where no host has it.
    fn depart(
        &mut self,
        place: usize,
        token: u32,
        handle: AddressHandle,
        size: (usize, u32),
    ) -> Option<LivePacket> {
        let from = self.ports[place].host.number;
        let lids = self.lids.as_ref();
        let to = lids.and_then(|lids| lids.owners.get(&handle.lid).copied());
        let Some(to) = to.filter(|to| *to != from) else {
            self.ports[place].counters.no_destination += 1;
            self.give_back(token);
            return None;
        };
        Some(self.packet_for(place, token, handle, (to, handle.lid), size))
    }

    /// The packet for one host, which takes the way of a LID.
    fn packet_for(
        &mut self,
        place: usize,
        token: u32,
        handle: AddressHandle,
        to: (u32, u16),
        size: (usize, u32),
    ) -> LivePacket {
        let port = &mut self.ports[place];
        port.counters.frames_sent += 1;
        let flight = &mut self.flights[token as usize];
        (flight.from, flight.kind) = (port.host.number, FlightKind::Ip(handle));
        let global = handle.global.map_or(0, |_| GLOBAL_ROUTE_BYTES);
        let length = OUTER_BYTES + global + size.0.next_multiple_of(4);
        let lane = lane(&handle);
        LivePacket {
            to: to.0,
            leaf: self
                .lids
                .as_ref()
                .map(|lids| lids.first_leaf + u32::from(to.1)),
            class: lane,
            tos: lane << 2,
            pcp: None,
            length: length as u16,
            payload: size.0 as u16,
            forgery: Forgery::None,
            entropy: super::enter::entropy(size.1, port.host.number, to.0),
            hop_limit: 64,
            kind: PacketKind::OTHER,
            token,
        }
    }

    /// A packet of a host's interface leaves as soon as the port takes it: for a group, one for each member.
    pub(crate) fn enter_packet(&mut self, place: usize, handle: AddressHandle, frame: &IpFrame) {
        let from = self.ports[place].host.number;
        let Some(lids) = self.lids.as_ref() else {
            return;
        };
        let hosts: Vec<u32> = if handle.lid >= FIRST_MULTICAST {
            let members = lids.groups.get(&(from, handle.lid));
            let members = members.or_else(|| lids.cabled.get(&from));
            members.cloned().unwrap_or_default()
        } else {
            lids.owners.get(&handle.lid).copied().into_iter().collect()
        };
        let ways = hosts.into_iter().filter(|to| *to != from).filter_map(|to| {
            let mut owners = lids.owners.iter();
            let (lid, _) = owners.find(|(_, owner)| **owner == to)?;
            Some((to, *lid))
        });
        let ways: Vec<(u32, u16)> = ways.collect();
        if ways.is_empty() {
            self.ports[place].counters.no_destination += 1;
        }
        // The loop looks for packets at ports before it sleeps.
        self.active = true;
        for to in ways {
            let Some(token) = self.slot() else {
                self.ports[place].counters.lost += 1;
                continue;
            };
            let flight = &mut self.flights[token as usize];
            let Some(room) = flight.bytes.get_mut(..frame.0.len()) else {
                self.free.push(token);
                continue;
            };
            room.copy_from_slice(&frame.0);
            (flight.length, flight.slice) = (frame.0.len(), None);
            let packet = self.packet_for(place, token, handle, to, (frame.as_ref().len(), 0));
            self.ports[place].copies.push_back(packet);
        }
    }

    /// A packet has arrived at a host. True when the kernel, or the interface, has taken it.
    pub(super) fn deliver_packet(&mut self, place: usize, token: u32, to: AddressHandle) -> bool {
        let host = self.ports[place].host.number;
        let owner = |lid: u16| self.lids.as_ref()?.owners.get(&lid).copied();
        if to.lid < FIRST_MULTICAST && owner(to.lid) != Some(host) {
            return false;
        }
        let flight = &mut self.flights[token as usize];
        let (bytes, port) = (&mut flight.bytes[..flight.length], &mut self.ports[place]);
        let Some(ip) = &mut port.ip else {
            return false;
        };
        if ip.is_direct(&to, bytes) {
            let tap = port.tap.as_mut();
            return tap.is_some_and(|tap| tap.put_packet(bytes, flight.slice.as_ref()));
        }
        let has_room = ip.arrived.len() < WAITING_MAX;
        if has_room {
            let payload = flight.slice.as_ref().map_or(&[][..], Slice::bytes);
            ip.arrived.push((to, IpFrame([&*bytes, payload].concat())));
        }
        has_room
    }

    /// Hands a packet to a host's kernel that the interface has looked at.
    pub(crate) fn hand_over(&mut self, place: usize, frame: &mut IpFrame) {
        if let Some(tap) = &mut self.ports[place].tap {
            tap.put_packet(&mut frame.0, None);
        }
    }
}

/// The virtual lane of a packet, by its service level.
fn lane(handle: &AddressHandle) -> u8 {
    handle.service_level % VIRTUAL_LANES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::fuzz_entry::host;
    use crate::network::{Lids, Port};
    use crate::tap::Tap;
    use fabric::Time;
    use infiniband::subnet::GlobalRoute;
    use link::unix;
    use sim::world::{Delivered, LiveHosts, Offer};
    use std::os::fd::AsRawFd;

    const LINK: Link = Link {
        mtu: MTU,
        q_key: 5,
        p_key: 0xffff,
        rate: 3,
    };

    fn handle(lid: u16) -> AddressHandle {
        AddressHandle {
            lid,
            service_level: 9,
            p_key: 0xffff,
            q_key: 5,
            qpn: QPN,
            global: None,
        }
    }

    /// An IPv4 packet of 40 bytes, behind the header of a virtual network device.
    fn packet(from: u8, to: u8) -> Vec<u8> {
        let mut bytes = vec![0; 10 + 40];
        bytes[10] = 0x45;
        bytes[22..26].copy_from_slice(&[10, 0, 0, from]);
        bytes[26..30].copy_from_slice(&[10, 0, 0, to]);
        bytes
    }

    /// Three hosts with the LIDs 1 to 3, and the kernels' ends of their interfaces.
    fn network() -> (Network, Vec<OwnedFd>) {
        let mut kernels = Vec::new();
        let ports = (0..3).map(|number| {
            let [ours, theirs] = unix::message_pair().expect("a pair of sockets");
            unix::set_nonblocking(ours.as_raw_fd()).expect("a socket that does not block");
            kernels.push(theirs);
            let mut host = host(number);
            host.is_infiniband = true;
            let mut port = Port::new(host, Some(Tap::of_ip(ours)));
            port.ip.as_mut().expect("an interface").link = Some(LINK);
            port
        });
        let ports = ports.collect();
        let mut network = Network::new(3, ports, Clock::new(1));
        network.lids = Some(Lids {
            owners: BTreeMap::from([(1, 0), (2, 1), (3, 2)]),
            groups: BTreeMap::from([((0, 0xc000), vec![0, 1, 2])]),
            first_leaf: 100,
            ..Lids::default()
        });
        (network, kernels)
    }

    fn pulled(network: &mut Network, host: u32) -> Option<LivePacket> {
        if let Some(tap) = &mut network.ports[host as usize].tap {
            tap.set_readable();
        }
        match network.pull(host, 0xff, Time(0)) {
            Offer::Packet(packet) => Some(packet),
            _ => None,
        }
    }

    fn deliver(network: &mut Network, packet: &LivePacket) {
        let at = Delivered {
            token: packet.token,
            tos: packet.tos,
            hop_limit: packet.hop_limit,
        };
        network.deliver(packet.to, at, Time(0));
        network.flush();
    }

    fn arrived(kernel: &OwnedFd) -> Option<Vec<u8>> {
        let mut bytes = [0; 200];
        unix::set_nonblocking(kernel.as_raw_fd()).expect("a socket");
        let length = unix::receive_now(kernel.as_raw_fd(), &mut bytes).ok()?;
        Some(bytes[..length].to_vec())
    }

    #[test]
    fn a_packet_leaves_by_the_lid_of_its_neighbour() {
        let (mut network, kernels) = network();
        let sent = packet(1, 2);
        let send = |bytes: &[u8]| unix::send_now(kernels[0].as_raw_fd(), bytes).expect("room");
        send(&sent);
        assert_eq!(pulled(&mut network, 0), None);
        let ip = network.ports[0].ip.as_mut().expect("an interface");
        assert_eq!(ip.unresolved.len(), 1, "the interface finds the neighbour");
        ip.handles
            .insert("10.0.0.2".parse().expect("an address"), handle(2));
        send(&sent);
        let left = pulled(&mut network, 0).expect("a packet");
        assert_eq!((left.to, left.leaf, left.class), (1, Some(102), 1));
        assert_eq!(usize::from(left.length), OUTER_BYTES + 40);
        deliver(&mut network, &left);
        assert_eq!(arrived(&kernels[1]), Some(sent));
        send(&packet(3, 2));
        assert_eq!(pulled(&mut network, 0), None);
        assert_eq!(network.ports[0].counters.forged, 1);
    }

    #[test]
    fn a_packet_with_another_key_or_lid_is_for_no_kernel() {
        let (mut network, kernels) = network();
        let frame = IpFrame([&[0; BEFORE_PACKET][..], &[0x45; 40]].concat());
        let wrong = AddressHandle {
            q_key: 6,
            ..handle(2)
        };
        network.enter_packet(0, wrong, &frame);
        let left = pulled(&mut network, 0).expect("a packet");
        deliver(&mut network, &left);
        assert_eq!(arrived(&kernels[1]), None);
        let ip = network.ports[1].ip.as_ref().expect("an interface");
        assert_eq!(ip.arrived.len(), 1, "the interface refuses it");
        network.enter_packet(0, handle(9), &frame);
        assert_eq!(pulled(&mut network, 0), None);
        assert_eq!(network.ports[0].counters.no_destination, 1);
    }

    #[test]
    fn a_packet_for_a_group_leaves_once_for_each_member() {
        let (mut network, _kernels) = network();
        let global = GlobalRoute {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            source: [1; 16],
            destination: [0xff; 16],
        };
        let to = AddressHandle {
            global: Some(global),
            qpn: ipoib::MULTICAST_QP,
            ..handle(0xc000)
        };
        let frame = IpFrame::new(types::ARP, &[0; 56]);
        network.enter_packet(0, to, &frame);
        let mut hosts = Vec::new();
        while let Some(left) = pulled(&mut network, 0) {
            let bytes = OUTER_BYTES + GLOBAL_ROUTE_BYTES + 56;
            assert_eq!(usize::from(left.length), bytes);
            deliver(&mut network, &left);
            hosts.push(left.to);
        }
        assert_eq!(hosts, [1, 2]);
        for host in [1, 2] {
            let ip = network.ports[host].ip.as_ref().expect("an interface");
            assert_eq!(ip.arrived, [(to, frame.clone())]);
        }
    }
}
