//! Traces: bytes behind the head of a chunk, as a damaged file has them, and records whose form is right and
//! whose values are few, so that they are about the same queue pairs and memory.
#![no_main]

use trace::layout::{chunk_head, header, record_head};
use trace::{Kind, NONE, Trace, explain, line};

/// Addresses of the peer and own ones, in the text of some records.
const PATHS: [&str; 4] = ["", "10.0.0.2 10.0.0.1", "10.0.0.1 10.0.0.2", "ibv_reg_mr"];

fn file() -> Vec<u8> {
    let mut file = header(1 << 20, 1000);
    file.extend(chunk_head(7, 8, ["program", "thread"]));
    file
}

/// A record of the kind and the values that the bytes choose; `None` at their end.
fn record(bytes: &mut &[u8], at_ns: u64) -> Option<Vec<u8>> {
    let (&[kind, text], rest) = bytes.split_first_chunk()?;
    let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    let count = kind.fields().len();
    let (values, rest) = rest.split_at_checked(count)?;
    *bytes = rest;
    let text = PATHS[usize::from(text) % PATHS.len()];
    let value = |byte: &u8| match byte {
        255 => NONE,
        254 => u64::MAX - 1,
        253 => 1 << 31,
        byte => u64::from(*byte % 16),
    };
    let mut words = vec![record_head(kind as u8, count, text.len()), at_ns];
    words.extend(values.iter().map(value));
    let mut made: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    made.extend(text.as_bytes());
    made.resize(made.len().next_multiple_of(8), 0);
    Some(made)
}

fn read(file: &[u8]) -> usize {
    let trace = Trace::read(&[file]).expect("the header is right");
    for (_, event) in trace.events() {
        assert!(!line(&event, trace.begin_ns()).is_empty());
    }
    for found in explain(&trace) {
        assert!(trace.event(found.event).is_some(), "{found:?}");
        assert!(!found.what.is_empty() && !found.mistake.remedy().is_empty());
        assert!(found.shown_by.is_none_or(|shown| trace.event(shown).is_some()));
    }
    trace.len()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut damaged = file();
    damaged.extend(bytes);
    read(&damaged);

    let (mut whole, mut rest, mut count) = (file(), bytes, 0);
    while let Some(made) = record(&mut rest, 10 * count as u64) {
        whole.extend(made);
        count += 1;
    }
    assert_eq!(read(&whole), count);
});
