//! Outputs that the README and the pages of `docs/` show: each is compared with that of the command.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of the documentation, and the lines that the documentation shows below it.
struct Shown {
    place: String,
    arguments: Vec<String>,
    lines: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and the pages, those of folders too.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The simulations of a page that need nothing but rockery and `examples/`.
fn simulations(page: &Path) -> Vec<Shown> {
    let text = fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_simulation =
        |line: &str| line.starts_with("$ rockery sim examples/") && !line.contains("&&");
    let commands = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_simulation(line));
    commands
        .map(|(index, command)| Shown {
            place: format!("{}:{}", page.display(), index + 1),
            arguments: command
                .split_whitespace()
                .skip(2)
                .map(str::to_owned)
                .collect(),
            lines: lines[index + 1..]
                .iter()
                .take_while(|line| !line.starts_with("```") && !line.starts_with("$ "))
                .filter(|line| !line.is_empty() && **line != "…")
                .map(|line| (*line).to_owned())
                .collect(),
        })
        .collect()
}

#[test]
fn simulations_print_the_lines_that_the_pages_show() {
    let shown: Vec<Shown> = pages().iter().flat_map(|page| simulations(page)).collect();
    assert!(
        shown.len() >= 15,
        "found only {} simulations in the pages",
        shown.len()
    );
    for Shown {
        place,
        arguments,
        lines,
    } in shown
    {
        let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
            .args(&arguments)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{place}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut rest = printed.lines().map(str::trim);
        for line in lines {
            assert!(
                rest.any(|printed| printed == line),
                "{place}: not printed, or not in this order: {line}"
            );
        }
    }
}
