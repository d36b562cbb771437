//! The program `rockery-bench` by itself, without the command that starts it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const BROKEN_PIPE: i32 = 13;

/// A folder with this program alone.
fn installation() -> (TempDir, PathBuf) {
    // Links do not cross file systems, and a debug build is large.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("rockery-bench");
    fs::hard_link(env!("CARGO_BIN_EXE_rockery-bench"), &program).unwrap();
    (folder, program)
}

#[test]
fn without_the_command_the_error_says_how_to_name_it() {
    let (_folder, program) = installation();
    let done = Command::new(&program)
        .args(["nvme", "--quick"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(127));
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        error.contains("make install") && error.contains("--rockery"),
        "{error}"
    );
}

/// The comparison ends before the process does: what it has made in a folder is removed.
#[test]
fn a_closed_pipe_ends_it_by_its_signal_and_leaves_no_file() {
    let (folder, program) = installation();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let mut bench = Command::new(&program)
        .args(["--rockery", "/bin/true", "smb", "--transport", "local"])
        .args([
            "--quick", "--part", "copy", "--size", "16MiB", "--json", "--folder",
        ])
        .arg(&shared)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(bench.stdout.take());
    let mut said = String::new();
    let mut errors = bench.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    let status = bench.wait().unwrap();
    assert_eq!(status.signal(), Some(BROKEN_PIPE), "{status}: {said}");
    assert_eq!(said, "");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}
