//! PCIe links that did not train as they should.

use super::run;

#[test]
fn a_pcie_link_is_the_ceiling_and_is_named() {
    // Raw, as Linux prints it, and with 24 bytes around each 256.
    for (generation, name, raw) in [("1", "1.1", 16.0), ("3", "3.0", 63.0)] {
        let ran = run(
            "pcie/trained.toml",
            &[("nic.default.pcie.generation", generation)],
        );
        let gbps = ran.report.workloads[0].goodput_bps / 1e9;
        let ceiling = raw * 256.0 / 280.0;
        assert!(
            gbps < ceiling + 0.02 && gbps > 0.99 * ceiling,
            "{name}: {gbps}"
        );
        let cause = ran.finding(&format!("PCIe {name} x8: {raw:.1} Gb/s"));
        assert!(
            cause.seen.starts_with("the PCIe link of h0 was busy")
                && cause.instead.contains("LnkSta"),
            "{cause:#?}"
        );
    }
    // 4.0 x8 is more than the link; with a faster link it is the ceiling.
    let fits = run("pcie/trained.toml", &[("nic.default.pcie.generation", "4")]);
    assert!(fits.report.workloads[0].goodput_bps > 97.9e9 && fits.report.findings.is_empty());
    let sets = [
        ("nic.default.pcie.generation", "4"),
        ("topology.rate", "200Gb/s"),
    ];
    let ran = run("pcie/trained.toml", &sets);
    let gbps = ran.report.workloads[0].goodput_bps / 1e9;
    assert!((114.0..115.3).contains(&gbps), "{gbps}");
    ran.finding("PCIe 4.0 x8: 126.0 Gb/s");
}
