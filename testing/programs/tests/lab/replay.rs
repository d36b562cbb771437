//! Recorded verbs calls of a real program, replayed in virtual time.

use std::process::Command;

use programs::{Job, Machine, Pair, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// Runs `ib_write_bw` at both ends, the client with options of `rockery run`.
fn write_bw(pair: &Pair, options: &str, arguments: &str) {
    let line = |options: &str, peer: &str| {
        let rockery = Rockery::built();
        let line = format!(
            "{} run {options} -- ib_write_bw {arguments} {peer}",
            rockery.path().display()
        );
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let start = |machine: &programs::Namespace, words: Vec<String>| {
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        machine.start_plain(&argv).expect("it starts")
    };
    let mut server = start(&pair.left, line("", ""));
    pair.left
        .wait_for_listener(18515, SECONDS)
        .expect("in time");
    let mut client = start(&pair.right, line(options, &pair.left.address().to_string()));
    client.wait(SECONDS).expect("in time").expect_success();
    server.wait(SECONDS).expect("in time").expect_success();
}

#[test]
fn a_recorded_write_bandwidth_test_replays_the_same_messages_and_bytes() {
    let folder = TempDir::new().unwrap();
    let calls = folder.path().join("calls.txt");
    let pair = Pair::new(1500).unwrap();
    write_bw(
        &pair,
        &format!("--record {}", calls.display()),
        "-n 300 -s 20000 -q 2",
    );
    let text = std::fs::read_to_string(&calls).unwrap();
    assert!(
        text.starts_with("rockery-verbs-record 1\n"),
        "{}",
        text.lines().next().unwrap_or_default()
    );
    let posts = text
        .lines()
        .filter(|line| line.contains(" post write 20000 rc "))
        .count();
    let all = text.lines().filter(|line| line.contains(" post ")).count();
    assert_eq!(
        (posts, all),
        (600, 600),
        "300 WRITEs of each of two queue pairs"
    );
    assert!(
        text.lines()
            .any(|line| line.contains(" done write ") && line.ends_with(" 0"))
    );

    let file = folder.path().join("lab.toml");
    let lab = "topology = { kind = \"star\", hosts = 8 }\n[[workload]]\nname = \"replayed\"\n\
               pattern = \"ring\"\nreplay = \"calls.txt\"\n";
    std::fs::write(&file, lab).unwrap();
    let run = Command::new(Rockery::built().path())
        .arg("sim")
        .arg(&file)
        .arg("--json")
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let workload = &report["workloads"][0];
    // Eight hosts, each with the two queue pairs of the program.
    assert_eq!(
        (workload["flows"].as_u64(), workload["finished"].as_u64()),
        (Some(16), Some(16))
    );
    assert_eq!(workload["bytes"].as_u64(), Some(8 * 600 * 20_000));
    assert_eq!(workload["delivered_bytes"].as_u64(), Some(8 * 600 * 20_000));
}

#[test]
fn a_record_that_cannot_be_written_is_refused() {
    let line = ["run", "--record", "/nonexistent/calls.txt", "--", "true"];
    let run = Command::new(Rockery::built().path())
        .args(line)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        !run.status.success() && said.contains("/nonexistent/calls.txt: No such file"),
        "{said}"
    );
}
