//! Workloads and groups with marks of their own: several classes from one adapter.

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::Report;
use sim::world::{CapturedFrame, Results};
use std::collections::BTreeMap;
use wire::Message;

fn experiment(text: &str) -> Result<Experiment, String> {
    let mut none = |name: &str| Err(format!("{name} is not there"));
    let document =
        Document::read("lab.toml", text, &mut none).map_err(|error| error.to_string())?;
    Experiment::new(&document, &mut none).map_err(|error| error.to_string())
}

fn run(text: &str, change: impl Fn(&mut Experiment)) -> (Results, Report) {
    let mut experiment = experiment(text).unwrap();
    change(&mut experiment);
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    (ran.results, report)
}

const STAR: &str = r#"
topology = { kind = "star", hosts = 5, rate = "100Gb/s", delay = "500ns" }
[nic.default]
congestion = "off"
pfc = [3, 4]
[qos.default]
dscp = { 26 = 3, 34 = 4 }
pfc = { classes = [3, 4], xoff = "64KiB", xon = "32KiB" }
"#;

/// DSCP and priority code point of data and of acknowledgements on the links, by flow.
fn marks(text: &str) -> BTreeMap<(u32, bool), (u8, Option<u8>)> {
    let (results, _) = run(text, |experiment| {
        experiment.scenario.watch.captures = vec![0, 1, 2];
        experiment.scenario.watch.captured_max = 10_000;
    });
    let mut found = BTreeMap::new();
    for frame in &results.captured {
        if let CapturedFrame::Packet {
            flow,
            tos,
            pcp,
            headers,
            ..
        } = frame.frame
        {
            let answers = matches!(headers.message, Message::Acknowledge(_));
            let seen = found.entry((flow, answers)).or_insert((tos >> 2, pcp));
            assert_eq!(
                *seen,
                (tos >> 2, pcp),
                "all packets of flow {flow} are alike"
            );
        }
    }
    found
}

#[test]
fn packets_have_the_marks_of_their_workload() {
    let flows = "[[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 3\n\
                 [[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 3\ndscp = 34\npriority = 4\n\
                 [[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 3\ndscp = 10\n\
                 operation = \"read\"\n\
                 [[workload]]\nload = 0.01\nfrom = [\"h0\"]\nto = [\"h2\"]\nmessage = \"64KiB\"\ndscp = 12\n";
    let with = |nic: &str| {
        let own = STAR.replace("congestion = ", &format!("{nic}\ncongestion = "));
        marks(&format!("duration = \"1ms\"\n{own}{flows}"))
    };
    let untagged = with("");
    for answers in [false, true] {
        assert_eq!(untagged[&(0, answers)], (26, None));
        assert_eq!(untagged[&(1, answers)], (34, None));
        assert_eq!(untagged[&(3, answers)], (12, None), "{untagged:?}");
    }
    assert_eq!(untagged[&(2, false)], (10, None), "requests and responses");
    // Tags have the priority, and acknowledgements of a class of their own stay there.
    let tagged = with("pcp = 3\nack-dscp = 46\nack-priority = 5");
    assert_eq!(tagged[&(0, false)], (26, Some(3)));
    assert_eq!(tagged[&(1, false)], (34, Some(4)));
    assert_eq!(tagged[&(1, true)].0, 46);
}

/// h0 sends to h1, which h3 and h4 overload, and to h2, which is free. Pauses of the first class stop both
/// where they share it, and not where they do not.
#[test]
fn a_paused_class_lets_others_of_the_same_adapter_go_on() {
    let goodput = |other: &str, operation: &str| {
        let (results, report) = run(
            &format!(
                "duration = \"2ms\"\n{STAR}\
                 [[workload]]\npattern = \"each\"\nfrom = [\"h0\", \"h3\", \"h4\"]\nto = [\"h1\"]\n\
                 depth = 4\n\
                 [[workload]]\nfrom = [\"h0\"]\nto = [\"h2\"]\ndepth = 4\n\
                 operation = \"{operation}\"\n{other}\n"
            ),
            |_| {},
        );
        assert!(results.pauses() > 0, "the receiver is overloaded");
        assert_eq!(results.drops(fabric::Drop::Ingress), 0);
        [0, 1].map(|index| report.workloads[index].goodput_bps / 1e9)
    };
    // Requests of one, responses of the other.
    for operation in ["write", "read"] {
        let same = goodput("", operation);
        let apart = goodput("dscp = 34\npriority = 4", operation);
        assert!(
            apart[0] > 90.0 && same[0] > 90.0,
            "{operation}: {same:?}, {apart:?}"
        );
        assert!(
            same[1] < 40.0 && apart[1] > 60.0,
            "{operation}: {same:?}, {apart:?}"
        );
    }
}

#[test]
fn threads_and_classes_leave_the_same_bytes() {
    let text = format!(
        "duration = \"500us\"\n{}\
         [[workload]]\npattern = \"permutation\"\n\
         [[workload]]\npattern = \"permutation\"\ndscp = 34\npriority = 4\n",
        STAR.replace("hosts = 5", "hosts = 4, leaves = 3, spines = 2")
            .replace("star", "leaf-spine")
    );
    let of = |threads: u32| run(&text, |experiment| experiment.scenario.threads = threads).0;
    assert!(of(1) == of(3));
}

#[test]
fn groups_have_marks_too() {
    let text = format!(
        "{STAR}[group.all]\ndscp = 34\npriority = 4\n\
         [[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"1MiB\"\n"
    );
    assert!(marks(&text).values().all(|mark| *mark == (34, None)));
}

/// Transfers between the same hosts share a queue pair where their marks are the same.
#[test]
fn transfers_have_marks_of_their_own() {
    let text = format!(
        "{STAR}[[transfer]]\nname = \"usual\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"64KiB\"\n\
         [[transfer]]\nname = \"marked\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"64KiB\"\n\
         dscp = 34\npriority = 4\n\
         [[transfer]]\nname = \"marked-too\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"64KiB\"\n\
         dscp = 34\npriority = 4\n"
    );
    let found = marks(&text);
    let expected = [(0, 26), (1, 34)].map(|(flow, dscp)| ((flow, false), (dscp, None)));
    let data: Vec<_> = found
        .into_iter()
        .filter(|((_, answers), _)| !answers)
        .collect();
    assert_eq!(data, expected);
}

#[test]
fn marks_out_of_range_are_refused() {
    for (table, field, expected) in [
        (
            "[[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 1\n",
            "dscp = 64",
            "64 is more than 63",
        ),
        (
            "[[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 1\n",
            "priority = 8",
            "8 is more than 7",
        ),
        (
            "[[collective]]\nname = \"it\"\nkind = \"barrier\"\n[group.all]\n",
            "priority = 9",
            "9 is more than 7",
        ),
        (
            "[[transfer]]\nname = \"it\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1KiB\"\n",
            "dscp = 70",
            "70 is more than 63",
        ),
    ] {
        let error = experiment(&format!("{STAR}{table}{field}\n"))
            .err()
            .unwrap();
        assert!(error.contains(expected), "{error}");
        let line = STAR.lines().count() + table.lines().count() + 1;
        assert!(
            error.contains(&format!("lab.toml:{line}")),
            "{line}: {error}"
        );
    }
}

/// Two classes are lossless, and the losses are those of the third.
#[test]
fn losses_are_those_of_the_workload_that_has_them() {
    let text = format!(
        "duration = \"1ms\"\n{STAR}buffer = \"2MiB\"\n\
         [[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessages = 1\n\
         [[workload]]\npattern = \"each\"\nfrom = [\"h2\", \"h3\", \"h4\"]\nto = [\"h1\"]\ndepth = 4\n\
         dscp = 10\npriority = 0\n"
    );
    let (results, report) = run(&text, |_| {});
    assert!(results.drops(fabric::Drop::Ingress) + results.drops(fabric::Drop::Egress) > 0);
    let causes: Vec<&str> = report.findings.iter().map(|it| it.cause.as_str()).collect();
    assert!(
        causes
            .iter()
            .any(|cause| cause.contains("no entry for 10: data falls into class 0")),
        "{causes:#?}"
    );
}
