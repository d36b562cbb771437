//! Figures that others published, of networks described after their papers and reports: the same sizes and
//! directions come out.

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::Report;

/// Runs a file with other values in place of its own.
fn run(text: &str, sets: &[(&str, &str)]) -> Report {
    let mut none = |name: &str| Err(format!("{name} is not there"));
    let mut document = Document::read("published.toml", text, &mut none).unwrap();
    for (path, value) in sets {
        document.set(path, value).unwrap();
    }
    let experiment = Experiment::new(&document, &mut none).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    Report::new(&experiment, &ran.results, ran.partial)
}

fn gbps(report: &Report, workload: &str) -> f64 {
    let mut own = report.workloads.iter();
    let own = own.find(|own| own.name == workload).unwrap();
    own.goodput_bps / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A sender beside the receiver, and three behind a link that they share.
const UNFAIR: &str = r#"
duration = "10ms"
[nic.default]
congestion = "off"
ecn = false
[qos.default]
buffer = "12MB"
[[host]]
name = "receiver"
[[host]]
name = "near"
[[host]]
name = "far"
count = 3
[[switch]]
name = "s"
count = 2
[[link]]
between = ["receiver", "s0"]
rate = "40Gb/s"
[[link]]
between = ["near", "s0"]
rate = "40Gb/s"
[[link]]
between = ["far*", "s1"]
rate = "40Gb/s"
[[link]]
between = ["s0", "s1"]
rate = "40Gb/s"
[[workload]]
name = "near"
from = ["near"]
to = ["receiver"]
message = "4MiB"
depth = 2
[[workload]]
name = "far"
pattern = "each"
from = ["far*"]
to = ["receiver"]
message = "4MiB"
depth = 2
"#;

/// Zhu et al. (DCQCN, SIGCOMM 2015), figure 3: PFC pauses ports and not flows, so the near sender has half of
/// the link, and each far one a sixth.
#[test]
fn pfc_gives_ports_and_not_flows_their_share() {
    let report = run(UNFAIR, &[("nic.default.window", "256MiB")]);
    let (near, far) = (gbps(&report, "near"), gbps(&report, "far") / 3.0);
    assert!((18.5..20.5).contains(&near), "{near}, and 20 in the paper");
    assert!((6.0..7.0).contains(&far), "{far}, and 6.67 in the paper");
    // Windows of 1 MiB, of which the buffer takes four: the senders are never paused.
    let report = run(UNFAIR, &[("qos.default.buffer", "32MiB")]);
    let near = gbps(&report, "near");
    assert!((9.0..13.0).contains(&near), "{near}");
    let paused = report.ports.iter().map(|port| port.paused_us).sum::<f64>();
    assert!(paused < 1.0, "{paused}");
}

/// Two tiers of two switches each below two spines; four senders and `b` into one receiver, and a pair that
/// shares no link to it.
fn with_victim(others: u32, seed: u64) -> f64 {
    let mut text = String::from(
        "duration = \"10ms\"\n[nic.default]\ncongestion = \"off\"\necn = false\nwindow = \"256MiB\"\n\
         [qos.default]\nbuffer = \"12MB\"\n",
    );
    for (name, count) in [("a", 4), ("vs", 1), ("vr", 1), ("r", 1), ("b", 2)] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
        if count > 1 {
            text += &format!("count = {count}\n");
        }
    }
    for name in ["t1", "t2", "t3", "t4", "l1", "l2", "l3", "l4", "s1", "s2"] {
        text += &format!("[[switch]]\nname = \"{name}\"\n");
    }
    for ends in [
        "a* t1", "vs t1", "vr t2", "b* t3", "r t4", "t1 l1", "t1 l2", "t2 l1", "t2 l2", "t3 l3",
        "t3 l4", "t4 l3", "t4 l4", "l1 s1", "l1 s2", "l2 s1", "l2 s2", "l3 s1", "l3 s2", "l4 s1",
        "l4 s2",
    ] {
        let (one, other) = ends.split_once(' ').unwrap();
        text += &format!("[[link]]\nbetween = [\"{one}\", \"{other}\"]\nrate = \"40Gb/s\"\n");
    }
    let mut flows = vec![("incast", "a*", "r"), ("victim", "vs", "vr")];
    if others > 0 {
        flows.push(("others", "b*", "r"));
    }
    for (name, from, to) in flows {
        text += &format!(
            "[[workload]]\nname = \"{name}\"\npattern = \"each\"\nfrom = [\"{from}\"]\nto = [\"{to}\"]\n\
             message = \"4MiB\"\ndepth = 2\n"
        );
    }
    let report = run(&text, &[("seed", &seed.to_string())]);
    gbps(&report, "victim")
}

/// Figure 4 of the same: more senders elsewhere slow down a pair that shares no link with them.
#[test]
fn pauses_spread_to_a_pair_that_has_nothing_to_do_with_them() {
    let of = |others| median((1..=9).map(|seed| with_victim(others, seed)).collect());
    let (alone, beside) = (of(0), of(2));
    assert!(
        beside < 0.8 * alone && alone < 20.0,
        "{alone} and {beside}; about 10 and 4.5 in the paper"
    );
}

/// Choudhury and Hahne (1998): a queue alone with the threshold alpha times what is free has alpha / (1 +
/// alpha) of the buffer.
#[test]
fn a_dynamic_threshold_leaves_its_part_of_the_buffer_free() {
    let text = r#"
duration = "2ms"
topology = { kind = "star", hosts = 8 }
[nic.default]
congestion = "off"
ecn = false
[qos.default]
buffer = "10MB"
lossy-limit = "none"
pfc = { classes = [] }
queue.3 = { limit = "alpha 1" }
[[workload]]
pattern = "each"
from = ["h[4-7]"]
to = ["h0"]
operation = "unreliable-write"
message = "1MiB"
depth = 4
"#;
    for (alpha, part) in [
        ("1/8", 1.0 / 9.0),
        ("1/2", 1.0 / 3.0),
        ("1", 0.5),
        ("2", 2.0 / 3.0),
        ("8", 8.0 / 9.0),
    ] {
        let limit = format!("alpha {alpha}");
        let report = run(text, &[("qos.default.queue.3.limit", &limit)]);
        let peak = report.ports.iter().map(|port| port.peak_queue_bytes).max();
        let found = f64::from(peak.unwrap()) / 10e6;
        assert!(
            found < part * 1.001 && found > part * 0.95,
            "alpha {alpha}: {found} of the buffer, and not {part}"
        );
    }
}

/// Eight flows over eight paths by hash: 1 - (7/8)^8 of the paths are taken, 5.25 of them.
#[test]
fn flows_by_hash_take_as_many_paths_as_balls_take_bins() {
    let text = r#"
duration = "1ms"
topology = { kind = "leaf-spine", leaves = 2, spines = 8, hosts = 8 }
[nic.default]
congestion = "off"
ecn = false
[[workload]]
pattern = "pairs"
from = ["h[0-7]"]
to = ["h[8-9]", "h[10-15]"]
message = "1MiB"
depth = 4
"#;
    let of = |seed: u64| {
        let report = run(text, &[("seed", &seed.to_string())]);
        report.workloads[0].goodput_bps / 1e9
    };
    let mean = (1..=30).map(of).sum::<f64>() / 30.0;
    assert!(
        (480.0..550.0).contains(&mean),
        "{mean} Gb/s, and 514 expected"
    );
}

/// Go-back-N repeats all that follows a lost packet: above one packet in a hundred nothing is left.
#[test]
fn go_back_n_has_next_to_nothing_left_at_one_percent() {
    let text = r#"
duration = "50ms"
[nic.default]
mtu = 1024
congestion = "off"
[[host]]
name = "a"
[[host]]
name = "b"
[[switch]]
name = "s"
[[link]]
between = ["a", "s"]
rate = "40Gb/s"
[[link]]
between = ["s", "b"]
rate = "40Gb/s"
loss = 0.0001
[[workload]]
from = ["a"]
to = ["b"]
message = "4MB"
operation = "send"
depth = 2
"#;
    let of = |loss: &str| run(text, &[("link.1.loss", loss)]).workloads[0].goodput_bps / 1e9;
    let found = ["0", "0.0001", "0.001", "0.0039", "0.01"].map(of);
    let [none, least, little, some, most] = found;
    assert!(none > 36.0 && least > 30.0, "{found:?}");
    assert!(little < 33.0 && some < 6.0 && most < 1.5, "{found:?}");
    assert!(found.is_sorted_by(|one, other| one > other), "{found:?}");
}

/// Four hosts with NCCL's channels into queues of 3.3 MB without PFC: buffers of 4 MiB overflow them, small
/// ones do not.
#[test]
fn large_buffers_of_a_library_overflow_a_queue_and_small_ones_do_not() {
    let text = r#"
duration = "5ms"
topology = { kind = "star", hosts = 4, rate = "200Gb/s" }
[nic.default]
window = "4MiB"
mtu = 1024
[qos.default]
buffer = "16MiB"
lossy-limit = "none"
pfc = { classes = [] }
[qos.default.queue.3]
limit = "3.3MB"
ecn = { min = "1MiB", max = "2MiB", probability = 1.0 }
[[workload]]
pattern = "each"
from = ["h1", "h2", "h3"]
to = ["h0"]
qps = 4
message = "4MiB"
"#;
    let of = |message: &str| {
        let report = run(text, &[("workload.0.message", message)]);
        report
            .switches
            .iter()
            .map(|switch| switch.dropped)
            .sum::<u64>()
    };
    let (large, small) = (of("4MiB"), of("256KiB"));
    assert!(large > 0 && small == 0, "{large} and {small}");
}

/// Ranges behind a digit, as hosts are named.
#[test]
fn ranges_of_names_may_follow_a_digit() {
    let text = r#"
topology = { kind = "star", hosts = 16 }
[[workload]]
from = ["h[1-9]", "h1[0-5]"]
to = ["h0"]
pattern = "each"
bytes = "1MB"
"#;
    assert_eq!(run(text, &[]).workloads[0].flows, 15);
}
