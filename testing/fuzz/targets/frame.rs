//! Whole Ethernet frames, as they come out of a capture or a raw link.
#![no_main]

#[path = "../../../core/wire/tests/it/contract.rs"]
#[allow(dead_code, reason = "each fuzzer takes one of its checks")]
mod contract;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    contract::frame(bytes);
    contract::frame(&with_checksum(bytes));
});

/// The same frame with a correct IPv4 checksum, which mutations do not find.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let words = header
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}
