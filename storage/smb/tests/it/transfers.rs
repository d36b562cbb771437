//! Cases of Microsoft's test suite for MS-SMBD that need several messages: fragments of every length, sizes
//! at their limits, credits that run out on either side, timers.

use std::time::Duration;

use smb::direct::negotiation::NegotiationError;
use smb::direct::{
    Closed, Connection, GRANT_DELAY, IDLE, NEGOTIATE_LISTENER, Parameters, RESPONSE,
};
use wire::smb::direct::{DATA_OFFSET, DataTransfer, NegotiateRequest};

use super::cases::{NOW, data, established, grants, transmit};
use super::request::request;
use super::world::pattern;

/// A fragment with this data; it grants a credit.
fn fragment(data: &[u8], remaining: usize) -> Vec<u8> {
    let header = DataTransfer {
        remaining_data_length: remaining as u32,
        data_offset: if data.is_empty() {
            0
        } else {
            DATA_OFFSET as u32
        },
        data_length: data.len() as u32,
        ..grants(255, 1)
    };
    let padding: &[u8] = if data.is_empty() { &[] } else { &[0; 4] };
    [&header.to_bytes(), padding, data].concat()
}

/// Posts the receives that are to be posted, and lets the listener send what it has, for credits.
fn settle(listener: &mut Connection, now: Duration) {
    listener.receives_posted(listener.receives_to_post());
    while transmit(listener, now).is_some() {}
}

/// Sends a message in fragments of these lengths, as often as it takes; returns what the layer above gets.
/// An empty message that announces all of it goes first, if `is_announced`.
fn pass(message: &[u8], lengths: &[usize], is_announced: bool) -> Vec<u8> {
    let (mut listener, mut now, mut got) = (established(10), NOW, Vec::new());
    let mut receive = |bytes: &[u8]| {
        let passed = listener.receive(bytes, now).expect("within the rules");
        if let Some(fragment) = passed {
            let is_first = got.is_empty();
            assert_eq!(fragment.begins, is_first.then_some(message.len() as u32));
            got.extend_from_slice(fragment.data);
            assert_eq!(got.len() + fragment.remaining as usize, message.len());
        }
        now += GRANT_DELAY;
        settle(&mut listener, now);
    };
    if is_announced {
        receive(&fragment(&[], message.len()));
    }
    let mut left = message;
    for length in lengths.iter().cycle() {
        let (next, rest) = left.split_at(left.len().min(*length));
        receive(&fragment(next, rest.len()));
        left = rest;
        if left.is_empty() {
            break;
        }
    }
    got
}

#[test]
fn fragments_may_have_every_length() {
    let message = pattern(1, 60_000);
    let falling_and_rising: Vec<usize> = (0..=128).rev().chain(1..128).collect();
    assert!(
        pass(&message, &falling_and_rising, true) == message,
        "an empty message announces it"
    );
    assert!(pass(&message, &falling_and_rising, false) == message);
    assert!(
        pass(&message, &[1000], false) == message,
        "full messages of 1024 bytes"
    );
    let longest = pattern(2, 131_072);
    assert!(
        pass(&longest, &[1], false) == longest,
        "one byte in each message"
    );
}

#[test]
fn a_message_may_be_as_long_as_was_agreed() {
    let limit = Parameters::default().fragmented_size as usize;
    let mut listener = established(10);
    let bytes = fragment(&[7; 1000], limit - 1000);
    let first = listener.receive(&bytes, NOW).unwrap().unwrap();
    assert_eq!(first.begins, Some(limit as u32));
    let too_long = [
        fragment(&[7; 1000], limit - 999),
        fragment(&[], limit + 1),
        fragment(&[], u32::MAX as usize),
        fragment(&[7; 1], u32::MAX as usize),
    ];
    for bytes in too_long {
        let mut listener = established(10);
        assert!(matches!(
            listener.receive(&bytes, NOW),
            Err(Closed::Reassembly(_))
        ));
        assert_eq!(transmit(&mut listener, NOW), None);
    }
}

#[test]
fn a_remainder_of_zero_ends_the_message_wherever_it_stands() {
    for count in [1, 5] {
        let mut listener = established(10);
        for number in 0..count {
            listener
                .receive(&fragment(&[7; 1000], 6000 - 1000 * number), NOW)
                .unwrap();
        }
        assert!(matches!(
            listener.receive(&fragment(&[7; 1000], 0), NOW),
            Err(Closed::Reassembly(_))
        ));
    }
}

#[test]
fn a_message_for_the_peer_is_cut_where_its_receives_end() {
    for (length, sizes) in [
        (1000, &[1000][..]),
        (1001, &[1000, 1]),
        (2500, &[1000, 1000, 500]),
    ] {
        let mut listener = established(10);
        listener.receive(&data(grants(10, 10), 0), NOW).unwrap();
        listener.receives_posted(listener.receives_to_post());
        listener.send(&vec![7; length], None).unwrap();
        let mut left = length;
        for size in sizes {
            let (header, sent) = transmit(&mut listener, NOW).expect("a fragment");
            left -= size;
            assert_eq!(
                (header.data_offset, header.data_length as usize),
                (24, *size)
            );
            assert_eq!(header.remaining_data_length as usize, left);
            assert_eq!(sent.length, DATA_OFFSET + size);
            assert!(header.credits_requested > 0 && sent.length <= 1024);
        }
        assert_eq!(transmit(&mut listener, NOW), None);
    }
}

#[test]
fn a_peer_that_used_all_its_credits_gets_them_again() {
    let mut listener = established(10);
    for _ in 0..10 {
        listener.receive(&data(grants(10, 1), 0), NOW).unwrap();
    }
    listener.receives_posted(listener.receives_to_post());
    let (header, sent) = transmit(&mut listener, NOW + GRANT_DELAY).expect("an empty message");
    assert_eq!(
        (header.credits_granted, sent.length),
        (10, DataTransfer::SIZE)
    );
    assert!(header.credits_requested > 0);
    for _ in 0..10 {
        listener.receive(&data(grants(10, 1), 0), NOW).unwrap();
    }
    assert_eq!(
        listener.receive(&data(grants(10, 1), 0), NOW),
        Err(Closed::NoCredit)
    );
}

/// A peer that grants credits only when all of them are used gets a message by each, and the last one grants.
#[test]
fn all_credits_are_used_and_no_more() {
    let mut listener = established(10);
    listener.receive(&data(grants(10, 10), 40), NOW).unwrap();
    listener.receives_posted(listener.receives_to_post());
    listener.send(&vec![7; 25_500], None).unwrap();
    let (mut left, mut rounds) = (25_500, 0);
    while left > 0 {
        let mut last = None;
        let mut count = 0;
        while let Some((header, _)) = transmit(&mut listener, NOW) {
            left -= header.data_length;
            assert_eq!(header.remaining_data_length, left);
            (last, count) = (Some(header), count + 1);
        }
        assert_eq!(count, if left > 0 { 10 } else { 6 });
        assert!(
            left == 0 || last.is_some_and(|it| it.credits_granted > 0),
            "{last:?}"
        );
        listener.receive(&data(grants(10, 10), 0), NOW).unwrap();
        listener.receives_posted(listener.receives_to_post());
        rounds += 1;
    }
    assert_eq!(rounds, 3);
}

#[test]
fn a_peer_that_grants_nothing_is_given_up() {
    let mut listener = established(10);
    listener.receive(&data(grants(10, 0), 40), NOW).unwrap();
    listener.receives_posted(listener.receives_to_post());
    listener.send(&[7; 100], None).unwrap();
    assert_eq!(listener.handle_timeout(IDLE), Ok(()));
    assert_eq!(
        transmit(&mut listener, IDLE),
        None,
        "without a credit nothing is sent"
    );
    assert_eq!(
        listener.handle_timeout(IDLE + RESPONSE),
        Err(Closed::ResponseTimeout(RESPONSE))
    );
}

#[test]
fn keepalives_are_answered_again_and_again() {
    let mut listener = established(10);
    listener.receive(&data(grants(10, 10), 0), NOW).unwrap();
    let mut now = NOW;
    for _ in 0..20 {
        settle(&mut listener, now);
        now += IDLE;
        assert_eq!(listener.handle_timeout(now), Ok(()));
        let (asks, _) = transmit(&mut listener, now).expect("a message that asks for one");
        assert_eq!(asks.flags, 1);
        // The peer's answer asks for one itself.
        listener
            .receive(
                &data(
                    DataTransfer {
                        flags: 1,
                        ..grants(10, 2)
                    },
                    0,
                ),
                now,
            )
            .unwrap();
        listener.receives_posted(listener.receives_to_post());
        let (answer, _) = transmit(&mut listener, now).expect("an answer at once");
        assert_eq!((answer.flags, answer.data_length), (0, 0));
    }
}

#[test]
fn a_request_may_come_until_the_time_is_over() {
    let late = NEGOTIATE_LISTENER - Duration::from_secs(1);
    let mut listener = Connection::listener(Parameters::default(), NOW);
    listener.receives_posted(listener.receives_to_post());
    assert_eq!(listener.handle_timeout(late), Ok(()));
    listener
        .receive(&request().to_bytes(), late)
        .expect("in time");
    listener.receives_posted(listener.receives_to_post());
    assert!(transmit(&mut listener, late).is_some() && listener.is_established());
}

#[test]
fn messages_of_the_wrong_kind_end_the_connection() {
    // A second negotiate request, read as a data transfer, has its data far outside.
    let again = established(10)
        .receive(&request().to_bytes(), NOW)
        .map(|_| ());
    assert!(matches!(again, Err(Closed::Message(_))), "{again:?}");
    // A data transfer in place of the request asks for versions up to the credits that it grants.
    for first in [data(grants(10, 1), 0), data(grants(255, 255), 40)] {
        let mut listener = Connection::listener(Parameters::default(), NOW);
        listener.receives_posted(listener.receives_to_post());
        let refused = listener.receive(&first, NOW).map(|_| ());
        let expected = Closed::Negotiation(NegotiationError::Version {
            min: u16::from_le_bytes([first[0], first[1]]),
            max: u16::from_le_bytes([first[2], first[3]]),
        });
        assert_eq!(refused, Err(expected));
    }
    // Nothing that follows a refusal is answered.
    let mut listener = Connection::listener(Parameters::default(), NOW);
    listener.receives_posted(listener.receives_to_post());
    let other = NegotiateRequest {
        min_version: 0x0101,
        max_version: 0xffff,
        ..request()
    };
    assert!(listener.receive(&other.to_bytes(), NOW).is_err());
    assert!(transmit(&mut listener, NOW).is_some(), "the refusal");
    assert_eq!(listener.receive(&data(grants(10, 1), 40), NOW), Ok(None));
    assert_eq!(transmit(&mut listener, NOW), None);
}
