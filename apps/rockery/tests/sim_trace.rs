//! `rockery sim --trace` as a person calls it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/crs504/ecn-off.toml");
    Command::new(env!("CARGO_BIN_EXE_rockery"))
        .arg("sim")
        .arg(lab)
        .args(["--set", "duration=200us"])
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The life of one queue pair: before the report, in a file, and for names that there are.
#[test]
fn the_life_of_a_queue_pair_is_printed_or_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("life.json").display().to_string();
    let text = stdout(&run(&["--trace", "storage/sender0/0"]));
    let (life, report) = text.split_once("\n\n").unwrap();
    assert!(
        life.starts_with("   0.000000000  sender0            posted message 0\n"),
        "{life}"
    );
    assert!(
        report.contains("CRS504: ECN off") && report.contains("Findings"),
        "{report}"
    );
    let options = ["--trace-format", "perfetto", "--trace-out", &file];
    let report_alone = stdout(&run(
        &[&["--trace", "storage/sender1/2"], &options[..]].concat()
    ));
    assert!(
        report_alone.starts_with("CRS504: ECN off"),
        "{report_alone}"
    );
    let written = std::fs::read_to_string(&file).unwrap();
    let events: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 10);
    let alone = stdout(&run(&[
        "--trace",
        "storage/sender0/0:1",
        "--trace-format",
        "json",
    ]));
    assert!(alone.lines().all(|line| line.starts_with('{')), "{alone}");

    for (given, expected) in [
        (
            vec!["--trace", "storage"],
            "storage is the name of several queue pairs, choose one: storage/sender0/0",
        ),
        (
            vec!["--trace", "victim/sender9:3"],
            "no queue pair is called victim/sender9; there are: victim/sender0/0",
        ),
        (vec!["--trace", "victim", "--json"], "two options write it"),
        (vec!["--trace-out", &file], "--trace <QP[:PSN]>"),
        (
            vec!["--trace", "victim", "--set", "sweep={seed = [1, 2]}"],
            "--trace is for one run",
        ),
    ] {
        let output = run(&given);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(expected),
            "{given:?}: {error}"
        );
    }
}
