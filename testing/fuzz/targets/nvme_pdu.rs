//! PDUs of NVMe/TCP, and SGL descriptors.
#![no_main]

#[path = "../../../core/wire/tests/it/contract.rs"]
#[allow(dead_code, reason = "each fuzzer takes one of its checks")]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| contract::nvme(bytes));
