//! The 100G lab: the RouterOS script imported, and the effect of wrong settings on storage traffic.

use super::{Ran, run};
use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::Report;
use sim::report::{Severity, vendor_tables};

fn lossless(name: &str) -> Ran {
    let ran = run(name, &[]);
    assert_eq!(ran.dropped(), 0, "{name}");
    let switch = &ran.report.switches[0];
    assert!(
        switch.pauses_sent > 0 && switch.marked > 0,
        "{name}: pauses and marks are counted"
    );
    let storage = &ran.report.workloads[0];
    assert!(
        storage.goodput_bps > 97e9 && storage.retransmitted == 0,
        "{name}: {:.2e}",
        storage.goodput_bps
    );
    let to_server = ran
        .report
        .ports
        .iter()
        .find(|port| port.to == "server")
        .unwrap();
    assert!(
        to_server.queues.iter().all(|queue| queue.class == 3),
        "{name}: all of it in class 3"
    );
    ran
}

#[test]
fn as_the_switch_printed_itself_nothing_is_lost() {
    let ran = lossless("crs504/lab.toml");
    // Without a map, notifications are in the class of the port: with the data that they are about.
    assert_eq!(
        ran.finding("paused, with the data").severity,
        Severity::Note
    );
}

#[test]
fn with_a_map_for_the_trust_nothing_is_lost() {
    let ran = run("crs504/mapped.toml", &[]);
    assert_eq!(
        (ran.dropped(), ran.report.findings.len()),
        (0, 0),
        "{:#?}",
        ran.report.findings
    );
    assert!(ran.report.workloads[0].fairness.unwrap() > 0.9);
}

#[test]
fn the_tables_are_those_of_the_switch_with_what_was_counted() {
    let ran = run("crs504/mapped.toml", &[]);
    let tables = vendor_tables(&ran.experiment, &ran.results);
    let text = &tables[0].text;
    assert_eq!(
        (tables[0].switch.as_str(), tables[0].system),
        ("crs504", "RouterOS")
    );
    for wanted in [
        "3  H  default     3              high-priority-group  3       auto",
        "0   R  qsfp28-1-1",
        "tx-queue3-packet: ",
        "pfc3-pause-threshold: 320.0KiB",
        "total-byte-cap: 8.0MiB",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(
        !text.contains("total-byte-use: 0\n") && !text.contains("drop-queue3"),
        "{text}"
    );
}

/// Packets are lost, and the finding names the setting.
fn lossy(name: &str, cause: &str, instead: &str) {
    let ran = run(name, &[]);
    assert!(
        ran.dropped() > 0 && ran.report.workloads[0].retransmitted > 0,
        "{name}"
    );
    let finding = ran.finding(cause);
    assert_eq!(finding.severity, Severity::Broken);
    assert!(finding.instead.contains(instead), "{finding:#?}");
    assert!(
        ran.report.workloads[0].goodput_bps < 80e9,
        "{name}: go-back-N is felt"
    );
}

#[test]
fn the_script_as_it_is_written_leaves_data_in_the_lossy_class() {
    lossy(
        "crs504/as-written.toml",
        "no map ip entry for DSCP 26",
        "map ip add dscp=26 profile=roce-profile",
    );
}

#[test]
fn pfc_on_the_wrong_class_loses() {
    lossy(
        "crs504/pfc-on-wrong-class.toml",
        "is for class 4, and data (DSCP 26) is in class 3",
        "traffic-class=3",
    );
}

#[test]
fn dscp_that_is_not_trusted_loses() {
    lossy(
        "crs504/dscp-not-trusted.toml",
        "trust-l3=ignore",
        "trust-l3=keep",
    );
}

#[test]
fn without_ecn_pauses_block_a_victim_flow() {
    let ran = run("crs504/ecn-off.toml", &[]);
    assert_eq!((ran.dropped(), ran.report.switches[0].marked), (0, 0));
    assert!(
        ran.finding("ECN is off for class 3")
            .instead
            .contains("tx-manager set ecn=yes")
    );
    let victim = ran
        .report
        .findings
        .iter()
        .find(|finding| finding.seen.contains("head-of-line blocking"))
        .unwrap();
    assert!(victim.seen.starts_with("sender0 → sender1"), "{victim:#?}");
    let with = run(
        "crs504/ecn-off.toml",
        &[("switch.crs504.routeros", "[\"roce.rsc\", \"mapped.rsc\"]")],
    );
    let slowdown = |ran: &Ran| ran.report.workloads[1].slowdown.unwrap().p50;
    assert!(
        slowdown(&ran) > 4.0 * slowdown(&with),
        "{} with ECN off, {} on",
        slowdown(&ran),
        slowdown(&with)
    );
    assert!(ran.report.switches[0].pauses_sent > 4 * with.report.switches[0].pauses_sent);
}

#[test]
fn shares_are_as_configured() {
    let ran = run("crs504/shares.toml", &[]);
    let port = ran
        .report
        .ports
        .iter()
        .find(|port| port.to == "server")
        .unwrap();
    let packets = |class: u8| {
        port.queues
            .iter()
            .find(|queue| queue.class == class)
            .unwrap()
            .packets as f64
    };
    let ratio = packets(3) / packets(1);
    assert!(
        (2.9..3.1).contains(&ratio),
        "3 to 1 in packets, not {ratio:.2}"
    );
    assert!(port.load > 0.99);
}

/// The lab with a script behind the switch's own.
fn with_script(script: &str) -> Ran {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/crs504/");
    let mut files = |name: &str| match name {
        "more.rsc" => Ok(script.to_owned()),
        name => std::fs::read_to_string(format!("{folder}{name}")).map_err(|it| it.to_string()),
    };
    let text = files("lab.toml").unwrap();
    let mut document = Document::read("lab.toml", &text, &mut files).unwrap();
    let scripts = r#"["roce.rsc", "as-printed.rsc", "more.rsc"]"#;
    document.set("switch.0.routeros", scripts).unwrap();
    let experiment = Experiment::new(&document, &mut files).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    Ran {
        experiment,
        results: ran.results,
        report,
    }
}

/// A threshold in percent is of the shared pool, which has 2,560 KiB for all ports: three senders fill it
/// before one of them is paused.
#[test]
fn pause_thresholds_beyond_the_shared_pool_lose_packets_and_are_named() {
    assert_eq!(with_script("").dropped(), 0);
    let script = "/interface ethernet switch qos priority-flow-control\n\
                  set roce-pfc pause-threshold=90% resume-threshold=70%\n";
    let ran = with_script(script);
    let switch = &ran.report.switches[0];
    assert!(ran.dropped() > 0, "{switch:?}");
    // The queue's own buffers and the pool; queues of other ports have next to nothing.
    let most = (2_560 + 1_280) << 10;
    assert!(switch.buffer_peak_bytes < most, "{switch:?}");
    let finding = ran.finding("the shared pool of all ports has 2560 KiB");
    assert!(finding.cause.contains("2304 KiB"), "{finding:?}");
    assert!(
        finding.instead.contains("pause-threshold=auto"),
        "{finding:?}"
    );
}
