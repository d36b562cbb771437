//! `rockery import`, as its page shows it: imports of the examples, and simulations of what they make.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with the examples of the repository.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let examples = root().join("examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
    folder
}

fn rockery(folder: &Path, line: &str) -> Output {
    let words = line.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockery"));
    command.args(words).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

#[test]
fn the_page_shows_what_the_commands_print() {
    let folder = folder();
    let page = fs::read_to_string(root().join("docs/imports.md")).unwrap();
    let mut shown = page.lines().peekable();
    let (mut imports, mut simulations) = (0, 0);
    while let Some(line) = shown.next() {
        let Some(command) = line.strip_prefix("$ rockery ") else {
            continue;
        };
        imports += usize::from(command.starts_with("import "));
        simulations += usize::from(command.starts_with("sim "));
        let output = rockery(folder.path(), command);
        let printed = said(&output);
        assert!(output.status.success(), "{command}: {printed}");
        let mut rest = printed.lines().map(str::trim);
        while let Some(line) =
            shown.next_if(|line| !line.starts_with("```") && !line.starts_with("$ "))
        {
            let line = line.trim();
            assert!(
                line.is_empty() || line == "…" || rest.any(|printed| printed == line),
                "{command}: not printed, or not in this order: {line}\n{printed}"
            );
        }
    }
    assert!(
        imports >= 4 && simulations >= 2,
        "{imports} and {simulations}"
    );
}

#[test]
fn files_that_are_there_are_left_as_they_are() {
    let folder = folder();
    let import = "import goal examples/imports/pipeline.goal --out job";
    assert!(rockery(folder.path(), import).status.success());
    let path = folder.path().join("job/fabric.toml");
    fs::write(&path, "title = \"mine\"\n").unwrap();
    let again = rockery(folder.path(), import);
    assert!(!again.status.success());
    assert!(
        said(&again).contains("job/fabric.toml is there already"),
        "{}",
        said(&again)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "title = \"mine\"\n");
}

#[test]
fn mistakes_have_a_line_and_flows_need_a_folder() {
    let folder = folder();
    for (command, expected) in [
        (
            "import hpcc examples/imports/hpcc-topology.txt --flows examples/imports/hpcc-flows.txt",
            "flows are lists, which are files of their own: give --out FOLDER",
        ),
        (
            "import goal examples/imports/hpcc-topology.txt",
            "examples/imports/hpcc-topology.txt:1: a schedule begins with num_ranks and their number",
        ),
        (
            "import nccl examples/imports/pipeline.goal --rate fast",
            "invalid value 'fast' for '--rate <RATE>'",
        ),
        ("import chakra missing.0.et", "missing.0.et: No such file"),
    ] {
        let output = rockery(folder.path(), command);
        assert!(!output.status.success());
        assert!(
            said(&output).contains(expected),
            "{command}: {}",
            said(&output)
        );
    }
    // Without flows, the fabric file is printed.
    let printed = rockery(
        folder.path(),
        "import hpcc examples/imports/hpcc-topology.txt",
    );
    assert!(
        said(&printed).contains("between = [\"h0\", \"s4\"]"),
        "{}",
        said(&printed)
    );
}
