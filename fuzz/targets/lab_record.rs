//! Records in the ring of a lab host's device: what enters the network is for a host that there is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lab::hostile::ring_record(bytes);
});
