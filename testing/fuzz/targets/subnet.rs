//! Datagrams, records and calls of programs on a host of an InfiniBand subnet.
#![no_main]

#[path = "../../../core/infiniband/tests/it/contract.rs"]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| contract::steps(bytes));
