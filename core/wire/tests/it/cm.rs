//! Connection management messages against Linux' packets, Wireshark's fields, and random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::captures::for_each_packet;
use crate::contract;
use crate::dissector::{dissect_fields, frame_of, headers_of, number};
use wire::cm::{
    CmMad, CmMessage, CmaHeader, PortSpace, RejectReason, Rep, Req, ServiceId, SidrStatus,
};
use wire::mad::{CLASS_CM, CLASS_VERSION_CM, GSI_QKEY, MAD_DATA_SIZE, MAD_SIZE};
use wire::{Deth, Message, Packet, Psn, Qpn, Service, Tail};

/// The CM datagrams of the captures, by capture.
fn captured() -> BTreeMap<String, Vec<(Vec<u8>, CmMad)>> {
    let mut datagrams = BTreeMap::<String, Vec<_>>::new();
    for_each_packet(|name, _, dissected| {
        if dissected.packet.dest == Qpn::GSI {
            let mad = CmMad::parse(dissected.payload).unwrap();
            datagrams
                .entry(name.to_owned())
                .or_default()
                .push((dissected.payload.to_vec(), mad));
        }
    });
    datagrams
}

#[test]
fn every_datagram_is_encoded_to_the_bytes_that_linux_sent() {
    let captured = captured();
    let names: Vec<&str> = captured.keys().map(String::as_str).collect();
    let expected = [
        "cm_refused",
        "cm_rping",
        "cm_ucmatose",
        "cm_udaddy",
        "nvmeof_rdma_discover",
        "nvmeof_rdma_io",
        "smbdirect",
    ];
    assert_eq!(names, expected);
    for (name, datagrams) in &captured {
        for (bytes, mad) in datagrams {
            assert_eq!(mad.to_bytes().as_slice(), bytes, "{name}: {mad:?}");
        }
    }
}

#[test]
fn conversations_have_the_messages_that_the_captures_readme_says() {
    let captured = captured();
    let attributes = |name: &str| -> Vec<u16> {
        captured[name]
            .iter()
            .map(|(_, mad)| mad.message.attribute())
            .collect()
    };
    let connection = [0x10, 0x13, 0x14, 0x15, 0x16];
    assert_eq!(attributes("cm_rping"), connection);
    assert_eq!(attributes("cm_ucmatose"), connection);
    assert_eq!(attributes("cm_refused"), [0x10, 0x12]);
    assert_eq!(attributes("cm_udaddy"), [0x17, 0x18]);
}

#[test]
fn rping_connects_and_disconnects_as_the_captures_readme_says() {
    let captured = captured();
    let [(_, req), (_, rep), (_, rtu), (_, dreq), (_, drep)] = captured["cm_rping"].as_slice()
    else {
        panic!("five datagrams");
    };
    let (CmMessage::Req(req), CmMessage::Rep(rep)) = (req.message, rep.message) else {
        panic!()
    };
    let (CmMessage::Rtu(rtu), CmMessage::Dreq(dreq)) = (rtu.message, dreq.message) else {
        panic!()
    };
    let CmMessage::Drep(drep) = drep.message else {
        panic!()
    };
    assert_eq!(req.service_id.port(), Some((PortSpace::Tcp, 7174)));
    assert_eq!(
        (
            req.local_qpn.value(),
            rep.local_qpn.value(),
            dreq.remote_qpn.value()
        ),
        (0x11, 0x11, 0x11)
    );
    assert_eq!(
        (
            req.path_mtu,
            req.max_cm_retries,
            req.retry_count,
            req.rnr_retry_count
        ),
        (3, 15, 7, 7)
    );
    assert_eq!(
        (req.remote_response_timeout, req.local_response_timeout),
        (20, 20)
    );
    assert_eq!(
        (req.primary_path.local_lid, req.primary_path.hop_limit),
        (0xffff, 64)
    );
    assert_eq!(
        (
            req.primary_path.flow_label,
            req.primary_path.local_ack_timeout
        ),
        (0xb_0949, 19)
    );
    assert_eq!(
        req.primary_path.local_gid[10..],
        [0xff, 0xff, 10, 77, 0, 12]
    );
    assert!(req.primary_path.is_some() && !req.alternate_path.is_some());
    assert_eq!((rep.target_ack_delay, rep.failover_accepted), (15, 0));
    assert_eq!(
        (rep.remote_comm_id, rtu.remote_comm_id, drep.remote_comm_id),
        (req.local_comm_id, rep.local_comm_id, req.local_comm_id)
    );
    let cma = CmaHeader::parse(req.private_data.first_chunk().unwrap()).unwrap();
    assert_eq!(
        cma,
        CmaHeader::new([10, 77, 0, 12].into(), 0xde5d, [10, 77, 0, 11].into()).unwrap()
    );
}

#[test]
fn a_refusal_and_a_resolution_are_what_the_captures_readme_says() {
    let captured = captured();
    let CmMessage::Rej(rej) = captured["cm_refused"][1].1.message else {
        panic!()
    };
    assert_eq!(
        (rej.reason, rej.local_comm_id.0),
        (RejectReason::INVALID_SERVICE_ID, 0)
    );
    let CmMessage::SidrReq(sidr_req) = captured["cm_udaddy"][0].1.message else {
        panic!()
    };
    let CmMessage::SidrRep(sidr_rep) = captured["cm_udaddy"][1].1.message else {
        panic!()
    };
    assert_eq!(sidr_req.service_id, ServiceId::ip(PortSpace::Udp, 7174));
    assert_eq!(
        (sidr_rep.status, sidr_rep.qkey),
        (SidrStatus::VALID, 0x0123_4567)
    );
    assert_eq!(
        (sidr_rep.service_id, sidr_rep.request_id),
        (sidr_req.service_id, sidr_req.request_id)
    );
}

/// Bytes that differ from each other, and are the same in every run.
fn patterned(attribute: u16) -> [u8; MAD_DATA_SIZE] {
    let mut state = u32::from(attribute);
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

/// A field of Wireshark's and its expected value.
type Expected = (&'static str, String);

fn number_in(field: &'static str, value: impl Into<u64>) -> Expected {
    (field, value.into().to_string())
}

fn bytes_in(field: &'static str, bytes: &[u8]) -> Expected {
    (
        field,
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    )
}

/// The fields that Wireshark should read; it supports six of the eleven messages.
fn expected_of(message: &CmMessage) -> Vec<Expected> {
    match message {
        CmMessage::Req(m) => [expected_of_req(m), expected_of_paths(m)].concat(),
        CmMessage::Rep(m) => expected_of_rep(m),
        CmMessage::Rtu(m) => vec![
            number_in("infiniband.cm.rtu.localcommid", m.local_comm_id.0),
            number_in("infiniband.cm.rtu.remotecommid", m.remote_comm_id.0),
            bytes_in("infiniband.cm.rtu.private", &m.private_data),
        ],
        CmMessage::Rej(m) => vec![
            number_in("infiniband.cm.rej.localcommid", m.local_comm_id.0),
            number_in("infiniband.cm.rej.remotecommid", m.remote_comm_id.0),
            number_in("infiniband.cm.rej.rejinfolen", m.information_length),
            number_in("infiniband.cm.rej.reason", m.reason.0),
            bytes_in("infiniband.cm.rej.ari", &m.information),
            bytes_in("infiniband.cm.rej.private", &m.private_data),
        ],
        CmMessage::Dreq(m) => vec![
            number_in("infiniband.cm.dreq.localcommid", m.local_comm_id.0),
            number_in("infiniband.cm.dreq.remotecommid", m.remote_comm_id.0),
            number_in("infiniband.cm.req.remoteqpneecn", m.remote_qpn.value()),
            bytes_in("infiniband.cm.dreq.private", &m.private_data),
        ],
        CmMessage::Drep(m) => vec![
            number_in("infiniband.cm.drsp.localcommid", m.local_comm_id.0),
            number_in("infiniband.cm.drsp.remotecommid", m.remote_comm_id.0),
            bytes_in("infiniband.cm.drsp.private", &m.private_data),
        ],
        _ => Vec::new(),
    }
}

fn expected_of_req(m: &Req) -> Vec<Expected> {
    vec![
        number_in("infiniband.cm.req", m.local_comm_id.0),
        number_in("infiniband.cm.req.serviceid", m.service_id.0),
        number_in("infiniband.cm.req.localcaguid", m.local_ca_guid),
        number_in("infiniband.cm.req.localqkey", m.local_qkey),
        number_in("infiniband.cm.req.localqpn", m.local_qpn.value()),
        number_in("infiniband.cm.req.responderres", m.responder_resources),
        number_in("infiniband.cm.req.localeecn", m.local_eecn),
        number_in("infiniband.cm.req.initdepth", m.initiator_depth),
        number_in("infiniband.cm.req.remoteeecn", m.remote_eecn),
        number_in(
            "infiniband.cm.req.remoteresptout",
            m.remote_response_timeout,
        ),
        number_in("infiniband.cm.req.transpsvctype", m.transport),
        number_in("infiniband.cm.req.e2eflowctrl", m.flow_control),
        number_in("infiniband.cm.req.startpsn", m.starting_psn.value()),
        number_in("infiniband.cm.req.localresptout", m.local_response_timeout),
        number_in("infiniband.cm.req.retrcount", m.retry_count),
        number_in("infiniband.cm.req.pkey", m.partition_key.0),
        number_in("infiniband.cm.req.pppmtu", m.path_mtu),
        number_in("infiniband.cm.req.rdcexist", m.rdc_exists),
        number_in("infiniband.cm.req.rnrretrcount", m.rnr_retry_count),
        number_in("infiniband.cm.req.maxcmretr", m.max_cm_retries),
        number_in("infiniband.cm.req.srq", m.srq),
        number_in("infiniband.cm.req.ext_transport", m.extended_transport),
        bytes_in("infiniband.cm.req.private", &m.private_data),
    ]
}

/// Flow label and rate are left out: Wireshark 4.0 takes them from other bits than Linux, see the captures.
fn expected_of_paths(m: &Req) -> Vec<Expected> {
    let (primary, alternate) = (&m.primary_path, &m.alternate_path);
    vec![
        number_in("infiniband.cm.req.prim_locallid", primary.local_lid),
        number_in("infiniband.cm.req.prim_remotelid", primary.remote_lid),
        number_in("infiniband.cm.req.prim_tfcclass", primary.traffic_class),
        number_in("infiniband.cm.req.prim_hoplim", primary.hop_limit),
        number_in("infiniband.cm.req.prim_sl", primary.service_level),
        number_in("infiniband.cm.req.prim_subnetlocal", primary.subnet_local),
        number_in(
            "infiniband.cm.req.prim_localacktout",
            primary.local_ack_timeout,
        ),
        number_in("infiniband.cm.req.alt_locallid", alternate.local_lid),
        number_in("infiniband.cm.req.alt_remotelid", alternate.remote_lid),
        bytes_in("infiniband.cm.req.alt_localgid", &alternate.local_gid),
        bytes_in("infiniband.cm.req.alt_remotegid", &alternate.remote_gid),
        number_in("infiniband.cm.req.alt_hoplim", alternate.hop_limit),
        number_in(
            "infiniband.cm.req.alt_localacktout",
            alternate.local_ack_timeout,
        ),
    ]
}

fn expected_of_rep(m: &Rep) -> Vec<Expected> {
    vec![
        number_in("infiniband.cm.rep", m.local_comm_id.0),
        number_in("infiniband.cm.rep.remotecommid", m.remote_comm_id.0),
        number_in("infiniband.cm.rep.localqkey", m.local_qkey),
        number_in("infiniband.cm.rep.localqpn", m.local_qpn.value()),
        number_in("infiniband.cm.rep.localeecn", m.local_eecn.value()),
        number_in("infiniband.cm.rep.startpsn", m.starting_psn.value()),
        number_in("infiniband.cm.rep.respres", m.responder_resources),
        number_in("infiniband.cm.rep.initdepth", m.initiator_depth),
        number_in("infiniband.cm.rep.tgtackdelay", m.target_ack_delay),
        number_in("infiniband.cm.rep.failoveracc", m.failover_accepted),
        number_in("infiniband.cm.rep.e2eflowctrl", m.flow_control),
        number_in("infiniband.cm.rep.rnrretrcount", m.rnr_retry_count),
        number_in("infiniband.cm.rep.srq", m.srq),
        number_in("infiniband.cm.rep.localcaguid", m.local_ca_guid),
        bytes_in("infiniband.cm.rep.private", &m.private_data),
    ]
}

#[test]
fn wireshark_reads_each_message_as_we_mean_it() {
    let mut frames = Vec::new();
    let mut expectations = Vec::new();
    for &attribute in CmMessage::ATTRIBUTES {
        let message = CmMessage::parse(attribute, &patterned(attribute)).unwrap();
        let mad = CmMad {
            transaction: 0x0102_0304_0506_0708,
            modifier: 0x0a0b_0c0d,
            message,
        };
        let deth = Deth {
            qkey: GSI_QKEY,
            source: Qpn::GSI,
        };
        let datagram = Message::Datagram {
            deth,
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Ud, Qpn::GSI, Psn::new(0), datagram);
        frames.push(frame_of(headers_of(false), &packet, &mad.to_bytes()).0);
        let mut expected = expected_of(&message);
        expected.extend([
            ("infiniband.mad.baseversion", "1".to_owned()),
            ("infiniband.mad.mgmtclass", CLASS_CM.to_string()),
            ("infiniband.mad.classversion", CLASS_VERSION_CM.to_string()),
            ("infiniband.mad.method", "3".to_owned()),
            ("infiniband.mad.transactionid", mad.transaction.to_string()),
            ("infiniband.mad.attributeid", attribute.to_string()),
            ("infiniband.mad.attributemodifier", mad.modifier.to_string()),
        ]);
        expectations.push((attribute, expected));
    }
    let fields: Vec<&'static str> = expectations
        .iter()
        .flat_map(|(_, expected)| expected.iter().map(|(field, _)| *field))
        .collect();
    for (read, (attribute, expected)) in dissect_fields("cm", &frames, &fields)
        .iter()
        .zip(&expectations)
    {
        for (field, value) in expected {
            let found = read
                .get(field)
                .unwrap_or_else(|| panic!("{attribute:#x}: no {field} in {read:?}"));
            let is_bytes = value.len() > 20;
            let found = if is_bytes {
                found.replace(':', "")
            } else {
                number(found).to_string()
            };
            assert_eq!(found, *value, "{attribute:#x}: {field}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn encoding_what_was_parsed_gives_the_bytes_back(
        attribute in 0x10u8..0x1c,
        mut bytes in prop::collection::vec(any::<u8>(), MAD_SIZE),
    ) {
        // Class and attribute are made right, so that more than one in a billion of these parses.
        bytes[..4].copy_from_slice(&[1, CLASS_CM, CLASS_VERSION_CM, 3]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        contract::mad(&bytes);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        contract::mad(&bytes);
    }
}
