//! The harness itself, with programs that need no RDMA.

use programs::{Job, Machine, Namespace, Pair, Rockery, Segment};

/// Long enough for anything here on a busy machine; reached only when something is broken.
const SECONDS: u64 = 30;

#[test]
fn two_namespaces_reach_each_other_with_packets_as_large_as_the_mtu() {
    for mtu in [1500, 9000] {
        let pair = Pair::new(mtu).unwrap();
        // 28 bytes of IPv4 and ICMP headers make the packet full.
        let full = (mtu - 28).to_string();
        let ping = |size: &str| {
            let argv = [
                "ping",
                "-c",
                "1",
                "-W",
                "5",
                "-M",
                "do",
                "-s",
                size,
                "10.88.0.2",
            ];
            pair.left.run(&argv, SECONDS).unwrap()
        };
        ping(&full).expect_success();
        assert!(
            !ping(&(mtu - 27).to_string()).succeeded(),
            "a packet beyond the MTU went through"
        );
    }
}

#[test]
fn iperf3_runs_over_a_pair() {
    let pair = Pair::new(9000).unwrap();
    let mut server = pair.right.start(&["iperf3", "-s", "-1"]).unwrap();
    pair.right.wait_for_listener(5201, SECONDS).unwrap();
    let client = pair
        .left
        .run(&["iperf3", "-c", "10.88.0.2", "-n", "10M"], SECONDS)
        .unwrap();
    assert!(client.expect_success().output.contains("sender"));
    server.wait(SECONDS).unwrap().expect_success();
}

#[test]
fn a_namespace_takes_its_processes_with_it() {
    let namespace = Namespace::alone().unwrap();
    let mut started = namespace
        .start_plain(&["sh", "-c", "sleep 300 & echo $!; wait"])
        .unwrap();
    programs::machine::until(SECONDS, || Ok(!started.output()?.is_empty())).unwrap();
    let grandchild = started.output().unwrap().trim().to_owned();
    let name = namespace.netns().to_owned();
    assert!(running(&grandchild));
    drop(namespace);
    programs::machine::until(SECONDS, || Ok(!running(&grandchild))).unwrap();
    assert!(!running(&grandchild));
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}

/// A killed orphan may stay as a zombie when no process reaps it: that is not running.
fn running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_namespace_goes_away_when_a_test_panics() {
    let caught = std::panic::catch_unwind(|| {
        let namespace = Namespace::alone().unwrap();
        std::panic::panic_any(namespace.netns().to_owned());
    });
    let name = caught.unwrap_err().downcast::<String>().unwrap();
    assert!(
        !std::path::Path::new("/run/netns")
            .join(name.as_str())
            .exists()
    );
}

#[test]
fn a_program_that_never_ends_is_an_error_with_its_output() {
    let namespace = Namespace::alone().unwrap();
    let error = namespace
        .run(&["sh", "-c", "echo here; sleep 300"], 1)
        .unwrap_err();
    assert!(error.to_string().contains("here"), "{error}");
}

#[test]
fn a_program_that_fails_reports_its_status_and_output() {
    let namespace = Namespace::alone().unwrap();
    let finished = namespace
        .run(&["sh", "-c", "echo why >&2; exit 3"], SECONDS)
        .unwrap();
    assert_eq!(
        (finished.status, finished.output.as_str()),
        (Some(3), "why\n")
    );
    let killed = namespace
        .run(&["sh", "-c", "kill -KILL $$"], SECONDS)
        .unwrap();
    assert_eq!(killed.status, None);
}

#[test]
fn a_guest_runs_programs_and_kills_them() {
    let segment = Segment::new(1500).unwrap();
    let host = segment.namespace(1).unwrap();
    let guest = segment.guest(11, &[]).unwrap();
    assert_eq!(
        guest.shell("printf 'no newline'; exit 7").unwrap().status,
        Some(7)
    );
    assert_eq!(
        guest
            .run(&["echo", "it's"], SECONDS)
            .unwrap()
            .expect_success()
            .output,
        "it's\n"
    );
    let mut sleeper = guest.start(&["sleep", "300"]).unwrap();
    assert_eq!(sleeper.finished().unwrap(), None);
    sleeper.kill().unwrap();
    assert_eq!(sleeper.wait(SECONDS).unwrap().status, None);
    for address in [guest.address(), guest.address_v6()] {
        host.run(
            &["ping", "-c", "1", "-W", "5", &address.to_string()],
            SECONDS,
        )
        .unwrap()
        .expect_success();
    }
}

#[test]
fn rockery_is_built_where_the_tests_look() {
    assert!(Rockery::built().path().is_file());
}

/// A program with libtest's output and the tests of two modules, `part::TEST` and `whole::passes`. The test
/// `sometimes` fails when it runs for the first time, `always` each time, and `strays` leaves a file in the
/// checkout. In place of cargo, the program also lists itself as the only test program.
const FAKE: &str = r#"#!/bin/sh
folder=$(dirname "$0")
test=$(cat "$folder/test")
case "$1" in
  build) exit 0 ;;
  test)
    [ "$2" = --no-run ] || exit 0
    echo '{"reason":"compiler-artifact","profile":{"test":true},"executable":"'"$0"'",
"manifest_path":"'"$0"'","package_id":"path+file:///rockery#rockery-programs@0.1.0",
"target":{"name":"fake","kind":["test"]}}' | tr -d '\n'
    exit 0 ;;
  --list) printf 'part::%s: test\nwhole::passes: test\n' "$test"; exit 0 ;;
esac
echo "selected: $*"
passes=
case "$test $*" in
  *whole::passes*) passes=yes ;;
  "sometimes --exact part::sometimes") [ -e "$folder/ran" ] && passes=yes; touch "$folder/ran" ;;
  "strays --exact part::strays") touch "$STRAY"; passes=yes ;;
esac
if [ "$passes" ]; then
  printf '\ntest result: ok. 1 passed; 0 failed\n'
  exit 0
fi
printf '\nfailures:\n\n---- part::%s stdout ----\nan assertion\n\n\nfailures:\n' "$test"
printf '    part::%s\n\ntest result: FAILED. 0 passed; 1 failed\n' "$test"
exit 101
"#;

/// Runs scripts/test.py of a checkout with a program whose module `part` has only `test`; returns whether it
/// succeeded, and the output.
fn run_of_tests(test: &str, words: &[&str]) -> (bool, String) {
    use std::os::unix::fs::PermissionsExt;
    let checkout = tempfile::tempdir().expect("a temporary folder");
    let scripts = checkout.path().join("scripts");
    std::fs::create_dir(&scripts).expect("our own folder");
    for file in ["test.py", "test-seconds.json"] {
        let ours = programs::workspace().join("scripts").join(file);
        std::fs::copy(ours, scripts.join(file)).expect("our own script");
    }
    let git = ["git", "init", "--quiet", &checkout.path().to_string_lossy()];
    assert!(
        std::process::Command::new(git[0])
            .args(&git[1..])
            .status()
            .expect("git")
            .success()
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fake = folder.path().join("fake");
    std::fs::write(folder.path().join("test"), test).expect("our own folder");
    std::fs::write(&fake, FAKE).expect("our own folder");
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    let mut run = std::process::Command::new("python3");
    // With a filter, the seconds of the run are not kept for the next one.
    run.arg("-B")
        .arg(scripts.join("test.py"))
        .args(words)
        .arg("a-filter")
        .env("CARGO", &fake)
        .env("STRAY", checkout.path().join("stray.state"))
        .env_remove("ROCKERY_TEST_STRICT");
    let output = run.output().expect("python3");
    let text = [&output.stdout[..], &output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_test_that_passes_when_run_again_is_flaky_and_one_that_fails_again_fails_the_run() {
    let (succeeded, output) = run_of_tests("sometimes", &[]);
    assert!(succeeded, "{output}");
    assert!(
        output.contains("flaky: rockery-programs fake::part: part::sometimes failed"),
        "{output}"
    );
    assert!(output.contains("an assertion"), "{output}");
    let (succeeded, output) = run_of_tests("sometimes", &["--strict"]);
    assert!(!succeeded, "{output}");
    assert!(
        output.contains("failed: rockery-programs fake::part: part::sometimes"),
        "{output}"
    );
    let (succeeded, output) = run_of_tests("always", &[]);
    assert!(!succeeded && !output.contains("flaky:"), "{output}");
}

#[test]
fn each_module_of_a_program_by_subject_runs_as_a_process_of_its_own() {
    let (succeeded, output) = run_of_tests("always", &[]);
    assert!(!succeeded, "{output}");
    let selected: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("selected: "))
        .collect();
    let [first, second, again] = &*selected else {
        panic!("two modules, and one again: {output}")
    };
    let mut once = [*first, *second];
    once.sort_unstable();
    assert_eq!(
        once,
        [
            "selected: --exact part::always",
            "selected: --exact whole::passes"
        ]
    );
    assert_eq!(*again, "selected: --exact part::always");
}

#[test]
fn a_run_that_leaves_a_file_in_the_checkout_fails() {
    let (succeeded, output) = run_of_tests("strays", &[]);
    assert!(!succeeded, "{output}");
    assert!(
        output.contains("changed during the run: ?? stray.state"),
        "{output}"
    );
}
