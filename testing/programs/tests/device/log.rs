//! `ROCKERY_LOG`: the log tells why a program does not get on, and wrong settings are errors.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery};
use std::path::Path;
use tempfile::TempDir;

const SECONDS: u64 = 60;
const PERFTEST_PORT: u16 = 18515;
const PROBE_PORT: u16 = 18521;

/// Starts a program under `rockery run`, with variables of the environment.
fn start<'a>(end: &'a Namespace, variables: &[String], program: &str) -> Box<dyn Job + 'a> {
    let run = format!("{} run -- {program}", Rockery::built().word());
    let words = std::iter::once("env").chain(variables.iter().map(String::as_str));
    let argv: Vec<&str> = words.chain(run.split_whitespace()).collect();
    Box::new(end.start_plain(&argv).expect("it starts"))
}

fn variables(level: &str, file: &Path) -> Vec<String> {
    vec![
        format!("ROCKERY_LOG={level}"),
        format!("ROCKERY_LOG_FILE={}", file.display()),
    ]
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The lines of a log that contain all of these.
#[track_caller]
fn assert_logged(log: &str, parts: &[&str]) {
    assert!(
        log.lines()
            .any(|line| parts.iter().all(|part| line.contains(part))),
        "{parts:?} in:\n{log}"
    );
}

#[test]
fn the_log_has_calls_states_and_the_transport_of_a_write_benchmark() {
    let (folder, pair) = (TempDir::new().unwrap(), Pair::new(1500).unwrap());
    let log = folder.path().join("log");
    let mut server = start(&pair.left, &[], "ib_write_bw -n 100 -s 4096");
    pair.left.wait_for_listener(PERFTEST_PORT, SECONDS).unwrap();
    let program = format!("ib_write_bw -n 100 -s 4096 {}", pair.left.address());
    let mut client = start(&pair.right, &variables("debug", &log), &program);
    client.wait(SECONDS).unwrap().expect_success();
    server.wait(SECONDS).unwrap().expect_success();
    let log = read(&log);
    assert_logged(
        &log,
        &["INFO", "host: device opened", "rk_eth0", "window_bytes="],
    );
    assert_logged(&log, &["DEBUG", "call: ibv_create_qp: 0x"]);
    assert_logged(&log, &["DEBUG", "call: ibv_modify_qp: "]);
    assert_logged(
        &log,
        &[
            "DEBUG",
            "rnic: queue pair state",
            "from=ReadyToReceive to=ReadyToSend",
        ],
    );
    assert_logged(
        &log,
        &[
            "INFO",
            "host: transport: packets",
            "qpn=",
            &pair.left.address().to_string(),
        ],
    );
    assert!(
        !log.contains("post_send"),
        "calls on the data path are for the level trace:\n{log}"
    );
}

#[test]
fn a_wrong_rkey_is_found_in_the_logs_of_both_ends() {
    let (folder, pair) = (TempDir::new().unwrap(), Pair::new(1500).unwrap());
    let probe = Probe::compile("stream").unwrap();
    let (left, right) = (folder.path().join("left"), folder.path().join("right"));
    let program = format!("{} wrong-rkey", probe.path().display());
    let mut server = start(&pair.left, &variables("info", &left), &program);
    pair.left.wait_for_listener(PROBE_PORT, SECONDS).unwrap();
    let program = format!("{program} {}", pair.left.address());
    let mut client = start(&pair.right, &variables("warn,rnic=debug", &right), &program);
    let finished = client.wait(SECONDS).unwrap().expect_success();
    assert!(
        finished.output.contains("failed: remote access error"),
        "{}",
        finished.output
    );
    server.wait(SECONDS).unwrap().expect_success();
    let (left, right) = (read(&left), read(&right));
    assert_logged(
        &left,
        &["INFO", "rnic: NAK sent: remote access error: unknown rkey"],
    );
    assert_logged(
        &right,
        &["DEBUG", "rnic: NAK received: remote access error"],
    );
    assert_logged(
        &right,
        &["INFO", "rnic: send request failed", "status=RemoteAccess"],
    );
    assert!(
        !right.contains("call:") && !right.contains("host:"),
        "other targets have level warn:\n{right}"
    );
}

#[test]
fn a_peer_that_is_not_reached_is_found_by_its_retries() {
    let (folder, pair) = (TempDir::new().unwrap(), Pair::new(1500).unwrap());
    let (probe, file) = (Probe::compile("stream").unwrap(), folder.path().join("log"));
    let program = format!("{} send", probe.path().display());
    let mut server = start(&pair.left, &[], &program);
    pair.left.wait_for_listener(PROBE_PORT, SECONDS).unwrap();
    let program = format!("{program} {}", pair.left.address());
    let mut client = start(&pair.right, &variables("debug", &file), &program);
    let running = until(SECONDS, || Ok(client.output()?.contains("running")));
    assert!(running.unwrap(), "{:?}", client.output());
    pair.left.call("ip link set eth0 down").unwrap();
    client.wait(SECONDS).unwrap().expect_success();
    server.kill().unwrap();
    let (log, address) = (read(&file), pair.left.address().to_string());
    let retry = "rnic: retry: no acknowledgement within the local ACK timeout";
    assert_logged(&log, &["DEBUG", retry, &address, "retries=6 limit=7"]);
    assert_logged(
        &log,
        &["INFO", "rnic: send request failed", "status=RetryExceeded"],
    );
}

#[test]
fn wrong_settings_are_errors_and_misspelt_ones_warnings() {
    let pair = Pair::new(1500).unwrap();
    let mut wrong = start(
        &pair.left,
        &["ROCKERY_SAME_HOST=no".to_owned()],
        "ibv_devinfo",
    );
    let output = wrong.wait(SECONDS).unwrap().output;
    assert!(output.contains("Failed to open device"), "{output}");
    assert!(
        output.contains("ROCKERY_SAME_HOST=no: the value has to be 0 or 1"),
        "{output}"
    );
    let misspelt = ["ROCKERY_CONGETSION=dcqcn".to_owned()];
    let finished = start(&pair.left, &misspelt, "ibv_devinfo")
        .wait(SECONDS)
        .unwrap()
        .expect_success();
    assert!(
        finished
            .output
            .contains("ROCKERY_CONGETSION is no setting of rockery"),
        "{}",
        finished.output
    );
    let finished = start(&pair.left, &[], "ibv_devinfo")
        .wait(SECONDS)
        .unwrap()
        .expect_success();
    assert!(
        !finished.output.contains("rockery["),
        "without a setting nothing is logged: {}",
        finished.output
    );
}
