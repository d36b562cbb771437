//! Faults of `rockery run --fault` (docs/faults.md): what programs see of each of them, with our own probe
//! and with programs of the distribution.

use std::collections::BTreeMap;
use std::path::Path;

use programs::machine::Finished;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery};
use serde_json::Value;
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// Runs a program with options of `rockery run`, on the loopback device of a namespace of its own.
fn run_in(alone: &Namespace, options: &[&str], program: &[&str]) -> Finished {
    let rockery = Rockery::built();
    let words = [&[rockery.word(), "run"][..], options, &["--"], program].concat();
    let mut process = alone.start_plain(&words).expect("it starts");
    process.wait(SECONDS).expect("it ends in time")
}

fn run(options: &[&str], program: &[&str]) -> Finished {
    run_in(&Namespace::alone().expect("a namespace"), options, program)
}

fn probe() -> Probe {
    Probe::compile("injected").expect("it compiles")
}

/// What the probe prints with these rules, over shared memory and over packets, which has to be the same.
fn expect(rules: &str, case: [&str; 2], expected: &[&str]) {
    let probe = probe();
    let path = probe.path().to_str().expect("a path");
    for ways in [&[][..], &["--no-same-host"]] {
        let options = [&["--fault", rules][..], ways].concat();
        let ran = run(&options, &[path, case[0], case[1]]);
        let lines: Vec<&str> = ran.output.lines().collect();
        assert_eq!(lines, expected, "{rules} {ways:?}");
    }
}

#[test]
fn a_call_that_fails_names_the_request_of_a_list_that_was_not_posted() {
    let expected = [
        "ibv_post_send: ENOMEM at 2",
        "send 0: success",
        "send 1: success",
        "states: RTS RTS",
    ];
    expect("post_send: fail ENOMEM nth 3", ["list", "4"], &expected);
    let none = ["ibv_wr_complete: EAGAIN", "states: RTS RTS"];
    expect("post_send: fail EAGAIN nth 3", ["extended", "4"], &none);
}

#[test]
fn a_completion_with_a_status_ends_its_queue_pair_and_flushes_what_is_behind() {
    for (status, text) in [
        ("RETRY_EXC_ERR", "transport retry counter exceeded"),
        ("REM_ACCESS_ERR", "remote access error"),
        ("REM_INV_REQ_ERR", "remote invalid request error"),
        ("REM_OP_ERR", "remote operation error"),
        ("LOC_QP_OP_ERR", "local QP operation error"),
        ("LOC_PROT_ERR", "local protection error"),
        ("LOC_LEN_ERR", "local length error"),
        ("BAD_RESP_ERR", "bad response error"),
        ("WR_FLUSH_ERR", "Work Request Flushed Error"),
        ("REM_ABORT_ERR", "aborted error"),
        ("FATAL_ERR", "fatal error"),
        ("RESP_TIMEOUT_ERR", "response timeout error"),
        ("GENERAL_ERR", "general error"),
    ] {
        let failed = format!("send 1: {text}");
        let expected = [
            "send 0: success",
            &failed,
            "send 2: Work Request Flushed Error",
            "states: ERR RTS",
        ];
        let rule = format!("completion: status {status} nth 2");
        expect(&rule, ["list", "3"], &expected);
        expect(&rule, ["extended", "3"], &expected);
    }
}

#[test]
fn a_receive_that_fails_tells_its_sender() {
    let expected = |receive: &str, send: &str| {
        vec![
            "receive 0: success".to_owned(),
            format!("receive 1: {receive}"),
            "receive 2: Work Request Flushed Error".to_owned(),
            "send 0: success".to_owned(),
            format!("send 1: {send}"),
            "send 2: Work Request Flushed Error".to_owned(),
            "states: ERR ERR".to_owned(),
        ]
    };
    for (status, receive, send) in [
        (
            "LOC_LEN_ERR",
            "local length error",
            "remote invalid request error",
        ),
        (
            "LOC_PROT_ERR",
            "local protection error",
            "remote operation error",
        ),
    ] {
        let lines = expected(receive, send);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let rule = format!("completion: status {status} opcode recv nth 2");
        expect(&rule, ["receive", "3"], &lines);
    }
}

#[test]
fn late_completions_keep_their_order_and_wake_a_program_that_waits_for_events() {
    let expected = [
        "send 0: success",
        "send 1: success",
        "send 2: success",
        "states: RTS RTS",
    ];
    let rule = "completion: late 50ms nth 2";
    for case in ["single", "event", "list"] {
        expect(rule, [case, "3"], &expected);
    }
}

#[test]
fn what_is_no_fault_of_this_program_changes_nothing() {
    let expected = ["send 0: success", "send 1: success", "states: RTS RTS"];
    let rules = "post_send: fail EIO process other; post_send: fail EIO device rk_eth9; \
                 post_send: fail EIO opcode rdma_read; post_send: fail EIO size 9..; \
                 completion: status REM_OP_ERR qpn 1; post_send: fail EIO peer 192.0.2.1; \
                 reg_mr: fail ENOMEM size 1MiB..; post_send: fail EIO from 1min; poll_cq: slow 1us times 1";
    expect(rules, ["list", "2"], &expected);
    let met = ["ibv_post_send: EIO at 0", "states: RTS RTS"];
    for condition in [
        "process injected",
        "device rk_lo",
        "opcode rdma_write size ..8",
        "peer 127.0.0.1",
        "type rc",
    ] {
        expect(
            &format!("post_send: fail EIO {condition}"),
            ["list", "2"],
            &met,
        );
    }
}

#[test]
fn control_calls_fail_by_their_names_and_programs_report_it() {
    let probe = probe();
    let path = probe.path().to_str().expect("a path");
    for (rule, said) in [
        (
            "reg_mr: fail ENOMEM nth 2",
            "injected: ibv_reg_mr: Cannot allocate memory\n",
        ),
        (
            "create_qp: fail EINVAL",
            "injected: ibv_create_qp_ex: Invalid argument\n",
        ),
        (
            "modify_qp: fail ETIMEDOUT nth 2 type rc",
            "injected: INIT: Connection timed out\n",
        ),
        (
            "alloc_pd: fail EMFILE",
            "injected: ibv_alloc_pd: Too many open files\n",
        ),
        ("poll_cq: fail EIO", "injected: ibv_poll_cq: EIO\n"),
        (
            "get_device_list: fail ENOSYS",
            "injected: ibv_get_device_list: Function not implemented\n",
        ),
    ] {
        let ran = run(&["--fault", rule], &[path, "single", "1"]);
        assert_eq!(ran.output, said, "{rule}");
        assert!(!ran.succeeded());
    }
}

/// Entries of a journal, without times and process IDs.
fn journal(path: &Path) -> Vec<BTreeMap<String, Value>> {
    let text = std::fs::read_to_string(path).expect("a journal");
    let entry = |line: &str| {
        let mut entry: BTreeMap<String, Value> = serde_json::from_str(line).expect("JSON");
        assert!(
            entry.remove("at_ns").is_some_and(|at| at.is_u64()),
            "{line}"
        );
        assert!(
            entry.remove("pid").is_some_and(|pid| pid.is_u64()),
            "{line}"
        );
        entry.remove("qpn");
        entry
    };
    text.lines().map(entry).collect()
}

#[test]
fn a_journal_has_each_fault_and_a_seed_makes_the_same_ones() {
    let (probe, folder) = (probe(), TempDir::new().expect("a folder"));
    let path = probe.path().to_str().expect("a path");
    let faults = |name: &str, seed: u32| {
        let file = folder.path().join(name);
        let rule = format!("seed {seed}; post_send: fail EAGAIN probability 30%");
        let options = [
            "--fault",
            &rule,
            "--fault-journal",
            file.to_str().expect("a path"),
        ];
        let ran = run(&options, &[path, "single", "60"]).expect_success();
        let refused = ran.output.matches("ibv_post_send: EAGAIN").count();
        let entries = journal(&file);
        assert_eq!(entries.len(), refused, "{}", ran.output);
        entries
    };
    let first = faults("first", 7);
    assert!((6..32).contains(&first.len()), "{first:?}");
    assert_eq!(first, faults("again", 7));
    assert_ne!(first, faults("other", 8));
    let expected = serde_json::json!({
        "process": "injected", "rule": 1, "point": "post_send", "fault": "fail EAGAIN", "device": "rk_lo",
        "type": "rc", "opcode": "rdma_write", "size": 8,
    });
    let mut entry = first[0].clone();
    assert!(
        entry
            .remove("occasion")
            .is_some_and(|number| number.is_u64())
    );
    assert_eq!(serde_json::json!(entry), expected);
}

#[test]
fn mistakes_in_rules_end_the_command_with_what_to_write() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("rules.toml");
    std::fs::write(&file, "[[fault]]\non = \"reg_mr\"\ndo = \"fail ENOMEN\"\n")
        .expect("our own folder");
    let name = file.to_str().expect("a path");
    let in_file = format!("{name}:3: do: `ENOMEN` is no error number: did you mean ENOMEM?");
    for (rules, said) in [
        (
            "post_sned: fail EIO",
            "`post_sned` is no point of faults: did you mean post_send?",
        ),
        (
            "completion: double",
            "a work request completes once, so that its wr_id can be used again",
        ),
        (name, &in_file),
        ("none.toml", "none.toml: No such file or directory"),
    ] {
        let ran = run(&["--fault", rules], &["true"]);
        assert!(
            !ran.succeeded() && ran.output.contains(said),
            "{rules}: {}",
            ran.output
        );
    }
}

/// Starts both ends of a program of perftest in one namespace, the client with options of `rockery run`.
fn perftest(options: &[&str], program: &str) -> [Finished; 2] {
    let alone = Namespace::alone().expect("a namespace");
    let rockery = Rockery::built();
    let words: Vec<&str> = program.split(' ').collect();
    let server = [&[rockery.word(), "run", "--"][..], &words].concat();
    let mut server = alone.start_plain(&server).expect("it starts");
    alone.wait_for_listener(18515, SECONDS).expect("it listens");
    let client = run_in(&alone, options, &[&words[..], &["127.0.0.1"]].concat());
    [client, server.wait(SECONDS).expect("it ends in time")]
}

#[test]
fn ib_write_bw_reports_the_status_that_it_meets() {
    let rule = "completion: status RETRY_EXC_ERR nth 300 process ib_write_bw";
    let [client, _] = perftest(&["--fault", rule], "ib_write_bw -n 1000 -s 64");
    assert!(!client.succeeded());
    assert!(
        client.output.contains("Failed status 12: "),
        "{}",
        client.output
    );
}

#[test]
fn ibv_rc_pingpong_fails_where_registration_does() {
    let ran = run(
        &["--fault", "reg_mr: fail ENOMEM"],
        &["ibv_rc_pingpong", "-g", "1"],
    );
    assert!(!ran.succeeded());
    assert!(
        ran.output.contains("Couldn't register MR"),
        "{}",
        ran.output
    );
}

#[test]
fn rping_reports_calls_of_the_connection_manager_that_fail() {
    for (rule, said) in [
        (
            "rdma_resolve_addr: fail ENODEV",
            "rdma_resolve_addr: No such device",
        ),
        (
            "rdma_resolve_route: fail ETIMEDOUT",
            "rdma_resolve_route: Connection timed out",
        ),
        (
            "rdma_create_id: fail ENOMEM",
            "rdma_create_id: Cannot allocate memory",
        ),
        ("create_cq: fail ENOMEM", "ibv_create_cq failed"),
    ] {
        let ran = run(
            &["--fault", rule],
            &["rping", "-c", "-a", "127.0.0.1", "-C", "1"],
        );
        assert!(
            !ran.succeeded() && ran.output.contains(said),
            "{rule}: {}",
            ran.output
        );
    }
}
