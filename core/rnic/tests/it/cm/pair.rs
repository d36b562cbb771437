//! Two hosts and a network that the test controls.

use rnic::cm::{
    Accept, Cm, CmConfig, CmEvent, Connect, Datagram, Ece, Listen, ListenAddress, ListenerId,
    LocalAddress, Reject, Resolve,
};
use rnic::{Arrival, Gid, Instant, Mtu, Nanos, Path};
use std::collections::VecDeque;
use std::net::IpAddr;
use wire::cm::{CmMad, CmMessage, CmaHeader, CommId, PortSpace, RejectReason, ServiceId};
use wire::{PartitionKey, Psn, Qpn, Service};

pub(crate) const ALICE: Gid = Gid::from_ipv4([10, 0, 0, 1]);
pub(crate) const BOB: Gid = Gid::from_ipv4([10, 0, 0, 2]);
pub(crate) const MALLORY: Gid = Gid::from_ipv4([10, 0, 0, 66]);
/// The service at which Bob listens.
pub(crate) const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7);
pub(crate) const DATAGRAMS: ServiceId = ServiceId::ip(PortSpace::Udp, 7);
pub(crate) const SOURCE_PORT: u16 = 40_000;

/// A host: its connection manager, and the sent datagrams that the network has not taken yet.
pub(crate) struct Host {
    pub(crate) cm: Cm,
    pub(crate) sent: VecDeque<Datagram>,
    pub(crate) events: VecDeque<CmEvent>,
}

impl Host {
    pub(crate) fn new(gid: Gid, config: CmConfig, seed: u8) -> Self {
        let mut cm = Cm::new(config, [seed; 32]);
        let address = LocalAddress {
            gid,
            ca_guid: u64::from(seed),
            mtu: Mtu::B1024,
            ack_delay: 15,
        };
        cm.set_address(address);
        Self {
            cm,
            sent: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes the outputs, as a driver does after each input.
    pub(crate) fn drain(&mut self) {
        self.drain_datagrams();
        self.events
            .extend(std::iter::from_fn(|| self.cm.poll_event()));
        self.cm.check_invariants().unwrap();
    }

    /// Takes the datagrams only, and does not examine the connections.
    pub(crate) fn drain_datagrams(&mut self) {
        self.sent
            .extend(std::iter::from_fn(|| self.cm.poll_transmit()));
    }

    pub(crate) fn event(&mut self) -> CmEvent {
        self.events.pop_front().expect("an event")
    }

    /// Takes the first sent message that was not examined yet; it is not delivered.
    pub(crate) fn said(&mut self) -> CmMessage {
        let datagram = self.sent.pop_front().expect("a datagram");
        CmMad::parse(&datagram.mad).unwrap().message
    }

    pub(crate) fn receive(&mut self, datagram: &Datagram, now: Instant) {
        self.handle(datagram, now);
        self.drain();
    }

    /// Handles a datagram, and leaves the outputs where they are.
    pub(crate) fn handle(&mut self, datagram: &Datagram, now: Instant) {
        let arrival = Arrival {
            source: datagram.path.source,
            destination: datagram.path.destination,
            traffic_class: datagram.path.traffic_class,
            hop_limit: datagram.path.hop_limit,
            service_level: 0,
        };
        self.cm.handle_datagram(&arrival, &datagram.mad, now);
    }
}

/// Two hosts with a connection manager each, and their common clock.
pub(crate) struct Pair {
    pub(crate) alice: Host,
    pub(crate) bob: Host,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(CmConfig::default())
    }

    pub(crate) fn with(config: CmConfig) -> Self {
        let (alice, bob) = (Host::new(ALICE, config, 1), Host::new(BOB, config, 2));
        Self {
            alice,
            bob,
            now: Instant(1_000),
        }
    }

    /// Bob listens at any address, for connections and for datagrams.
    pub(crate) fn listen(&mut self, backlog: u32) -> [ListenerId; 2] {
        let address = ListenAddress::Any;
        [SERVICE, DATAGRAMS].map(|service| {
            self.bob
                .cm
                .listen(Listen {
                    service,
                    address,
                    backlog,
                })
                .unwrap()
        })
    }

    /// Alice asks for a connection.
    pub(crate) fn connect(&mut self) -> CommId {
        let id = self
            .alice
            .cm
            .connect(&connect(ALICE, BOB, SERVICE, 0x11), self.now)
            .unwrap();
        self.alice.drain();
        id
    }

    /// Carries all datagrams until there are none.
    pub(crate) fn carry(&mut self) {
        while self.alice.sent.len() + self.bob.sent.len() > 0 {
            while let Some(datagram) = self.alice.sent.pop_front() {
                self.bob.receive(&datagram, self.now);
            }
            while let Some(datagram) = self.bob.sent.pop_front() {
                self.alice.receive(&datagram, self.now);
            }
        }
    }

    /// Bob takes a request; returns its communication ID.
    pub(crate) fn request(&mut self) -> CommId {
        let CmEvent::Request { id, .. } = self.bob.event() else {
            panic!("a request")
        };
        self.bob.cm.take(id).unwrap();
        id
    }

    pub(crate) fn accept(&mut self, id: CommId) {
        self.bob.cm.accept(id, &accept(0x22), self.now).unwrap();
        self.bob.drain();
    }

    /// Alice takes a reply.
    pub(crate) fn reply(&mut self, id: CommId) {
        let CmEvent::Reply { id: replied, .. } = self.alice.event() else {
            panic!("a reply")
        };
        assert_eq!(replied, id);
    }

    pub(crate) fn ready(&mut self, id: CommId) {
        self.alice.cm.ready(id, [7; 224], self.now).unwrap();
        self.alice.drain();
    }

    /// Establishes a connection; returns Alice's and Bob's communication ID for it.
    pub(crate) fn connection(&mut self) -> (CommId, CommId) {
        let alice = self.connect();
        self.carry();
        let bob = self.request();
        self.accept(bob);
        self.carry();
        self.reply(alice);
        self.ready(alice);
        self.carry();
        assert!(
            matches!(self.bob.event(), CmEvent::Established { id, private_data: Some(_) } if id == bob)
        );
        (alice, bob)
    }

    /// Advances the time to the next timer of either host, and handles it.
    pub(crate) fn wait(&mut self) -> bool {
        let next = [self.alice.cm.next_timeout(), self.bob.cm.next_timeout()];
        let Some(next) = next.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.alice.cm.handle_timeout(self.now);
        self.bob.cm.handle_timeout(self.now);
        self.alice.drain();
        self.bob.drain();
        true
    }

    /// Lets time pass until `done`.
    pub(crate) fn wait_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..1_000 {
            if done(self) {
                return;
            }
            assert!(self.wait(), "no timer runs");
        }
        panic!("it never came to that");
    }

    /// Asserts that no connection and no timer is left.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(
            (self.alice.cm.connections(), self.bob.cm.connections()),
            (0, 0)
        );
        assert_eq!(
            (self.alice.cm.next_timeout(), self.bob.cm.next_timeout()),
            (None, None)
        );
    }
}

pub(crate) fn ip(gid: Gid) -> IpAddr {
    gid.ipv4().map_or_else(|| IpAddr::from(gid.0), IpAddr::from)
}

pub(crate) fn path(source: Gid, destination: Gid) -> Path {
    Path {
        source,
        destination,
        source_port: 0xc000,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        flow_label: 0,
        channel: 0,
    }
}

/// The private data of a request: the addresses, and then `data`.
pub(crate) fn private_data<const N: usize>(source: Gid, destination: Gid, data: &[u8]) -> [u8; N] {
    let header = CmaHeader::new(ip(source), SOURCE_PORT, ip(destination)).unwrap();
    let mut bytes = [0; N];
    bytes[..36].copy_from_slice(&header.to_bytes());
    bytes[36..36 + data.len()].copy_from_slice(data);
    bytes
}

pub(crate) fn connect(source: Gid, destination: Gid, service: ServiceId, qpn: u32) -> Connect {
    Connect {
        path: path(source, destination),
        service,
        transport: Service::Rc,
        qpn: Qpn::new(qpn),
        psn: Psn::new(0x10_0000 + qpn),
        mtu: Mtu::B1024,
        partition_key: PartitionKey::DEFAULT,
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 7,
        rnr_retry_count: 6,
        flow_control: true,
        srq: false,
        packet_lifetime: 16,
        ece: Ece {
            vendor_id: 0x12_3456,
            options: 0x789a,
        },
        private_data: private_data(source, destination, b"hello"),
    }
}

pub(crate) fn accept(qpn: u32) -> Accept {
    let mut private_data = [0; 196];
    private_data[..7].copy_from_slice(b"welcome");
    Accept {
        qpn: Qpn::new(qpn),
        psn: Psn::new(0x20_0000 + qpn),
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry_count: 7,
        flow_control: true,
        srq: true,
        ece: Ece {
            vendor_id: 0x65_4321,
            options: 0xa987,
        },
        private_data,
    }
}

pub(crate) fn reject() -> Reject {
    let mut private_data = [0; 148];
    private_data[..2].copy_from_slice(b"no");
    Reject {
        reason: RejectReason::CONSUMER,
        private_data,
    }
}

pub(crate) fn resolve(source: Gid, destination: Gid) -> Resolve {
    Resolve {
        path: path(source, destination),
        service: DATAGRAMS,
        partition_key: PartitionKey::DEFAULT,
        private_data: private_data(source, destination, b"who"),
    }
}

/// Duration of a time code in messages.
pub(crate) fn duration(code: u8) -> Nanos {
    Nanos(4_096 << code)
}
