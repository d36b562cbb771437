//! The examples of docs/reference/verbs.md: a lock by atomic operations, shards to a multicast group.

use std::path::PathBuf;
use std::process::Command;

use programs::{Machine, Pair, workspace};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// An example of `examples/verbs`, compiled with all warnings as errors.
fn compiled(name: &str, folder: &TempDir) -> PathBuf {
    let program = folder.path().join(name);
    let source = workspace().join(format!("examples/verbs/{name}.c"));
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    command.arg(&program).arg(source).arg("-libverbs");
    let output = command.output().expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    program
}

#[test]
fn hosts_take_a_lock_with_atomic_operations() {
    let (pair, folder) = (Pair::with_rockery(1500), TempDir::new().unwrap());
    let program = compiled("lock", &folder);
    let mut hosts = pair.left.start(&[&program.to_string_lossy()]).unwrap();
    let ran = hosts.wait(SECONDS).unwrap().expect_success();
    assert!(
        ran.output.contains("4 hosts raised the counter to 1000;"),
        "{}",
        ran.output
    );
}

#[test]
fn all_members_of_a_group_receive_each_shard() {
    let (pair, folder) = (Pair::with_rockery(1500), TempDir::new().unwrap());
    let program = compiled("shards", &folder);
    let path = program.to_string_lossy();
    // Two members on one host, and one on the sender's.
    let mut members = Vec::new();
    for machine in [&pair.left, &pair.left, &pair.right] {
        let mut member = machine.start(&[&*path, "receive"]).unwrap();
        member.expect_output("waiting", SECONDS);
        members.push(member);
    }
    let mut sender = pair.right.start(&[&*path, "send"]).unwrap();
    sender.wait(SECONDS).unwrap().expect_success();
    for member in &mut members {
        let received = member.wait(SECONDS).unwrap().expect_success();
        assert!(
            received.output.contains("8 shards received"),
            "{}",
            received.output
        );
    }
}
