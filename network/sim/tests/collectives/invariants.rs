//! Threads, the numbering of ranks, and losses change nothing that they must not.

use super::{Ran, experiment, run, run_on};

const LEAF_SPINE: &str = r#"
topology = { kind = "leaf-spine", leaves = 3, spines = 2, hosts = 3, rate = "100Gb/s", delay = "500ns" }
[nic.default]
congestion = "dcqcn"
timeout = 8
[qos.default]
dscp = { 26 = 3, 48 = 6 }
pfc = { classes = [3] }
queue.3 = { ecn = { min = "20KiB", max = "200KiB", probability = "20%" } }
"#;

/// One of everything, with dependencies, computing, and two groups.
const ALL_KINDS: &str = r#"
[group.first]
hosts = ["h[0-4]"]
[group.pairs]
hosts = ["h0", "h4", "h8", "h3"]
[[collective]]
name = "ring"
kind = "all-reduce"
bytes = "3MB"
channels = 2
compute = "5us"
repeat = 2
[[collective]]
name = "trees"
kind = "all-reduce"
algorithm = "double-tree"
bytes = "1MB"
protocol = "ll128"
[[collective]]
name = "halving"
kind = "all-reduce"
algorithm = "halving-doubling"
bytes = "700kB"
after = ["ring"]
[[collective]]
name = "parts"
kind = "reduce-scatter"
group = "first"
bytes = "900kB"
[[collective]]
name = "gather"
kind = "all-gather"
algorithm = "halving-doubling"
group = "pairs"
bytes = "900kB"
after = ["parts", "kv*"]
[[collective]]
name = "experts"
kind = "all-to-all"
bytes = "2MB"
channels = 2
[[collective]]
name = "fence"
kind = "barrier"
[[collective]]
name = "weights"
kind = "broadcast"
root = "h4"
bytes = "1500kB"
protocol = "ll"
[[collective]]
name = "loss"
kind = "reduce"
root = "h2"
bytes = "300kB"
[[transfer]]
name = "kv-0"
from = "h1"
to = "h8"
bytes = "2.6MB"
compute = "3us"
[[transfer]]
name = "kv-1"
from = "h1"
to = "h8"
bytes = "600kB"
after = ["kv-0"]
repeat = 3
"#;

#[track_caller]
fn all_done(ran: &Ran) {
    for one in &ran.report.collectives {
        assert_eq!(one.stuck, None, "{}", one.name);
        assert_eq!(one.repetitions, one.repeat, "{}", one.name);
        assert!(one.path.is_some(), "{} has a critical path", one.name);
    }
    let all = ran
        .results
        .flows
        .iter()
        .all(|flow| flow.messages > 0 && !flow.failed);
    assert!(all, "each queue pair was used");
    assert_eq!(
        ran.report
            .findings
            .iter()
            .filter(|it| it.cause.contains("end"))
            .count(),
        0
    );
}

#[test]
fn threads_leave_no_trace() {
    for loss in ["0", "1e-7"] {
        let text =
            LEAF_SPINE.replace("delay =", &format!("bit-errors = \"{loss}\", delay =")) + ALL_KINDS;
        let one = run(&text);
        all_done(&one);
        let resent: u64 = one.report.workloads.iter().map(|it| it.retransmitted).sum();
        assert_eq!(resent > 0, loss != "0", "{resent} packets were sent again");
        for threads in [2, 3] {
            assert!(
                run_on(&text, threads).results == one.results,
                "{threads} threads"
            );
        }
    }
}

/// In a star every host is like every other one. Where messages of several ranks reach one port at once, the
/// first of them is that of the host with the lowest number: those operations may differ by a few
/// acknowledgements.
#[test]
fn rotating_the_ranks_of_a_star_changes_no_time() {
    let star = r#"topology = { kind = "star", hosts = 8, rate = "100Gb/s", delay = "500ns" }
        [nic.default]
        congestion = "off"
        "#;
    let kinds = [
        ("all-reduce", "ring"),
        ("all-reduce", "tree"),
        ("all-reduce", "double-tree"),
        ("all-reduce", "halving-doubling"),
        ("reduce-scatter", "direct"),
        ("all-gather", "halving-doubling"),
        ("all-to-all", "direct"),
    ];
    for (kind, algorithm) in kinds {
        let times = |hosts: &str| {
            let ran = run(&format!(
                "{star}\n[group.all]\nhosts = {hosts}\n[[collective]]\nname = \"it\"\nkind = \"{kind}\"\n\
                 algorithm = \"{algorithm}\"\nbytes = \"1MiB\"\nchannels = 2\nrepeat = 2\n"
            ));
            all_done(&ran);
            let ranks = &ran.results.jobs[0].ranks;
            let mut times: Vec<_> = ranks
                .iter()
                .map(|rank| (rank.host, rank.times.clone()))
                .collect();
            if hosts.starts_with("[\"h[3") {
                times.rotate_left(3);
            }
            times
                .into_iter()
                .map(|(_, times)| times)
                .collect::<Vec<_>>()
        };
        let rotated = times(r#"["h[3-7]", "h[0-2]"]"#);
        let plain = times(r#"["h*"]"#);
        let is_alone = matches!(algorithm, "ring" | "halving-doubling");
        assert!(
            !is_alone || rotated == plain,
            "{algorithm} {kind}: {rotated:?} and {plain:?}"
        );
        let ends = rotated.iter().flatten().zip(plain.iter().flatten());
        for (one, other) in ends {
            let (one, other) = (one[1].0 as f64, other[1].0 as f64);
            assert!(
                (one / other - 1.0).abs() < 0.01,
                "{algorithm} {kind}: {one} and {other}"
            );
        }
    }
}

/// Packets that are sent again bring no byte twice.
#[test]
fn each_message_arrives_once() {
    let lossy = LEAF_SPINE.replace("delay =", "bit-errors = \"1e-7\", delay =");
    let ran = run(&(lossy + ALL_KINDS));
    for (flow, result) in ran.experiment.scenario.flows.iter().zip(&ran.results.flows) {
        assert_eq!(result.messages, flow.messages);
        // Each message has a record of 60 bytes, with its immediate data 64, that cleared the way for it.
        assert_eq!(result.delivered_bytes, result.bytes + 60 * result.messages);
    }
    let named: u64 = ran
        .report
        .collectives
        .iter()
        .map(|it| it.network_bytes * it.repeat)
        .sum();
    let sent: u64 = ran.results.flows.iter().map(|flow| flow.bytes).sum();
    assert_eq!(
        named, sent,
        "what the collectives are to send is what the queue pairs sent"
    );
}

/// A lab carries out workloads of live hosts itself.
#[test]
fn flows_that_run_elsewhere_are_left_out_and_collectives_whole() {
    let text = r#"
        topology = { kind = "star", hosts = 6 }
        [group.rest]
        hosts = ["h[2-5]"]
        [[workload]]
        from = ["h0"]
        to = ["h1"]
        messages = 1
        [[collective]]
        name = "it"
        kind = "all-reduce"
        group = "rest"
        bytes = "1MiB"
    "#;
    let ends = |keep: fn(&sim::world::Flow) -> bool| {
        let mut experiment = experiment(text).unwrap();
        experiment.retain_flows(keep);
        let ran = experiment.run(&mut |_| true).unwrap();
        let jobs = ran.results.jobs.iter().map(sim::world::JobResult::end);
        (ran.results.flows.len(), jobs.collect::<Vec<_>>())
    };
    let (flows, whole) = ends(|_| true);
    assert_eq!(flows, 5);
    assert!(whole[0].is_some());
    assert_eq!(ends(|flow| flow.from != 0), (4, whole));
    assert_eq!(ends(|flow| flow.from != 2), (1, Vec::new()));
}
