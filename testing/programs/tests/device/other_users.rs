//! Processes of another user of the machine that take the socket names of rockery's agent and devices, and
//! answer in their place.

use programs::machine::until;
use programs::{Finished, Job, Machine, Namespace, Rockery};

const SECONDS: u64 = 60;
const NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

const OTHER_USER: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65533",
    "--regid",
    "65533",
    "--clear-groups",
];

/// The output of a command of rockery that another user calls.
fn of_another_user(namespace: &Namespace, installed: &str, words: &[&str]) -> String {
    let argv = [&OTHER_USER[..], &[installed], words].concat();
    let mut job = namespace.start_plain(&argv).expect("it starts");
    job.wait(SECONDS).expect("in time").output
}

/// Prints `ready` when its sockets are there, and stays.
const BEGINNING: &str = "
import socket, sys, threading, time
def listen(name, backlog):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind('\\0' + name)
    listener.listen(backlog)
    return listener
def ready():
    print('ready', flush=True)
";

/// Starts a program in Python as another user, and waits until its sockets are there.
fn stranger<'a>(namespace: &'a Namespace, script: &str) -> impl Job + 'a {
    let script = format!("{BEGINNING}{script}");
    let argv = [&NOBODY[..], &["/usr/bin/python3", "-c", &script]].concat();
    let mut job = namespace.start_plain(&argv).expect("it starts");
    let is_ready = until(SECONDS, || Ok(job.output()?.contains("ready"))).expect("its output");
    assert!(is_ready, "{:?}", job.output());
    job
}

fn rockery(namespace: &Namespace, words: &[&str]) -> Finished {
    let rockery = Rockery::built();
    let path = rockery.path().to_string_lossy();
    let mut job = namespace
        .start_plain(&[&[&*path], words].concat())
        .expect("it starts");
    job.wait(SECONDS).expect("in time")
}

#[test]
fn an_agents_name_that_is_taken_is_an_error_that_names_its_owner() {
    let namespace = Namespace::alone().unwrap();
    let _taken = stranger(
        &namespace,
        "it = listen('rockery-agent-0', 8)\nready()\ntime.sleep(600)",
    );
    let finished = rockery(&namespace, &["run", "--", "ibv_devinfo", "-d", "rk_lo"]);
    assert!(!finished.succeeded(), "{}", finished.output);
    assert!(
        finished.output.contains("of user 65534"),
        "{}",
        finished.output
    );
}

#[test]
fn an_agents_name_with_a_full_backlog_is_an_error_after_a_bounded_wait() {
    let namespace = Namespace::alone().unwrap();
    let _taken = stranger(
        &namespace,
        "
it, waiting = listen('rockery-agent-0', 0), []
while True:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.setblocking(False)
    try: client.connect('\\0rockery-agent-0')
    except BlockingIOError: break
    waiting.append(client)
ready()
time.sleep(600)",
    );
    let finished = rockery(&namespace, &["run", "--", "ibv_devinfo", "-d", "rk_lo"]);
    assert!(!finished.succeeded(), "{}", finished.output);
    assert!(
        finished.output.contains("@rockery-agent-0 did not answer"),
        "{}",
        finished.output
    );
}

/// A device whose report has escapes for the terminal, one that tells a byte now and then, and one that does
/// not stop.
const DEVICES: &str = "
HEAD = b'report\\t2\\ndevice\\trk_lo\\npid\\t1\\nprogram\\t'
def escapes(client):
    client.send(HEAD + b'\\x1b[2J\\x1b]0;pwned\\x07root-owned\\ncounter\\tsent_packets\\t5\\n')
def slow(client):
    client.send(HEAD + b'slow\\n')
    while True:
        client.send(b'counter\\tx\\t5\\n')
        time.sleep(.3)
def endless(client):
    client.send(HEAD + b'endless\\n')
    while True: client.send(b'counter\\ty\\t5\\n' * 1000)
def serve(listener, answer):
    def one(client):
        try: answer(client)
        except OSError: pass
        client.close()
    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()
for number, answer in enumerate([escapes, slow, endless]):
    it = listen('rockery-device-0-4242-%d' % number, 8)
    threading.Thread(target=serve, args=(it, answer), daemon=True).start()
ready()
time.sleep(600)";

#[test]
fn reports_of_another_users_devices_are_not_shown_to_a_user() {
    let namespace = Namespace::alone().unwrap();
    let _devices = stranger(&namespace, DEVICES);
    let (_prefix, installed) = Rockery::built().installed();
    let said = of_another_user(&namespace, &installed.to_string_lossy(), &["devices"]);
    assert!(said.contains("rk_lo"), "{said}");
    for false_word in ["root-owned", "slow", "endless", "gave no report"] {
        assert!(!said.contains(false_word), "{said}");
    }
}

/// Root queries every user's devices: control characters in their answers are escaped, and none delays the
/// others.
#[test]
fn reports_of_another_users_devices_do_not_harm_root() {
    let namespace = Namespace::alone().unwrap();
    let _devices = stranger(&namespace, DEVICES);
    for json in [&[][..], &["--json"]] {
        let words = [&["devices"], json].concat();
        let said = rockery(&namespace, &words).expect_success().output;
        assert!(
            !said.chars().any(|it| it.is_control() && it != '\n'),
            "{said:?}"
        );
        assert!(
            said.contains("root-owned") && !said.contains("endless"),
            "{said}"
        );
        // The process is the one that the kernel names, not the one it claims to be.
        assert!(
            !said.contains("(process 1)") && !said.contains("\"pid\":1,"),
            "{said}"
        );
    }
    let said = rockery(&namespace, &["devices"]).output;
    assert!(said.contains("2 open devices gave no report"), "{said}");
}

#[test]
fn a_socket_with_a_devices_name_that_does_not_answer_stops_no_other_process() {
    let namespace = Namespace::with_rockery();
    let _silent = stranger(
        &namespace,
        "all = [listen('rockery-device-0-1-%d' % n, 1) for n in range(64)]
ready()
time.sleep(600)",
    );
    let said = rockery(&namespace, &["devices"]).expect_success().output;
    assert!(said.contains("64 open devices gave no report"), "{said}");
    namespace
        .run(&["ibv_devinfo", "-d", "rk_lo"], SECONDS)
        .unwrap()
        .expect_success();
}

/// An agent shares the port between processes of one user. Another user's program gets no device: the holder
/// is named, also by what lists devices, and a network namespace of its own is the way out.
#[test]
fn the_user_that_holds_the_port_is_named_and_a_private_namespace_needs_no_rights() {
    let namespace = Namespace::with_rockery();
    let mut holder = namespace
        .start(&["ib_write_bw", "-d", "rk_lo"])
        .expect("it starts");
    let is_open = until(SECONDS, || {
        Ok(rockery(&namespace, &["devices"])
            .output
            .contains("ib_write_bw"))
    });
    assert!(is_open.unwrap(), "{:?}", holder.output());
    let (_prefix, installed) = Rockery::built().installed();
    let installed = installed.to_string_lossy();
    let expected = "by rockery of user 0 (ib_write_bw, process ";
    for words in [
        &["run", "ibv_rc_pingpong", "-d", "rk_lo", "-g", "1"][..],
        &["devices"],
        &["doctor"],
    ] {
        let said = of_another_user(&namespace, &installed, words);
        assert!(
            said.contains(expected) && said.contains("run --private"),
            "{words:?}: {said}"
        );
    }
    let both = "ib_write_bw -d rk_lo -n 100 >/dev/null & \
                until ib_write_bw -d rk_lo -n 100 127.0.0.1; do sleep .1; done; wait";
    let words = ["run", "--private", "sh", "-c", both];
    let said = of_another_user(&namespace, &installed, &words);
    assert!(said.contains("65536      100"), "{said}");
    let own = rockery(&namespace, &["devices"]).expect_success().output;
    assert!(!own.contains("get none of these devices"), "{own}");
    holder.kill().unwrap();
}

/// `--` is needed for no program whose name is none of rockery's options.
#[test]
fn words_after_the_program_are_its_own_with_and_without_two_hyphens() {
    let namespace = Namespace::alone().unwrap();
    for words in [
        &["run", "sh", "-c", "echo \"$@\"", "sh", "--view", "--", "-x"][..],
        &[
            "run",
            "--view",
            "none",
            "--",
            "sh",
            "-c",
            "echo \"$@\"",
            "sh",
            "--view",
            "--",
            "-x",
        ],
    ] {
        let said = rockery(&namespace, words).expect_success().output;
        assert_eq!(said.trim(), "--view -- -x", "{words:?}");
    }
    let wrong = rockery(&namespace, &["run", "--pcpa", "x", "sh"]).output;
    assert!(
        wrong.contains("'--pcpa'") && wrong.contains("--pcap"),
        "{wrong}"
    );
    let missing = rockery(&namespace, &["run", "ib_absent_bw"]).output;
    assert!(missing.contains("apt install perftest"), "{missing}");
}
