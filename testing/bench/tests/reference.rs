//! Commands of `docs/reference/experiments.md` that measure: the program takes their arguments.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn each_measurement_of_the_table_is_one_that_the_program_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/experiments.md")).unwrap();
    let commands = page.split('`').skip(1).step_by(2);
    let mut count = 0;
    for command in commands.filter_map(|part| part.strip_prefix("rockery bench ")) {
        let output = Command::new(env!("CARGO_BIN_EXE_rockery-bench"))
            .args(["--rockery", "/nowhere/rockery"])
            .args(command.split_whitespace())
            // Options that are not known are refused before.
            .arg("--help")
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rockery bench {command}: {shown}");
        count += 1;
    }
    assert!(count >= 10, "{count} commands");
}
