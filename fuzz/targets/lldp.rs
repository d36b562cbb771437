//! The TLVs of LLDP frames: what parses is encoded to the same meaning, and nothing panics.
#![no_main]

use wire::lldp::{LldpTlv, LldpTlvs};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut out = [0; 520];
    for tlv in LldpTlvs::new(bytes).flatten() {
        let length = tlv.encode(&mut out).expect("what was in a TLV fits into one");
        let again = LldpTlvs::new(&out[..length]).next();
        assert_eq!(again, Some(Ok(tlv)));
        if let LldpTlv::Applications(entries) = tlv {
            assert!(entries.iter().all(|entry| entry.priority < 8 && entry.selector < 8));
        }
    }
});
