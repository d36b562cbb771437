//! Captured messages of Linux are answered as Linux answered them, byte for byte but for the communication
//! IDs and transaction IDs that each side draws.

use crate::captures::capture;
use crate::cm::pair::path;
use rnic::cm::{
    Accept, Cm, CmConfig, CmEvent, Connect, Ece, Listen, ListenAddress, LocalAddress, Resolution,
    Resolve,
};
use rnic::{Arrival, Gid, Instant, Mtu};
use wire::cm::{CmMad, CmMessage, CommId, Rej, Rep, Req};
use wire::{Qpn, Service};

const SERVER: Gid = Gid::from_ipv4([10, 77, 0, 11]);
const CLIENT: Gid = Gid::from_ipv4([10, 77, 0, 12]);
const NOW: Instant = Instant(0);

/// The CM datagrams of a capture, and whether the client sent them.
fn conversation(name: &str) -> Vec<(bool, CmMad)> {
    let packets = capture(name)
        .into_iter()
        .filter(|captured| captured.packet.dest == Qpn::GSI);
    packets
        .map(|captured| {
            (
                captured.from_requester,
                CmMad::parse(&captured.payload).unwrap(),
            )
        })
        .collect()
}

/// The connection manager of one side, with rxe's parameters: an acknowledge delay of 15, an MTU of 1024.
fn host(gid: Gid, ca_guid: u64) -> Cm {
    let mut cm = Cm::new(CmConfig::default(), [1; 32]);
    cm.set_address(LocalAddress {
        gid,
        ca_guid,
        mtu: Mtu::B1024,
        ack_delay: 15,
    });
    cm
}

fn arrival(from_client: bool) -> Arrival {
    let (source, destination) = if from_client {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    Arrival {
        source,
        destination,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
    }
}

/// Maps Linux's communication IDs to the local ones, in either direction.
#[derive(Default)]
struct Names {
    pairs: Vec<(CommId, CommId)>,
    transactions: Vec<(u64, u64)>,
}

impl Names {
    fn ours(&self, theirs: CommId) -> CommId {
        self.pairs
            .iter()
            .find(|(linux, _)| *linux == theirs)
            .map_or(theirs, |(_, ours)| *ours)
    }

    /// Replaces Linux's communication IDs in a message by the local ones.
    fn exchange(&self, mad: &CmMad) -> CmMad {
        let mut mad = *mad;
        let ours = self
            .transactions
            .iter()
            .find(|(linux, _)| *linux == mad.transaction);
        mad.transaction = ours.map_or(mad.transaction, |(_, ours)| *ours);
        let (local, remote) = match &mut mad.message {
            CmMessage::Req(m) => (&mut m.local_comm_id, None),
            CmMessage::Rep(m) => (&mut m.local_comm_id, Some(&mut m.remote_comm_id)),
            CmMessage::Rtu(m) => (&mut m.local_comm_id, Some(&mut m.remote_comm_id)),
            CmMessage::Rej(m) => (&mut m.local_comm_id, Some(&mut m.remote_comm_id)),
            CmMessage::Dreq(m) => (&mut m.local_comm_id, Some(&mut m.remote_comm_id)),
            CmMessage::Drep(m) => (&mut m.local_comm_id, Some(&mut m.remote_comm_id)),
            CmMessage::SidrReq(m) => (&mut m.request_id, None),
            CmMessage::SidrRep(m) => (&mut m.request_id, None),
            other => panic!("not in the captures: {other:?}"),
        };
        *local = self.ours(*local);
        if let Some(remote) = remote {
            *remote = self.ours(*remote);
        }
        mad
    }

    /// Asserts that the sent message equals Linux's. Where it opens an exchange, its transaction ID is the
    /// local one.
    fn assert_same(&mut self, cm: &mut Cm, linux: &CmMad, opens: bool) {
        let sent = cm.poll_transmit().expect("an answer");
        let mut expected = self.exchange(linux);
        if opens {
            expected.transaction = CmMad::parse(&sent.mad).unwrap().transaction;
            self.transactions
                .retain(|(theirs, _)| *theirs != linux.transaction);
            self.transactions
                .push((linux.transaction, expected.transaction));
        }
        assert_eq!(CmMad::parse(&sent.mad), Ok(expected));
        assert_eq!(sent.mad, expected.to_bytes());
        assert!(cm.poll_transmit().is_none());
    }
}

fn connect_of(req: &Req) -> Connect {
    let mut path = path(CLIENT, SERVER);
    path.flow_label = req.primary_path.flow_label;
    path.traffic_class = req.primary_path.traffic_class;
    Connect {
        path,
        service: req.service_id,
        transport: Service::Rc,
        qpn: req.local_qpn,
        psn: req.starting_psn,
        mtu: Mtu::from_code(req.path_mtu.into()).unwrap(),
        partition_key: req.partition_key,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        flow_control: req.flow_control,
        srq: req.srq,
        // The packet lifetime of RoCE in Linux 6.1, which made the captures.
        packet_lifetime: 18,
        ece: Ece::default(),
        private_data: req.private_data,
    }
}

fn accept_of(rep: &Rep) -> Accept {
    Accept {
        qpn: rep.local_qpn,
        psn: rep.starting_psn,
        responder_resources: rep.responder_resources,
        initiator_depth: rep.initiator_depth,
        rnr_retry_count: rep.rnr_retry_count,
        flow_control: rep.flow_control,
        srq: rep.srq,
        ece: Ece::default(),
        private_data: rep.private_data,
    }
}

fn guid_of(conversation: &[(bool, CmMad)], of_client: bool) -> u64 {
    let mut guids = conversation
        .iter()
        .filter(|(from_client, _)| *from_client == of_client);
    let guids = guids.find_map(|(_, mad)| match mad.message {
        CmMessage::Req(req) => Some(req.local_ca_guid),
        CmMessage::Rep(rep) => Some(rep.local_ca_guid),
        _ => None,
    });
    guids.unwrap_or(0)
}

/// Replays a captured conversation as the server or the client, with Linux as the other side.
fn replay(name: &str, as_client: bool) -> usize {
    let conversation = conversation(name);
    let gid = if as_client { CLIENT } else { SERVER };
    let mut cm = host(gid, guid_of(&conversation, as_client));
    let mut names = Names::default();
    let mut current = CommId(0);
    let mut listening = Vec::new();
    for (from_client, mad) in &conversation {
        if *from_client != as_client {
            if let CmMessage::Req(req) = mad.message
                && !listening.contains(&req.service_id)
                && !is_refused(&conversation, &req)
            {
                let listen = Listen {
                    service: req.service_id,
                    address: ListenAddress::AnyV4,
                    backlog: 8,
                };
                cm.listen(listen).unwrap();
                listening.push(req.service_id);
            }
            cm.handle_datagram(&arrival(*from_client), &names.exchange(mad).to_bytes(), NOW);
            while let Some(event) = cm.poll_event() {
                current = event.id();
                assert!(!matches!(event, CmEvent::Unreachable { .. }));
            }
            continue;
        }
        let mut opens = false;
        match mad.message {
            CmMessage::Req(req) => {
                opens = true;
                current = cm.connect(&connect_of(&req), NOW).unwrap();
                names.pairs.push((req.local_comm_id, current));
            }
            CmMessage::Rep(rep) => {
                names.pairs.push((rep.local_comm_id, current));
                cm.accept(current, &accept_of(&rep), NOW).unwrap();
            }
            CmMessage::Rtu(rtu) => {
                cm.ready(names.ours(rtu.local_comm_id), rtu.private_data, NOW)
                    .unwrap();
            }
            CmMessage::Dreq(dreq) => {
                opens = true;
                cm.disconnect(names.ours(dreq.local_comm_id), dreq.private_data, NOW)
                    .unwrap();
            }
            CmMessage::Drep(drep) => {
                cm.disconnect(names.ours(drep.local_comm_id), [0; 220], NOW)
                    .unwrap();
            }
            // There is no listener: no call is needed for the answer.
            CmMessage::Rej(_) => {}
            other => panic!("{other:?}"),
        }
        names.assert_same(&mut cm, mad, opens);
    }
    conversation.len()
}

/// Whether Linux rejected this request.
fn is_refused(conversation: &[(bool, CmMad)], req: &Req) -> bool {
    let of_req = |rej: &Rej| rej.remote_comm_id == req.local_comm_id;
    conversation
        .iter()
        .any(|(_, mad)| matches!(&mad.message, CmMessage::Rej(rej) if of_req(rej)))
}

#[test]
fn conversations_of_linux_are_ours_from_both_sides() {
    for (name, datagrams) in [
        ("cm_rping", 5),
        ("cm_ucmatose", 5),
        ("cm_refused", 2),
        ("nvmeof_rdma_discover", 5),
        ("nvmeof_rdma_io", 10),
        ("smbdirect", 7),
    ] {
        for as_client in [true, false] {
            assert_eq!(replay(name, as_client), datagrams, "{name}");
        }
    }
}

#[test]
fn a_resolution_of_linux_is_ours_from_both_sides() {
    let conversation = conversation("cm_udaddy");
    let [(_, asked), (_, answered)] = conversation.as_slice() else {
        panic!("two datagrams")
    };
    let (CmMessage::SidrReq(req), CmMessage::SidrRep(rep)) = (asked.message, answered.message)
    else {
        panic!()
    };
    let mut client = host(CLIENT, 0);
    let resolve = Resolve {
        path: path(CLIENT, SERVER),
        service: req.service_id,
        partition_key: req.partition_key,
        private_data: req.private_data,
    };
    let id = client.resolve(&resolve, Ece::default(), NOW).unwrap();
    let mut names = Names {
        pairs: vec![(req.request_id, id)],
        ..Names::default()
    };
    names.assert_same(&mut client, asked, true);
    client.handle_datagram(&arrival(false), &names.exchange(answered).to_bytes(), NOW);
    let Some(CmEvent::Resolved { answer, .. }) = client.poll_event() else {
        panic!("resolved")
    };
    assert_eq!((answer.qpn, answer.qkey), (rep.qpn, rep.qkey));

    let mut server = host(SERVER, 0);
    server
        .listen(Listen {
            service: req.service_id,
            address: ListenAddress::AnyV4,
            backlog: 8,
        })
        .unwrap();
    server.handle_datagram(&arrival(true), &asked.to_bytes(), NOW);
    let id = server.poll_event().unwrap().id();
    let resolution = Resolution {
        status: rep.status,
        qpn: rep.qpn,
        qkey: rep.qkey,
        ece: Ece::default(),
        private_data: rep.private_data,
    };
    server.answer_resolution(id, &resolution, NOW).unwrap();
    Names::default().assert_same(&mut server, answered, false);
}
