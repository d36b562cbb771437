//! The examples of docs/faults.md: rules that a test in C, C++ or Rust adds while it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use programs::machine::Finished;
use programs::{Job, Namespace, Rockery, workspace};
use tempfile::TempDir;

const SECONDS: u64 = 300;

fn examples() -> PathBuf {
    workspace().join("examples/faults")
}

/// Compiles with all warnings as errors.
fn compile(compiler: &str, options: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]);
    command.arg(program).args(options).arg(source);
    let output = command.arg("-libverbs").output().expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn run(words: &[&str]) -> Finished {
    let alone = Namespace::alone().expect("a namespace");
    let rockery = Rockery::built();
    let words = [&[rockery.word(), "run"], words].concat();
    let mut process = alone.start_plain(&words).expect("it starts");
    process.wait(SECONDS).expect("it ends in time")
}

#[test]
fn a_test_in_c_adds_rules_and_removes_them() {
    let folder = TempDir::new().expect("a folder");
    let program = folder.path().join("retries");
    let source = examples().join("c/retries.c");
    compile("cc", &["-std=gnu99"], &source, &program);
    let path = program.to_string_lossy();
    let ran = run(&["--fault", "none", "--", &path]).expect_success();
    assert_eq!(
        ran.output,
        "refused 3 times, by 3 faults, and written\n\
         refused: `post_sned` is no point of faults: did you mean post_send?\n\
         a lost peer: transport retry counter exceeded\n"
    );
    // A program that has no rules is told so.
    let ran = run(&["--", &path]);
    assert!(!ran.succeeded());
    let reason = "the process has no rules: start it by `rockery run --fault none`";
    assert!(ran.output.contains(reason), "{}", ran.output);
}

/// The header is C++ too, where casts are not implied.
#[test]
fn the_header_is_one_of_cpp_too() {
    let folder = TempDir::new().expect("a folder");
    let source = folder.path().join("program.cc");
    let code = "#include <cstdio>\n#include \"rockery_fault.h\"\n\
                int main() {\n\
                int rule = rockery_fault_add(0, \"reg_mr: fail EIO\");\n\
                std::printf(\"%d %s\\n\", rule, rockery_fault_reason());\n\
                long long count = rockery_fault_count(0, 1);\n\
                return rockery_fault_clear(0) && count && rockery_fault_remove(0, 1);\n}\n";
    std::fs::write(&source, code).expect("our own folder");
    let program = folder.path().join("program");
    let include = format!("-I{}", examples().display());
    compile("c++", &["-std=c++11", &include], &source, &program);
    let output = Command::new(&program).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("-1 the process has no rules"), "{said}");
}

#[test]
fn tests_in_rust_add_rules_and_remove_them() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let manifest = examples().join("rust/Cargo.toml");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    // The namespace has no network, from which the crate libc would come.
    let mut build = Command::new(&cargo);
    build.args(["test", "--quiet", "--locked", "--no-run", "--manifest-path"]);
    let built = build
        .arg(&manifest)
        .env("CARGO_TARGET_DIR", &target)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "{build:?}");
    let (manifest, target) = (manifest.to_string_lossy(), target.to_string_lossy());
    let ran = run(&[
        "--fault",
        "none",
        "--",
        &cargo,
        "test",
        "--offline",
        "--locked",
        "--manifest-path",
        &manifest,
        "--target-dir",
        &target,
    ])
    .expect_success();
    let passed = "half_as_much_is_registered_where_there_is_no_room ... ok";
    assert!(ran.output.contains(passed), "{}", ran.output);
}
