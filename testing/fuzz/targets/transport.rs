//! Bytes from the BTH on, as they come out of a UDP socket.
#![no_main]

#[path = "../../../core/wire/tests/it/contract.rs"]
#[allow(dead_code, reason = "each fuzzer takes one of its checks")]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| contract::transport(bytes));
