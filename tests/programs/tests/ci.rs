//! The examples of docs/ci.md, as an ordinary user runs them who may do nothing special.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::Job;
use programs::{Namespace, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;

fn examples() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci");
    path.canonicalize().expect("examples/ci")
}

fn build(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?} failed");
}

/// A folder that anyone can read, with what is copied there.
fn readable(files: &[&Path]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        let name = file.file_name().expect("a file has a name");
        fs::copy(file, folder.path().join(name))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    folder
}

/// Runs a program over the loopback of a namespace, as nobody, with neither capabilities nor a way to more.
fn run_as_nobody(argv: &[&str]) -> String {
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"];
    let run = ["--bounding-set=-all", &*rockery.to_string_lossy(), "run", "--"];
    let mut job = alone.start_plain(&[&nobody[..], &run, argv].concat()).expect("setpriv");
    job.wait(SECONDS).expect("in time").expect_success().output
}

#[test]
fn a_program_in_c_passes() {
    let folder = readable(&[]);
    let program = folder.path().join("message");
    let source = examples().join("c/message.c");
    build(
        Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-libverbs"),
    );
    let said = run_as_nobody(&[&program.to_string_lossy()]);
    assert!(said.contains("100000 bytes sent, 100000 bytes written"), "{said}");
}

#[test]
fn a_program_in_rust_passes() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(examples().join("rust/Cargo.toml"));
    build(command.env("CARGO_TARGET_DIR", &target));
    let folder = readable(&[&target.join("debug/message")]);
    let said = run_as_nobody(&[&folder.path().join("message").to_string_lossy()]);
    assert!(said.contains("100000 bytes sent"), "{said}");
}

#[test]
fn tests_in_python_pass() {
    let folder = readable(&[&examples().join("python/test_message.py")]);
    let test = folder.path().join("test_message.py");
    let said = run_as_nobody(&["/usr/bin/python3", "-B", &test.to_string_lossy()]);
    assert!(said.contains("Ran 2 tests") && said.ends_with("OK\n"), "{said}");
}
