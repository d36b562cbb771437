//! The table of `docs/reference/experiments.md`: each page exists, each command is one that rockery takes,
//! and what is not covered has a reason.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/reference/experiments.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A row of the table.
struct Row {
    number: u32,
    item: String,
    state: String,
    place: String,
}

impl Row {
    /// The commands, without what is in the page for other programs.
    fn commands(&self) -> Vec<&str> {
        let parts = self.place.split('`').skip(1).step_by(2);
        parts
            .filter_map(|part| part.strip_prefix("rockery "))
            .collect()
    }

    /// The pages with their anchors.
    fn links(&self) -> Vec<(&str, Option<&str>)> {
        let links = self.place.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split(')').next());
        links
            .map(|link| {
                link.split_once('#')
                    .map_or((link, None), |(page, at)| (page, Some(at)))
            })
            .collect()
    }

    /// The text besides commands and links.
    fn reason(&self) -> String {
        let plain = self.place.split('`').step_by(2).collect::<String>();
        let words = plain
            .split("](")
            .map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        words
            .collect::<String>()
            .trim_matches([' ', ',', ';', '['])
            .to_owned()
    }
}

/// The rows of each section.
fn sections() -> BTreeMap<String, Vec<Row>> {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    let mut found: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, item, state, place] = cells[..] else {
            continue;
        };
        let Ok(number) = number.parse() else {
            continue;
        };
        found.entry(section.clone()).or_default().push(Row {
            number,
            item: item.to_owned(),
            state: state.to_owned(),
            place: place.to_owned(),
        });
    }
    found
}

/// The anchor that a heading has on a page.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| {
        if it == ' ' {
            '-'
        } else {
            it.to_ascii_lowercase()
        }
    })
    .collect()
}

#[test]
fn each_item_of_each_document_has_a_row_with_a_place_or_a_reason() {
    let sections = sections();
    let sizes: Vec<usize> = sections.values().map(Vec::len).collect();
    // In alphabetical order: NVMe, spraying, SMB, SR-IOV and the lab.
    assert_eq!(sizes, [16, 12, 20, 12, 52]);
    for (section, rows) in &sections {
        for (index, row) in rows.iter().enumerate() {
            let place = format!("{section} {}, {}: {}", row.number, row.item, row.place);
            assert_eq!(row.number as usize, index + 1, "{place}");
            let is_covered = !row.commands().is_empty() || !row.links().is_empty();
            match row.state.as_str() {
                "yes" => assert!(is_covered, "{place}"),
                "partly" => {
                    assert!(is_covered, "{place}");
                    assert!(row.reason().len() > 8, "what is lacking? {place}");
                }
                "no" | "–" => assert!(row.place.len() > 7, "why? {place}"),
                other => panic!("{other} is no state: {place}"),
            }
        }
    }
}

#[test]
fn each_page_of_the_table_exists_with_its_section() {
    for row in sections().values().flatten() {
        for (page, at) in row.links() {
            let text = fs::read_to_string(root().join("docs/reference").join(page));
            let text = text.unwrap_or_else(|error| panic!("{page}: {error}"));
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
            let Some(at) = at else {
                continue;
            };
            assert!(
                anchors.any(|own| own == at),
                "{page} has no section {at}: {}",
                row.item
            );
        }
    }
}

#[test]
fn each_command_of_the_table_is_taken_and_those_that_need_only_examples_run() {
    let mut ran = 0;
    for row in sections().values().flatten() {
        for command in row
            .commands()
            .into_iter()
            .filter(|own| !own.starts_with("bench"))
        {
            let mut words: Vec<&str> = command.split_whitespace().collect();
            let runs = words.iter().any(|word| word.starts_with("examples/"));
            if runs {
                ran += 1;
            } else {
                // Options that are not known are refused before.
                words.push("--help");
            }
            let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
                .args(&words)
                .current_dir(root())
                .output()
                .unwrap();
            let shown =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            let is_finding = words[0] == "doctor" && output.status.code() == Some(1);
            assert!(
                output.status.success() || is_finding,
                "rockery {command}: {shown}"
            );
        }
    }
    assert!(ran >= 15, "{ran} commands ran");
}
