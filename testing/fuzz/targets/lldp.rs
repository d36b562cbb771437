//! The TLVs of LLDP frames: what parses is encoded to the same meaning, and nothing panics. The same bytes as
//! a frame that a host of a lab sends to the port of a switch.
#![no_main]

use wire::dcbx::Advertisement;
use wire::lldp::{LldpTlv, LldpTlvs};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut out = [0; 520];
    for tlv in LldpTlvs::new(bytes).flatten() {
        let length = tlv
            .encode(&mut out)
            .expect("what was in a TLV fits into one");
        let again = LldpTlvs::new(&out[..length]).next();
        assert_eq!(again, Some(Ok(tlv)));
        if let LldpTlv::Applications(entries) = tlv {
            assert!(
                entries
                    .iter()
                    .all(|entry| entry.priority < 8 && entry.selector < 8)
            );
        }
    }
    if let Ok(said) = Advertisement::parse(bytes) {
        let parts = [said.chassis.1, said.port.1, said.system];
        assert!(
            parts
                .iter()
                .all(|part| part.len() <= wire::lldp::TLV_VALUE_MAX)
        );
    }
});
