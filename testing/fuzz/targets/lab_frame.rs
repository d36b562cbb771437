//! Frames from the tap of a lab host: they are classified, cut and merged, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lab::fuzz_entry::tap_frame(bytes);
});
