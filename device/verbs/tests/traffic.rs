//! Programs of the distribution, and one of this repository, over the loopback interface of a network
//! namespace of their own.

mod library;

use library::folder;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Runs one pair of programs at a time: most of them spin, and share the processors.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a shell script in new namespaces, where no other process uses a port, an interface or a device. All
/// processes that it starts end with it.
fn in_a_namespace(script: &str) -> Output {
    let script = format!("ip link set lo up || exit 99; {script}");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "60",
        "unshare",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        &script,
    ]);
    command.env("LD_LIBRARY_PATH", folder());
    command
        .output()
        .expect("this test needs the packages coreutils, util-linux and iproute2")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// A server and a client of one program. The client starts when the server listens.
fn pair(program: &str, package: &str) {
    let found = Command::new("sh")
        .args([
            "-c",
            &format!(
                "command -v {} >/dev/null",
                program.split(' ').next().unwrap_or("")
            ),
        ])
        .status();
    assert!(
        found.is_ok_and(|status| status.success()),
        "{program}: this test needs the package {package}"
    );
    let output = in_a_namespace(&format!(
        "{program} & server=$!; for i in $(seq 100); do ss -ltn | grep -q 18515 && break; sleep 0.1; done; \
         {program} 127.0.0.1 && wait $server"
    ));
    assert!(output.status.success(), "{program}\n{}", text(&output));
    remove_xrc_files();
}

/// perftest names its XRC domains by files and leaves them, where they would prevent another user from
/// running it.
fn remove_xrc_files() {
    for file in ["/tmp/xrc_domain_server", "/tmp/xrc_domain_client"] {
        // The file may not exist, or belong to another user.
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn pingpongs_of_all_transports_come_to_an_end() {
    for program in [
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
        "ibv_xsrq_pingpong",
    ] {
        for how in ["", "-e"] {
            pair(
                &format!("{program} -d rk_lo -g 1 -n 50 {how}"),
                "ibverbs-utils",
            );
        }
    }
}

#[test]
fn perftest_measures() {
    for program in [
        "ib_send_bw",
        "ib_send_bw -c UD",
        "ib_send_bw --use-srq",
        "ib_send_lat -c XRC",
        "ib_write_bw -q 4",
        "ib_write_lat",
        "ib_read_bw",
        "ib_atomic_bw",
        "ib_send_lat -I 64",
        "ib_send_bw -e",
    ] {
        pair(&format!("{program} -d rk_lo -n 100"), "perftest");
    }
}

/// Compiles a C program of this repository and runs it, with freed memory overwritten (`mallopt(3)`).
fn ours(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-libverbs")
        .output();
    let compiled = compiled.expect("this test needs the package gcc");
    assert!(
        compiled.status.success(),
        "gcc and libibverbs-dev are needed:\n{}",
        text(&compiled)
    );
    let output = in_a_namespace(&format!(
        "exec env MALLOC_PERTURB_=85 {}",
        program.display()
    ));
    assert!(
        output.status.success() && text(&output).ends_with("all gone\n"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_device_talks_to_itself_as_the_manual_pages_say() {
    ours("itself");
}

#[test]
fn a_closed_device_stays_until_its_last_object_is_destroyed() {
    ours("outlives");
}
