//! `rockery check` on machines with and without what it looks for: other devices, a taken port, a kernel that
//! refuses system calls.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Finished, Job, Namespace, Rockery};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

const SECONDS: u64 = 60;
const OTHER_USER: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

/// Runs `rockery check` in a namespace, behind other words, with options.
fn check_in(alone: &Namespace, before: &[&str], options: &[&str]) -> Finished {
    let rockery = Rockery::built();
    let words = [before, &[rockery.word(), "check"], options].concat();
    let mut process = alone.start_plain(&words).expect("it starts");
    process.wait(SECONDS).expect("it ends in time")
}

fn check(before: &[&str], options: &[&str]) -> Finished {
    let alone = Namespace::alone().expect("a namespace");
    check_in(&alone, before, options)
}

/// The level of a subject, and what was found.
fn finding(document: &Value, subject: &str) -> Option<(String, String)> {
    let all = document["findings"].as_array()?;
    let one = all.iter().find(|one| one["subject"] == subject)?;
    Some((one["level"].as_str()?.into(), one["found"].as_str()?.into()))
}

fn document(finished: &Finished) -> Value {
    serde_json::from_str(&finished.output)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.output))
}

/// A folder in place of `/sys/class` with a device of the kernel, of this driver and state.
fn sys_class(name: &str, driver: &str, state: &str) -> TempDir {
    let root = TempDir::new().expect("a folder");
    let device = root.path().join("infiniband").join(name);
    for folder in ["ports/1", "device"] {
        fs::create_dir_all(device.join(folder)).expect("a folder");
    }
    fs::write(device.join("ports/1/state"), format!("{state}\n")).expect("a file");
    let link = format!("../../../bus/pci/drivers/{driver}");
    std::os::unix::fs::symlink(link, device.join("device/driver")).expect("a link");
    root
}

#[test]
fn a_machine_with_loopback_alone_runs_rdma_programs() {
    let finished = check(&[], &[]).expect_success();
    for expected in [
        "a program of rockery run wrote 64 bytes by RDMA on rk_lo",
        "rockery run --private and rockery lab work",
        "RDMA programs run here",
    ] {
        assert!(finished.output.contains(expected), "{}", finished.output);
    }
    let found = document(&check(&[], &["--format", "json"]).expect_success());
    assert_eq!(found["runs"], Value::Bool(true), "{found}");
    let devices = finding(&found, "devices");
    assert_eq!(devices, Some(("ok".into(), "rk_lo (127.0.0.1)".into())));
}

#[test]
fn devices_of_the_kernel_interfere_and_rockery_run_hides_them() {
    for (name, driver, state, expected) in [
        ("mana_0", "mana", "4: ACTIVE", "Azure's MANA"),
        ("mlx5_0", "mlx5_core", "1: DOWN", "port 1 is DOWN"),
    ] {
        let class = sys_class(name, driver, state);
        let mount = format!(
            "mount --bind {} /sys/class && exec \"$@\"",
            class.path().display()
        );
        let mounted = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
        let found = document(&check(&mounted, &["--format", "json"]).expect_success());
        let (level, text) = finding(&found, name).expect("a finding");
        assert_eq!(level, "interferes");
        assert!(
            text.contains(expected) && text.contains(&format!("(driver {driver})")),
            "{text}"
        );
        assert!(!check(&mounted, &["--strict"]).succeeded());

        // What the remedy says.
        let alone = Namespace::alone().expect("a namespace");
        let rockery = Rockery::built();
        let list = ["run", "--", "ls", "/sys/class/infiniband"];
        let words = [&mounted[..], &[rockery.word()], &list].concat();
        let listed = alone.start_plain(&words).expect("it starts");
        let listed = { listed }.wait(SECONDS).expect("in time").expect_success();
        assert_eq!(listed.output.trim(), "rk_lo");
    }
}

#[test]
fn a_taken_port_is_named_with_user_and_process_and_private_runs() {
    let alone = Namespace::alone().expect("a namespace");
    let script = "import socket, time\n\
                  it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  it.bind(('0.0.0.0', 4791))\n\
                  print('ready', flush=True)\n\
                  time.sleep(600)";
    let argv = [&OTHER_USER[..], &["/usr/bin/python3", "-c", script]].concat();
    let mut holder = alone.start_plain(&argv).expect("it starts");
    let is_ready = until(SECONDS, || Ok(holder.output()?.contains("ready"))).expect("its output");
    assert!(is_ready, "{:?}", holder.output());

    let finished = check_in(&alone, &[], &[]);
    assert!(!finished.succeeded(), "{}", finished.output);
    for expected in [
        "taken by user 65534 (python3, process ",
        "rockery run --private",
    ] {
        assert!(finished.output.contains(expected), "{}", finished.output);
    }
    let rockery = Rockery::built();
    let inside = [rockery.word(), "run", "--private", "--"];
    let private = check_in(&alone, &inside, &[]).expect_success();
    assert!(private.output.contains("RDMA programs run here"));
}

#[test]
fn what_the_kernel_refuses_is_a_note_where_programs_run_without_it() {
    let confine = Probe::compile("confine").expect("it compiles");
    let path = confine.path().to_string_lossy();
    for (what, subject) in [("shared", "memory files"), ("namespaces", "namespaces")] {
        let confined = [&*path, what];
        let found = document(&check(&confined, &["--format", "json"]).expect_success());
        let (level, text) = finding(&found, subject).expect("a finding");
        assert_eq!(level, "note", "{what}: {text}");
        let seccomp = finding(&found, "seccomp").expect("the filter");
        assert_eq!(seccomp.0, "ok");
    }
    let found = check(&[], &["--format", "json"]).expect_success();
    assert_eq!(finding(&document(&found), "seccomp"), None);
}

/// Runs what follows as another user in a chroot with folders of this machine.
const CHROOT: &str = "mount -t tmpfs tmpfs /mnt && for folder in $1; do \
                      mkdir -p /mnt/root/$folder && mount --rbind /$folder /mnt/root/$folder || exit 1; \
                      done && shift && exec chroot --userspec=65534:65534 /mnt/root \"$@\"";

#[test]
fn in_a_chroot_programs_run_and_missing_namespaces_are_explained() {
    let own = programs::workspace();
    let folders = |more: &str| {
        format!(
            "bin etc lib lib64 sys tmp usr {more} {}",
            own.to_string_lossy().trim_start_matches('/')
        )
    };
    let with_proc = folders("dev proc");
    let inside = ["unshare", "--mount", "sh", "-c", CHROOT, "sh", &with_proc];
    let found = document(&check(&inside, &["--format", "json"]).expect_success());
    let (level, _) = finding(&found, "transfer").expect("a transfer");
    assert_eq!(level, "ok", "{found}");
    let finished = check(&inside, &[]).expect_success();
    let remedy = "this is a chroot, in which the kernel makes no user namespaces";
    assert!(finished.output.contains(remedy), "{}", finished.output);

    let without = folders("dev");
    let inside = ["unshare", "--mount", "sh", "-c", CHROOT, "sh", &without];
    let finished = check(&inside, &[]);
    assert!(!finished.succeeded(), "{}", finished.output);
    let remedy = "mount -t proc proc /proc";
    assert!(finished.output.contains(remedy), "{}", finished.output);
}

#[test]
fn a_machine_without_an_interface_that_is_up_runs_no_rdma_programs() {
    let alone = Namespace::alone().expect("a namespace");
    alone.call("ip link set lo down").expect("it is down");
    let finished = check_in(&alone, &[], &[]);
    assert!(!finished.succeeded(), "{}", finished.output);
    assert!(
        finished.output.contains("ip link set lo up"),
        "{}",
        finished.output
    );
    assert!(finished.output.ends_with("RDMA programs do not run here\n"));
}
