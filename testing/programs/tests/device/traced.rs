//! Traces (docs/trace.md): what `rockery run --trace` writes of programs, and the mistakes that
//! `rockery explain` finds in them.

use programs::machine::Finished;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// A namespace with a folder for traces.
struct Place {
    alone: Namespace,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            alone: Namespace::alone().expect("a namespace"),
            folder: TempDir::new().expect("a folder"),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, words: &[&str]) -> impl Job + '_ {
        let rockery = Rockery::built();
        let words = [&[rockery.word()], words].concat();
        self.alone.start_plain(&words).expect("it starts")
    }

    fn rockery(&self, words: &[&str]) -> Finished {
        self.start(words).wait(SECONDS).expect("it ends in time")
    }

    /// Runs a program with a trace.
    fn traced(&self, trace: &Path, options: &[&str], program: &[&str]) -> Finished {
        let path = trace.to_string_lossy();
        let words = [&["run", "--trace", &path], options, &["--"], program].concat();
        self.rockery(&words)
    }

    /// The mistakes in traces.
    fn mistakes(&self, traces: &[&Path]) -> Vec<Value> {
        let paths: Vec<_> = traces.iter().map(|path| path.to_string_lossy()).collect();
        let mut words = vec!["explain", "--format", "json"];
        words.extend(paths.iter().map(|path| &**path));
        let explained = self.rockery(&words);
        let document: Value = serde_json::from_str(&explained.output)
            .unwrap_or_else(|error| panic!("{error}: {}", explained.output));
        let mistakes = document["mistakes"].as_array().expect("a list").clone();
        assert_eq!(explained.succeeded(), mistakes.is_empty());
        mistakes
    }

    /// The events of a trace.
    fn events(&self, trace: &Path) -> Vec<Value> {
        let shown = self.rockery(&["trace", "--format", "json", &trace.to_string_lossy()]);
        let lines = shown.expect_success().output;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a document in each line"))
            .collect()
    }
}

/// Each mistake of the probe: its case, its name, the call that makes it, and a part of the explanation.
const MISTAKES: [(&str, &str, &str, &str); 22] = [
    ("no-receive", "no-receive", "ibv_post_send", "had posted 0"),
    (
        "waits-for-receive",
        "no-receive",
        "ibv_post_send",
        "waits for a receive",
    ),
    (
        "short-receive",
        "short-receive",
        "ibv_post_recv",
        "than the 8 bytes",
    ),
    (
        "region-access",
        "wrong-access",
        "ibv_reg_mr",
        "without IBV_ACCESS_REMOTE_WRITE",
    ),
    (
        "queue-access",
        "wrong-access",
        "ibv_modify_qp",
        "qp_access_flags lack",
    ),
    (
        "receive-access",
        "wrong-access",
        "ibv_reg_mr",
        "without IBV_ACCESS_LOCAL_WRITE",
    ),
    (
        "registration",
        "wrong-access",
        "ibv_reg_mr",
        "needs IBV_ACCESS_LOCAL_WRITE too",
    ),
    (
        "range",
        "out-of-range",
        "ibv_post_send",
        "the memory of its key has 4096 bytes",
    ),
    (
        "remote-key",
        "wrong-key",
        "ibv_post_send",
        "which no region in this trace has",
    ),
    (
        "local-key",
        "wrong-key",
        "ibv_post_send",
        "has not registered",
    ),
    ("state", "wrong-state", "ibv_post_send", "in state INIT"),
    (
        "transition",
        "wrong-state",
        "ibv_modify_qp",
        "RESET to RTS, which is no transition",
    ),
    (
        "attributes",
        "wrong-state",
        "ibv_modify_qp",
        "without IBV_QP_MIN_RNR_TIMER",
    ),
    (
        "mtu",
        "mtu-mismatch",
        "ibv_modify_qp",
        "path_mtu is 2048 here, and 1024",
    ),
    ("gid", "gid-mismatch", "ibv_modify_qp", "at its sgid_index"),
    (
        "psn",
        "peer-mismatch",
        "ibv_modify_qp",
        "sq_psn is 7 at one end, and rq_psn 8",
    ),
    (
        "never-polled",
        "never-polled",
        "ibv_post_send",
        "no completion was polled",
    ),
    (
        "never-polled-at-the-end",
        "never-polled",
        "ibv_post_send",
        "3 signaled requests",
    ),
    (
        "never-signaled",
        "never-signaled",
        "ibv_post_send",
        "none of its 8 requests",
    ),
    (
        "deregistered",
        "deregistered-in-flight",
        "ibv_dereg_mr",
        "before the completion",
    ),
    (
        "peer-deregistered",
        "deregistered-in-flight",
        "ibv_dereg_mr",
        "has deregistered",
    ),
    (
        "wr-id",
        "wr-id-reused",
        "ibv_post_send",
        "wr_id 0x0 is that of an outstanding request",
    ),
];

#[test]
fn each_mistake_is_named_with_its_call() {
    let probe = Probe::compile("mistakes").expect("it compiles");
    let path = probe.path().to_string_lossy();
    let place = Place::new();
    // A second address, for programs that take the wrong one.
    place
        .alone
        .call("ip address add 127.0.0.2/8 dev lo")
        .expect("an address");
    for (case, mistake, call, part) in MISTAKES {
        let trace = place.file(case);
        let ran = place.traced(&trace, &[], &[&path, case]);
        let found = place.mistakes(&[&trace]);
        let [one] = &found[..] else {
            panic!("{case}: {found:#?} of {}", ran.output)
        };
        let what = one["what"].as_str().expect("a sentence");
        let line = one["call"]["line"].as_str().expect("a line");
        assert_eq!(one["mistake"], mistake, "{case}: {one}");
        assert!(what.contains(part), "{case}: {what}");
        assert!(
            line.contains(call) && line.contains("mistakes "),
            "{case}: {line}"
        );
        assert!(one["call"]["at_ns"].as_u64() > Some(0), "{case}: {one}");
        assert_eq!(
            one["call"]["thread"], one["call"]["process"],
            "{case}: one thread"
        );
    }
}

/// Mistakes of the probe with datagrams, unreliable connections and shared receive queues.
const LOST: [(&str, &str, &str, &str); 13] = [
    (
        "ud-receive",
        "no-receive",
        "ibv_post_send",
        "has posted 0 receives for 1 messages: it was lost without an error",
    ),
    (
        "ud-grh",
        "short-receive",
        "ibv_post_recv",
        "256 bytes for a message of 256 bytes, and 40 of the GRH before them",
    ),
    (
        "ud-qkey",
        "qkey-mismatch",
        "ibv_post_send",
        "with Q_Key 0x33 to QP",
    ),
    (
        "ud-gid",
        "gid-mismatch",
        "ibv_create_ah",
        "go to 10.8.0.77, and its process has 10.8.0.1",
    ),
    (
        "ud-long",
        "too-long",
        "ibv_post_send",
        "SEND of 8192 bytes: a datagram has at most",
    ),
    (
        "uc-receive",
        "no-receive",
        "ibv_post_send",
        "has posted 0 receives for 1 messages: it was lost without an error",
    ),
    (
        "uc-late",
        "no-receive",
        "ibv_post_send",
        "was sent when that had posted 1 receives, and UC drops what comes before its receive",
    ),
    (
        "uc-short",
        "short-receive",
        "ibv_post_recv",
        "a receive of 128 bytes for a message of 256 bytes",
    ),
    (
        "uc-access",
        "wrong-access",
        "ibv_reg_mr",
        "without IBV_ACCESS_REMOTE_WRITE (access LOCAL_WRITE): it was lost without an error",
    ),
    (
        "uc-range",
        "out-of-range",
        "ibv_post_send",
        "the memory of its key has 8192 bytes",
    ),
    (
        "srq-empty",
        "no-receive",
        "ibv_post_send",
        "in the shared receive queue of the peer, after 0 that were posted",
    ),
    (
        "srq-short",
        "short-receive",
        "ibv_post_srq_recv",
        "than the 128 bytes of the receive",
    ),
    (
        "srq-receive-queue",
        "wrong-state",
        "ibv_post_recv",
        "ibv_post_srq_recv posts there",
    ),
];

#[test]
fn messages_that_are_lost_without_an_error_are_named_with_the_call() {
    let probe = Probe::compile("datagrams").expect("it compiles");
    let path = probe.path().to_string_lossy();
    let place = Place::new();
    // A network on which nobody is: the loopback interface has all addresses of its own.
    for line in [
        "ip link add net0 type veth peer name net1",
        "ip address add 10.8.0.1/24 dev net0",
        "ip link set net0 up",
        "ip link set net1 up",
    ] {
        place.alone.call(line).expect("an interface");
    }
    for (case, mistake, call, part) in LOST {
        let trace = place.file(case);
        let options = match case {
            "ud-gid" => ["--device", "rk_net0"],
            _ => ["--device", "rk_lo"],
        };
        let ran = place.traced(&trace, &options, &[&path, case]);
        let ran = ran.expect_success();
        let found = place.mistakes(&[&trace]);
        let [one] = &found[..] else {
            panic!("{case}: {found:#?} of {}", ran.output)
        };
        let what = one["what"].as_str().expect("a sentence");
        let line = one["call"]["line"].as_str().expect("a line");
        assert_eq!(one["mistake"], mistake, "{case}: {one}");
        assert!(what.contains(part), "{case}: {what}");
        assert!(line.contains(call), "{case}: {line}");
    }
    for case in ["ud", "uc", "srq"] {
        let trace = place.file(case);
        let options = ["--device", "rk_lo"];
        place
            .traced(&trace, &options, &[&path, case])
            .expect_success();
        assert_eq!(place.mistakes(&[&trace]), [] as [Value; 0], "{case}");
    }
}

#[test]
fn programs_without_a_mistake_have_no_finding() {
    let probe = Probe::compile("mistakes").expect("it compiles");
    let place = Place::new();
    let trace = place.file("none");
    let path = probe.path().to_string_lossy();
    let ran = place.traced(&trace, &[], &[&path, "none"]).expect_success();
    assert_eq!(
        ran.output,
        "3: success\n4: success\n5: success\n1: success\n"
    );
    assert_eq!(place.mistakes(&[&trace]), [] as [Value; 0]);

    for (program, options) in [
        ("ib_write_bw", &["-n", "1000", "-s", "64"][..]),
        ("ib_send_bw", &["-n", "1000", "-s", "8192"]),
        ("ib_read_lat", &["-n", "200"]),
        ("ib_send_lat", &["-n", "200", "-c", "UD"]),
        ("ib_send_bw", &["-n", "500", "-c", "UC", "-s", "4096"]),
        ("ib_write_bw", &["-n", "500", "-c", "UC", "-s", "4096"]),
        ("ib_atomic_bw", &["-n", "200", "-q", "3"]),
        ("ibv_rc_pingpong", &["-g", "1"]),
        ("rping", &["-a", "127.0.0.1", "-C", "20"]),
    ] {
        let traces = [place.file("server"), place.file("client")];
        let paths = [0, 1].map(|end| traces[end].to_string_lossy().into_owned());
        let rounds = ["run", "--trace", &paths[0], "--", program];
        let sides: (Vec<&str>, Vec<&str>) = match program {
            "rping" => ([&["-s"], options].concat(), [&["-c"], options].concat()),
            _ => (options.to_vec(), [options, &["127.0.0.1"]].concat()),
        };
        let mut server = place.start(&[&rounds, &sides.0[..]].concat());
        let port = match program {
            "rping" => None,
            _ => Some(18515),
        };
        match port {
            Some(port) => place
                .alone
                .wait_for_listener(port, SECONDS)
                .expect("it listens"),
            None => {
                let rockery = Rockery::built();
                let listeners = format!("{} listeners", rockery.word());
                let listens = || Ok(place.alone.call(&listeners)?.contains("7174"));
                assert!(programs::machine::until(SECONDS, listens).expect("a list"));
            }
        }
        let client = [&["run", "--trace", &paths[1], "--", program], &sides.1[..]].concat();
        place.rockery(&client).expect_success();
        server.wait(SECONDS).expect("it ends").expect_success();
        let found = place.mistakes(&[&traces[0], &traces[1]]);
        assert_eq!(found, [] as [Value; 0], "{program}");
        let posted = place.events(&traces[1]);
        let is_sent = |event: &&Value| event["event"] == "send";
        assert!(posted.iter().filter(is_sent).count() > 10, "{program}");
    }
}

#[test]
fn a_trace_has_calls_requests_completions_and_states_of_each_thread_in_order() {
    let probe = Probe::compile("mistakes").expect("it compiles");
    let place = Place::new();
    let trace = place.file("trace");
    let path = probe.path().to_string_lossy();
    place
        .traced(&trace, &[], &[&path, "region-access"])
        .expect_success();
    let events = place.events(&trace);
    let times: Vec<u64> = events
        .iter()
        .filter_map(|event| event["at_ns"].as_u64())
        .collect();
    assert!(times.is_sorted() && times.len() == events.len());
    let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    let counts = [
        "create",
        "modify",
        "register",
        "send",
        "receive",
        "completion",
        "state",
        "destroy",
    ];
    assert_eq!(counts.map(count), [2, 6, 2, 1, 1, 1, 1, 2]);
    let called = |name: &str| {
        let all = events.iter().filter(|event| event["event"] == "call");
        all.filter(|event| event["text"] == name).count()
    };
    assert_eq!(
        ["alloc_pd", "create_cq", "modify_qp"].map(|name| called(&format!("ibv_{name}"))),
        [1, 2, 6]
    );
    let state = events
        .iter()
        .find(|event| event["event"] == "state")
        .expect("a state");
    assert_eq!(
        state["to"], 6,
        "the queue pair of the request that failed is in ERR"
    );

    let text = place
        .rockery(&["trace", &trace.to_string_lossy()])
        .expect_success()
        .output;
    for part in [
        "ibv_reg_mr 0x",
        "bytes access LOCAL_WRITE lkey",
        "RESET to INIT access REMOTE_WRITE|REMOTE_READ",
        "MTU 1024 at 127.0.0.1 from 127.0.0.1",
        "REM_ACCESS_ERR",
        "is in state ERR",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn perfetto_and_the_ladder_have_all_that_happened() {
    let probe = Probe::compile("mistakes").expect("it compiles");
    let place = Place::new();
    let trace = place.file("trace");
    let path = probe.path().to_string_lossy();
    place.traced(&trace, &[], &[&path, "none"]).expect_success();
    let shown = |format: &str| {
        let words = ["trace", "--format", format, &trace.to_string_lossy()];
        place.rockery(&words).expect_success().output
    };
    let document: Value = serde_json::from_str(&shown("perfetto")).expect("JSON");
    let all = document["traceEvents"].as_array().expect("events");
    let of = |phase: &str| all.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(
        (of("M"), of("b"), of("e")),
        (1, 4, 4),
        "one process, four requests"
    );
    assert!(of("X") > 10, "calls");
    let page = shown("ladder");
    for part in [
        "RDMA_WRITE 8 B, wr_id 0x3",
        "SEND 8 B, wr_id 0x5",
        "receive wr_id 0x1: SUCCESS",
        "</svg>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_program_that_is_killed_leaves_a_whole_trace() {
    let place = Place::new();
    let trace = place.file("trace");
    let path = trace.to_string_lossy();
    let program = ["--", "ib_write_lat", "-n", "5000000"];
    let traced = [&["run", "--trace", &path], &program[..]].concat();
    let mut server = place.start(&traced);
    place
        .alone
        .wait_for_listener(18515, SECONDS)
        .expect("it listens");
    let mut client = place.start(&[&["run"], &program[..], &["127.0.0.1"]].concat());
    let has_sent = || {
        let shown = place.rockery(&["trace", &path]);
        Ok(shown.output.matches("completion QP").count() > 1000)
    };
    assert!(programs::machine::until(SECONDS, has_sent).expect("a trace"));
    server.kill().expect("it is killed");
    client.kill().expect("it is killed");
    let events = place.events(&trace);
    assert!(events.len() > 2000, "{}", events.len());
}

#[test]
fn a_trace_ends_at_its_limit_and_says_how_much_is_missing() {
    let place = Place::new();
    let trace = place.file("trace");
    let path = trace.to_string_lossy();
    let run = ["run", "--trace", &path, "--trace-limit", "1MiB", "--"];
    let both = "ib_write_lat -n 20000 & sleep 1; ib_write_lat -n 20000 127.0.0.1";
    place
        .rockery(&[&run[..], &["sh", "-c", both]].concat())
        .expect_success();
    let bytes = trace.metadata().expect("a file").len();
    assert!(bytes <= 1 << 20, "{bytes}");
    let shown = place
        .rockery(&["trace", "--format", "text", &path])
        .expect_success();
    assert!(shown.output.contains("had no room in the trace"), "no note");
    let refused = place.rockery(&[
        "run",
        "--trace",
        &path,
        "--trace-limit",
        "1kB",
        "--",
        "true",
    ]);
    assert!(
        refused.output.contains("bytes at least"),
        "{}",
        refused.output
    );
    let other = place.rockery(&["explain", "/proc/self/exe"]);
    assert!(
        other.output.contains("this is no trace"),
        "{}",
        other.output
    );
}

#[test]
fn children_of_a_fork_and_programs_with_faults_are_in_the_trace() {
    let probe = Probe::compile("mistakes").expect("it compiles");
    let place = Place::new();
    let trace = place.file("trace");
    let program = probe.path().to_string_lossy();
    let both = format!("{program} none; {program} none");
    let options = [
        "--fault",
        "completion: status REM_ACCESS_ERR opcode rdma_write nth 1",
    ];
    place.traced(&trace, &options, &["sh", "-c", &both]);
    let failed: Vec<Value> = place
        .events(&trace)
        .into_iter()
        .filter(|event| event["event"] == "completion" && event["status"] == 10)
        .collect();
    let [one, other] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert_ne!(one["process"], other["process"]);
}
