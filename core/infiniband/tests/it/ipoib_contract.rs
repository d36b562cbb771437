//! What holds for an interface of IP over InfiniBand whatever comes: packets of the host, datagrams, answers
//! of managers, states of the port. Tests with random input and the fuzzer share this.

use fabric::{Span, Time};
use infiniband::LinkSpeed;
use infiniband::ipoib::{
    Action, AddressHandle, Datagram, Interface, Link, MULTICAST_QP, OwnAddress, Parcel, Target,
    broadcast_gid, destination_of,
};
use infiniband::mad::Mad;
use infiniband::node::{Identity, Node, PortState};
use infiniband::sa::{MemberRecord, PathRecord, record};
use infiniband::subnet::GlobalRoute;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const QPN: u32 = 0x48;
/// The Q_Key of the group.
const Q_KEY: u32 = 0xb1b;
/// Steps of the interface at one time at most, before it waits for a later one.
const STEPS_MAX: usize = 16;

struct Subject {
    interface: Interface<Vec<u8>>,
    node: Node,
    now: Time,
    link: Option<Link>,
    published: BTreeSet<IpAddr>,
    asked: Vec<Mad>,
    waiting: BTreeSet<u64>,
    number: u64,
}

/// Takes steps from the bytes: one says what is done, and those behind it with what.
pub(crate) fn steps(bytes: &[u8]) {
    let mut subject = Subject::new();
    let mut rest = bytes;
    while let Some((kind, more)) = rest.split_first() {
        let length = more.len().min(match kind % 8 {
            0..=2 => 120,
            3 => 80,
            _ => 8,
        });
        let (step, after) = more.split_at(length);
        rest = after;
        match kind % 8 {
            0 => subject.send(step),
            1 => subject.receive(step, false),
            2 => subject.receive(step, true),
            3 => subject.answer(step, false),
            4 => subject.answer(step, true),
            5 => subject.change(step),
            6 => subject.resolve(step),
            _ => subject.wait(step),
        }
    }
    subject.wait(&[255; 8]);
    subject.wait(&[255; 8]);
    assert!(subject.waiting.is_empty(), "programs wait for ever");
}

fn byte(step: &[u8], at: usize) -> u8 {
    step.get(at).copied().unwrap_or(0)
}

impl Subject {
    fn new() -> Self {
        let identity = Identity {
            guid: 1,
            port_guid: 2,
            description: String::new(),
        };
        let own = [
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
        ];
        let own = own.map(|address| OwnAddress { address, prefix: 8 });
        let mut subject = Self {
            interface: Interface::new(QPN, own.to_vec()),
            node: Node::adapter(identity, LinkSpeed::parse("4x QDR").expect("a speed")),
            now: Time(0),
            link: None,
            published: BTreeSet::new(),
            asked: Vec::new(),
            waiting: BTreeSet::new(),
            number: 0,
        };
        subject.change(&[1, 1, 1]);
        subject.answer(&[], true);
        subject
    }

    /// The host sends an IP packet to an address that is near or any.
    fn send(&mut self, step: &[u8]) {
        let mut packet = step.to_vec();
        if let Some(first) = packet.first_mut() {
            *first = [0x45, 0x60, *first][usize::from(*first % 3)];
        }
        self.interface.send(self.now, packet);
        self.follow();
    }

    /// A datagram arrives, with the right keys or with any.
    fn receive(&mut self, step: &[u8], has_keys: bool) {
        let is_multicast = byte(step, 0) & 1 == 1;
        let global = GlobalRoute {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            source: [1; 16],
            destination: broadcast_gid(0xffff),
        };
        let to = AddressHandle {
            lid: 1,
            service_level: 0,
            p_key: if has_keys { 0xffff } else { 0x8001 },
            q_key: if has_keys { Q_KEY } else { 0 },
            qpn: if is_multicast { MULTICAST_QP } else { QPN },
            global: is_multicast.then_some(global),
        };
        let types = [0x0800, 0x0806, 0x86dd, 0];
        let datagram = Datagram {
            to,
            ether_type: types[usize::from(byte(step, 0) >> 1) % types.len()],
            body: step.get(1..).unwrap_or_default(),
        };
        let verdict = self.interface.receive(self.now, &datagram);
        let is_refused = verdict == infiniband::ipoib::Verdict::Refused;
        assert!(is_refused || has_keys, "{datagram:?}");
        self.follow();
    }

    /// A manager answers one of the last requests: as it should, or with any record.
    fn answer(&mut self, step: &[u8], is_right: bool) {
        let place = usize::from(byte(step, 0)) % self.asked.len().max(1);
        let Some(request) = self.asked.get(place).cloned() else {
            return;
        };
        let mut answer = match request.attribute() {
            record::PATH => PathRecord {
                destination_lid: 7,
                ..PathRecord::of_answer(&request)
            }
            .answer(&request),
            _ => MemberRecord {
                q_key: Q_KEY,
                mlid: 0xc000,
                mtu: 4,
                ..MemberRecord::of_answer(&request)
            }
            .answer(&request),
        };
        if !is_right {
            let data = step.get(2..).unwrap_or_default();
            answer.bytes_mut()[56..56 + data.len()].copy_from_slice(data);
            answer.set_status(u16::from(byte(step, 1) & 1) << 8);
        }
        self.interface.answered(self.now, &answer);
        self.follow();
    }

    fn change(&mut self, step: &[u8]) {
        let states = [PortState::Down, PortState::Active, PortState::Initialize];
        let port = &mut self.node.ports[1];
        port.state = states[usize::from(byte(step, 0)) % states.len()];
        (port.lid, port.sm_lid) = (u16::from(byte(step, 1)), u16::from(byte(step, 2)));
        if byte(step, 3) & 1 == 1 {
            port.partitions.0[0] = 0x7fff;
        }
        self.interface.set_port(self.now, port);
        if byte(step, 3) & 2 == 2 {
            self.interface.join_groups(self.now);
        }
        self.follow();
    }

    fn resolve(&mut self, step: &[u8]) {
        let target = match byte(step, 0) % 3 {
            0 => Target::Gid([byte(step, 1); 16]),
            1 => Target::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, byte(step, 1)))),
            _ => Target::Ip(IpAddr::V6(Ipv6Addr::from_bits(u128::from(byte(step, 1))))),
        };
        self.number += 1;
        self.waiting.insert(self.number);
        let ends_at = self.now + Span::from_us(u64::from(byte(step, 2)) * 10_000);
        self.interface
            .resolve(self.now, self.number, target, ends_at);
        self.follow();
    }

    fn wait(&mut self, step: &[u8]) {
        let until = self.now + Span::from_us(u64::from(byte(step, 0)) * 100_000);
        loop {
            let next = self.interface.next_event();
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            self.interface.run(self.now);
            self.follow();
        }
        self.now = until;
        self.interface.run(until);
        self.follow();
    }

    /// Actions follow from the state, and what is due is done.
    fn follow(&mut self) {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the interface does not come to an end");
            for action in self.interface.take_actions() {
                self.check(action);
            }
            if self.interface.next_event() > self.now {
                break;
            }
            self.interface.run(self.now);
        }
        assert_eq!(self.link, self.interface.link());
        let surplus = self.asked.len().saturating_sub(16);
        self.asked.drain(..surplus);
    }

    fn check(&mut self, action: Action<Vec<u8>>) {
        let port = &self.node.ports[1];
        match action {
            Action::Send { to, parcel } => {
                assert!(self.link.is_some(), "without a link");
                let is_group = to.lid >= 0xc000;
                assert!(to.lid != 0 && is_group == (to.qpn == MULTICAST_QP));
                if let Parcel::OfHost(packet) = parcel {
                    assert!(destination_of(&packet).is_some());
                }
            }
            Action::Ask(packet) => {
                assert_eq!(port.state, PortState::Active);
                assert_eq!(
                    (packet.source_lid, packet.destination_lid),
                    (port.lid, port.sm_lid)
                );
                self.asked.push(packet.mad);
            }
            Action::Neighbour { address, handle } => match handle {
                Some(_) => {
                    assert!(self.link.is_some());
                    assert!(self.published.insert(address), "{address} twice");
                }
                None => assert!(self.published.remove(&address), "{address} was not there"),
            },
            Action::Link(link) => {
                assert_ne!(link, self.link);
                assert!(link.is_some() || self.published.is_empty());
                self.link = link;
            }
            Action::Resolved { number, .. } => assert!(self.waiting.remove(&number)),
        }
    }
}
