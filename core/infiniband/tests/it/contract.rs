//! What holds whatever comes: datagrams, records and calls of programs, and cables. Tests with random input
//! and the fuzzer share this.

use fabric::{Span, Time};
use infiniband::LinkSpeed;
use infiniband::agents::{Agents, FileId};
use infiniband::mad::Mad;
use infiniband::node::{Identity, Node, PortState};
use infiniband::subnet::{Cable, End, Output, Packet, Subnet};

const HOST: End = End { node: 0, port: 1 };
const SWITCH: usize = 1;
const CALLS: [u32; 5] = [0xc01c_1b01, 0x4004_1b02, 0x1b03, 0xc028_1b04, 0x1b05];

struct Subject {
    subnet: Subnet,
    agents: Agents,
    file: FileId,
    now: Time,
}

/// Takes steps from the bytes: one says what is done, and those behind it with what. Then checks the subnet.
pub(crate) fn steps(bytes: &[u8]) {
    let mut subject = Subject::new();
    let mut rest = bytes;
    while let Some((kind, more)) = rest.split_first() {
        rest = match kind % 6 {
            0 => subject.send(more, false),
            1 => subject.send(more, true),
            2 => subject.write(more),
            3 => subject.call(more),
            4 => subject.plug(more),
            _ => subject.wait(more),
        };
    }
    subject.run(Span::from_us(100_000));
    subject.check();
}

impl Subject {
    /// A host and a switch, whose link is trained, and a program with an agent of subnet administration.
    fn new() -> Self {
        let identity = |guid: u64| Identity {
            guid,
            port_guid: guid + 1,
            description: "any".to_owned(),
        };
        let speed = LinkSpeed::parse("4x EDR").expect("a speed");
        let mut nodes = vec![
            Node::adapter(identity(16), speed),
            Node::switch(identity(32), &[speed; 3]),
        ];
        (nodes[0].ports[1].lid, nodes[0].ports[1].sm_lid) = (1, 1);
        (nodes[SWITCH].ports[0].lid, nodes[SWITCH].ports[0].sm_lid) = (2, 1);
        let ends = [
            HOST,
            End {
                node: SWITCH,
                port: 1,
            },
        ];
        let delay = Span::from_ns(10);
        let mut agents = Agents::default();
        let file = agents.open();
        let mut argument = [0; 28];
        argument[4..20].fill(0xff);
        argument[20..23].copy_from_slice(&[1, 3, 2]);
        argument[26] = 1;
        agents
            .call(file, CALLS[0], &mut argument)
            .expect("an agent");
        Self {
            subnet: Subnet::new(nodes, &[Cable { ends, delay }]),
            agents,
            file,
            now: Time(0),
        }
    }

    fn send<'a>(&mut self, bytes: &'a [u8], is_data: bool) -> &'a [u8] {
        let (datagram, rest) = bytes.split_at(bytes.len().min(256));
        let mad = Mad::of_bytes(datagram);
        let qp = u32::from(is_data);
        let lid = if datagram.len() % 2 == 0 { 0xffff } else { 2 };
        let packet = Packet {
            source_qp: qp,
            destination_qp: qp,
            q_key: 0x8001_0000,
            ..Packet::between(1, lid, mad)
        };
        self.subnet.send(self.now, HOST, packet);
        self.run(Span::from_us(50));
        rest
    }

    fn write<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (record, rest) = bytes.split_at(bytes.len().min(600));
        let port = &self.subnet.node(HOST.node).ports[1];
        let _ = self.agents.write(self.now, self.file, record, port);
        self.run(Span::from_us(50));
        rest
    }

    fn call<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (argument, rest) = bytes.split_at(bytes.len().min(41));
        let Some((command, argument)) = argument.split_first() else {
            return rest;
        };
        let command = CALLS[usize::from(*command) % CALLS.len()];
        let _ = self.agents.call(self.file, command, &mut argument.to_vec());
        rest
    }

    fn plug<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some((plugs, rest)) = bytes.split_first() else {
            return bytes;
        };
        self.subnet.set_cable(self.now, 0, plugs % 2 == 0);
        rest
    }

    fn wait<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some((long, rest)) = bytes.split_first() else {
            return bytes;
        };
        self.run(Span::from_us(u64::from(*long) * 1_000));
        rest
    }

    fn run(&mut self, span: Span) {
        self.now += span;
        for packet in self.agents.take_packets() {
            self.subnet.send(self.now, HOST, packet);
        }
        self.subnet.run(self.now);
        for output in self.subnet.take_outputs() {
            if let Output::Received { packet, .. } = output {
                let port = &self.subnet.node(HOST.node).ports[1];
                self.agents.receive(self.now, packet, port);
            }
        }
        self.agents.run(self.now);
        while self.agents.first_record(self.file).is_some() {
            self.agents.drop_record(self.file);
        }
    }

    /// Values that agents have taken are those of the specification.
    fn check(&self) {
        for node in [0, SWITCH] {
            for port in &self.subnet.node(node).ports {
                assert!(port.lid < 0xc000 && port.sm_lid < 0xc000);
                assert!(port.lmc < 8 && port.sm_sl < 16);
                assert!((1..=port.mtu_cap).contains(&port.neighbor_mtu));
                assert!((1..=port.vl_cap).contains(&port.operational_vls));
                assert_eq!(port.enabled.width & !port.supported_widths(), 0);
                assert_eq!(port.enabled.extended & !port.supported_extended(), 0);
            }
        }
        let ends = [(0, 1), (SWITCH, 1)];
        let down =
            ends.map(|(node, port)| self.subnet.node(node).ports[port].state == PortState::Down);
        assert_eq!(down[0], down[1], "a link is down at both ends");
    }
}
