//! Programs on hosts: what they register, write and read.

use crate::net::{ALICE, BOB, Net};
use fabric::{Span, Time};
use infiniband::agents::{Agents, Errno, FileId, HEADER_BYTES, Header};
use infiniband::mad::{Mad, class, method};
use infiniband::subnet::{End, Output};

const REGISTER: u32 = 0xc01c_1b01;
const UNREGISTER: u32 = 0x4004_1b02;
const ENABLE_P_KEY: u32 = 0x1b03;
const REGISTER_2: u32 = 0xc028_1b04;
/// The class of ibping, with its OUI.
const PING: (u8, [u8; 3]) = (0x32, [0, 0x14, 0x05]);
const LID_OF_BOB: u16 = 2;

/// Two hosts with programs, on a configured subnet.
struct Hosts {
    net: Net,
    agents: [Agents; 2],
}

fn registration(class: u8, version: u8, oui: [u8; 3], methods: &[u8], rmpp: u8) -> [u8; 28] {
    let mut argument = [0; 28];
    let bits = methods
        .iter()
        .fold(0_u128, |bits, method| bits | 1 << method);
    argument[4..20].copy_from_slice(&bits.to_ne_bytes());
    argument[20] = u8::from(!matches!(class, 0x01 | 0x81));
    (argument[21], argument[22]) = (class, version);
    argument[23..26].copy_from_slice(&oui);
    argument[26] = rmpp;
    argument
}

impl Hosts {
    fn new() -> Self {
        let mut net = Net::new();
        net.configure();
        Self {
            net,
            agents: Default::default(),
        }
    }

    fn file(&mut self, host: usize) -> FileId {
        let file = self.agents[host].open();
        self.agents[host].call(file, ENABLE_P_KEY, &mut []).unwrap();
        file
    }

    fn register(
        &mut self,
        host: usize,
        file: FileId,
        mut argument: [u8; 28],
    ) -> Result<u32, Errno> {
        self.agents[host].call(file, REGISTER, &mut argument)?;
        Ok(u32::from_ne_bytes([
            argument[0],
            argument[1],
            argument[2],
            argument[3],
        ]))
    }

    fn write(
        &mut self,
        host: usize,
        file: FileId,
        header: Header,
        datagram: &[u8],
    ) -> Result<(), Errno> {
        let end = [ALICE, BOB][host];
        let port = &self.net.subnet.node(end.node).ports[1];
        let record = [&header.bytes(true), datagram].concat();
        self.agents[host].write(self.net.now, file, &record, port)
    }

    /// Runs for some time in steps; `loses` says which packets of programs are lost.
    fn run_losing(&mut self, span: Span, mut loses: impl FnMut(&Mad) -> bool) {
        let ends = [ALICE, BOB];
        let until = self.net.now + span;
        while self.net.now < until {
            for (agents, end) in self.agents.iter_mut().zip(ends) {
                for packet in agents.take_packets() {
                    if !loses(&packet.mad) {
                        self.net.subnet.send(self.net.now, end, packet);
                    }
                }
            }
            for output in self.net.run(Span::from_us(100)) {
                let Output::Received {
                    at: End { node, .. },
                    packet,
                } = output
                else {
                    continue;
                };
                let port = self.net.subnet.node(node).ports[1].clone();
                self.agents[node].receive(self.net.now, packet, &port);
            }
            self.agents
                .iter_mut()
                .for_each(|agents| agents.run(self.net.now));
        }
    }

    fn run(&mut self, milliseconds: u64) {
        self.run_losing(Span::from_us(1_000 * milliseconds), |_| false);
    }

    fn read(&mut self, host: usize, file: FileId) -> Option<(Header, Vec<u8>)> {
        let record = self.agents[host].first_record(file)?.to_vec();
        self.agents[host].drop_record(file);
        let (header, datagram) = Header::parse(&record, true).unwrap();
        Some((header, datagram.to_vec()))
    }
}

fn to_bob(agent: u32, timeout_ms: u32, retries: u32) -> Header {
    Header {
        agent,
        timeout_ms,
        retries,
        qp: 1,
        q_key: 0x8001_0000,
        lid: LID_OF_BOB,
        ..Header::default()
    }
}

fn ping(transaction: u64) -> Mad {
    let mut mad = Mad::new(PING.0, 1, method::GET, 0, 0);
    mad.set_transaction(transaction);
    mad.bytes_mut()[37..40].copy_from_slice(&PING.1);
    mad
}

#[test]
fn a_request_reaches_the_agent_of_its_class_and_its_answer_comes_back() {
    let mut hosts = Hosts::new();
    let (client, server) = (hosts.file(0), hosts.file(1));
    let own = hosts
        .register(0, client, registration(PING.0, 1, PING.1, &[], 0))
        .unwrap();
    let served = hosts
        .register(1, server, registration(PING.0, 1, PING.1, &[1], 0))
        .unwrap();
    hosts
        .write(
            0,
            client,
            to_bob(own, 1_000, 0),
            ping(0xaaaa_bbbb_0000_0007).bytes(),
        )
        .unwrap();
    hosts.run(1);
    let (header, request) = hosts.read(1, server).unwrap();
    assert_eq!(
        (header.agent, header.status, header.lid, header.qp),
        (served, 0, 1, 1)
    );
    assert_eq!(header.length as usize, HEADER_BYTES + 256);
    let mut answer = Mad::of_bytes(&request);
    assert_eq!(answer.transaction() as u32, 7);
    assert_ne!(
        answer.transaction() >> 32,
        0xaaaa_bbbb,
        "the upper half is the agent's"
    );
    answer.set_method(method::GET_RESPONSE);
    let back = Header {
        agent: served,
        timeout_ms: 0,
        ..header
    };
    hosts.write(1, server, back, answer.bytes()).unwrap();
    hosts.run(1);
    let (header, reply) = hosts.read(0, client).unwrap();
    assert_eq!(
        (header.agent, header.status, header.lid),
        (own, 0, LID_OF_BOB)
    );
    assert_eq!(Mad::of_bytes(&reply).transaction() as u32, 7);
    // An answer that nothing waits for is dropped.
    hosts.write(1, server, back, answer.bytes()).unwrap();
    hosts.run(1);
    assert_eq!(hosts.read(0, client), None);
}

#[test]
fn what_nothing_handles_is_answered_and_what_has_no_answer_ends() {
    let mut hosts = Hosts::new();
    let client = hosts.file(0);
    let own = hosts
        .register(0, client, registration(PING.0, 1, PING.1, &[], 0))
        .unwrap();
    hosts
        .write(0, client, to_bob(own, 1_000, 0), ping(1).bytes())
        .unwrap();
    hosts.run(1);
    let (_, reply) = hosts.read(0, client).unwrap();
    assert_eq!(Mad::of_bytes(&reply).status(), 0x0c);
    let nowhere = Header {
        lid: 99,
        ..to_bob(own, 10, 2)
    };
    hosts.write(0, client, nowhere, ping(2).bytes()).unwrap();
    assert_eq!(
        hosts.write(0, client, nowhere, ping(2).bytes()),
        Err(Errno::INVALID),
        "it waits already"
    );
    hosts.run(25);
    assert_eq!(hosts.read(0, client), None, "it is repeated twice");
    hosts.run(10);
    let (header, datagram) = hosts.read(0, client).unwrap();
    assert_eq!((header.status, datagram.len()), (110, 24));
    hosts.write(0, client, nowhere, ping(2).bytes()).unwrap();
}

#[test]
fn registrations_are_refused_as_linux_refuses_them() {
    let mut hosts = Hosts::new();
    let (file, other) = (hosts.file(0), hosts.file(0));
    let mut register = |file: FileId, argument: [u8; 28]| {
        hosts.register(0, file, argument).map_err(|errno| errno.0)
    };
    let none = [0; 3];
    assert_eq!(
        register(file, registration(0x81, 1, none, &[1, 2], 0)),
        Ok(0)
    );
    let set = registration(0x81, 1, none, &[2], 0);
    assert_eq!(register(other, set), Err(22), "Set is taken");
    assert_eq!(register(other, registration(0x81, 1, none, &[5], 0)), Ok(0));
    let without_oui = registration(0x32, 1, none, &[1], 0);
    assert_eq!(
        register(file, without_oui),
        Err(22),
        "a vendor's class has an OUI"
    );
    let with_rmpp = registration(0x04, 1, none, &[], 1);
    assert_eq!(register(file, with_rmpp), Err(22), "no RMPP in this class");
    assert_eq!(register(file, registration(0x60, 1, none, &[], 0)), Err(22));
    assert_eq!(
        register(file, registration(0x03, 0x83, none, &[], 0)),
        Err(22)
    );
    assert_eq!(register(file, registration(0x03, 2, none, &[], 2)), Err(22));
    let mut wrong_qp = registration(0x03, 2, none, &[], 0);
    wrong_qp[20] = 0;
    assert_eq!(register(file, wrong_qp), Err(22));
}

/// A call on a file of Alice, with its errno.
fn call(hosts: &mut Hosts, file: FileId, command: u32, argument: &mut [u8]) -> i32 {
    hosts.agents[0]
        .call(file, command, argument)
        .err()
        .map_or(0, |errno| errno.0)
}

#[test]
fn calls_are_refused_as_linux_refuses_them() {
    let mut hosts = Hosts::new();
    let file = hosts.file(0);
    let only_responses = registration(0, 0, [0; 3], &[], 0);
    hosts.register(0, file, only_responses).unwrap();
    assert_eq!(
        call(&mut hosts, file, ENABLE_P_KEY, &mut []),
        22,
        "an agent is registered"
    );
    assert_eq!(
        call(&mut hosts, file, UNREGISTER, &mut 7_u32.to_ne_bytes()),
        22
    );
    assert_eq!(
        call(&mut hosts, file, UNREGISTER, &mut 0_u32.to_ne_bytes()),
        0
    );
    assert_eq!(call(&mut hosts, file, 0x1b09, &mut []), 25);
    assert_eq!(call(&mut hosts, file, REGISTER, &mut [0; 7]), 22);
    let mut second = [0; 40];
    (second[4], second[8], second[9], second[12]) = (1, 3, 2, 2);
    assert_eq!(
        call(&mut hosts, file, REGISTER_2, &mut second),
        22,
        "unknown flags"
    );
    assert_eq!(second[12], 1, "the known ones are written back");
    assert_eq!(call(&mut hosts, file, REGISTER_2, &mut second), 0);
    for _ in 1..32 {
        assert_eq!(
            call(&mut hosts, file, REGISTER, &mut only_responses.clone()),
            0
        );
    }
    assert_eq!(
        call(&mut hosts, file, REGISTER, &mut only_responses.clone()),
        12
    );
}

#[test]
fn records_without_an_agent_or_a_datagram_are_refused() {
    let mut hosts = Hosts::new();
    let file = hosts.file(0);
    assert_eq!(
        hosts.write(0, file, Header::default(), &[0; 35]),
        Err(Errno::INVALID)
    );
    let absent = Header {
        agent: 9,
        ..Header::default()
    };
    assert_eq!(hosts.write(0, file, absent, &[0; 256]), Err(Errno::INVALID));
}

/// The administrator's answer to a request for a table: a message of several datagrams.
fn table(request: &[u8], bytes: usize) -> Vec<u8> {
    let mut message = request[..56].to_vec();
    message[3] = 0x92;
    // OpenSM sets the flag alone.
    message[26] = 1;
    message.extend((0..bytes).map(|at| (at / 3) as u8));
    message
}

#[test]
fn a_table_comes_in_one_piece_though_packets_are_lost() {
    for bytes in [0, 200, 201, 30_000] {
        let mut hosts = Hosts::new();
        let (client, server) = (hosts.file(0), hosts.file(1));
        let own = hosts
            .register(0, client, registration(3, 2, [0; 3], &[], 1))
            .unwrap();
        let served = hosts
            .register(1, server, registration(3, 2, [0; 3], &[0x12], 1))
            .unwrap();
        let mut request = Mad::new(class::SUBNET_ADMINISTRATION, 2, 0x12, 0x11, 0);
        request.set_transaction(5);
        hosts
            .write(0, client, to_bob(own, 5_000, 0), request.bytes())
            .unwrap();
        hosts.run(1);
        let (header, request) = hosts.read(1, server).unwrap();
        let message = table(&request, bytes);
        hosts
            .write(
                1,
                server,
                Header {
                    agent: served,
                    ..header
                },
                &message,
            )
            .unwrap();
        let mut count = 0;
        hosts.run_losing(Span::from_us(30_000_000), |_| {
            count += 1;
            count % 37 == 5
        });
        let (header, reply) = hosts
            .read(0, client)
            .unwrap_or_else(|| panic!("{bytes} bytes"));
        assert_eq!((header.agent, header.status), (own, 0));
        assert_eq!(header.length as usize, HEADER_BYTES + reply.len());
        assert_eq!(reply[56..], message[56..], "{bytes} bytes");
    }
}

#[test]
fn a_message_that_nothing_acknowledges_ends() {
    let mut hosts = Hosts::new();
    let server = hosts.file(1);
    let served = hosts
        .register(1, server, registration(3, 2, [0; 3], &[0x12], 1))
        .unwrap();
    let request = Mad::new(class::SUBNET_ADMINISTRATION, 2, 0x12, 0x11, 0);
    let header = Header {
        agent: served,
        lid: 1,
        ..to_bob(0, 0, 0)
    };
    hosts
        .write(1, server, header, &table(request.bytes(), 2_000))
        .unwrap();
    hosts.run(10_000);
    assert_eq!(hosts.agents[1].next_event(), Time::NEVER);
}

#[test]
fn a_program_that_reads_nothing_loses_its_own_records_alone() {
    let mut hosts = Hosts::new();
    let (client, server) = (hosts.file(0), hosts.file(1));
    let own = hosts
        .register(0, client, registration(PING.0, 1, PING.1, &[], 0))
        .unwrap();
    hosts
        .register(1, server, registration(PING.0, 1, PING.1, &[1], 0))
        .unwrap();
    let port = hosts.net.subnet.node(BOB.node).ports[1].clone();
    let packet = {
        hosts
            .write(0, client, to_bob(own, 0, 0), ping(1).bytes())
            .unwrap();
        hosts.agents[0].take_packets().remove(0)
    };
    for _ in 0..200_000 {
        hosts.agents[1].receive(hosts.net.now, packet.clone(), &port);
    }
    let mut bytes = 0;
    while let Some(record) = hosts.agents[1].first_record(server) {
        bytes += record.len();
        hosts.agents[1].drop_record(server);
    }
    assert!(bytes <= infiniband::agents::RECORDS_BYTES_MAX && bytes > 1 << 20);
    hosts.agents[1].receive(hosts.net.now, packet, &port);
    assert!(hosts.agents[1].first_record(server).is_some());
}
