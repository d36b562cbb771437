//! Records in the ring of a lab host's device: packets that enter the network are for a host that exists.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lab::fuzz_entry::ring_record(bytes);
});
