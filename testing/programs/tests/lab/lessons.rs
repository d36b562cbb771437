//! The lessons of the guide: their commands, as they stand there, print what the pages show.
//!
//! A block `console` has commands behind `$ ` and what they print, of which lines may be left out (`…`). In a
//! block `console live` words with digits in them are measured, and differ from run to run. A block with a
//! language and a name, as `toml my.toml`, is a file that the reader writes.

use std::fs;
use std::path::{Path, PathBuf};

use programs::live;

const SECONDS: u64 = 300;

/// A command of a page, and the lines below it.
struct Step {
    command: String,
    shown: Vec<String>,
    is_live: bool,
}

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide")
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| *line != "```");
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("console", rest) => add_commands(&mut steps, block, rest == "live"),
            (_, "") => block.for_each(drop),
            (_, file) => {
                let text: String = block.map(|line| format!("{line}\n")).collect();
                steps.push(Step {
                    command: format!("cat >{file} <<'end of {file}'\n{text}end of {file}"),
                    shown: Vec::new(),
                    is_live: false,
                });
            }
        }
    }
    steps
}

fn add_commands<'a>(steps: &mut Vec<Step>, block: impl Iterator<Item = &'a str>, is_live: bool) {
    let first = steps.len();
    for line in block {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                shown: Vec::new(),
                is_live,
            });
        } else {
            let step = steps[first..].last_mut();
            let step =
                step.unwrap_or_else(|| panic!("a block begins with `{line}`, not a command"));
            step.shown.push(line.to_owned());
        }
    }
}

/// The words of a line. Of a live run, those with digits are equal, and units that programs choose by size.
fn words(line: &str, is_live: bool) -> Vec<&str> {
    let is_unit = |word: &str| word.ends_with("Bytes") || word.ends_with("bits/sec");
    let has_digit = |word: &str| word.contains(|it: char| it.is_ascii_digit());
    let is_measured = |word: &str| is_live && (has_digit(word) || is_unit(word));
    let words = line.split_whitespace();
    words
        .map(|word| if is_measured(word) { "#" } else { word })
        .collect()
}

/// Whether a line that was printed is the one that is shown, which may end with `…`.
fn is_shown(printed: &str, shown: &str, is_live: bool) -> bool {
    let printed = words(printed, is_live);
    match shown.strip_suffix('…') {
        Some(beginning) => printed.starts_with(&words(beginning, is_live)),
        None => printed == words(shown, is_live),
    }
}

/// Runs the commands of a page in their order, in one shell, and compares what they print.
fn run(name: &str) {
    let page = fs::read_to_string(guide().join(name)).expect("a page of the guide");
    let steps = steps(&page);
    assert!(steps.len() > 3, "{name} has {} commands", steps.len());
    let mut script = "exec 2>&1\nmkdir $D/bin\nln -s $R $D/bin/rockery\nPATH=$D/bin:$PATH\ncd $D\n\
                      ln -s $E examples\n"
        .to_owned();
    for (number, step) in steps.iter().enumerate() {
        script += &format!("echo '@{number}'\n{}\n", step.command);
        // What fails and shows nothing would be passed over; `doctor` ends with 1 where it has a finding.
        if step.shown.is_empty() && !step.command.ends_with('&') {
            script += "[ $? = 0 ] || echo '@failed'\n";
        }
    }
    let said = live::script(&format!("{script}\nexit 0"), SECONDS);
    assert!(!said.contains("@failed"), "{name}: {said}");
    for (number, step) in steps.iter().enumerate() {
        let printed = said.split(&format!("@{number}\n")).nth(1).expect("a mark");
        let printed = printed.split("\n@").next().unwrap_or_default();
        let mut lines = printed.lines();
        for shown in step
            .shown
            .iter()
            .filter(|line| !line.trim().is_empty() && *line != "…")
        {
            assert!(
                lines.any(|line| is_shown(line, shown, step.is_live)),
                "{name}: `{}` does not print, or not in this order: {shown}\n{said}",
                step.command
            );
        }
    }
}

#[test]
fn a_lossless_network() {
    run("lossless-network.md");
}

#[test]
fn file_shares_over_infiniband() {
    run("infiniband.md");
}

#[test]
fn nvme_over_rdma_and_over_tcp() {
    run("nvme.md");
}

#[test]
fn functions_and_a_virtual_switch() {
    run("functions.md");
}

#[test]
fn packet_spraying_and_order() {
    run("spraying.md");
}

#[test]
fn a_program_that_hangs() {
    run("hangs.md");
}

#[test]
fn a_fabric_of_your_own() {
    run("own-fabric.md");
}

#[test]
fn the_switch_configuration_of_somebody_else() {
    run("switch-configuration.md");
}

#[test]
fn a_library_is_tested_in_ci() {
    run("ci.md");
}

#[test]
fn five_labs_for_a_class() {
    run("course.md");
}

#[test]
fn from_rxe() {
    run("from-rxe.md");
}

#[test]
fn from_mininet() {
    run("from-mininet.md");
}

#[test]
fn from_ns_3() {
    run("from-ns-3.md");
}

/// What shows wrong figures or another order fails.
#[test]
fn a_page_that_shows_something_else_is_noticed() {
    assert!(is_shown("  a  1.5 us", "a 1.5 us", false));
    assert!(!is_shown("a 1.6 us", "a 1.5 us", false));
    assert!(is_shown("a 1.6 us", "a 1.5 us", true));
    assert!(!is_shown("b 1.6 us", "a 1.5 us", true));
    assert!(is_shown("1.9 Gbits/sec", "815 Mbits/sec", true));
    assert!(is_shown("dropped at a, b", "dropped at …", false));
    assert!(!is_shown("lost at a, b", "dropped at …", false));
}

#[test]
fn every_lesson_is_run_and_listed() {
    let this = include_str!("lessons.rs");
    let list = fs::read_to_string(guide().join("README.md")).expect("the list of lessons");
    let pages = fs::read_dir(guide()).expect("the guide").flatten();
    for page in pages.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if page != "README.md" {
            assert!(
                this.contains(&format!("run(\"{page}\")")),
                "{page} is not run"
            );
            assert!(list.contains(&format!("]({page})")), "{page} is not listed");
        }
    }
}
