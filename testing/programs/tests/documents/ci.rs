//! The examples of docs/ci.md, run by an ordinary user without privileges.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::Job;
use programs::{Namespace, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// Go compiles its library first.
const GO_SECONDS: u64 = 300;

pub(crate) fn examples() -> PathBuf {
    let path = programs::workspace().join("examples/ci");
    path.canonicalize().expect("examples/ci")
}

fn build(command: &mut Command) {
    let status = command.status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{command:?} failed"
    );
}

/// A folder that anyone can read, with what is copied there.
pub(crate) fn readable(files: &[&Path]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        let name = file.file_name().expect("a file has a name");
        fs::copy(file, folder.path().join(name))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    folder
}

/// Runs a program over the loopback of a namespace, as the user `nobody`, without capabilities and without a
/// way to gain any.
fn run_as_nobody(argv: &[&str]) -> String {
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    let run = [
        "--bounding-set=-all",
        &*rockery.to_string_lossy(),
        "run",
        "--",
    ];
    let mut job = alone
        .start_plain(&[&nobody[..], &run, argv].concat())
        .expect("setpriv");
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
    assert!(
        said.contains("100000 bytes sent, 100000 bytes written"),
        "{said}"
    );
}

#[test]
fn a_program_in_rust_passes() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(examples().join("rust/Cargo.toml"));
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
    assert!(
        said.contains("Ran 2 tests") && said.ends_with("OK\n"),
        "{said}"
    );
}

/// `go test -exec`, as docs/ci.md has it, because the program `go` is static; and the example as an ordinary
/// user.
#[test]
fn tests_in_go_pass() {
    let files =
        ["go.mod", "message.go", "message_test.go"].map(|it| examples().join("go").join(it));
    let folder = readable(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let at = folder.path().display();
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let go = |words: &[&str]| {
        let places = [
            format!("--chdir={at}"),
            format!("GOCACHE={at}/cache"),
            format!("GOPATH={at}/path"),
        ];
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let argv = [&["env"], &places[..], &["GOTOOLCHAIN=local", "go"], words].concat();
        let mut job = alone.start_plain(&argv).expect("go");
        job.wait(GO_SECONDS)
            .expect("in time")
            .expect_success()
            .output
    };
    let exec = format!("{} run --", rockery.display());
    let said = go(&["test", "-count=1", "-v", "-exec", &exec, "./..."]);
    assert!(said.contains("--- PASS: TestMessage"), "{said}");
    go(&["build", "-buildvcs=false", "-o", "message", "."]);
    let said = run_as_nobody(&[&folder.path().join("message").to_string_lossy()]);
    assert!(
        said.contains("devices [rk_lo]") && said.contains("100000 bytes written"),
        "{said}"
    );
}

/// The script of docs/ci.md: UCX's benchmark over verbs alone.
#[test]
fn the_benchmark_of_ucx_passes() {
    let folder = readable(&[&examples().join("ucx.sh")]);
    let said = run_as_nobody(&[&folder.path().join("ucx.sh").to_string_lossy()]);
    assert!(said.contains("Final:"), "{said}");
}
