//! Statements of the documentation that the code can contradict.

use super::arrows::{RANKS, Workspace};
use crate::{Finding, Tree};

const ARCHITECTURE: &str = "docs/architecture.md";
const FUZZING: &str = "testing/fuzz/README.md";

/// Files at the root of the repository. Any other file there was left behind.
const ROOT_FILES: &[&str] = &[
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
];

/// Files at the root that are not in the list.
pub fn root_files(tree: &Tree) -> Vec<Finding> {
    let at_the_root = tree.files.iter().filter(|file| !file.path.contains('/'));
    let unlisted = at_the_root.filter(|file| !ROOT_FILES.contains(&file.path.as_str()));
    unlisted.map(|file| file.finding(0, "is not in the list of testing/tidy/src/rules/claims.rs")).collect()
}

/// The table of ranks in the architecture page against the ranks that are enforced: the same crates at the
/// same rank, and each of them exists.
pub fn ranks(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let Some(page) = tree.file(ARCHITECTURE) else {
        return vec![Finding { path: ARCHITECTURE.into(), line: 0, what: "is missing".into() }];
    };
    let mut findings = Vec::new();
    let mut told = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some((rank, crates)) = rank_row(line) else { continue };
        for name in crates {
            told.push(name);
            let enforced = RANKS.iter().position(|names| names.contains(&name));
            if enforced != Some(rank) {
                let what = format!("`{name}` stands at rank {rank}, tidy enforces {enforced:?}");
                findings.push(page.finding(index + 1, what));
            }
            if !workspace.crates.iter().any(|there| there == name) {
                findings.push(page.finding(index + 1, format!("there is no crate `{name}`")));
            }
        }
    }
    for name in RANKS.iter().copied().flatten() {
        if workspace.crates.iter().any(|there| there == name) && !told.contains(name) {
            findings.push(page.finding(0, format!("the table of ranks does not have `{name}`")));
        }
    }
    findings
}

/// `| 2 | `host` a live host; `sim` virtual time |`: the rank, and the crates. A crate's name is the first
/// word in backticks of each part between semicolons.
fn rank_row(line: &str) -> Option<(usize, Vec<&str>)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let rank = cells.next()?.trim().parse().ok()?;
    let parts = cells.next()?.split(';');
    let name = |part: &'_ str| part.trim().strip_prefix('`').is_some();
    let crates = parts.filter(|part| name(part)).filter_map(|part| part.split('`').nth(1)).collect();
    Some((rank, crates))
}

/// Every fuzz target is in the list of the fuzzers' README.
pub fn fuzz_targets(tree: &Tree) -> Vec<Finding> {
    let text = tree.file(FUZZING).map_or("", |file| file.text.as_str());
    let targets = tree.files.iter().filter(|file| file.path.starts_with("testing/fuzz/targets/"));
    let names = targets.map(|file| (file, file.name().trim_end_matches(".rs")));
    let missing = names.filter(|(_, name)| !text.contains(&format!("`{name}`")));
    missing.map(|(file, name)| file.finding(0, format!("{FUZZING} does not name `{name}`"))).collect()
}

/// Paths of this repository in backticks that do not exist: documentation outlives the files that it names.
pub fn paths_in_docs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.with_extension(&["md"]).filter(|page| page.path.starts_with("docs/")) {
        for (index, line) in page.text.lines().enumerate() {
            for path in line.split('`').skip(1).step_by(2).filter(|text| is_path(text)) {
                let there = tree.files.iter().any(|file| file.path == path || is_folder_of(path, &file.path));
                if !there {
                    findings.push(page.finding(index + 1, format!("there is no `{path}`")));
                }
            }
        }
    }
    findings
}

/// Whether text in backticks is a path of the repository: it begins with one of its folders and has none of
/// the characters of patterns and commands.
fn is_path(text: &str) -> bool {
    const FOLDERS: &[&str] = &["crates/", "docs/", "examples/", "fuzz/", "scripts/", "tests/", "tidy/"];
    FOLDERS.iter().any(|folder| text.starts_with(folder))
        && !text.contains(|character: char| character.is_whitespace() || "*{}<>$:,".contains(character))
}

fn is_folder_of(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_left_at_the_root_are_found() {
        let tree = Tree::of(&[("c.txt", ""), ("README.md", ""), ("docs/c.txt", "")]);
        assert_eq!(root_files(&tree).len(), 1);
    }

    #[test]
    fn ranks_that_disagree_are_found() {
        let page = "| 0 | `wire` layouts; `abi` structs |\n| 3 | `host` a `live` host |\n| 2 | `gone` |\n";
        let crates = ["wire", "abi", "host", "sim"].map(str::to_owned).to_vec();
        let workspace = Workspace { crates, ..Workspace::default() };
        let found = ranks(&Tree::of(&[(ARCHITECTURE, page)]), &workspace);
        let said: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[0].contains("`host` stands at rank 3"));
        assert!(said[1].contains("`gone` stands at rank 2") && said[2].contains("no crate `gone`"));
        assert!(said[3].contains("does not have `sim`"));
    }

    #[test]
    fn fuzz_targets_that_are_not_named_are_found() {
        let readme = (FUZZING, "| `frame` | frames |\n");
        let tree = Tree::of(&[readme, ("testing/fuzz/targets/frame.rs", ""), ("testing/fuzz/targets/mad.rs", "")]);
        assert_eq!(fuzz_targets(&tree).len(), 1);
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let page = ("docs/a.md", "`crates/a/src/b.rs` `crates/a` `docs/x.md` `crates/{a,b}.rs` `cargo test`");
        assert_eq!(paths_in_docs(&Tree::of(&[page, ("crates/a/src/b.rs", "")])).len(), 1);
    }
}
