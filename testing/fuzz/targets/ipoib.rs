//! Packets, datagrams, answers and states of the port of an interface of IP over InfiniBand.
#![no_main]

#[path = "../../../core/infiniband/tests/it/ipoib_contract.rs"]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| contract::steps(bytes));
