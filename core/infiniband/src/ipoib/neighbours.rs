//! The neighbour table: IP addresses with their hardware addresses, asked for by ARP and neighbour discovery,
//! and confirmed from time to time (RFC 4861, 7.3).

use super::address::{HardwareAddress, broadcast_gid, group_gid, solicited_node};
use super::arp::Arp;
use super::discovery::{Discovery, Kind};
use super::{Action, Failure, Interface, Parcel, ether_type};
use crate::sa::Gid;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use fabric::{Span, Time};

/// Neighbours at most.
const NEIGHBOURS_MAX: usize = 1_024;
/// Packets that wait for a neighbour at most; the oldest is dropped for one more.
const QUEUE_MAX: usize = 64;
/// How long an address that was confirmed is used without a question.
const REACHABLE: Span = Span(30_000_000_000_000);
/// How long an answer may take, and how often is asked (RFC 4861, 10).
const RETRANSMIT: Span = Span(1_000_000_000_000);
const TRIES: u8 = 3;
/// How long an address that is not used is remembered.
const REMEMBERED: Span = Span(600_000_000_000_000);

/// What is known about a neighbour's address (RFC 4861, 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The neighbour's address is requested.
    Incomplete,
    /// The neighbour's address was confirmed not long ago.
    Reachable,
    /// The next packet to the neighbour starts a confirmation of its address.
    Stale,
    /// The neighbour's address is used while a confirmation is under way.
    Probe,
}

/// A host on the link, by its IP address.
#[derive(Debug)]
pub(super) struct Neighbour<P> {
    hardware: Option<HardwareAddress>,
    phase: Phase,
    /// When something is to be done.
    at: Time,
    /// How often was asked.
    tries: u8,
    queue: VecDeque<Parcel<P>>,
    /// The host sends to it without asking the interface.
    is_published: bool,
}

impl<P> Neighbour<P> {
    fn new(now: Time) -> Self {
        Self {
            hardware: None,
            phase: Phase::Incomplete,
            at: now,
            tries: 0,
            queue: VecDeque::new(),
            is_published: false,
        }
    }
}

impl<P: AsRef<[u8]>> Interface<P> {
    /// The time at which a neighbour has something to do.
    pub(super) fn next_of_neighbours(&self) -> Time {
        let times = self.neighbours.values().map(|neighbour| neighbour.at);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Asks again, and forgets.
    pub(super) fn run_neighbours(&mut self) {
        let now = self.now;
        let due = self.neighbours.iter().filter(|(_, one)| one.at <= now);
        let due: Vec<IpAddr> = due.map(|(address, _)| *address).collect();
        for address in due {
            let Some(neighbour) = self.neighbours.get_mut(&address) else {
                continue;
            };
            match neighbour.phase {
                Phase::Reachable => {
                    (neighbour.phase, neighbour.at) = (Phase::Stale, now + REMEMBERED);
                    self.withdraw(address);
                }
                Phase::Incomplete | Phase::Probe if neighbour.tries < TRIES => {
                    neighbour.tries += 1;
                    neighbour.at = now + RETRANSMIT;
                    self.solicit(address);
                }
                Phase::Incomplete | Phase::Probe => {
                    let hardware = self.hardware_of(&address);
                    self.forget(address);
                    if let Some(hardware) = hardware {
                        self.renew_path(hardware.gid);
                    }
                    self.fail_resolving(Failure::NoNeighbour, |target| target == address);
                }
                Phase::Stale => self.forget(address),
            }
        }
    }

    /// Sends to a neighbour, or keeps the packet until its address is known.
    pub(super) fn send_to_neighbour(&mut self, address: IpAddr, parcel: Parcel<P>) {
        let now = self.now;
        if !self.ensure_neighbour(address) {
            self.dropped += 1;
            return;
        }
        let Some(neighbour) = self.neighbours.get_mut(&address) else {
            return;
        };
        if neighbour.queue.len() >= QUEUE_MAX {
            neighbour.queue.pop_front();
            self.dropped += 1;
        }
        neighbour.queue.push_back(parcel);
        if neighbour.phase == Phase::Stale {
            (neighbour.phase, neighbour.tries, neighbour.at) = (Phase::Probe, 0, now);
        }
        self.settle_neighbour(address);
    }

    /// Has an entry for an address, which is asked for if it is new; false where there is no room.
    pub(super) fn ensure_neighbour(&mut self, address: IpAddr) -> bool {
        if self.neighbours.contains_key(&address) {
            return true;
        }
        if self.neighbours.len() >= NEIGHBOURS_MAX {
            let stale = self
                .neighbours
                .iter()
                .filter(|(_, one)| one.phase == Phase::Stale);
            let Some(oldest) = stale.min_by_key(|(_, one)| one.at).map(|(one, _)| *one) else {
                return false;
            };
            self.forget(oldest);
        }
        self.neighbours.insert(address, Neighbour::new(self.now));
        true
    }

    /// The hardware address of a neighbour.
    pub(super) fn hardware_of(&self, address: &IpAddr) -> Option<HardwareAddress> {
        self.neighbours.get(address)?.hardware
    }

    /// Sends the packets that wait for a neighbour, if its address and the path to it are known.
    pub(super) fn settle_neighbour(&mut self, address: IpAddr) {
        let Some(hardware) = self.hardware_of(&address) else {
            return;
        };
        let Some(to) = self.handle_of(hardware) else {
            return self.ask_for_path(hardware.gid);
        };
        let Some(neighbour) = self.neighbours.get_mut(&address) else {
            return;
        };
        let waiting = core::mem::take(&mut neighbour.queue).into_iter();
        self.actions
            .extend(waiting.map(|parcel| Action::Send { to, parcel }));
        let is_used = matches!(neighbour.phase, Phase::Reachable | Phase::Probe);
        if is_used && !neighbour.is_published {
            neighbour.is_published = true;
            let handle = Some(to);
            self.actions.push(Action::Neighbour { address, handle });
        }
    }

    /// The host asks the interface again before it sends to a neighbour.
    fn withdraw(&mut self, address: IpAddr) {
        if let Some(neighbour) = self.neighbours.get_mut(&address)
            && core::mem::take(&mut neighbour.is_published)
        {
            let handle = None;
            self.actions.push(Action::Neighbour { address, handle });
        }
    }

    fn forget(&mut self, address: IpAddr) {
        self.withdraw(address);
        if let Some(neighbour) = self.neighbours.remove(&address) {
            self.dropped += neighbour.queue.len() as u64;
        }
    }

    /// Forgets all neighbours.
    pub(super) fn forget_neighbours(&mut self) {
        let all: Vec<IpAddr> = self.neighbours.keys().copied().collect();
        all.into_iter().for_each(|address| self.forget(address));
    }

    /// Neighbours that the host uses are used by their present paths.
    pub(super) fn publish_again(&mut self) {
        let all: Vec<IpAddr> = self.neighbours.keys().copied().collect();
        for address in all {
            self.withdraw(address);
            self.settle_neighbour(address);
        }
    }

    /// The path to a port has been found or has changed; `is_lost` says that there is none.
    pub(super) fn path_changed(&mut self, gid: Gid, is_lost: bool) {
        let by = |one: &Neighbour<P>| one.hardware.is_some_and(|it| it.gid == gid);
        let found = self.neighbours.iter().filter(|(_, one)| by(one));
        let found: Vec<IpAddr> = found.map(|(address, _)| *address).collect();
        for address in found {
            self.withdraw(address);
            if !is_lost {
                self.settle_neighbour(address);
            } else if let Some(neighbour) = self.neighbours.get_mut(&address) {
                self.dropped += neighbour.queue.len() as u64;
                neighbour.queue.clear();
            }
        }
    }

    /// Notes a hardware address that a neighbour has said. `confirms` says that the neighbour has answered.
    fn learn(&mut self, address: IpAddr, hardware: HardwareAddress, confirms: bool) {
        let now = self.now;
        let Some(neighbour) = self.neighbours.get_mut(&address) else {
            return;
        };
        let is_new = neighbour.hardware != Some(hardware);
        if is_new {
            self.withdraw(address);
        }
        let Some(neighbour) = self.neighbours.get_mut(&address) else {
            return;
        };
        neighbour.hardware = Some(hardware);
        if confirms {
            (neighbour.phase, neighbour.tries, neighbour.at) =
                (Phase::Reachable, 0, now + REACHABLE);
        } else if is_new {
            (neighbour.phase, neighbour.tries, neighbour.at) = (Phase::Stale, 0, now + REMEMBERED);
        }
        self.settle_neighbour(address);
    }

    /// Asks for the hardware address of a neighbour: the neighbour itself, if there is one to confirm.
    fn solicit(&mut self, address: IpAddr) {
        let known = self.hardware_of(&address);
        let own = self.hardware();
        match address {
            IpAddr::V4(target_ip) => {
                let request = Arp {
                    is_request: true,
                    sender: own,
                    sender_ip: self.own_v4().unwrap_or(Ipv4Addr::UNSPECIFIED),
                    target: known,
                    target_ip,
                };
                let group = broadcast_gid(self.place.p_key);
                self.send_own(address, known, group, ether_type::ARP, request.to_bytes());
            }
            IpAddr::V6(target) => {
                let Some(source) = self.own_v6(target) else {
                    return;
                };
                let node = solicited_node(target);
                let request = Discovery {
                    kind: Kind::Solicitation,
                    source,
                    destination: if known.is_some() { target } else { node },
                    target,
                    hardware: Some(own),
                };
                let group = group_gid(self.place.p_key, IpAddr::V6(node));
                self.send_own(address, known, group, ether_type::IPV6, request.to_bytes());
            }
        }
    }

    /// Sends a question to the neighbour, or to a group.
    fn send_own(
        &mut self,
        address: IpAddr,
        known: Option<HardwareAddress>,
        group: Gid,
        ether_type: u16,
        body: Vec<u8>,
    ) {
        let parcel = Parcel::Own { ether_type, body };
        if known.is_some() {
            self.send_to_neighbour(address, parcel);
        } else {
            self.send_to_group(group, parcel);
        }
    }

    /// Tells all neighbours the own addresses: they may know other ones, or another path.
    pub(super) fn announce(&mut self) {
        let (own, p_key) = (self.hardware(), self.place.p_key);
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        for address in self.own.clone() {
            match address.address {
                IpAddr::V4(address) => {
                    let body = Arp {
                        is_request: true,
                        sender: own,
                        sender_ip: address,
                        target: None,
                        target_ip: address,
                    };
                    let parcel = own_parcel(ether_type::ARP, body.to_bytes());
                    self.send_to_group(broadcast_gid(p_key), parcel);
                }
                IpAddr::V6(target) => {
                    let body = Discovery {
                        kind: Kind::Advertisement {
                            is_solicited: false,
                        },
                        source: target,
                        destination: all_nodes,
                        target,
                        hardware: Some(own),
                    };
                    let parcel = own_parcel(ether_type::IPV6, body.to_bytes());
                    self.send_to_group(group_gid(p_key, IpAddr::V6(all_nodes)), parcel);
                }
            }
        }
    }

    /// An ARP packet has arrived (RFC 826, "Packet Reception").
    pub(super) fn receive_arp(&mut self, body: &[u8], is_to_group: bool) {
        let Some(arp) = Arp::parse(body) else {
            return;
        };
        let sender = IpAddr::V4(arp.sender_ip);
        if arp.sender.gid == self.place.gid || self.is_own(sender) {
            return;
        }
        let is_for_us = self.is_own(IpAddr::V4(arp.target_ip));
        let asks_a_group = arp.is_request && is_for_us && is_to_group;
        if arp.sender_ip == arp.target_ip || asks_a_group {
            self.renew_path(arp.sender.gid);
        }
        if arp.is_request && is_for_us && !arp.sender_ip.is_unspecified() {
            self.ensure_neighbour(sender);
        }
        self.learn(sender, arp.sender, !arp.is_request && is_for_us);
        if arp.is_request && is_for_us {
            let answer = Arp {
                is_request: false,
                sender: self.hardware(),
                sender_ip: arp.target_ip,
                target: Some(arp.sender),
                target_ip: arp.sender_ip,
            };
            self.answer(sender, own_parcel(ether_type::ARP, answer.to_bytes()));
        }
    }

    /// A message of neighbour discovery has arrived (RFC 4861, 7.2.3 to 7.2.5).
    pub(super) fn receive_discovery(&mut self, packet: &[u8], is_to_group: bool) {
        let Some(said) = Discovery::parse(packet) else {
            return;
        };
        let (source, target) = (IpAddr::V6(said.source), IpAddr::V6(said.target));
        if said.hardware.is_some_and(|it| it.gid == self.place.gid) || self.is_own(source) {
            return;
        }
        match (said.kind, said.hardware) {
            (Kind::Solicitation, Some(hardware)) => {
                let is_for_us = self.is_own(target) && !said.source.is_unspecified();
                if is_for_us {
                    self.ensure_neighbour(source);
                }
                if is_for_us && is_to_group {
                    self.renew_path(hardware.gid);
                }
                self.learn(source, hardware, false);
                if is_for_us {
                    let answer = Discovery {
                        kind: Kind::Advertisement { is_solicited: true },
                        source: said.target,
                        destination: said.source,
                        target: said.target,
                        hardware: Some(self.hardware()),
                    };
                    self.answer(source, own_parcel(ether_type::IPV6, answer.to_bytes()));
                }
            }
            (Kind::Advertisement { is_solicited }, hardware) => {
                if let Some(hardware) = hardware.or_else(|| self.hardware_of(&target)) {
                    if !is_solicited {
                        self.renew_path(hardware.gid);
                    }
                    self.learn(target, hardware, is_solicited);
                }
            }
            (Kind::Solicitation, None) => {}
        }
    }

    /// Answers the question of a neighbour. The question tells its address, and does not confirm it.
    fn answer(&mut self, to: IpAddr, parcel: Parcel<P>) {
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        if neighbour.queue.len() < QUEUE_MAX {
            neighbour.queue.push_back(parcel);
        }
        self.settle_neighbour(to);
    }

    /// The path to a port may be another one: a neighbour has announced itself, has sent its question to a
    /// group, because it does not know this interface (its announcement may have been lost), or does not
    /// answer. The path is asked for also when no IP address of the port is known at present: a path outlives
    /// the neighbours for which it was found, and the next one would get its packets by it.
    fn renew_path(&mut self, gid: Gid) {
        if self.paths.contains_key(&gid) {
            self.ask_for_path(gid);
        }
    }
}

fn own_parcel<P>(ether_type: u16, body: Vec<u8>) -> Parcel<P> {
    Parcel::Own { ether_type, body }
}
