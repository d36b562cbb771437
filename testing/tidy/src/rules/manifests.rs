//! Rules for every `Cargo.toml` and every dependency.

use crate::rules::arrows::{WINGS, Wing, Workspace};
use crate::{File, Finding, Tree};

const REASONS: &str = "docs/design/dependencies.md";
/// A workspace of its own, since the fuzzers are built with other flags.
const FUZZERS: &str = "testing/fuzz/";
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

fn is_member(file: &File) -> bool {
    let is_in_a_wing = |wing: &Wing| file.path.starts_with(&format!("{}/", wing.name));
    file.name() == "Cargo.toml" && WINGS.iter().any(is_in_a_wing) && !file.path.starts_with(FUZZERS)
}

/// Versions and features of dependencies are in the workspace's table only, so that two crates never
/// disagree.
pub fn versions_stand_in_one_place(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_member(file)) {
        let mut in_dependencies = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.trim_end().ends_with("dependencies]");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                findings.push(file.finding(
                    index + 1,
                    "declare it in [workspace.dependencies] of the root",
                ));
            }
        }
    }
    findings
}

/// The name of a package: its folder below the wing, with the project's name before it.
fn package_name(manifest: &File) -> String {
    let parts: Vec<&str> = manifest.path.split('/').collect();
    match &parts[1..parts.len() - 1] {
        ["rockery"] => "rockery".to_owned(),
        folder => format!("rockery-{}", folder.join("-")),
    }
}

/// Every crate takes its lints from the workspace, and its name from its folder.
pub fn crates_are_uniform(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_member(file)) {
        let name = package_name(file);
        if !file.text.contains("[lints]\nworkspace = true") {
            findings.push(file.finding(
                0,
                "take the lints of the workspace: [lints] workspace = true",
            ));
        }
        if !file.text.contains(&format!("name = \"{name}\"")) {
            findings.push(file.finding(0, format!("call the package {name}, after its folder")));
        }
    }
    findings
}

/// Every dependency has a reason in the page of dependencies.
pub fn dependencies_have_a_reason(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let reasons = tree.file(REASONS).map_or("", |file| &file.text);
    let without = workspace
        .foreign
        .iter()
        .filter(|name| !reasons.contains(&format!("`{name}`")));
    without
        .map(|name| Finding {
            path: REASONS.to_owned(),
            line: 0,
            what: format!("say what `{name}` saves us"),
        })
        .collect()
}

/// Every locked crate comes from crates.io, whatever mirror a build uses.
pub fn locks_name_crates_io(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.name() == "Cargo.lock") {
        for (index, line) in file.text.lines().enumerate() {
            if line.starts_with("source") && line != LOCK_SOURCE {
                findings.push(file.finding(index + 1, "not from crates.io"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_in_a_crate_is_found() {
        let text = "[dependencies]\na.workspace = true\nb = { workspace = true }\n\
                   d = \"1\"\n\n[lib]\nname = \"x\"";
        let findings = versions_stand_in_one_place(&Tree::of(&[("core/x/Cargo.toml", text)]));
        assert_eq!(
            findings
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>(),
            [4]
        );
    }

    #[test]
    fn a_crate_with_rules_of_its_own_is_found() {
        let text = "[package]\nname = \"rockery-x\"\n[lints]\nworkspace = true";
        assert!(crates_are_uniform(&Tree::of(&[("core/x/Cargo.toml", text)])).is_empty());
        assert_eq!(
            crates_are_uniform(&Tree::of(&[("core/y/Cargo.toml", text)])).len(),
            1
        );
        let without_lints = ("core/x/Cargo.toml", "name = \"rockery-x\"");
        assert_eq!(crates_are_uniform(&Tree::of(&[without_lints])).len(), 1);
        let inner = text.replace("rockery-x", "rockery-preload-x");
        assert!(
            crates_are_uniform(&Tree::of(&[("device/preload/x/Cargo.toml", &inner)])).is_empty()
        );
        let command = text.replace("rockery-x", "rockery");
        assert!(crates_are_uniform(&Tree::of(&[("apps/rockery/Cargo.toml", &command)])).is_empty());
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let workspace = Workspace {
            foreign: vec!["a".to_owned(), "b".to_owned()],
            ..Workspace::default()
        };
        let tree = Tree::of(&[(REASONS, "- `a`: because.")]);
        let findings = dependencies_have_a_reason(&tree, &workspace);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("`b`"));
    }

    #[test]
    fn a_lock_from_elsewhere_is_found() {
        let text = format!("{LOCK_SOURCE}\nsource = \"git+https://example.com/x\"\n");
        assert_eq!(
            locks_name_crates_io(&Tree::of(&[("testing/fuzz/Cargo.lock", &text)])).len(),
            1
        );
    }
}
