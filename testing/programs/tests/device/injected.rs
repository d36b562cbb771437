//! Faults of `rockery run --fault` (docs/faults.md): what programs see of each of them, with our own probe
//! and with programs of the distribution.

use std::collections::BTreeMap;
use std::path::Path;

use programs::machine::{Finished, until};
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

/// A message is refused as often as the rule says: one time more than the sender repeats it ends its queue
/// pair.
#[test]
fn a_receive_refuses_its_message_so_many_times() {
    let arrived = ["send 0: success", "states: RTS RTS"];
    let refused = ["send 0: RNR retry counter exceeded", "states: ERR RTS"];
    expect("post_recv: rnr 2", ["rnr", "2"], &arrived);
    expect("post_recv: rnr 3", ["rnr", "2"], &refused);
    expect("post_recv: rnr 20", ["rnr", "7"], &arrived);
    expect("post_recv: rnr 3 nth 2", ["rnr", "2"], &arrived);
}

/// Keys of a sender and of a receiver that expire: requests fail as with memory that was deregistered, which
/// the program can deregister all the same.
#[test]
fn keys_that_expire_are_those_of_no_memory() {
    let expected = |status: &str| {
        let failed = format!("send 1: {status}");
        vec!["send 0: success".to_owned(), failed]
    };
    for (nth, status, states) in [
        (1, "local protection error", "states: ERR RTS"),
        (2, "remote access error", "states: ERR ERR"),
    ] {
        let mut lines = expected(status);
        lines.push(states.to_owned());
        if nth == 2 {
            lines.push("event: local access violation work queue error".to_owned());
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let rule = format!("reg_mr: expire 200ms nth {nth}");
        expect(&rule, ["expire", "600"], &lines);
    }
    let unharmed = ["send 0: success", "send 1: success", "states: RTS RTS"];
    expect("reg_mr: expire 1min", ["expire", "1"], &unharmed);
}

/// On-demand memory without one of its pages, at the sender and at the receiver. Memory that is pinned has
/// all.
#[test]
fn a_page_of_on_demand_memory_is_not_there() {
    for (nth, status, states) in [
        (1, "local protection error", "states: ERR RTS"),
        (2, "remote access error", "states: ERR ERR"),
    ] {
        let failed = format!("send 1: {status}");
        let mut lines = vec!["send 0: success", &failed, states];
        if nth == 2 {
            lines.push("event: local access violation work queue error");
        }
        let rule = format!("reg_mr: odp_fault 4100 nth {nth}");
        expect(&rule, ["pages", "0"], &lines);
    }
    let unharmed = ["send 0: success", "send 1: success", "states: RTS RTS"];
    expect("reg_mr: odp_fault 8192", ["pages", "0"], &unharmed);
    expect("reg_mr: odp_fault 0", ["expire", "1"], &unharmed);
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

#[test]
fn events_come_with_what_they_mean_for_their_objects() {
    for (rule, lines) in [
        (
            "post_send: raise qp_fatal nth 2",
            &[
                "send 0: success",
                "send 1: Work Request Flushed Error",
                "states: ERR RTS",
                "event: local work queue catastrophic error",
            ][..],
        ),
        (
            "post_send: raise cq_err nth 2",
            &[
                "send 0: success",
                "send 1: Work Request Flushed Error",
                "states: ERR RTS",
                "event: CQ error",
            ],
        ),
        (
            "post_send: raise gid_change nth 2",
            &[
                "send 0: success",
                "send 1: success",
                "states: RTS RTS",
                "event: GID table change",
            ],
        ),
        (
            "post_send: raise device_fatal nth 2",
            &[
                "send 0: success",
                "send 1: Work Request Flushed Error",
                "states: ERR ERR",
                "event: local catastrophic error",
            ],
        ),
        (
            "query_qp: raise port_err nth 1",
            &[
                "send 0: success",
                "send 1: success",
                "states: RTS RTS",
                "event: port error",
            ],
        ),
    ] {
        expect(rule, ["step", "2"], lines);
    }
}

#[test]
fn a_port_that_is_down_says_so_and_comes_up_again() {
    let alone = Namespace::alone().expect("a namespace");
    let down = run_in(
        &alone,
        &[
            "--fault",
            "open_device: raise port_err; query_port: raise port_err",
        ],
        &["ibv_devinfo"],
    );
    assert!(down.output.contains("PORT_DOWN"), "{}", down.output);
    let rules = "query_port: raise port_err; query_port: raise port_active";
    let up = run_in(
        &alone,
        &["--fault", "query_port: raise port_active"],
        &["ibv_devinfo"],
    );
    assert!(up.output.contains("PORT_ACTIVE"), "{rules}: {}", up.output);
}

#[test]
fn a_rule_of_time_raises_its_event_while_the_program_works() {
    let rule = "time: raise qp_fatal from 3s process ib_write_bw";
    let [client, _] = perftest(&["--fault", rule], "ib_write_bw -n 100000000 -s 64");
    assert!(!client.succeeded());
    assert!(
        client.output.contains("Failed status 5: "),
        "{}",
        client.output
    );
}

#[test]
fn limits_are_those_of_a_small_card() {
    let probe = probe();
    let path = probe.path().to_str().expect("a path");
    for (rule, said) in [
        (
            "limit: max_qp 1",
            "injected: ibv_create_qp_ex: Cannot allocate memory\n",
        ),
        (
            "limit: max_cq 1",
            "injected: ibv_create_cq: Cannot allocate memory\n",
        ),
        (
            "limit: max_mr 1",
            "injected: ibv_reg_mr: Cannot allocate memory\n",
        ),
        (
            "limit: registered_bytes 16383",
            "injected: ibv_reg_mr: Cannot allocate memory\n",
        ),
        (
            "limit: max_pd 0",
            "injected: ibv_alloc_pd: Cannot allocate memory\n",
        ),
        (
            "limit: max_qp_wr 63",
            "injected: ibv_create_qp_ex: Invalid argument\n",
        ),
        (
            "limit: max_cqe 127",
            "injected: ibv_create_cq: Invalid argument\n",
        ),
    ] {
        let ran = run(&["--fault", rule], &[path, "single", "1"]);
        assert_eq!(ran.output, said, "{rule}");
    }
    let ran = run(
        &["--fault", "limit: registered_bytes 16384"],
        &[path, "single", "1"],
    );
    assert!(ran.succeeded(), "{}", ran.output);
    let rules =
        "limit: max_qp 17; limit: max_sge 3; limit: max_qp_rd_atom 5; limit: active_mtu 512";
    let told = run(&["--fault", rules], &["ibv_devinfo", "-v"])
        .expect_success()
        .output;
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "max_qp: 17 ",
        "max_sge: 3 ",
        "max_qp_rd_atom: 5 ",
        "active_mtu: 512 (2)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[test]
fn packets_that_meet_faults_cost_time_and_no_data() {
    let probe = probe();
    let path = probe.path().to_str().expect("a path");
    let expected: Vec<String> = (0..20)
        .map(|number| format!("send {number}: success"))
        .chain(["states: RTS RTS".to_owned()])
        .collect();
    for rule in [
        "packet: drop opcode rdma_write every 5",
        "packet: drop opcode acknowledge nth 1",
        "packet: corrupt nth 3",
        "packet: duplicate",
        "packet: delay 2ms every 3",
        "packet: reorder 2 every 4 opcode rdma_write",
        "packet: mark",
        "packet: rate 100Mb/s",
        "packet: drop peer 127.0.0.1 size 8 type rc times 2",
    ] {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("journal");
        let options = [
            "--fault",
            rule,
            "--fault-journal",
            file.to_str().expect("a path"),
        ];
        let ran = run(&options, &[path, "single", "20"]);
        let lines: Vec<&str> = ran.output.lines().collect();
        assert_eq!(lines, expected, "{rule}");
        let entries = journal(&file);
        let met = |entry: &BTreeMap<String, Value>| {
            entry["point"] == "packet" && entry["peer"] == "127.0.0.1"
        };
        assert!(
            !entries.is_empty() && entries.iter().all(met),
            "{rule}: {entries:?}"
        );
    }
    let lost = run(
        &["--fault", "packet: drop opcode acknowledge"],
        &[path, "single", "1"],
    );
    let expected = "send 0: transport retry counter exceeded\nstates: ERR RTS\n";
    assert_eq!(lost.output, expected);
}

#[test]
fn a_thread_that_is_blocked_where_programs_wait_can_be_cancelled() {
    let expected = ["thread: cancelled", "send 0: success", "states: RTS RTS"];
    expect("get_cq_event: block", ["cancel", "1"], &expected);
}

/// Runs `rping` at both ends, each with its rules.
fn rping(server_rules: &str, client_rules: &str) -> [Finished; 2] {
    let alone = Namespace::alone().expect("a namespace");
    let rockery = Rockery::built();
    let server = [
        rockery.word(),
        "run",
        "--fault",
        server_rules,
        "--",
        "rping",
        "-s",
        "-C",
        "3",
        "-v",
    ];
    let mut server = alone.start_plain(&server).expect("it starts");
    let listens = until(SECONDS, || {
        let listed = alone.call(&format!("{} listeners", rockery.word()))?;
        Ok(listed.contains("port 7174"))
    });
    assert!(listens.expect("it lists them"), "rping listens");
    let client = run_in(
        &alone,
        &["--fault", client_rules],
        &["rping", "-c", "-a", "127.0.0.1", "-C", "3"],
    );
    if !client.succeeded() {
        server.kill().expect("it is ours");
    }
    [client, server.wait(SECONDS).expect("it ends")]
}

#[test]
fn messages_of_the_connection_manager_are_lost_late_and_rejected() {
    for (server, client) in [
        ("cm: drop opcode rep times 1", "none"),
        ("none", "cm: drop opcode rtu times 1"),
        ("none", "cm: delay 300ms opcode rtu"),
        ("cm: duplicate", "cm: duplicate"),
    ] {
        let [client_end, server_end] = rping(server, client);
        assert!(
            client_end.succeeded(),
            "{server} / {client}: {}",
            client_end.output
        );
        assert!(
            server_end.output.contains("server ping data"),
            "{}",
            server_end.output
        );
    }
    let [rejected, _] = rping("cm: reject 28", "none");
    assert!(
        rejected.output.contains("RDMA_CM_EVENT_REJECTED"),
        "{}",
        rejected.output
    );
    for (rule, event) in [
        (
            "rdma_resolve_addr: report ETIMEDOUT",
            "RDMA_CM_EVENT_ADDR_ERROR, error -110",
        ),
        (
            "rdma_resolve_route: report EHOSTUNREACH",
            "RDMA_CM_EVENT_ROUTE_ERROR, error -113",
        ),
    ] {
        let ran = run(
            &["--fault", rule],
            &["rping", "-c", "-a", "127.0.0.1", "-C", "1"],
        );
        assert!(
            !ran.succeeded() && ran.output.contains(event),
            "{rule}: {}",
            ran.output
        );
    }
}

/// What `rockery fault` prints.
fn fault(alone: &Namespace, words: &[&str]) -> Finished {
    let rockery = Rockery::built();
    let words = [&[rockery.word(), "fault"][..], words].concat();
    let mut process = alone.start_plain(&words).expect("it starts");
    process.wait(SECONDS).expect("it ends in time")
}

#[test]
fn rules_are_listed_added_and_removed_while_the_program_runs() {
    let (alone, rockery) = (Namespace::alone().expect("a namespace"), Rockery::built());
    let words = [
        rockery.word(),
        "run",
        "--fault",
        "get_device_list: block",
        "--",
        "ibv_devices",
    ];
    let mut program = alone.start_plain(&words).expect("it starts");
    let pid = program.id().to_string();
    let blocks = until(SECONDS, || {
        let listed = fault(&alone, &["list", &pid, "--json"]);
        Ok(listed.output.contains("\"faults\":1"))
    });
    assert!(blocks.expect("it is asked"), "the call is blocked");
    let added = fault(&alone, &["add", &pid, "open_device: fail EIO"]);
    assert_eq!(added.output, "added 2\n");
    let listed = fault(&alone, &["list", &pid]).expect_success().output;
    assert!(listed.contains("open_device: fail EIO"), "{listed}");
    let refused = fault(&alone, &["add", &pid, "packet: drop"]);
    assert!(
        !refused.succeeded() && refused.output.contains("--no-same-host"),
        "{}",
        refused.output
    );
    let refused = fault(&alone, &["remove", &pid, "9"]);
    assert!(
        !refused.succeeded() && refused.output.contains("there is no rule 9"),
        "{}",
        refused.output
    );
    // The call goes on when its rule is gone.
    assert_eq!(fault(&alone, &["remove", &pid, "1"]).output, "removed 1\n");
    let ended = program.wait(SECONDS).expect("it goes on").expect_success();
    assert!(ended.output.contains("rk_lo"), "{}", ended.output);
    let gone = fault(&alone, &["clear", &pid]);
    assert!(
        !gone.succeeded() && gone.output.contains("has no rules of faults here"),
        "{}",
        gone.output
    );
}
