//! Statements of the documentation that the code can contradict.

use super::arrows::{WINGS, Workspace};
use crate::{File, Finding, Tree};

const ARCHITECTURE: &str = "docs/design/architecture.md";
const FUZZING: &str = "testing/fuzz/README.md";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Files at the root of the repository. Any other file there was left behind.
const ROOT_FILES: &[&str] = &[
    ".dockerignore",
    ".git-blame-ignore-revs",
    ".gitignore",
    ".pre-commit-hooks.yaml",
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
    "action.yml",
    "clippy.toml",
    "deny.toml",
];

/// Files at the root that are not in the list.
pub fn root_files(tree: &Tree) -> Vec<Finding> {
    let at_the_root = tree.files.iter().filter(|file| !file.path.contains('/'));
    let unlisted = at_the_root.filter(|file| !ROOT_FILES.contains(&file.path.as_str()));
    unlisted
        .map(|file| file.finding(0, "is not in the list of testing/tidy/src/rules/claims.rs"))
        .collect()
}

/// The table of wings in the architecture page against the folders: each crate is in the row of its wing, and
/// there is no other.
pub fn wings(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let Some(page) = tree.file(ARCHITECTURE) else {
        return vec![Finding {
            path: ARCHITECTURE.into(),
            line: 0,
            what: "is missing".into(),
        }];
    };
    let mut findings = Vec::new();
    let mut told = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some((wing, crates)) = wing_row(line) else {
            continue;
        };
        for name in crates {
            let path = format!("{wing}/{name}");
            if !workspace.crates.iter().any(|one| one.folder == path) {
                findings.push(page.finding(index + 1, format!("there is no crate `{path}`")));
            }
            told.push(path);
        }
    }
    let untold = workspace
        .crates
        .iter()
        .filter(|one| !told.contains(&one.folder));
    findings.extend(untold.map(|one| {
        page.finding(
            0,
            format!("the table of wings does not have `{}`", one.folder),
        )
    }));
    findings
}

/// ``| `core` | `wire` layouts; `rnic` the device |``: the wing, and the folders of its crates. A folder is
/// the first word in backticks of each part between semicolons.
fn wing_row(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let wing = cells.next()?.trim().strip_suffix('`')?;
    WINGS.iter().find(|one| one.name == wing)?;
    let parts = cells.next()?.split(';').map(str::trim);
    Some((
        wing,
        parts
            .filter_map(|part| part.strip_prefix('`')?.split('`').next())
            .collect(),
    ))
}

/// Every fuzz target is in the list of the fuzzers' README.
pub fn fuzz_targets(tree: &Tree) -> Vec<Finding> {
    let text = tree.file(FUZZING).map_or("", |file| file.text.as_str());
    let targets = tree
        .files
        .iter()
        .filter(|file| file.path.starts_with("testing/fuzz/targets/"));
    let names = targets.map(|file| (file, file.name().trim_end_matches(".rs")));
    let missing = names.filter(|(_, name)| !text.contains(&format!("`{name}`")));
    missing
        .map(|(file, name)| file.finding(0, format!("{FUZZING} does not name `{name}`")))
        .collect()
}

/// Each page there is in the index of decisions; the list of the site has the index.
const DECISIONS: &str = "docs/design/decisions/";

/// Pages of the documentation that the list of the site does not have.
pub fn pages_in_the_summary(tree: &Tree) -> Vec<Finding> {
    let list = tree.file(SUMMARY).map_or("", |file| file.text.as_str());
    let pages = tree.with_extension(&["md"]);
    let named = pages.filter_map(|page| Some((page, page.path.strip_prefix("docs/")?)));
    let is_listed = |page: &File, name: &str| {
        page.path == SUMMARY
            || page.path.starts_with(DECISIONS)
            || list.contains(&format!("]({name})"))
    };
    let missing = named.filter(|(page, name)| !is_listed(page, name));
    missing
        .map(|(page, _)| page.finding(0, format!("{SUMMARY} does not list it")))
        .collect()
}

/// Paths of this repository in backticks that do not exist: documentation outlives the files that it names.
pub fn paths_in_docs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree
        .with_extension(&["md"])
        .filter(|page| page.path.starts_with("docs/"))
    {
        for (index, line) in page.text.lines().enumerate() {
            for path in line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|text| is_path(text))
            {
                let there = tree
                    .files
                    .iter()
                    .any(|file| file.path == path || is_folder_of(path, &file.path));
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
    let folders = WINGS
        .iter()
        .map(|wing| wing.name)
        .chain(["docs", "examples", "scripts"]);
    let is_inside = |folder: &str| {
        text.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    folders.into_iter().any(is_inside)
        && !text
            .contains(|character: char| character.is_whitespace() || "*{}<>$:,".contains(character))
}

fn is_folder_of(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::arrows::Crate;

    #[test]
    fn files_left_at_the_root_are_found() {
        let tree = Tree::of(&[("c.txt", ""), ("README.md", ""), ("docs/c.txt", "")]);
        assert_eq!(root_files(&tree).len(), 1);
    }

    #[test]
    fn a_table_of_wings_that_disagrees_is_found() {
        let page =
            "| `core` | `wire` layouts; `gone` nothing |\n| `device` | `host` a `live` host |\n";
        let crates = ["core/wire", "device/host", "device/abi"].map(|folder| Crate {
            name: folder.rsplit('/').next().unwrap_or_default().to_owned(),
            folder: folder.to_owned(),
        });
        let workspace = Workspace {
            crates: crates.to_vec(),
            ..Workspace::default()
        };
        let found = wings(&Tree::of(&[(ARCHITECTURE, page)]), &workspace);
        let said: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("no crate `core/gone`")
                && said[1].contains("does not have `device/abi`")
        );
    }

    #[test]
    fn fuzz_targets_that_are_not_named_are_found() {
        let readme = (FUZZING, "| `frame` | frames |\n");
        let tree = Tree::of(&[
            readme,
            ("testing/fuzz/targets/frame.rs", ""),
            ("testing/fuzz/targets/mad.rs", ""),
        ]);
        assert_eq!(fuzz_targets(&tree).len(), 1);
    }

    #[test]
    fn pages_that_are_not_listed_are_found() {
        let list = (SUMMARY, "- [a](a.md)\n- [b](b/c.md)\n");
        let pages = [
            list,
            ("docs/a.md", ""),
            ("docs/b/c.md", ""),
            ("docs/c.md", ""),
        ];
        let found = pages_in_the_summary(&Tree::of(&pages));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/c.md");
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let page = (
            "docs/a.md",
            "`core/a/src/b.rs` `core/a` `docs/x.md` `core/{a,b}.rs` `cargo test`",
        );
        assert_eq!(
            paths_in_docs(&Tree::of(&[page, ("core/a/src/b.rs", "")])).len(),
            1
        );
    }
}
