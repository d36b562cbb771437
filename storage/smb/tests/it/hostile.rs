//! Peers that break the rules: each is refused with a reason, and nothing panics.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use smb::direct::incoming::ReassemblyError;
use smb::direct::negotiation::NegotiationError;
use smb::direct::{Closed, Connection, NEGOTIATE_LISTENER, Parameters, SendError};
use wire::smb::direct::{
    DATA_OFFSET, DataTransfer, DataTransferError, NegotiateRequest, NegotiateResponse,
    STATUS_NOT_SUPPORTED,
};

use super::request::request;

const NOW: Duration = Duration::ZERO;

fn listener() -> Connection {
    let mut listener = Connection::listener(Parameters::default(), NOW);
    let receives = listener.receives_to_post();
    assert_eq!(receives, 1, "one receive for the negotiate request");
    listener.receives_posted(receives);
    listener
}

/// A listener that has sent its response to [`request`].
fn established() -> Connection {
    let mut listener = listener();
    listener
        .receive(&request().to_bytes(), NOW)
        .expect("a request within the rules");
    let receives = listener.receives_to_post();
    assert_eq!(receives, 10, "as many as the peer asked for");
    listener.receives_posted(receives);
    let mut buffer = [0; 2048];
    let sent = listener
        .poll_transmit(&mut buffer, NOW)
        .expect("a response");
    let (response, _) = NegotiateResponse::split(&buffer[..sent.length]).expect("32 bytes");
    assert_eq!(
        (
            response.status,
            response.credits_granted,
            response.max_receive_size
        ),
        (0, 10, 1024)
    );
    assert!(listener.is_established());
    listener
}

fn data(length: usize, remaining: u32) -> Vec<u8> {
    let header = DataTransfer {
        credits_requested: 10,
        credits_granted: 1,
        data_offset: DATA_OFFSET as u32,
        data_length: length as u32,
        remaining_data_length: remaining,
        ..DataTransfer::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(DATA_OFFSET + length, 0xdd);
    bytes
}

#[test]
fn an_unknown_version_is_answered_and_refused() {
    let mut listener = listener();
    let other = NegotiateRequest {
        min_version: 0x0200,
        max_version: 0x0300,
        ..request()
    };
    let refused = listener.receive(&other.to_bytes(), NOW).unwrap_err();
    assert_eq!(
        refused,
        Closed::Negotiation(NegotiationError::Version {
            min: 0x0200,
            max: 0x0300
        })
    );
    let mut buffer = [0; 64];
    let sent = listener.poll_transmit(&mut buffer, NOW).unwrap();
    let (response, _) = NegotiateResponse::split(&buffer[..sent.length]).unwrap();
    assert_eq!(
        (response.status, response.credits_granted),
        (STATUS_NOT_SUPPORTED, 0)
    );
    assert_eq!(listener.poll_transmit(&mut buffer, NOW), None);
}

#[test]
fn a_range_that_contains_the_version_is_accepted() {
    let mut listener = listener();
    let wider = NegotiateRequest {
        min_version: 0x0001,
        max_version: 0xffff,
        ..request()
    };
    assert_eq!(listener.receive(&wider.to_bytes(), NOW), Ok(None));
}

#[test]
fn requests_below_the_least_sizes_are_dropped() {
    let cases = [
        NegotiateRequest {
            credits_requested: 0,
            ..request()
        },
        NegotiateRequest {
            max_receive_size: 127,
            ..request()
        },
        NegotiateRequest {
            max_fragmented_size: 131_071,
            ..request()
        },
    ];
    for case in cases {
        let mut listener = listener();
        assert!(
            matches!(
                listener.receive(&case.to_bytes(), NOW),
                Err(Closed::Negotiation(_))
            ),
            "{case:?}"
        );
        assert_eq!(
            listener.poll_transmit(&mut [0; 64], NOW),
            None,
            "nothing is answered to {case:?}"
        );
    }
    let mut listener = listener();
    let short = listener
        .receive(&request().to_bytes()[..19], NOW)
        .unwrap_err();
    assert_eq!(
        short,
        Closed::Negotiation(NegotiationError::Length { length: 19 })
    );
}

#[test]
fn a_silent_peer_has_five_seconds() {
    let mut listener = listener();
    assert_eq!(listener.deadline(), Some(NEGOTIATE_LISTENER));
    assert_eq!(
        listener.handle_timeout(NEGOTIATE_LISTENER - Duration::from_nanos(1)),
        Ok(())
    );
    let closed = listener.handle_timeout(NEGOTIATE_LISTENER).unwrap_err();
    assert_eq!(closed, Closed::NegotiationTimeout(NEGOTIATE_LISTENER));
    assert_eq!(listener.deadline(), None);
}

#[test]
fn messages_without_credit_end_the_connection() {
    let mut listener = established();
    for _ in 0..10 {
        listener.receive(&data(1, 0), NOW).unwrap();
    }
    assert_eq!(listener.receive(&data(1, 0), NOW), Err(Closed::NoCredit));
    assert_eq!(listener.send(b"x", None), Err(SendError::NotEstablished));
}

/// A change of the bytes of a message.
type Damage = fn(&mut Vec<u8>);

#[test]
fn garbage_in_a_data_transfer_ends_the_connection() {
    let outside = |bytes: &mut Vec<u8>| bytes[12] = 200;
    let no_credits = |bytes: &mut Vec<u8>| bytes[0] = 0;
    let short = |bytes: &mut Vec<u8>| bytes.truncate(19);
    let cases: [(Damage, DataTransferError); 3] = [
        (
            outside,
            DataTransferError::DataOutside {
                offset: 200,
                length: 8,
                available: 32,
            },
        ),
        (no_credits, DataTransferError::NoCreditsRequested),
        (short, DataTransferError::Short { length: 19 }),
    ];
    for (damage, error) in cases {
        let mut listener = established();
        let mut bytes = data(8, 0);
        damage(&mut bytes);
        assert_eq!(listener.receive(&bytes, NOW), Err(Closed::Message(error)));
    }
}

#[test]
fn messages_that_are_too_long_are_refused_at_their_first_fragment() {
    let mut listener = established();
    let limit = Parameters::default().fragmented_size;
    let closed = listener.receive(&data(8, limit), NOW).unwrap_err();
    let error = ReassemblyError::TooLong {
        length: u64::from(limit) + 8,
        limit,
    };
    assert_eq!(closed, Closed::Reassembly(error));
    let mut listener = established();
    assert_eq!(
        listener.send(&vec![0; 131_073], None),
        Err(SendError::TooLong {
            length: 131_073,
            limit: 131_072
        })
    );
}

#[test]
fn a_key_is_invalidated_by_the_last_fragment() {
    let mut listener = established();
    listener.receive(&data(1, 0), NOW).unwrap();
    listener.receive(&data(1, 0), NOW).unwrap();
    listener.receive(&data(1, 0), NOW).unwrap();
    listener.receives_posted(listener.receives_to_post());
    listener.send(&[7; 1500], Some(0x1234)).unwrap();
    let mut buffer = [0; 1024];
    let first = listener.poll_transmit(&mut buffer, NOW).unwrap();
    let last = listener.poll_transmit(&mut buffer, NOW).unwrap();
    assert_eq!((first.length, first.invalidate), (1024, None));
    assert_eq!(
        (last.length, last.invalidate),
        (DATA_OFFSET + 500, Some(0x1234))
    );
}

/// Random bytes in every field of every message, as a listener and as an initiator get them.
#[test]
fn random_messages_do_not_panic() {
    let random = &mut ChaCha8Rng::seed_from_u64(1);
    for round in 0..20_000 {
        let mut connection = match round % 3 {
            0 => listener(),
            1 => established(),
            _ => {
                let mut initiator = Connection::initiator(Parameters::default(), NOW);
                initiator.receives_posted(initiator.receives_to_post());
                initiator.poll_transmit(&mut [0; 64], NOW).unwrap();
                initiator
            }
        };
        for _ in 0..4 {
            let mut bytes = if random.next_u32() % 2 == 0 {
                data(40, 40)
            } else {
                request().to_bytes().to_vec()
            };
            for _ in 0..random.next_u32() % 6 {
                let at = random.next_u32() as usize % bytes.len();
                bytes[at] = random.next_u32() as u8;
            }
            let _ = connection.receive(&bytes, NOW);
            connection.receives_posted(connection.receives_to_post());
            let mut buffer = [0; 8192];
            while connection.poll_transmit(&mut buffer, NOW).is_some() {}
        }
    }
}
