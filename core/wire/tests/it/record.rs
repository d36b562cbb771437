//! Recorded verbs calls.

use crate::contract;
use proptest::prelude::*;
use wire::record::{Call, HEADER, LINE_BYTES_MAX, Line, RecordError, Transport, Verb, lines};

#[test]
fn a_line_is_read_as_it_is_written() {
    let post = Call::Post {
        operation: Verb::Write,
        bytes: 65_536,
        transport: Transport::Rc,
        signaled: true,
    };
    let line = Line {
        at_ns: 8_412_067_143,
        process: 4_711,
        qpn: 259,
        call: post,
    };
    assert_eq!(
        line.to_string(),
        "8412067143 4711 259 post write 65536 rc signaled"
    );
    let longest = Call::Post {
        operation: Verb::Receive,
        bytes: u32::MAX,
        transport: Transport::Xrc,
        signaled: false,
    };
    let longest = Line {
        at_ns: u64::MAX,
        process: u32::MAX,
        qpn: 0xff_ffff,
        call: longest,
    };
    assert!(longest.to_string().len() < LINE_BYTES_MAX);
    let text = format!("{HEADER}\n{line}\n1 2 3 receive 4096\n1 2 3 done receive 16 0\n");
    let read: Vec<_> = lines(&text)
        .unwrap()
        .map(|(number, line)| (number, line.unwrap().call))
        .collect();
    let done = Call::Done {
        operation: Verb::Receive,
        bytes: 16,
        status: 0,
    };
    assert_eq!(
        read,
        [(2, post), (3, Call::Receive { bytes: 4096 }), (4, done)]
    );
}

#[test]
fn bytes_that_are_no_record_are_errors_with_a_reason() {
    assert_eq!(lines("").err(), Some(RecordError::NoHeader));
    assert_eq!(
        lines("rockery-verbs-record 2\n").err(),
        Some(RecordError::Version)
    );
    for (line, error) in [
        (
            "1 2 16777216 receive 1",
            "field 3 has to be the number of a queue pair, below 2^24",
        ),
        ("1 2 3 took 1", "field 4 has to be post, receive or done"),
        (
            "1 2 3 post receive 1 rc signaled",
            "field 5 has to be write, send, read, atomic or local",
        ),
        (
            "1 2 3 post send 1 rd",
            "field 7 has to be rc, uc, ud or xrc",
        ),
        (
            "1 2 3 done ack 1 0",
            "field 5 has to be write, send, read, atomic, receive or local",
        ),
        (
            "1 2 3 done send 1",
            "field 7 has to be the number of a status",
        ),
        ("1 2 3 receive 01", "field 5 has to be a number of bytes"),
        (
            "1 2 3 receive 4294967296",
            "field 5 has to be a number of bytes",
        ),
        (
            "1 2 3 receive 1 2",
            "the line has more fields than version 1 has for this call",
        ),
        (
            "+1 2 3 receive 1",
            "field 1 has to be the time in nanoseconds",
        ),
    ] {
        let found = Line::parse(line).expect_err(line).to_string();
        assert_eq!(found, error, "{line}");
    }
}

proptest! {
    #[test]
    fn random_text_keeps_the_contract(text in ".{0,200}") {
        contract::record(text.as_bytes());
        contract::record(format!("{HEADER}\n{text}").as_bytes());
    }

    #[test]
    fn damaged_lines_keep_the_contract(at in 0_usize..40, with in any::<char>()) {
        let mut line: Vec<char> = "84 4711 259 post write 65536 rc signaled".chars().collect();
        line[at] = with;
        let line: String = line.into_iter().collect();
        contract::record(format!("{HEADER}\n{line}\n").as_bytes());
    }
}
