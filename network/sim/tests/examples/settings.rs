//! Settings, patterns and notes: what a run takes, what it refuses, and what it names.

use fabric_file::{Document, FileError};
use sim::experiment::{Experiment, check_sweep};
use sim::report::Report;

const STAR: &str = "duration = \"1ms\"\ntopology = { kind = \"star\", hosts = 4 }\n";

fn experiment(text: &str, sets: &[(&str, &str)]) -> Result<Experiment, FileError> {
    let mut files = |name: &str| Err(format!("no file {name} in this test"));
    let mut document = Document::read("lab.toml", &format!("{STAR}{text}"), &mut files)?;
    for (path, value) in sets {
        document.set(path, value)?;
    }
    Experiment::new(&document, &mut files)
}

fn refused(text: &str, sets: &[(&str, &str)]) -> String {
    experiment(text, sets).expect_err(text).to_string()
}

fn notes(text: &str) -> Vec<String> {
    let experiment = experiment(text, &[]).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    let again = Report::from_json(&report.json()).unwrap();
    assert_eq!(again.notes, report.notes, "in JSON as well");
    report.notes
}

#[test]
fn both_ends_of_a_connection_echo_marks_or_none() {
    let ends = |from: &str, to: &str| {
        format!(
            "[[host]]\nname = \"h1\"\nnic = \"one\"\n[nic.one]\ncongestion = \"{from}\"\n\
             [nic.default]\ncongestion = \"{to}\"\n\
             [[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\n"
        )
    };
    let said = refused(&ends("dctcp", "swift"), &[]);
    assert!(
        said.contains("nic.default.congestion: h1 has \"dctcp\", and h0 has \"swift\""),
        "{said}"
    );
    let said = refused(&ends("dcqcn", "dctcp"), &[]);
    assert!(
        said.contains("nic.one.congestion: h1 has \"dcqcn\", and h0 has \"dctcp\""),
        "{said}"
    );
    for pair in [["dctcp", "dctcp"], ["timely", "dcqcn"]] {
        assert!(experiment(&ends(pair[0], pair[1]), &[]).is_ok(), "{pair:?}");
    }
}

const INCAST: &str = "[[workload]]\nfrom = [\"h[1-3]\"]\nto = [\"h0\"]\n";

#[test]
fn lists_of_different_lengths_need_a_pattern_that_leaves_no_host_out() {
    for (pattern, expected) in [
        ("", "from is 3 hosts, and to is 1: a pattern says which"),
        ("pattern = \"pairs\"", "pairs would leave some of them out"),
        (
            "pattern = \"permutation\"",
            "no receiver is chosen twice, and some of from would send nothing",
        ),
    ] {
        let message = refused(&format!("{INCAST}{pattern}\n"), &[]);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("workload[0]"), "{message}");
    }
    let flows = |pattern: &str| experiment(&format!("{INCAST}{pattern}\n"), &[]).unwrap();
    assert_eq!(flows("pattern = \"each\"").scenario.flows.len(), 3);
    assert_eq!(flows("load = \"30%\"").scenario.flows[0].to, 0);
    let text = "[[workload]]\nfrom = [\"h0\", \"h1\"]\nto = [\"h2\", \"h1\"]\n";
    assert!(refused(text, &[]).contains("h1 has the same place in from and in to"));
}

#[test]
fn amounts_that_contradict_each_other_or_are_nothing_are_refused() {
    let with = |more: &str| format!("{INCAST}pattern = \"each\"\n{more}\n");
    for (more, expected) in [
        (
            "messages = 3\nbytes = \"3MB\"",
            "workload[0].bytes: messages says how much",
        ),
        ("messages = 0", "workload[0].messages: nothing is sent"),
        ("depth = 0", "workload[0].depth: nothing is ever posted"),
        (
            "load = \"3%\"\nmessage = \"8GiB\"",
            "workload[0].message: a message has 1 byte to 2 GiB",
        ),
        (
            "load = \"3%\"\noperation = \"datagram\"\nsizes = \"storage\"",
            "workload[0].sizes: a datagram is one packet",
        ),
        (
            "load = \"3%\"\noperation = \"datagram\"",
            "are more than the MTU",
        ),
    ] {
        let message = refused(&with(more), &[]);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_setting_without_effect_is_refused_and_a_field_without_effect_is_named() {
    let text = format!("{INCAST}pattern = \"each\"\n[nic.fast]\nmtu = 4096\n");
    for (path, value, expected) in [
        (
            "nic.other.mtu",
            "1024",
            "nic.other.mtu: has no effect: no host has nic = \"other\"",
        ),
        ("qos.x.buffer", "9MiB", "no switch has qos = \"x\""),
        ("nic.default.swift.hop", "2us", "congestion is \"dcqcn\""),
    ] {
        let message = refused(&text, &[(path, value)]);
        assert!(
            message.starts_with("--set:1:") && message.contains(expected),
            "{message}"
        );
    }
    let experiment = experiment(&text, &[("nic.default.willing", "true")]).unwrap();
    assert_eq!(
        experiment.notes(),
        ["lab.toml:8: nic.fast.mtu has no effect: no host has nic = \"fast\""]
    );
    let labs = experiment.refuse_settings_of_labs().unwrap_err();
    assert!(
        labs.to_string().contains("only a lab exchanges DCBX"),
        "{labs}"
    );
}

#[test]
fn a_sweep_varies_what_has_an_effect_in_one_of_its_runs() {
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let mut checked = |sweep: &str| {
        let text = format!("{STAR}{INCAST}pattern = \"each\"\n[sweep]\n{sweep}\n");
        let document = Document::read("lab.toml", &text, &mut none).unwrap();
        let points = document.fields().unwrap().points().unwrap();
        check_sweep(&document, &points, &mut none)
    };
    let useful = "\"nic.default.congestion\" = [\"off\", \"swift\"]\n\
                  \"nic.default.swift.hop\" = [\"1us\", \"2us\"]";
    checked(useful).unwrap();
    let useless = checked("\"nic.default.swift.hop\" = [\"1us\", \"2us\"]").unwrap_err();
    assert!(
        useless.to_string().contains("in no run of the sweep"),
        "{useless}"
    );
}

#[test]
fn fields_that_acted_on_no_packet_are_named() {
    let text = format!(
        "{INCAST}pattern = \"each\"\nmessages = 3\n[nic.default]\ncongestion = \"off\"\necn = false\n\
         cnp-dscp = 50\n[qos.default]\ndscp = {{ 26 = 3, \"40-47\" = 5, 50 = 6 }}\npcp = {{ 3 = 3 }}\n\
         [qos.default.queue.5]\nweight = 9\n[qos.default.queue.3]\nweight = 7\necn.min = \"9kB\"\n\
         [qos.default.pfc]\nclasses = [3, 4]\nclass.4.xon = \"9kB\"\n"
    );
    assert_eq!(
        notes(&text),
        [
            "nic.default.cnp-dscp acted on no packet: no congestion notification was sent",
            "qos.default.dscp.40-47 acted on no packet: none had this DSCP",
            "qos.default.dscp.50 acted on no packet: none had this DSCP",
            "qos.default.pcp.3 acted on no packet: none had a tag with this priority",
            "qos.default.pfc.class.4 acted on no packet: none was in class 4",
            "qos.default.pfc.classes: no packet was in lossless class 4",
            "qos.default.queue.3.ecn acted on no packet: no adapter sent ECN-capable ones",
            "qos.default.queue.5 acted on no packet: none was in class 5",
        ]
    );
    let used = format!(
        "{INCAST}pattern = \"each\"\nmessages = 3\n[qos.default.queue.3]\nweight = 7\necn.min = \"9kB\"\n"
    );
    assert_eq!(notes(&used), [] as [&str; 0]);
    let idle = "[[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\nmessages = 3\n[[host]]\nname = \"h3\"\n\
                nic = \"idle\"\n[nic.idle]\nmtu = 1024\n";
    assert_eq!(
        notes(idle),
        ["nic.idle acted on no packet: no host with it sends or receives"]
    );
}

/// What a workload of a 1 ms run over a long link waits for.
fn waits(more: &str) -> Option<String> {
    let text = format!(
        "duration = \"4ms\"\n[[host]]\nname = \"h\"\ncount = 2\n[[switch]]\nname = \"s\"\n[[link]]\n\
         between = [\"h*\", \"s\"]\nlength = \"20km\"\n[[workload]]\nfrom = [\"h0\"]\nto = [\"h1\"]\n{more}"
    );
    let mut files = |name: &str| Err(format!("no file {name} in this test"));
    let document = Document::read("lab.toml", &text, &mut files).unwrap();
    let experiment = Experiment::new(&document, &mut files).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    Report::new(&experiment, &ran.results, ran.partial).workloads[0]
        .waits_for
        .clone()
}

#[test]
fn a_workload_that_fills_nothing_says_which_window_would() {
    let window = waits("depth = 32\n").unwrap();
    assert!(
        window.contains("its window of 1.00MiB")
            && window.contains("nic.default.window = \"8.00MiB\""),
        "{window}"
    );
    // The value that is named does what is said.
    let wider = "depth = 32\n[nic.default]\nwindow = \"8.00MiB\"\n";
    assert_eq!(waits(wider), None);
    let depth = waits("message = \"64KiB\"\n[nic.default]\nwindow = \"16MiB\"\n").unwrap();
    assert!(
        depth.contains("its depth of 1 ends before the round trip: with depth = "),
        "{depth}"
    );
    assert_eq!(
        waits("depth = 64\n[nic.default]\nwindow = \"32MiB\"\ncongestion = \"off\"\n"),
        None
    );
}
