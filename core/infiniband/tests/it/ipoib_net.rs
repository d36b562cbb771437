//! Interfaces of IP over InfiniBand on one subnet, with a manager that has nothing but paths and groups.

use fabric::{Span, Time};
use infiniband::LinkSpeed;
use infiniband::ipoib::{
    Action, AddressHandle, Datagram, Failure, Interface, Link, MULTICAST_QP, OwnAddress, Parcel,
    Verdict, broadcast_gid, destination_of, ether_type, link_local,
};
use infiniband::mad::Mad;
use infiniband::node::{Identity, Node, Port, PortState};
use infiniband::sa::{Gid, MemberRecord, PathRecord, record};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The queue pair of all interfaces.
const QPN: u32 = 0x48;
const DELAY: Span = Span(2_000_000);
/// The LID of the manager, which is at none of the hosts.
const MANAGER: u16 = 99;
/// The status of a manager that has no such record.
const NO_RECORDS: u16 = 0x0300;

pub(crate) struct Host {
    pub(crate) interface: Interface<Vec<u8>>,
    node: Node,
    pub(crate) received: Vec<Vec<u8>>,
    /// What the host may use without asking the interface.
    pub(crate) table: BTreeMap<IpAddr, AddressHandle>,
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) resolved: Vec<(u64, Result<PathRecord, Failure>)>,
}

struct Group {
    record: MemberRecord,
    members: BTreeSet<Gid>,
}

enum Event {
    Data(usize, AddressHandle, u16, Vec<u8>),
    Answer(usize, Mad),
}

pub(crate) struct Net {
    pub(crate) hosts: Vec<Host>,
    pub(crate) has_manager: bool,
    groups: BTreeMap<Gid, Group>,
    pub(crate) now: Time,
    queue: Vec<(Time, Event)>,
    /// Requests that the manager has got: method and attribute.
    pub(crate) asked: Vec<(u8, u16)>,
    /// Every packet with a number that this divides is lost; 0 loses none.
    pub(crate) loses: u64,
    sent: u64,
}

pub(crate) fn v4(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))
}

/// The link-local address of a host.
pub(crate) fn local(host: usize) -> IpAddr {
    IpAddr::V6(link_local(guid(host)))
}

fn guid(host: usize) -> u64 {
    0x0002_c903_0000_0010 + host as u64
}

pub(crate) fn gid(host: usize) -> Gid {
    (0xfe80_u128 << 112 | u128::from(guid(host))).to_be_bytes()
}

fn mad_port(node: &mut Node) -> &mut Port {
    &mut node.ports[1]
}

impl Host {
    fn new(number: usize) -> Self {
        let identity = Identity {
            guid: 1,
            port_guid: guid(number),
            description: String::new(),
        };
        let own = [(v4(number), 8), (local(number), 64)];
        let own = own.map(|(address, prefix)| OwnAddress { address, prefix });
        Self {
            interface: Interface::new(QPN, own.to_vec()),
            node: Node::adapter(identity, LinkSpeed::parse("4x QDR").unwrap()),
            received: Vec::new(),
            table: BTreeMap::new(),
            links: Vec::new(),
            resolved: Vec::new(),
        }
    }
}

impl Net {
    pub(crate) fn new(hosts: usize) -> Self {
        let mut net = Self {
            hosts: (0..hosts).map(Host::new).collect(),
            has_manager: true,
            groups: BTreeMap::new(),
            now: Time(0),
            queue: Vec::new(),
            asked: Vec::new(),
            loses: 0,
            sent: 0,
        };
        net.restart_manager();
        (0..hosts).for_each(|host| net.change(host, |_| {}));
        net
    }

    /// With the links of all hosts up.
    pub(crate) fn up(hosts: usize) -> Self {
        let mut net = Self::new(hosts);
        for host in 0..hosts {
            net.activate(host, host as u16 + 1);
        }
        net.run(Span::from_us(100_000));
        assert!(net.hosts.iter().all(|host| host.interface.link().is_some()));
        net
    }

    /// The manager knows the broadcast group alone, and no member of it.
    pub(crate) fn restart_manager(&mut self) {
        let mgid = broadcast_gid(0xffff);
        let record = MemberRecord {
            mgid,
            q_key: 0xb1b,
            mlid: 0xc000,
            mtu: 4,
            p_key: 0xffff,
            rate: 3,
            ..MemberRecord::default()
        };
        let members = BTreeSet::new();
        self.groups = BTreeMap::from([(mgid, Group { record, members })]);
    }

    /// Changes the port of a host.
    pub(crate) fn change(&mut self, host: usize, change: impl FnOnce(&mut Port)) {
        let Host {
            interface, node, ..
        } = &mut self.hosts[host];
        change(mad_port(node));
        interface.set_port(self.now, &node.ports[1]);
        self.follow(host);
    }

    pub(crate) fn activate(&mut self, host: usize, lid: u16) {
        self.change(host, |port| {
            (port.state, port.lid, port.sm_lid) = (PortState::Active, lid, MANAGER);
        });
    }

    pub(crate) fn deactivate(&mut self, host: usize) {
        self.change(host, |port| port.state = PortState::Down);
    }

    fn port(&self, host: usize) -> &Port {
        &self.hosts[host].node.ports[1]
    }

    fn is_active(&self, host: usize) -> bool {
        self.port(host).state == PortState::Active
    }

    /// An IP packet between two addresses, with a number in its payload.
    pub(crate) fn packet(from: IpAddr, to: IpAddr, number: u8) -> Vec<u8> {
        let mut packet = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut packet = vec![0; 20];
                (packet[0], packet[9]) = (0x45, 17);
                packet[12..16].copy_from_slice(&from.octets());
                packet[16..20].copy_from_slice(&to.octets());
                packet
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut packet = vec![0; 40];
                (packet[0], packet[6]) = (0x60, 17);
                packet[8..24].copy_from_slice(&from.octets());
                packet[24..40].copy_from_slice(&to.octets());
                packet
            }
            _ => panic!("{from} and {to} are not of one family"),
        };
        packet.push(number);
        packet
    }

    /// A host sends a packet: directly, if the interface has said how.
    pub(crate) fn send(&mut self, host: usize, packet: Vec<u8>) {
        let to = destination_of(&packet).unwrap();
        match self.hosts[host].table.get(&to).copied() {
            Some(handle) => self.transmit(host, handle, Parcel::OfHost(packet)),
            None => {
                self.hosts[host].interface.send(self.now, packet);
                self.follow(host);
            }
        }
    }

    pub(crate) fn resolve(
        &mut self,
        host: usize,
        number: u64,
        target: infiniband::ipoib::Target,
        span: Span,
    ) {
        let ends_at = self.now + span;
        self.hosts[host]
            .interface
            .resolve(self.now, number, target, ends_at);
        self.follow(host);
    }

    pub(crate) fn reregister(&mut self, host: usize) {
        self.hosts[host].interface.join_groups(self.now);
        self.follow(host);
    }

    /// Carries out what an interface has to have done.
    pub(crate) fn follow(&mut self, host: usize) {
        for action in self.hosts[host].interface.take_actions() {
            match action {
                Action::Send { to, parcel } => self.transmit(host, to, parcel),
                Action::Ask(packet) => {
                    assert_eq!(
                        (packet.destination_lid, packet.destination_qp),
                        (MANAGER, 1)
                    );
                    if self.has_manager && self.is_active(host) && !self.is_lost() {
                        let answer = self.answer(host, &packet.mad);
                        self.queue
                            .push((self.now + DELAY, Event::Answer(host, answer)));
                    }
                }
                Action::Neighbour { address, handle } => match handle {
                    Some(handle) => {
                        self.hosts[host].table.insert(address, handle);
                    }
                    None => assert!(self.hosts[host].table.remove(&address).is_some()),
                },
                Action::Link(link) => self.hosts[host].links.push(link),
                Action::Resolved { number, result } => {
                    self.hosts[host].resolved.push((number, result));
                }
            }
        }
    }

    /// Packets between hosts that have been sent do not arrive.
    pub(crate) fn lose_what_is_under_way(&mut self) {
        self.queue
            .retain(|(_, event)| !matches!(event, Event::Data(..)));
    }

    fn is_lost(&mut self) -> bool {
        self.sent += 1;
        self.loses > 0 && self.sent.is_multiple_of(self.loses)
    }

    fn transmit(&mut self, from: usize, to: AddressHandle, parcel: Parcel<Vec<u8>>) {
        if self.is_lost() || !self.is_active(from) {
            return;
        }
        let (kind, body) = match parcel {
            Parcel::OfHost(packet) if packet[0] >> 4 == 4 => (ether_type::IPV4, packet),
            Parcel::OfHost(packet) => (ether_type::IPV6, packet),
            Parcel::Own { ether_type, body } => (ether_type, body),
        };
        let members = to
            .global
            .and_then(|global| self.groups.get(&global.destination));
        for host in 0..self.hosts.len() {
            let is_reached = if to.qpn == MULTICAST_QP {
                host != from
                    && members.is_some_and(|group| {
                        group.record.mlid == to.lid && group.members.contains(&gid(host))
                    })
            } else {
                self.port(host).has_lid(to.lid)
            };
            if is_reached {
                let event = Event::Data(host, to, kind, body.clone());
                self.queue.push((self.now + DELAY, event));
            }
        }
    }

    /// The manager's answer.
    fn answer(&mut self, host: usize, request: &Mad) -> Mad {
        self.asked.push((request.method(), request.attribute()));
        let mut refused = request.clone();
        refused.set_method(request.method() & 0xfc | 0x81);
        refused.set_status(NO_RECORDS);
        if request.attribute() == record::PATH {
            return self.path(host, request).unwrap_or(refused);
        }
        let wanted = MemberRecord::of_answer(request);
        let creates = request.u64(48) & 4 != 0;
        match request.method() {
            1 => match self.groups.get(&wanted.mgid) {
                Some(group) => group.record.answer(request),
                None => refused,
            },
            2 if creates || self.groups.contains_key(&wanted.mgid) => {
                let mlid = 0xc000 + self.groups.len() as u16;
                let group = self.groups.entry(wanted.mgid).or_insert_with(|| Group {
                    record: MemberRecord { mlid, ..wanted },
                    members: BTreeSet::new(),
                });
                if wanted.join_state & 1 != 0 {
                    group.members.insert(wanted.port_gid);
                }
                let joined = MemberRecord {
                    port_gid: wanted.port_gid,
                    join_state: wanted.join_state,
                    ..group.record
                };
                joined.answer(request)
            }
            2 => refused,
            _ => {
                if let Some(group) = self.groups.get_mut(&wanted.mgid) {
                    group.members.remove(&wanted.port_gid);
                }
                wanted.answer(request)
            }
        }
    }

    fn path(&self, from: usize, request: &Mad) -> Option<Mad> {
        let wanted = PathRecord::of_answer(request);
        assert_eq!(wanted.source, gid(from));
        let to = (0..self.hosts.len()).find(|host| gid(*host) == wanted.destination)?;
        let path = PathRecord {
            destination_lid: self.port(to).lid,
            source_lid: self.port(from).lid,
            mtu: 4,
            rate: 7,
            ..wanted
        };
        self.is_active(to).then(|| path.answer(request))
    }

    /// Runs for some time.
    pub(crate) fn run(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            let queued = self.queue.iter().map(|(at, _)| *at);
            let own = self.hosts.iter().map(|host| host.interface.next_event());
            let next = queued.chain(own).min().unwrap_or(Time::NEVER);
            if next > until {
                break;
            }
            assert!(next >= self.now, "an event in the past");
            self.now = next;
            let (due, later) = std::mem::take(&mut self.queue)
                .into_iter()
                .partition(|(at, _)| *at <= next);
            self.queue = later;
            due.into_iter().for_each(|(_, event)| self.take(event));
            for host in 0..self.hosts.len() {
                self.hosts[host].interface.run(self.now);
                self.follow(host);
            }
        }
        self.now = until;
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Data(host, to, ether_type, body) if self.is_active(host) => {
                let datagram = Datagram {
                    to,
                    ether_type,
                    body: &body,
                };
                let verdict = self.hosts[host].interface.receive(self.now, &datagram);
                if verdict == Verdict::ForHost {
                    self.hosts[host].received.push(body);
                }
                self.follow(host);
            }
            Event::Answer(host, mad) if self.is_active(host) => {
                assert!(infiniband::ipoib::is_answer(&mad));
                self.hosts[host].interface.answered(self.now, &mad);
                self.follow(host);
            }
            _ => {}
        }
    }
}
