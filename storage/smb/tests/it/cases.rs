//! The cases of a conformance test of MS-SMBD: negotiation (3.1.5.2 and 3.1.5.3, and the responses of a
//! listener), credits (3.1.5.1, 3.1.5.9) and data transfer (3.1.5.8), each with the outcome that the document
//! demands. Those of Microsoft's own test suite that are not here are in [`transfers`](super::transfers) and
//! [`hostile`](super::hostile) or, for buffer descriptors and invalidation, in [`gateway`](super::gateway).

use std::time::Duration;

use smb::direct::negotiation::NegotiationError;
use smb::direct::{Closed, Connection, IDLE, NEGOTIATE_INITIATOR, Parameters, RESPONSE, Transmit};
use wire::smb::direct::{
    DATA_OFFSET, DataTransfer, NegotiateRequest, NegotiateResponse, RESPONSE_REQUESTED,
    STATUS_NOT_SUPPORTED,
};

use super::request::request;

pub(crate) const NOW: Duration = Duration::ZERO;

fn response() -> NegotiateResponse {
    NegotiateResponse {
        min_version: 0x0100,
        max_version: 0x0100,
        negotiated_version: 0x0100,
        credits_requested: 10,
        credits_granted: 10,
        status: 0,
        max_read_write_size: 1 << 20,
        preferred_send_size: 1024,
        max_receive_size: 1024,
        max_fragmented_size: 131_072,
    }
}

/// A listener's response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It accepts, with its MaxReceiveSize and PreferredSendSize, and this many credits.
    Accepted {
        receive: u32,
        send: u32,
        credits: u16,
    },
    /// It answers with this status, and drops the connection.
    Refused(u32),
    /// It drops the connection without a response.
    Dropped,
}

fn listen(bytes: &[u8], parameters: Parameters) -> Outcome {
    let mut listener = Connection::listener(parameters, NOW);
    listener.receives_posted(listener.receives_to_post());
    let received = listener.receive(bytes, NOW);
    listener.receives_posted(listener.receives_to_post());
    let mut buffer = [0; 64];
    let Some(sent) = listener.poll_transmit(&mut buffer, NOW) else {
        assert!(received.is_err());
        return Outcome::Dropped;
    };
    let (answer, _) = NegotiateResponse::split(&buffer[..sent.length]).expect("a response");
    assert_eq!((answer.min_version, answer.max_version), (0x0100, 0x0100));
    if answer.status != 0 {
        assert!(received.is_err() && !listener.is_established());
        return Outcome::Refused(answer.status);
    }
    assert_eq!(
        (answer.negotiated_version, answer.max_fragmented_size),
        (0x0100, parameters.fragmented_size)
    );
    assert!(answer.credits_requested > 0 && listener.is_established());
    let (receive, send) = (answer.max_receive_size, answer.preferred_send_size);
    Outcome::Accepted {
        receive,
        send,
        credits: answer.credits_granted,
    }
}

/// Expects a listener's response to each request.
#[track_caller]
fn expect(cases: &[(&str, NegotiateRequest, Outcome)]) {
    for (name, request, outcome) in cases {
        assert_eq!(
            listen(&request.to_bytes(), Parameters::default()),
            *outcome,
            "{name}"
        );
    }
}

const fn accepted(receive: u32, send: u32, credits: u16) -> Outcome {
    Outcome::Accepted {
        receive,
        send,
        credits,
    }
}

#[test]
fn a_listener_negotiates_version_1_0_only() {
    let versions = |min_version, max_version| NegotiateRequest {
        min_version,
        max_version,
        ..request()
    };
    let ours = accepted(1024, 1024, 10);
    let refused = Outcome::Refused(STATUS_NOT_SUPPORTED);
    expect(&[
        ("versions around 1.0", versions(0x0100, 0x0200), ours),
        ("versions up to 1.0", versions(0, 0x0100), ours),
        ("versions above", versions(0x0101, 0x0200), refused),
        ("versions below", versions(0, 0x00ff), refused),
        ("an empty range", versions(0x0100, 0x00ff), refused),
    ]);
}

#[test]
fn a_listener_grants_up_to_255_requested_credits() {
    let credits = |credits_requested| NegotiateRequest {
        credits_requested,
        ..request()
    };
    let granted = |credits| accepted(1024, 1024, credits);
    expect(&[
        ("as Linux sends it", credits(255), granted(255)),
        ("no credits", credits(0), Outcome::Dropped),
        ("one credit", credits(1), granted(1)),
        ("most credits", credits(65_535), granted(255)),
    ]);
}

#[test]
fn a_listener_bounds_the_sizes_of_messages() {
    let receives = |max_receive_size| NegotiateRequest {
        max_receive_size,
        ..request()
    };
    let sends = |preferred_send_size| NegotiateRequest {
        preferred_send_size,
        ..request()
    };
    let reassembles = |max_fragmented_size| NegotiateRequest {
        max_fragmented_size,
        ..request()
    };
    let sizes = |receive, send| accepted(receive, send, 10);
    let dropped = Outcome::Dropped;
    expect(&[
        ("the least receive size", receives(128), sizes(1024, 128)),
        ("a receive size below it", receives(127), dropped),
        ("no receive size", receives(0), dropped),
        ("the most to receive", receives(u32::MAX), sizes(1024, 8192)),
        ("less to send than the least", sends(127), sizes(128, 1024)),
        ("nothing to send", sends(0), sizes(128, 1024)),
        ("the most to send", sends(u32::MAX), sizes(8192, 1024)),
        ("a fragmented size below", reassembles(131_071), dropped),
        (
            "the most to reassemble",
            reassembles(u32::MAX),
            sizes(1024, 1024),
        ),
    ]);
}

#[test]
fn reserved_and_trailing_bytes_of_a_request_mean_nothing() {
    let bytes = request().to_bytes();
    for behind in [100, 492] {
        let long = [&bytes[..], &vec![0; behind]].concat();
        assert_eq!(
            listen(&long, Parameters::default()),
            accepted(1024, 1024, 10),
            "{behind} bytes behind it"
        );
    }
    let mut reserved = bytes;
    reserved[4..6].fill(0xff);
    assert_eq!(
        listen(&reserved, Parameters::default()),
        accepted(1024, 1024, 10),
        "the reserved field"
    );
}

#[test]
fn a_request_that_is_cut_short_is_dropped() {
    for length in 0..NegotiateRequest::SIZE {
        assert_eq!(
            listen(&request().to_bytes()[..length], Parameters::default()),
            Outcome::Dropped,
            "{length} bytes"
        );
    }
}

fn initiator() -> Connection {
    let mut initiator = Connection::initiator(Parameters::default(), NOW);
    initiator.receives_posted(initiator.receives_to_post());
    initiator
        .poll_transmit(&mut [0; 64], NOW)
        .expect("a request");
    initiator
}

#[test]
fn an_initiator_accepts_responses_within_the_rules() {
    let base = response();
    let good = [
        base,
        NegotiateResponse {
            credits_granted: 1,
            ..base
        },
        NegotiateResponse {
            max_read_write_size: u32::MAX,
            ..base
        },
        NegotiateResponse {
            max_receive_size: 128,
            preferred_send_size: 128,
            ..base
        },
        NegotiateResponse {
            preferred_send_size: 8192,
            ..base
        },
    ];
    for response in good {
        let mut initiator = initiator();
        assert_eq!(
            initiator.receive(&response.to_bytes(), NOW),
            Ok(None),
            "{response:?}"
        );
        let agreement = initiator.agreement().expect("an agreement");
        assert!(
            agreement.send_size <= response.max_receive_size
                && agreement.read_write_size <= 8 << 20
        );
    }
}

#[test]
fn an_initiator_refuses_responses_that_break_a_rule() {
    let base = response();
    let bad = [
        NegotiateResponse {
            status: STATUS_NOT_SUPPORTED,
            ..base
        },
        NegotiateResponse {
            negotiated_version: 0x0200,
            ..base
        },
        NegotiateResponse {
            credits_requested: 0,
            ..base
        },
        NegotiateResponse {
            credits_granted: 0,
            ..base
        },
        NegotiateResponse {
            max_receive_size: 127,
            ..base
        },
        NegotiateResponse {
            max_fragmented_size: 131_071,
            ..base
        },
        NegotiateResponse {
            preferred_send_size: 8193,
            ..base
        },
    ];
    for response in bad {
        let mut initiator = initiator();
        let bytes = response.to_bytes();
        let refused = initiator.receive(&bytes, NOW);
        assert!(
            matches!(refused, Err(Closed::Negotiation(_))),
            "{response:?}"
        );
        assert!(!initiator.is_established() && initiator.deadline().is_none());
    }
}

#[test]
fn an_initiator_refuses_a_short_response() {
    let mut initiator = initiator();
    let short = &response().to_bytes()[..31];
    let refused = initiator.receive(short, NOW);
    assert_eq!(
        refused,
        Err(Closed::Negotiation(NegotiationError::Length { length: 31 }))
    );
}

#[test]
fn an_initiator_waits_two_minutes_for_the_response() {
    let mut initiator = initiator();
    assert_eq!(
        initiator.handle_timeout(NEGOTIATE_INITIATOR - Duration::from_nanos(1)),
        Ok(())
    );
    let closed = initiator.handle_timeout(NEGOTIATE_INITIATOR);
    assert_eq!(closed, Err(Closed::NegotiationTimeout(NEGOTIATE_INITIATOR)));
}

/// A listener with an initiator that has this many credits, all of which it asked for.
pub(crate) fn established(credits: u16) -> Connection {
    let mut listener = Connection::listener(Parameters::default(), NOW);
    listener.receives_posted(listener.receives_to_post());
    let request = NegotiateRequest {
        credits_requested: credits,
        ..request()
    };
    listener
        .receive(&request.to_bytes(), NOW)
        .expect("a request within the rules");
    listener.receives_posted(listener.receives_to_post());
    assert!(transmit(&mut listener, NOW).is_some());
    listener
}

pub(crate) fn transmit(
    connection: &mut Connection,
    now: Duration,
) -> Option<(DataTransfer, Transmit)> {
    let mut buffer = [0; 8192];
    let sent = connection.poll_transmit(&mut buffer, now)?;
    Some((DataTransfer::split(&buffer).expect("20 bytes").0, sent))
}

pub(crate) fn data(header: DataTransfer, length: usize) -> Vec<u8> {
    let data_offset = if length == 0 { 0 } else { DATA_OFFSET as u32 };
    let header = DataTransfer {
        data_offset,
        data_length: length as u32,
        ..header
    };
    let mut bytes = header.to_bytes().to_vec();
    if length > 0 {
        bytes.resize(DATA_OFFSET + length, 0xdd);
    }
    bytes
}

pub(crate) fn grants(requested: u16, granted: u16) -> DataTransfer {
    DataTransfer {
        credits_requested: requested,
        credits_granted: granted,
        ..DataTransfer::default()
    }
}

#[test]
fn credits_are_granted_for_posted_receives_only() {
    let mut listener = established(10);
    listener.receive(&data(grants(10, 5), 1), NOW).unwrap();
    listener.receive(&data(grants(10, 5), 1), NOW).unwrap();
    listener.send(&[1; 10], None).unwrap();
    let (header, _) = transmit(&mut listener, NOW).unwrap();
    assert_eq!(
        header.credits_granted, 0,
        "the two receives are not posted again"
    );
    assert!(header.credits_requested > 0);
    listener.receives_posted(listener.receives_to_post());
    listener.send(&[1; 10], None).unwrap();
    assert_eq!(
        transmit(&mut listener, NOW).unwrap().0.credits_granted,
        1,
        "one is kept for the last message"
    );
}

#[test]
fn sends_wait_for_credits_and_the_last_one_grants() {
    let mut listener = established(10);
    listener.send(&[1; 10], None).unwrap();
    assert_eq!(
        transmit(&mut listener, NOW),
        None,
        "the peer has granted nothing"
    );
    listener.receive(&data(grants(10, 1), 0), NOW).unwrap();
    assert_eq!(
        transmit(&mut listener, NOW),
        None,
        "the last credit is for a message that grants"
    );
    listener.receives_posted(listener.receives_to_post());
    let (header, _) = transmit(&mut listener, NOW).unwrap();
    assert_eq!((header.credits_granted, header.data_length), (1, 10));
    listener.send(&[1; 10], None).unwrap();
    assert_eq!(transmit(&mut listener, NOW), None);
}

#[test]
fn fewer_or_more_credits_are_posted_as_the_peer_asks() {
    let mut listener = established(10);
    listener.receive(&data(grants(3, 5), 1), NOW).unwrap();
    assert_eq!(
        listener.receives_to_post(),
        0,
        "9 are posted, 3 are asked for"
    );
    listener.receive(&data(grants(300, 5), 1), NOW).unwrap();
    assert_eq!(
        listener.receives_to_post(),
        255 - 8,
        "no more than this side's own limit"
    );
}

#[test]
fn data_transfers_within_the_rules_are_received() {
    let base = grants(10, 1);
    let remaining = |remaining_data_length| DataTransfer {
        remaining_data_length,
        ..base
    };
    let whole = data(base, 1000);
    let mut at_32 = data(base, 100);
    at_32[12] = 32;
    at_32.resize(32 + 100, 0xdd);
    let good = [
        ("no data", data(base, 0), None),
        ("one byte", data(base, 1), Some((1, 0))),
        ("a full message", whole.clone(), Some((1000, 0))),
        (
            "the first fragment",
            data(remaining(5000), 1000),
            Some((1000, 5000)),
        ),
        ("data at 32", at_32, Some((100, 0))),
        (
            "bytes behind the data",
            [&whole[..], &[0; 9]].concat(),
            Some((1000, 0)),
        ),
        (
            "unknown flags",
            data(
                DataTransfer {
                    flags: 0xfffe,
                    ..base
                },
                8,
            ),
            Some((8, 0)),
        ),
    ];
    for (name, bytes, expected) in good {
        let mut listener = established(10);
        let fragment = listener
            .receive(&bytes, NOW)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            fragment.map(|it| (it.data.len(), it.remaining)),
            expected,
            "{name}"
        );
    }
}

#[test]
fn data_transfers_that_break_a_rule_end_the_connection() {
    type Damage = fn(&mut Vec<u8>);
    let whole = data(grants(10, 1), 1000);
    let bad: [(&str, Damage); 8] = [
        ("19 bytes", |bytes| bytes.truncate(19)),
        ("no bytes", |bytes| bytes.clear()),
        ("no credits requested", |bytes| bytes[..2].fill(0)),
        ("data within the header", |bytes| bytes[12] = 16),
        ("data at 25", |bytes| bytes[12] = 25),
        ("data behind the message", |bytes| bytes[14] = 1),
        ("more data than the message has", |bytes| {
            bytes[16..20].copy_from_slice(&2000_u32.to_le_bytes())
        }),
        ("data up to 4 GiB", |bytes| bytes[16..20].fill(0xff)),
    ];
    for (name, damage) in bad {
        let (mut listener, mut bytes) = (established(10), whole.clone());
        damage(&mut bytes);
        assert!(
            matches!(listener.receive(&bytes, NOW), Err(Closed::Message(_))),
            "{name}"
        );
        assert_eq!(
            transmit(&mut listener, NOW),
            None,
            "{name}: nothing is sent afterwards"
        );
    }
}

#[test]
fn fragments_add_up_to_the_announced_length() {
    let fragment = |remaining, length| {
        data(
            DataTransfer {
                remaining_data_length: remaining,
                ..grants(10, 1)
            },
            length,
        )
    };
    let mut listener = established(10);
    for (remaining, length) in [(1500, 500), (1000, 500), (0, 1000)] {
        assert!(
            listener
                .receive(&fragment(remaining, length), NOW)
                .unwrap()
                .is_some()
        );
        assert_eq!(
            listener.receive(&fragment(0, 0), NOW),
            Ok(None),
            "an empty message between fragments"
        );
    }
    for (remaining, length) in [(1001, 500), (999, 500), (0, 1499), (1500, 500)] {
        let mut listener = established(10);
        listener.receive(&fragment(1500, 500), NOW).unwrap();
        let bytes = fragment(remaining, length);
        let closed = listener.receive(&bytes, NOW);
        assert!(
            matches!(closed, Err(Closed::Reassembly(_))),
            "{length} bytes, {remaining} remain"
        );
    }
}

#[test]
fn a_requested_response_is_sent_at_once_and_awaited_for_five_seconds() {
    let mut listener = established(10);
    let asks = DataTransfer {
        flags: RESPONSE_REQUESTED,
        ..grants(10, 5)
    };
    listener.receive(&data(asks, 0), NOW).unwrap();
    let (header, _) = transmit(&mut listener, NOW).expect("a response");
    assert_eq!((header.data_length, header.flags), (0, 0));
    assert_eq!(transmit(&mut listener, NOW), None, "one response");
    assert_eq!(listener.handle_timeout(IDLE), Ok(()));
    let (header, _) = transmit(&mut listener, IDLE).expect("a message that asks for one");
    assert_eq!(header.flags, RESPONSE_REQUESTED);
    let last = IDLE + RESPONSE;
    assert_eq!(
        listener.handle_timeout(last - Duration::from_nanos(1)),
        Ok(())
    );
    assert_eq!(
        listener.handle_timeout(last),
        Err(Closed::ResponseTimeout(RESPONSE))
    );
}

#[test]
fn a_message_resets_the_idle_timer() {
    let mut listener = established(10);
    listener.receive(&data(grants(10, 5), 0), IDLE / 2).unwrap();
    listener.receives_posted(listener.receives_to_post());
    assert_eq!(listener.handle_timeout(IDLE), Ok(()));
    assert!(transmit(&mut listener, IDLE).is_none_or(|(header, _)| header.flags == 0));
    assert_eq!(listener.deadline(), Some(IDLE / 2 + IDLE));
}
