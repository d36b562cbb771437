//! Links that go down, and switches that do not wait for a packet's end.

use super::{Ran, run};
use fabric_file::{Document, FileError};
use sim::experiment::Experiment;
use sim::report::Report;

const SMALL: [(&str, &str); 3] = [
    ("workload.0.message", "4KiB"),
    ("workload.0.depth", "1"),
    ("duration", "1ms"),
];

#[test]
fn packets_lost_on_a_link_that_is_down_are_retransmitted() {
    let down = |times: &'static str| {
        let sets = [
            ("nic.default.timeout", "6"),
            ("nic.default.out-of-order", "false"),
            ("duration", "20ms"),
            ("link.2.down", times),
        ];
        run("spraying/two-hosts.toml", &sets)
    };
    let once = down("[{ at = \"5ms\", lasts = \"200us\" }]");
    let flaps = down("[{ at = \"5ms\", lasts = \"200us\", times = 10, every = \"1ms\" }]");
    let lost = |ran: &Ran| ran.report.damaged;
    assert!(
        lost(&once) > 100 && lost(&flaps) > 5 * lost(&once),
        "{} {}",
        lost(&once),
        lost(&flaps)
    );
    let workload = |ran: &Ran| ran.report.workloads[0].clone();
    assert!(workload(&once).retransmitted > 0 && workload(&once).failed == 0);
    // A fiftieth of the time, and the time to detect it.
    assert!(
        workload(&once).goodput_bps > 0.9 * 98e9,
        "{:.2e}",
        workload(&once).goodput_bps
    );
    assert!(workload(&flaps).goodput_bps < workload(&once).goodput_bps);
}

/// The link that is left has room for all.
#[test]
fn switches_go_around_a_link_that_is_down_and_come_back() {
    let [around, stays] =
        [&[][..], &[("routing.reaction", "1s")]].map(|sets| run("around.toml", sets));
    let lost = around.report.damaged;
    assert!(lost > 100, "what was sent before they knew: {lost}");
    let [bytes, without] = [&around, &stays].map(|ran| ran.report.workloads[0].bytes as f64);
    // Flows on that link stand still for a millisecond and a timeout of 20, and otherwise for five.
    assert!(bytes > 1.5 * without, "{bytes} and {without} bytes");
    assert_eq!(around.report.workloads[0].failed, 0);
}

/// 62 bytes of headers, the DETH's 8, preamble and gap (IBTA 9.2.3).
#[test]
fn datagrams_fill_the_line_and_are_not_missed() {
    let sets = [
        SMALL[0],
        ("workload.0.operation", "datagram"),
        ("duration", "2ms"),
    ];
    let ran = run("spraying/two-hosts.toml", &sets);
    let (goodput, line) = (
        ran.report.workloads[0].goodput_bps,
        100e9 * 4096.0 / (4096.0 + 62.0 + 8.0 + 20.0),
    );
    assert!(
        (goodput / line - 1.0).abs() < 0.01,
        "{goodput:.4e}, {line:.4e} by the line"
    );
    assert_eq!(
        ran.results.hosts[1].device.sent_packets, 0,
        "nobody answers"
    );
    let sets = [sets.as_slice(), &[("link.2.loss", "10%")]].concat();
    let lossy = run("spraying/two-hosts.toml", &sets);
    assert!((lossy.report.workloads[0].goodput_bps / goodput - 0.9).abs() < 0.02);
    assert_eq!(lossy.report.workloads[0].retransmitted, 0);
}

#[test]
fn links_delay_by_the_law_that_is_named() {
    let latency = |sets: &[(&str, &str)]| {
        let sets = [SMALL.as_slice(), sets].concat();
        run("spraying/two-hosts.toml", &sets).report.workloads[0]
            .latency_us
            .unwrap()
    };
    let plain = latency(&[]).mean;
    let spread = ("link.2.extra-spread", "10us");
    let samples = ("link.2.extra-samples", "[\"1us\", \"2us\", \"30us\"]");
    for (law, values, mean) in [
        ("uniform", &[spread][..], 5.0),
        ("normal", &[spread, ("link.2.extra-delay", "50us")], 50.0),
        ("exponential", &[spread], 10.0),
        ("pareto", &[spread, ("link.2.extra-shape", "3.0")], 15.0),
        ("measured", &[samples], 8.75),
    ] {
        let sets = [&[("link.2.extra-law", law), ("duration", "20ms")], values].concat();
        let added = latency(&sets).mean - plain;
        assert!(
            (added / mean - 1.0).abs() < 0.15,
            "{law}: {added} us, not {mean}"
        );
    }
}

#[test]
fn cutting_through_saves_a_frame_time_per_switch() {
    let mean = |forwarding| {
        let sets = [SMALL.as_slice(), &[("qos.default.forwarding", forwarding)]].concat();
        run("spraying/two-hosts.toml", &sets).report.workloads[0]
            .latency_us
            .unwrap()
            .mean
    };
    let saved = mean("store-and-forward") - mean("cut-through");
    // 4,170 bytes of data and 66 of its acknowledgement, at two switches each, at 100 Gb/s.
    let frames = 2.0 * (4174.0 + 66.0) * 8.0 / 100e3;
    assert!((saved - frames).abs() < 0.02, "{saved} us, not {frames}");
}

#[test]
fn messages_that_come_by_chance_use_their_part_of_the_links() {
    let ran = run("web-search.toml", &[("workload.0.sizes", "storage")]);
    let workload = &ran.report.workloads[0];
    // 16 hosts at half of 100 Gb/s for 5 ms, some of it still on its way.
    let offered = 16.0 * 50e9 / 8.0 * 5e-3;
    assert!(
        (0.85..1.05).contains(&(workload.bytes as f64 / offered)),
        "{} of {offered}",
        workload.bytes
    );
    assert!(workload.flows > 5_000 && workload.finished as f64 > 0.99 * workload.flows as f64);
    let slowdown = workload.slowdown.unwrap();
    assert!(
        slowdown.p50 >= 1.0 && slowdown.p99 > slowdown.p50,
        "{slowdown:?}"
    );
}

/// A frame of 4,096 bytes of payload: 62 of headers around it, and 16 more in the first of a message.
#[test]
fn bit_errors_are_counted_where_the_frames_arrive_and_longer_ones_have_more() {
    let errors = |mtu, rate| {
        let sets = [
            ("nic.default.mtu", mtu),
            ("link.2.bit-errors", rate),
            ("duration", "10ms"),
        ];
        let ran = run("spraying/two-hosts.toml", &sets);
        let ports = &ran.report.ports;
        let errors: Vec<_> = ports.iter().filter(|port| port.fcs_errors > 0).collect();
        assert_eq!(
            errors.len(),
            1,
            "the other way has acknowledgements only, which are short: {errors:#?}"
        );
        let sender = ports.iter().find(|port| port.port == errors[0].to).unwrap();
        assert!(
            errors[0].fcs_errors <= ran.report.damaged,
            "pause frames there are none"
        );
        assert!(
            ran.finding("the error rate of the link")
                .seen
                .contains("FCS errors")
        );
        (errors[0].fcs_errors as f64, 8.0 * sender.bytes as f64)
    };
    for (mtu, rate, chance) in [
        ("4096", "1e-7", 1e-7),
        ("1024", "4e-7", 4e-7),
        ("4096", "1e-6", 1e-6),
    ] {
        let (errors, bits) = errors(mtu, rate);
        let expected = bits * chance;
        // Three standard deviations, and the second of two wrong bits of a frame, which does not count.
        assert!(
            (errors - expected).abs() < 3.0 * expected.sqrt() + 0.02 * expected,
            "{errors}, not {expected}"
        );
    }
}

#[test]
fn pause_frames_are_damaged_as_others_are_and_said_again() {
    let sets = [("link.1.loss", "5%"), ("duration", "5ms")];
    let ran = run("crs504/ecn-off.toml", &sets);
    let errors: u64 = ran.report.ports.iter().map(|port| port.fcs_errors).sum();
    assert!(
        errors > ran.report.damaged,
        "{errors} frames, {} of them packets",
        ran.report.damaged
    );
    let sender = ran
        .report
        .ports
        .iter()
        .find(|port| port.port == "sender0")
        .unwrap();
    let switch = ran
        .report
        .ports
        .iter()
        .find(|port| port.to == "sender0")
        .unwrap();
    assert!(
        sender.pfc_received[3] > 0 && sender.pfc_received[3] < switch.pfc_sent[3],
        "{sender:#?}"
    );
}

/// Delays of months are a mistake in a file, and no reason to panic: nothing arrives.
#[test]
fn the_longest_delays_that_can_be_written_are_simulated() {
    for (path, value) in [
        ("link.0.length", "18446744073709km"),
        ("link.0.extra-delay", "18446744s"),
        ("workload.0.start", "18446744s"),
        ("nic.default.recovery", "18446744s"),
    ] {
        let ran = run(
            "crs504/ecn-off.toml",
            &[("duration", "100us"), (path, value)],
        );
        assert_eq!(ran.results.end, fabric::Time::from_ns(100_000), "{path}");
    }
}

fn experiment(text: &str) -> Result<Experiment, FileError> {
    let mut files = |name: &str| Err(format!("no file {name} in this test"));
    let document = Document::read("lab.toml", text, &mut files)?;
    Experiment::new(&document, &mut files)
}

const CABLE: &str = "[[host]]\nname = \"alice\"\n[[host]]\nname = \"bob\"\n\
                     [[link]]\nbetween = [\"alice\", \"bob\"]\n[[workload]]\n\
                     from = [\"alice\"]\nto = [\"bob\"]\nmessages = 20\n";

#[test]
fn two_hosts_on_one_cable_need_no_switch() {
    let experiment = experiment(&format!("{CABLE}depth = 4\n")).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    let workload = &report.workloads[0];
    assert_eq!((workload.bytes, workload.failed), (20 << 20, 0));
    assert!(
        workload.goodput_bps > 0.9 * 100e9,
        "{:.2e}",
        workload.goodput_bps
    );
}

/// A cable without a switch: each host has credits of the other one.
#[test]
fn two_hosts_on_one_infiniband_cable_need_no_switch() {
    let text = format!("{CABLE}depth = 4\n[nic.default]\nlink-layer = \"infiniband\"\n");
    let experiment = experiment(&text).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    let workload = &report.workloads[0];
    assert_eq!((workload.bytes, workload.failed), (20 << 20, 0));
    assert!(
        workload.goodput_bps > 0.9 * 100e9,
        "{:.2e}",
        workload.goodput_bps
    );
}
