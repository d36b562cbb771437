//! Figures that the model was not fitted to.

use super::super::run;
use super::{gbps, run_text, star};

/// What headers and delimiters leave: 26 bytes around the payload, and 2 delimiters.
#[test]
fn a_cable_carries_what_headers_leave() {
    for (speed, wanted) in [
        ("4x QDR", 31.8),
        ("4x FDR", 54.2),
        ("4x EDR", 99.3),
        ("4x HDR", 198.6),
    ] {
        let more = "window = \"16MiB\"\n\
                    [[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\nmessage = \"1MiB\"\ndepth = 16\n";
        let ran = run_text(&star(2, speed, more).replace("300us", "5ms"));
        let rate = ran.results.flows[0].goodput_bps(1 << 20).unwrap() / 1e9;
        assert!((rate / wanted - 1.0).abs() < 0.002, "{speed}: {rate}");
    }
}

/// Hoefler, Schneider and Lumsdaine (Cluster 2008): clusters with full bisection and static routing have 55
/// to 60 % of it, on average over random bisections.
#[test]
fn a_random_bisection_has_little_more_than_half_of_the_bandwidth() {
    let part = |seed: u32| {
        let sets = [
            ("sm.routing", "ftree"),
            ("workload.0.pattern", "bisection"),
            ("seed", &seed.to_string()),
        ];
        gbps(&run("infiniband/routing.toml", &sets), 0) / 128.0 / 99.3
    };
    let parts: Vec<f64> = (1..=8).map(part).collect();
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    assert!((0.55..0.60).contains(&mean), "{mean}: {parts:?}");
}

/// Two servers on one QDR cable, with PCIe 2.0 x8 between the slower one's adapter and memory: the rates of
/// WRITE and READ in Gb/s.
fn over_a_qdr_cable(more: &str) -> [f64; 2] {
    ["write", "read"].map(|operation| {
        let more = format!(
            "pcie = {{ generation = 2, width = 8, payload = 128{more} }}\n[[workload]]\nfrom = [\"h1\"]\n\
             to = [\"h0\"]\nmessage = \"64KiB\"\ndepth = 128\noperation = \"{operation}\"\n"
        );
        let ran = run_text(&star(2, "4x QDR", &more).replace("300us", "5ms"));
        ran.finding("PCIe 2.0 x8: 32.0 Gb/s");
        gbps(&ran, 0)
    })
}

/// An experiment of 2012 measured 23.9 Gb/s of WRITE (2850.94 MB/s of 2^20 bytes) and 19.1 of READ. The bus
/// of the model has no packets of its link layer, so that WRITE has an eighth more.
#[test]
fn a_write_over_a_qdr_cable_is_limited_by_the_bus() {
    let [write, read] = over_a_qdr_cable("");
    assert!((23.9..1.13 * 23.9).contains(&write), "{write}");
    assert!((read / write - 1.0).abs() < 0.01, "{read}");
}

/// The same experiment's READ is one constant of the adapter, which is fitted; WRITE does not depend on it.
#[test]
fn the_rate_of_answers_to_reads_limits_them_alone() {
    let [write, read] = over_a_qdr_cable(", read-response-rate = \"19.1Gb/s\"");
    let [unlimited, _] = over_a_qdr_cable("");
    assert!((read / 19.1 - 1.0).abs() < 0.01, "{read}");
    assert_eq!(write.to_bits(), unlimited.to_bits());
    // A rate above that of the link does not make the link faster.
    let [_, read] = over_a_qdr_cable(", read-response-rate = \"100Gb/s\"");
    assert_eq!(read.to_bits(), over_a_qdr_cable("")[1].to_bits());
}
