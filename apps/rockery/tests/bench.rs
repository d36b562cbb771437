//! `rockery bench` becomes the program `rockery-bench`: arguments, exit status and signals are its own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

const INTERRUPTED: i32 = 2;
const BROKEN_PIPE: i32 = 13;

/// A folder with the command alone, as an installation without the other programs.
fn installation() -> (TempDir, PathBuf) {
    // Links do not cross file systems, and a debug build is large.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let rockery = folder.path().canonicalize().unwrap().join("rockery");
    fs::hard_link(env!("CARGO_BIN_EXE_rockery"), &rockery).unwrap();
    (folder, rockery)
}

/// A script in place of the program.
fn place_program(folder: &Path, script: &str) {
    let path = folder.join("rockery-bench");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_program_in_the_same_folder_gets_arguments_process_and_exit_status() {
    let (folder, rockery) = installation();
    place_program(folder.path(), "echo $$ \"$@\"; echo warned >&2; exit 7");
    let child = Command::new(&rockery)
        .args(["bench", "smb", "--quick", "--json", "-"])
        .env("PATH", "/nowhere")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let done = child.wait_with_output().unwrap();
    let expected = format!(
        "{process} --rockery {} smb --quick --json -\n",
        rockery.display()
    );
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
    assert_eq!(String::from_utf8_lossy(&done.stderr), "warned\n");
    assert_eq!(done.status.code(), Some(7));
}

#[test]
fn signals_end_the_program_as_if_it_had_been_started_directly() {
    let (folder, rockery) = installation();
    for (name, signal) in [("INT", INTERRUPTED), ("PIPE", BROKEN_PIPE)] {
        place_program(folder.path(), &format!("kill -{name} $$; exit 0"));
        // A shell that runs tests in the background has SIGINT ignored.
        let status = Command::new("env")
            .arg("--default-signal=INT,PIPE")
            .arg(&rockery)
            .args(["bench", "nvme"])
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
    }
}

#[test]
fn without_the_program_the_error_says_what_to_install() {
    let (folder, rockery) = installation();
    let elsewhere = TempDir::new().unwrap();
    let bench = || {
        Command::new(&rockery)
            .args(["bench", "paths"])
            .env("PATH", elsewhere.path())
            .output()
            .unwrap()
    };
    let missing = bench();
    assert_eq!(missing.status.code(), Some(127));
    let error = String::from_utf8_lossy(&missing.stderr).into_owned();
    for word in ["rockery-bench", "make install", "-p rockery-bench"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
    place_program(elsewhere.path(), "echo \"$3\"");
    let found = bench();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "paths\n");
}

#[test]
fn help_and_wrong_arguments_need_no_program() {
    let (_folder, rockery) = installation();
    let bench = |words: &[&str]| {
        let mut command = Command::new(&rockery);
        command.arg("bench").args(words).env("PATH", "/nowhere");
        command.output().unwrap()
    };
    let help = bench(&["smb", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(
        help.status.success() && text.contains("--transport") && text.contains("direct-udp"),
        "{text}"
    );
    let wrong = bench(&["smb", "--transport", "pigeon"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("pigeon"));
}
