//! An SMB Direct peer that sends arbitrary messages: to a listener, to an initiator, and after a negotiation.
//!
//! The input is a byte that chooses the role, then messages: a byte that is their length, and bytes. A length
//! of 255 lets 10 seconds pass.
#![no_main]

use std::time::Duration;

use smb::direct::{Connection, Parameters};
use wire::smb::direct::{DataTransfer, NegotiateRequest, NegotiateResponse, VERSION};

/// Steps of one input at most: faults show early.
const STEPS_MAX: usize = 64;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&role, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut now = Duration::ZERO;
    let parameters = Parameters {
        credits: u16::from(role >> 2).max(1),
        ..Parameters::default()
    };
    let mut connection = match role & 1 {
        0 => Connection::listener(parameters, now),
        _ => Connection::initiator(parameters, now),
    };
    let mut posted = 0;
    act(&mut connection, &mut posted, now);
    if role & 2 != 0 {
        negotiate(&mut connection, role & 1 != 0, now);
        posted -= 1;
    }
    for _ in 0..STEPS_MAX {
        act(&mut connection, &mut posted, now);
        let Some((&length, after)) = rest.split_first() else {
            break;
        };
        if length == u8::MAX {
            now += Duration::from_secs(10);
            rest = after;
            if connection.handle_timeout(now).is_err() {
                return;
            }
            continue;
        }
        let (message, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        if posted == 0 {
            return;
        }
        posted -= 1;
        match connection.receive(message, now) {
            Ok(Some(fragment)) => {
                assert!(!fragment.data.is_empty() && fragment.data.len() <= message.len());
                let length = fragment.begins.unwrap_or(parameters.fragmented_size);
                assert!(length <= parameters.fragmented_size && fragment.remaining < length);
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
});

/// Posts the receives that the connection needs, and sends its messages.
fn act(connection: &mut Connection, posted: &mut u32, now: Duration) {
    let count = connection.receives_to_post();
    connection.receives_posted(count);
    *posted += u32::from(count);
    let mut buffer = [0; 8192];
    while let Some(message) = connection.poll_transmit(&mut buffer, now) {
        assert!(message.length <= buffer.len());
        if connection.is_established() && message.length >= DataTransfer::SIZE {
            assert!(DataTransfer::split(&buffer[..message.length]).is_some());
        }
    }
    if connection.is_established() && connection.buffered() == 0 {
        _ = connection.send(&[7; 20_000], Some(9));
    }
}

/// Brings the connection to where data pass.
fn negotiate(connection: &mut Connection, is_initiator: bool, now: Duration) {
    let request = NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: 255,
        preferred_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_size: 131_072,
    };
    let response = NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        negotiated_version: VERSION,
        credits_requested: 255,
        credits_granted: 255,
        max_read_write_size: 1 << 20,
        preferred_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_size: 131_072,
        ..NegotiateResponse::default()
    };
    let bytes = match is_initiator {
        true => response.to_bytes().to_vec(),
        false => request.to_bytes().to_vec(),
    };
    assert!(connection.receive(&bytes, now).is_ok());
}
