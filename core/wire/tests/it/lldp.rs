//! DCBX TLVs as rockery encodes them, read by Wireshark's dissector.

use std::process::Command;

use crate::support::TemporaryPcap;
use wire::lldp::{Application, Applications, EtsTlv, LLDP_DESTINATION, LldpTlv, PfcTlv, Tsa};
use wire::{EtherType, Ethernet, MacAddress};

fn frame() -> Vec<u8> {
    let mut tsa = [Tsa::Ets; 8];
    tsa[6] = Tsa::Strict;
    let ets = EtsTlv {
        recommendation: false,
        willing: true,
        credit_based: false,
        classes_max: 0,
        class_of_priority: [0, 0, 0, 3, 0, 0, 6, 0],
        bandwidth: [40, 0, 0, 60, 0, 0, 0, 0],
        tsa,
    };
    let pfc = PfcTlv {
        willing: false,
        macsec_bypass: false,
        capability: 8,
        enabled: 1 << 3,
    };
    let roce = Application {
        priority: 3,
        selector: 3,
        protocol: 4791,
    }
    .to_bytes();
    let tlvs = [
        LldpTlv::Chassis(4, &[2, 0, 0, 0, 0, 1]),
        LldpTlv::Port(5, b"qsfp28-1-1"),
        LldpTlv::TimeToLive(120),
        LldpTlv::SystemName(b"crs504"),
        LldpTlv::Ets(ets),
        LldpTlv::Ets(EtsTlv {
            recommendation: true,
            willing: false,
            ..ets
        }),
        LldpTlv::Pfc(pfc),
        LldpTlv::Applications(Applications::new(&roce)),
        LldpTlv::End,
    ];
    let source = MacAddress([2, 0, 0, 0, 0, 1]);
    let header = Ethernet {
        destination: LLDP_DESTINATION,
        source,
        vlan: None,
        ethertype: EtherType::LLDP,
    };
    let mut bytes = [0; wire::ethernet::ETHERNET_SIZE_MAX];
    let length = header.encode(&mut bytes);
    let mut frame = bytes[..length].to_vec();
    for tlv in tlvs {
        let mut out = [0; 600];
        let length = tlv.encode(&mut out).expect("it fits");
        frame.extend(&out[..length]);
    }
    frame
}

#[test]
fn wireshark_reads_dcbx_tlvs() {
    let capture = TemporaryPcap::write("lldp", &[frame()]);
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&capture.0)
        .args(["-V", "-O", "lldp"])
        .output();
    let output = output.expect("tshark (package tshark)");
    assert!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in [
        "System Name = crs504",
        "Subtype: ETS Configuration (0x09)",
        "Subtype: ETS Recommendation (0x0a)",
        "Subtype: Priority Flow Control Configuration (0x0b)",
        "Subtype: Application Protocol (0x0c)",
        "Bandwidth for PGID 3: 60",
        "TSA for Traffic Class 6: Strict Priority (0)",
        "Max PFC Enabled Traffic Classes: 8",
        "PFC for Priority 3: Enabled",
        "Application Priority: 3",
        "Application Protocol Id: 0x12b7",
        "Seconds: 120",
        "End of LLDPDU",
    ] {
        assert!(shown.contains(part), "no \"{part}\" in:\n{shown}");
    }
    assert!(
        !shown.contains("Malformed") && !shown.contains("Expert Info (Error"),
        "{shown}"
    );
}
