//! Captures of `rockery sim`, read by Wireshark's dissector.

use std::process::Command;

use programs::{Rockery, dissector};
use tempfile::TempDir;

/// Three senders that nothing but pauses holds back, in tagged frames of priority 3.
const INCAST: &str = r#"
topology = { kind = "star", hosts = 4 }
[nic.default]
congestion = "off"
pcp = 3
[qos.default]
pfc.xoff = "20kB"
[[workload]]
pattern = "each"
from = ["h[1-3]"]
to = ["h0"]
message = "64KiB"
messages = 4
"#;

#[test]
fn wireshark_reads_simulated_packets_and_pause_frames() {
    let folder = TempDir::new().unwrap();
    let (file, capture) = (
        folder.path().join("incast.toml"),
        folder.path().join("h1.pcap"),
    );
    std::fs::write(&file, INCAST).unwrap();
    let mut rockery = Command::new(Rockery::built().path());
    rockery
        .arg("sim")
        .arg(&file)
        .arg("--pcap")
        .arg(format!("h1={}", capture.display()));
    let ran = rockery.output().unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let everything = dissector::fields(&capture, "frame", &["frame.number"]).len();
    let data = dissector::fields(
        &capture,
        "infiniband.bth.opcode <= 11 && infiniband.bth.opcode >= 6",
        &["vlan.priority", "infiniband.bth.psn"],
    );
    assert!(data.len() >= 4 * 16, "each packet of data: {}", data.len());
    assert!(
        data.iter().all(|line| line.starts_with("3\t")),
        "{:?}",
        data[0]
    );
    let acknowledged = dissector::fields(
        &capture,
        "infiniband.bth.opcode == 17",
        &["infiniband.aeth.msn"],
    );
    assert!(!acknowledged.is_empty());
    // The switch stops priority 3, and lets it go on (802.1Q clause 36: a time of 0).
    let times = dissector::fields(
        &capture,
        "macc.opcode == 0x0101",
        &["macc.cbfc.enbv.c3", "macc.cbfc.pause_time.c3"],
    );
    let time = |line: &String| line.split('\t').nth(1).unwrap_or_default().to_owned();
    let times: Vec<String> = times.iter().map(time).collect();
    assert!(
        times.iter().any(|time| time == "65535") && times.iter().any(|time| time == "0"),
        "{times:?}"
    );
    assert_eq!(
        data.len() + acknowledged.len() + times.len(),
        everything,
        "nothing else is there"
    );
    let bad = dissector::fields(
        &capture,
        "_ws.malformed || _ws.expert.severity >= 0x600000",
        &["frame.number"],
    );
    assert_eq!(bad, Vec::<String>::new());
}
