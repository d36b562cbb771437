//! The page of all commands and options, `docs/reference/commands.md`, is what their `--help` prints.
//!
//! `UPDATE_DOCS=1 cargo test -p rockery --test commands` writes it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

const BEGINNING: &str = "\
# All commands and options

Here you look up the options of a command, as `rockery COMMAND --help` prints them. The page is made by
`apps/rockery/tests/commands.rs`; [the command line](cli.md) has examples.
";

/// What `--help` of a command prints, as wide as where nothing says how wide a terminal is.
fn help(words: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(words)
        .arg("--help")
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?} has no help");
    String::from_utf8(output.stdout).unwrap()
}

/// The names in the list of commands of a help text. `help` says what `--help` says.
fn names(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let first_lines = lines.filter_map(|line| line.strip_prefix("  "));
    let words = first_lines.filter(|line| !line.starts_with(' '));
    let names = words.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The sections of a command and of those below it. Lines end without spaces.
fn sections(words: &[String], page: &mut String) {
    let text = help(words);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let name = [&["rockery".to_owned()], words].concat().join(" ");
    let depth = "#".repeat(words.len().clamp(1, 3) + 1);
    *page += &format!(
        "\n{depth} `{name}`\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    );
    for below in names(&text) {
        sections(&[words, &[below]].concat(), page);
    }
}

#[test]
fn the_page_of_commands_is_what_they_print() {
    let mut page = BEGINNING.to_owned();
    sections(&[], &mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let same = page.lines().zip(written.lines());
    let difference = same.enumerate().find(|(_, (made, has))| made != has);
    assert!(
        page == written,
        "docs/reference/commands.md is not what the commands print, first in line {:?}; \
         UPDATE_DOCS=1 cargo test -p rockery --test commands writes it",
        difference.map(|(index, lines)| (index + 1, lines))
    );
}

#[test]
fn commands_of_two_levels_have_sections() {
    let text = "Usage: it\n\nCommands:\n  one   Does one,\n          and more\n  help  Prints\n\n\
                Options:\n  -h\n";
    assert_eq!(names(text), ["one"]);
    assert_eq!(names("Usage: it\n"), [""; 0]);
}
