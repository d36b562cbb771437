//! The page that says how to add a congestion control: its code is that of the files that it names, and all
//! algorithms of the list run.

use super::run;
use fabric_file::congestion::Congestion;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of Rust on a page, each with the last file of Rust that was linked before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut file, mut block, mut found) = (String::new(), None::<String>, Vec::new());
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```rust") => block = Some(String::new()),
            (Some(text), "```") => {
                found.push((file.clone(), std::mem::take(text)));
                block = None;
            }
            (Some(text), line) => text.push_str(&format!("{line}\n")),
            (None, line) => {
                for target in line
                    .split("](")
                    .skip(1)
                    .filter_map(|rest| rest.split(')').next())
                {
                    if target.ends_with(".rs") {
                        file = target.to_owned();
                    }
                }
            }
        }
    }
    found
}

#[test]
fn each_block_of_the_page_is_in_the_file_that_it_names() {
    let folder = root().join("docs");
    let page = std::fs::read_to_string(folder.join("congestion-control.md")).unwrap();
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), 11);
    for (file, block) in blocks {
        let text = std::fs::read_to_string(folder.join(&file)).unwrap();
        assert!(text.contains(&block), "{file} does not have:\n{block}");
    }
}

#[test]
fn each_algorithm_of_the_list_runs() {
    for one in Congestion::RC {
        let sets = [
            ("nic.default.congestion", one.name()),
            ("nic.default.window", "256KiB"),
            ("duration", "400us"),
        ];
        let ran = run("incast/dcqcn.toml", &sets);
        let flows = ran.results.flows.iter();
        let bytes: u64 = flows.map(|flow| flow.delivered_bytes).sum();
        let name = ran.experiment.scenario.hosts[0].congestion.name();
        assert_eq!(name, one.name());
        assert!(bytes > 1_000_000, "{name}: {bytes} bytes of 2,000,000");
    }
}
