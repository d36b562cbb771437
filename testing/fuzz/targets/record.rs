//! Recorded verbs calls, as `rockery sim` reads them.
#![no_main]

#[path = "../../../core/wire/tests/it/contract.rs"]
#[allow(dead_code, reason = "each fuzzer takes one of its checks")]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    contract::record(bytes);
    let mut whole = wire::record::HEADER.as_bytes().to_vec();
    whole.push(b'\n');
    whole.extend_from_slice(bytes);
    contract::record(&whole);
});
