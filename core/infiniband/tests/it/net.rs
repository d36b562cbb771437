//! A subnet of two hosts at a switch, and a manager that asks one question at a time.

use fabric::{Span, Time};
use infiniband::LinkSpeed;
use infiniband::mad::{Mad, class, method};
use infiniband::node::{Identity, Node};
use infiniband::subnet::{Cable, End, Output, Packet, Subnet};

pub(crate) const ALICE: End = End { node: 0, port: 1 };
pub(crate) const BOB: End = End { node: 1, port: 1 };
pub(crate) const SWITCH: usize = 2;

pub(crate) struct Net {
    pub(crate) subnet: Subnet,
    pub(crate) now: Time,
    transaction: u64,
}

fn identity(guid: u64, description: &str) -> Identity {
    Identity {
        guid,
        port_guid: guid + 1,
        description: description.to_owned(),
    }
}

impl Net {
    /// Alice at port 1 and Bob at port 3 of a switch.
    pub(crate) fn new() -> Self {
        let speed = LinkSpeed::parse("4x QDR").unwrap();
        let switch = Identity {
            port_guid: 0x30,
            ..identity(0x30, "s0")
        };
        let nodes = vec![
            Node::adapter(identity(0x10, "alice"), speed),
            Node::adapter(identity(0x20, "bob"), speed),
            Node::switch(switch, &[speed; 4]),
        ];
        let cable = |end: End, port: u8| Cable {
            ends: [end, End { node: SWITCH, port }],
            delay: Span::from_ns(10),
        };
        Self {
            subnet: Subnet::new(nodes, &[cable(ALICE, 1), cable(BOB, 3)]),
            now: Time(0),
            transaction: 0,
        }
    }

    /// Runs for some time, and returns what came out.
    pub(crate) fn run(&mut self, span: Span) -> Vec<Output> {
        self.now += span;
        self.subnet.run(self.now);
        self.subnet.take_outputs()
    }

    /// A packet of Alice's manager.
    pub(crate) fn packet(&mut self, mut mad: Mad, lid: u16) -> Packet {
        self.transaction += 1;
        mad.set_transaction(self.transaction);
        let source = if lid == 0xffff {
            0xffff
        } else {
            self.lid(ALICE)
        };
        Packet::between(source, lid, mad)
    }

    fn lid(&self, end: End) -> u16 {
        self.subnet.node(end.node).ports[usize::from(end.port)].lid
    }

    /// Sends a packet, and returns the answer.
    pub(crate) fn ask(&mut self, packet: Packet) -> Option<Mad> {
        let transaction = packet.mad.transaction();
        self.subnet.send(self.now, ALICE, packet);
        self.run(Span::from_us(1_000))
            .into_iter()
            .find_map(|output| match output {
                Output::Received { at, packet }
                    if at == ALICE && packet.mad.transaction() == transaction =>
                {
                    Some(packet.mad)
                }
                _ => None,
            })
    }

    /// Asks a node along a directed route.
    pub(crate) fn directed(
        &mut self,
        path: &[u8],
        method: u8,
        attribute: u16,
        modifier: u32,
        data: &[u8],
    ) -> Option<Mad> {
        let mut mad = Mad::new(class::SUBNET_DIRECTED, 1, method, attribute, modifier);
        mad.put_u32(32, u32::MAX);
        mad.bytes_mut()[7] = path.len() as u8;
        mad.bytes_mut()[129..129 + path.len()].copy_from_slice(path);
        mad.data_mut()[..data.len()].copy_from_slice(data);
        let packet = self.packet(mad, 0xffff);
        self.ask(packet)
    }

    pub(crate) fn get(&mut self, path: &[u8], attribute: u16, modifier: u32) -> Option<Mad> {
        self.directed(path, method::GET, attribute, modifier, &[])
    }

    /// Reads an attribute, changes bytes, and writes it.
    pub(crate) fn change(
        &mut self,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<Mad> {
        let mut data = self.get(path, attribute, modifier)?.data().to_vec();
        change(&mut data);
        self.directed(path, method::SET, attribute, modifier, &data)
    }

    /// Gives a port its LID and that of the manager.
    pub(crate) fn assign(&mut self, path: &[u8], lid: u16, manager: u16) {
        let reply = self.change(path, 0x15, 0, |data| {
            data[16..18].copy_from_slice(&lid.to_be_bytes());
            data[18..20].copy_from_slice(&manager.to_be_bytes());
            (data[32], data[33]) = (data[32] & 0xf0, 2);
        });
        assert_eq!(reply.unwrap().status(), 0);
    }

    /// LIDs 1 Alice, 2 Bob, 3 the switch, the table of the switch, and all links active.
    pub(crate) fn configure(&mut self) {
        self.assign(&[1], 3, 1);
        self.assign(&[], 1, 1);
        self.assign(&[1, 3], 2, 1);
        let mut table = [0xff; 64];
        table[1..4].copy_from_slice(&[1, 3, 0]);
        self.directed(&[1], method::SET, 0x19, 0, &table).unwrap();
        self.change(&[1], 0x12, 0, |data| {
            data[6..8].copy_from_slice(&3_u16.to_be_bytes())
        });
        for state in [3, 4] {
            for (path, port) in [(&[][..], 1), (&[1][..], 1), (&[1][..], 3), (&[1, 3][..], 1)] {
                self.set_state(path, port, state);
            }
        }
    }

    pub(crate) fn set_state(&mut self, path: &[u8], port: u32, state: u8) -> u16 {
        let reply = self.change(path, 0x15, port, |data| {
            (data[32], data[33]) = (data[32] & 0xf0 | state, 0);
        });
        reply.map_or(u16::MAX, |reply| reply.status())
    }
}
