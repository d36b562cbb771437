//! IP over InfiniBand in datagram mode (RFC 4391, RFC 4392): the interface of a host, without input and
//! output of its own.
//!
//! What goes in: the state of the port ([`Interface::set_port`], [`Interface::join_groups`]), IP packets of
//! the host ([`Interface::send`]), datagrams from the network ([`Interface::receive`]), answers of the
//! manager ([`Interface::answered`]), and the time ([`Interface::run`], due at [`Interface::next_event`]).
//! After each of these the caller takes [`Interface::take_actions`] and carries them out in order.
//!
//! The interface has a link when the broadcast group has been joined, as a member that sends and receives.
//! Where a neighbour's address and path are known, [`Action::Neighbour`] says how to address its packets; the
//! caller may then send them directly, and gives the interface those for other addresses.

mod address;
mod arp;
mod discovery;
mod groups;
mod neighbours;
mod paths;
mod reports;
mod requests;

pub use address::{
    HARDWARE_BYTES, HardwareAddress, MULTICAST_QP, OwnAddress, broadcast_gid, group_gid, link_local,
};
pub use paths::Target;
pub use requests::is_answer;

use crate::mad::{Mad, get};
use crate::node::{Port, PortState};
use crate::sa::{Gid, PathRecord};
use crate::subnet::{GlobalRoute, Packet};
use address::solicited_node;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use fabric::Time;
use groups::Group;
use neighbours::Neighbour;
use paths::{Path, Resolving};
use reports::reports_of;
use requests::{Purpose, Requests};

/// Types of what the 4 bytes of the encapsulation header announce: the type, and two bytes of zeros
/// (RFC 4391, 6).
pub mod ether_type {
    /// A packet of IP, version 4.
    pub const IPV4: u16 = 0x0800;
    /// A packet of the address resolution protocol.
    pub const ARP: u16 = 0x0806;
    /// A packet of IP, version 6.
    pub const IPV6: u16 = 0x86dd;
}

/// The bit of full members of a partition.
const FULL_MEMBER: u16 = 0x8000;

/// How a datagram is addressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressHandle {
    /// The LID of the destination.
    pub lid: u16,
    /// The service level.
    pub service_level: u8,
    /// The key of the sender's partition.
    pub p_key: u16,
    /// The key of the receiving queue pair.
    pub q_key: u32,
    /// The receiving queue pair.
    pub qpn: u32,
    /// The global route header, which packets for groups have.
    pub global: Option<GlobalRoute>,
}

/// A packet that is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parcel<P> {
    /// An IP packet of the host.
    OfHost(P),
    /// A packet of the interface itself, behind the encapsulation header.
    Own {
        /// The packet's protocol: one of [`ether_type`].
        ether_type: u16,
        /// ARP, or an IPv6 packet.
        body: Vec<u8>,
    },
}

/// The link, which is there while the broadcast group is joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The longest IP packet.
    pub mtu: u16,
    /// The key of queue pairs.
    pub q_key: u32,
    /// The key of the partition, as the port has it.
    pub p_key: u16,
    /// The rate of the broadcast group, as a code.
    pub rate: u8,
}

/// Why there is no path for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No answer came in time.
    TimedOut,
    /// No neighbour has the address.
    NoNeighbour,
    /// The manager knows no path to the port.
    NoPath,
    /// Too many programs wait.
    NoRoom,
}

/// What the caller has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<P> {
    /// Send a datagram.
    Send {
        /// Address handle to the receiver.
        to: AddressHandle,
        /// What the datagram contains.
        parcel: Parcel<P>,
    },
    /// Send a request to the manager.
    Ask(Packet),
    /// Packets for a neighbour may be sent with this address handle, until it is taken back.
    Neighbour {
        /// The address of the neighbour.
        address: IpAddr,
        /// Address handle for packets to the neighbour; `None` takes the earlier one back.
        handle: Option<AddressHandle>,
    },
    /// The link is there with these properties, or is gone.
    Link(Option<Link>),
    /// Answer a program that has asked for a path.
    Resolved {
        /// The number that the program's question has.
        number: u64,
        /// The path, or why there is none.
        result: Result<PathRecord, Failure>,
    },
}

/// A datagram that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// As it was addressed.
    pub to: AddressHandle,
    /// The type in the encapsulation header.
    pub ether_type: u16,
    /// What is behind the encapsulation header.
    pub body: &'a [u8],
}

/// What becomes of a datagram that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The datagram has an IP packet for the host.
    ForHost,
    /// The interface itself has processed the datagram.
    Taken,
    /// The datagram has a wrong Q_Key, or is for another queue pair or group.
    Refused,
}

/// What the interface has to know of its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place {
    is_active: bool,
    lid: u16,
    sm_lid: u16,
    sm_sl: u8,
    gid: Gid,
    p_key: u16,
    mtu: u8,
}

impl Place {
    fn of(port: &Port) -> Self {
        let gid = u128::from(port.gid_prefix) << 64 | u128::from(port.guid);
        Self {
            is_active: port.state == PortState::Active && port.lid != 0 && port.sm_lid != 0,
            lid: port.lid,
            sm_lid: port.sm_lid,
            sm_sl: port.sm_sl,
            gid: gid.to_be_bytes(),
            p_key: port.partitions.0[0],
            mtu: port.neighbor_mtu,
        }
    }
}

/// The interface of a host. `P` is an IP packet of the host.
#[derive(Debug)]
pub struct Interface<P> {
    qpn: u32,
    own: Vec<OwnAddress>,
    place: Place,
    link: Option<Link>,
    requests: Requests,
    /// IP groups that the host is a member of.
    members: BTreeSet<IpAddr>,
    groups: BTreeMap<Gid, Group<P>>,
    neighbours: BTreeMap<IpAddr, Neighbour<P>>,
    paths: BTreeMap<Gid, Path>,
    resolving: Vec<Resolving>,
    actions: Vec<Action<P>>,
    now: Time,
    /// When something is due: looked at more often than it changes.
    next: Time,
    /// Packets that were dropped.
    dropped: u64,
}

impl<P: AsRef<[u8]>> Interface<P> {
    /// An interface with its queue pair and the addresses of its host.
    pub fn new(qpn: u32, own: Vec<OwnAddress>) -> Self {
        Self {
            qpn,
            members: permanent_groups(&own).collect(),
            own,
            place: Place::default(),
            link: None,
            requests: Requests::default(),
            groups: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            paths: BTreeMap::new(),
            resolving: Vec::new(),
            actions: Vec::new(),
            now: Time(0),
            next: Time::NEVER,
            dropped: 0,
        }
    }

    /// The hardware address.
    pub fn hardware(&self) -> HardwareAddress {
        HardwareAddress {
            qpn: self.qpn,
            gid: self.place.gid,
        }
    }

    /// The link, if there is one.
    pub fn link(&self) -> Option<Link> {
        self.link
    }

    /// Packets that were dropped: their neighbour or group did not answer, or too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The time at which [`Self::run`] has something to do.
    pub fn next_event(&self) -> Time {
        self.next
    }

    fn earliest(&self) -> Time {
        let waits = self.next_of_resolving();
        if !self.place.is_active {
            return waits;
        }
        let others = [
            self.requests.next_event(),
            self.next_of_groups(),
            self.next_of_neighbours(),
        ];
        others.into_iter().fold(waits, Time::min)
    }

    /// Takes what is to be done, in order.
    #[must_use]
    pub fn take_actions(&mut self) -> Vec<Action<P>> {
        core::mem::take(&mut self.actions)
    }

    /// Does what is due.
    pub fn run(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.place.is_active {
            let (again, ended) = self.requests.run(self.now);
            again.into_iter().for_each(|mad| self.send_request(mad));
            ended
                .into_iter()
                .for_each(|purpose| self.finish(purpose, None));
            self.run_groups();
            self.run_neighbours();
        }
        self.run_resolving();
        self.next = self.earliest();
    }

    /// Takes the state of the port.
    pub fn set_port(&mut self, now: Time, port: &Port) {
        let place = Place::of(port);
        if place == self.place {
            return;
        }
        self.now = self.now.max(now);
        let before = core::mem::replace(&mut self.place, place);
        let with_manager_of_before = Place {
            sm_lid: before.sm_lid,
            sm_sl: before.sm_sl,
            ..place
        };
        if place.is_active && before == with_manager_of_before {
            self.join_groups(now);
        } else {
            self.begin_again();
        }
        self.run(now);
    }

    /// A manager asks to register again, or another one has come: groups are joined again, and paths asked
    /// for, while they are used as before.
    pub fn join_groups(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.requests.clear();
        self.join_again();
        if self.place.is_active {
            self.renew_paths();
        }
        self.run(now);
    }

    /// Forgets everything: the port has another address, or no link.
    fn begin_again(&mut self) {
        self.requests.clear();
        self.forget_neighbours();
        self.paths.clear();
        if self.link.take().is_some() {
            self.actions.push(Action::Link(None));
        }
        self.restart_groups();
    }

    /// Sends an IP packet of the host.
    pub fn send(&mut self, now: Time, packet: P) {
        self.now = self.now.max(now);
        let Some(to) = destination_of(packet.as_ref()) else {
            self.dropped += 1;
            return;
        };
        // A host reports its groups also while it has no link.
        if to.is_multicast() {
            for report in reports_of(packet.as_ref()) {
                self.take_report(report);
            }
        }
        let fits = |link: Link| packet.as_ref().len() <= usize::from(link.mtu);
        if !self.link.is_some_and(fits) || self.is_own(to) || to.is_unspecified() {
            self.dropped += 1;
            return self.run(now);
        }
        let parcel = Parcel::OfHost(packet);
        let p_key = self.place.p_key;
        match to {
            IpAddr::V4(address) if self.is_for_all(address) => {
                self.send_to_group(broadcast_gid(p_key), parcel);
            }
            _ if to.is_multicast() => self.send_to_group(group_gid(p_key, to), parcel),
            _ => self.send_to_neighbour(to, parcel),
        }
        self.run(now);
    }

    /// A datagram has arrived at the port.
    #[must_use]
    pub fn receive(&mut self, now: Time, datagram: &Datagram<'_>) -> Verdict {
        self.now = self.now.max(now);
        if !self.takes(&datagram.to) {
            return Verdict::Refused;
        }
        let is_to_group = datagram.to.qpn == MULTICAST_QP;
        match datagram.ether_type {
            ether_type::ARP => self.receive_arp(datagram.body, is_to_group),
            ether_type::IPV6 if is_discovery(datagram.body) => {
                self.receive_discovery(datagram.body, is_to_group);
            }
            ether_type::IPV4 | ether_type::IPV6 => return Verdict::ForHost,
            _ => return Verdict::Refused,
        }
        self.run(now);
        Verdict::Taken
    }

    /// Whether the queue pair takes a datagram: the keys, and the group if it is for one.
    fn takes(&self, to: &AddressHandle) -> bool {
        let Some(link) = self.link else {
            return false;
        };
        let has_keys = to.q_key == link.q_key && shares_partition(to.p_key, link.p_key);
        let is_for_us = match &to.global {
            Some(global) if to.qpn == MULTICAST_QP => self.is_member(&global.destination),
            _ => to.qpn == self.qpn,
        };
        has_keys && is_for_us
    }

    /// A datagram has arrived that [`is_answer`] is true for.
    pub fn answered(&mut self, now: Time, mad: &Mad) {
        self.now = self.now.max(now);
        if let Some(purpose) = self.requests.answered(mad) {
            self.finish(purpose, Some(mad));
        }
        self.run(now);
    }

    fn finish(&mut self, purpose: Purpose, answer: Option<&Mad>) {
        match purpose {
            Purpose::Find(gid) => self.group_found(gid, answer),
            Purpose::Join(gid) => self.group_joined(gid, answer),
            Purpose::Path(gid) => self.path_found(gid, answer),
            // The manager forgets ports that are gone by itself.
            Purpose::Leave => {}
        }
    }

    /// Asks the manager.
    fn ask(&mut self, purpose: Purpose, mad: Mad) {
        let mad = self.requests.add(self.now, purpose, mad);
        self.send_request(mad);
    }

    fn send_request(&mut self, mad: Mad) {
        let Place {
            lid,
            sm_lid,
            sm_sl,
            p_key,
            ..
        } = self.place;
        self.actions.push(Action::Ask(Packet {
            service_level: sm_sl,
            p_key,
            ..Packet::between(lid, sm_lid, mad)
        }));
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.iter().any(|one| one.address == address)
    }

    fn is_for_all(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.own.iter().any(|one| one.is_broadcast(address))
    }

    fn own_v4(&self) -> Option<Ipv4Addr> {
        self.own.iter().find_map(|one| match one.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// The own address with which a neighbour is asked: of the same scope.
    fn own_v6(&self, target: Ipv6Addr) -> Option<Ipv6Addr> {
        let is_local = target.is_unicast_link_local();
        let mut all = self.own.iter().filter_map(|one| match one.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        all.find(|address| address.is_unicast_link_local() == is_local)
    }
}

/// Groups that a host with these addresses is always a member of.
fn permanent_groups(own: &[OwnAddress]) -> impl Iterator<Item = IpAddr> {
    own.iter().flat_map(|one| match one.address {
        IpAddr::V4(_) => [IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)); 2],
        IpAddr::V6(address) => [
            IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(solicited_node(address)),
        ],
    })
}

/// The destination of an IP packet.
pub fn destination_of(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 => Some(IpAddr::V4(Ipv4Addr::from_bits(get(packet, 16)))),
        6 if packet.len() >= 40 => Some(IpAddr::V6(Ipv6Addr::from_bits(get(packet, 24)))),
        _ => None,
    }
}

/// Whether an IPv6 packet is a message of neighbour discovery, which is for the interface and not for the
/// host.
pub fn is_discovery(packet: &[u8]) -> bool {
    discovery::is_discovery(packet)
}

/// Whether a packet with one key is for a port with another: the same partition, and one of both is a full
/// member.
pub fn shares_partition(one: u16, other: u16) -> bool {
    (one ^ other) & !FULL_MEMBER == 0 && (one | other) & FULL_MEMBER != 0
}
