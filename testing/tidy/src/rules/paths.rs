//! Paths in the repository are valid wherever it is checked out.

use std::collections::HashMap;

use crate::rust::Tokens;
use crate::{File, Finding, Tree};

/// Beginnings of paths that exist on somebody's machine only.
const MACHINES: &[&str] = &["/home/", "/root/", "/Users/", "/work/"];

/// This file names them, to find them elsewhere.
const EXEMPT: &str = "testing/tidy/src/rules/paths.rs";

/// Paths of somebody's machine.
pub fn of_one_machine(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != EXEMPT) {
        for (index, line) in file.text.lines().enumerate() {
            for machine in MACHINES {
                // The name may be a folder further down a path or an address, and is then someone else's.
                if line
                    .match_indices(machine)
                    .any(|(at, _)| !line[..at].ends_with(is_part_of_a_path))
                {
                    findings.push(
                        file.finding(index + 1, format!("{machine} is a path of one machine")),
                    );
                }
            }
        }
    }
    findings
}

fn is_part_of_a_path(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '-' | '_' | '}')
}

/// Links in documents that lead nowhere, out of the repository, or to a heading that is not there.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let headings: HashMap<&str, Vec<String>> = tree
        .with_extension(&["md"])
        .map(|file| (file.path.as_str(), headings(&file.text)))
        .collect();
    for file in tree.with_extension(&["md"]) {
        for (index, line) in file.text.lines().enumerate() {
            for target in targets_of(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() {
                    Some(file.path.clone())
                } else {
                    resolve(file, path).filter(|path| exists(tree, path))
                };
                let known = path.as_ref().and_then(|path| headings.get(path.as_str()));
                let has_heading = heading.is_empty()
                    || known.is_none_or(|known| known.iter().any(|one| one == heading));
                if path.is_none() || !has_heading {
                    findings.push(
                        file.finding(index + 1, format!("the link to {target} leads nowhere")),
                    );
                }
            }
        }
    }
    findings
}

/// The headings of a page as links name them: in lower case, with `-` for spaces, without punctuation; equal
/// ones are numbered.
fn headings(page: &str) -> Vec<String> {
    let mut in_code = false;
    let mut names: Vec<String> = Vec::new();
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let text = line.trim_start_matches('#');
        if in_code || text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let is_kept = |it: &char| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_');
        let name: String = text.trim().chars().filter(is_kept).collect();
        let name = name.to_lowercase().replace(' ', "-");
        let numbered = |number: &usize| match number {
            0 => name.clone(),
            number => format!("{name}-{number}"),
        };
        let free = (0..).map(|number| numbered(&number));
        names.extend(free.into_iter().find(|name| !names.contains(name)));
    }
    names
}

/// The targets of links: the text between `](` and `)`.
fn targets_of(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.is_empty())
}

/// A path as seen from `file`; `None` when it leaves the repository.
fn resolve(file: &File, path: &str) -> Option<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Folders and files that are no text count as well.
fn exists(tree: &Tree, path: &str) -> bool {
    let folder = format!("{path}/");
    tree.files
        .iter()
        .any(|file| file.path == path || file.path.starts_with(&folder))
        || tree.root.components().next().is_some() && tree.root.join(path).exists()
}

/// Rust files that no `mod` names, so that the compiler never sees them.
pub fn dead_files(tree: &Tree) -> Vec<Finding> {
    let mut modules: HashMap<&str, Vec<String>> = HashMap::new();
    for file in tree.with_extension(&["rs"]) {
        if let (Some(package), Ok(tokens)) = (crate_of(tree, file), Tokens::of(&file.text)) {
            modules.entry(package).or_default().extend(tokens.modules());
        }
    }
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let Some(package) = crate_of(tree, file) else {
            continue;
        };
        let stem = match file.name() {
            "mod.rs" => file.path.rsplit('/').nth(1).unwrap_or_default(),
            name => name.trim_end_matches(".rs"),
        };
        let declared = modules
            .get(package)
            .is_some_and(|names| names.iter().any(|name| name == stem));
        if !declared && !["lib", "main"].contains(&stem) && !file.path.contains("/src/bin/") {
            findings.push(file.finding(0, "no `mod` names this file: the compiler never sees it"));
        }
    }
    findings
}

/// The folder of the crate that a file belongs to: that with its `src`, or that of a test program with a
/// `main.rs`.
fn crate_of<'a>(tree: &Tree, file: &'a File) -> Option<&'a str> {
    if let Some((package, _)) = file.path.split_once("/src/") {
        return Some(package);
    }
    let (package, rest) = file.path.split_once("/tests/")?;
    let (program, _) = rest.split_once('/')?;
    let folder = &file.path[..package.len() + "/tests/".len() + program.len()];
    tree.files
        .iter()
        .any(|file| file.path == format!("{folder}/main.rs"))
        .then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        let count = |text| of_one_machine(&Tree::of(&[("a.md", text)])).len();
        assert_eq!(count("see /home/me/notes and `/root/x`"), 2);
        assert_eq!(count("https://example.com/home/me, src/work/queue.rs"), 0);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let count = |text| {
            links(&Tree::of(&[
                ("docs/a.md", text),
                ("docs/b.md", "# `E` of 2: F\n## g\n```\n# no\n```\n## g\n"),
                ("c/d.md", "# e\n"),
            ]))
            .len()
        };
        let well = "[b](b.md) [c](../c/d.md#e) [c](../c) [f](https://example.com) [g](#h)\n# h\n";
        assert_eq!(count(well), 0);
        assert_eq!(count("[x](x.md) [out](../../b.md)"), 2);
        assert_eq!(count("[e](b.md#e-of-2-f) [g](b.md#g) [g](b.md#g-1)"), 0);
        assert_eq!(
            count("[e](b.md#e) [g](b.md#g-2) [no](b.md#no) [here](#g)"),
            4
        );
    }

    #[test]
    fn files_without_a_mod_are_found() {
        let files = [
            ("core/a/src/lib.rs", "mod b;"),
            ("core/a/src/b.rs", ""),
            ("core/a/src/c.rs", ""),
        ];
        let findings = dead_files(&Tree::of(&files));
        assert_eq!(
            findings
                .iter()
                .map(|finding| finding.path.as_str())
                .collect::<Vec<_>>(),
            ["core/a/src/c.rs"]
        );
    }

    #[test]
    fn tests_that_no_program_has_as_a_module_are_found() {
        let main = ("a/tests/device/main.rs", "mod b;");
        let files = [
            main,
            ("a/tests/device/b.rs", ""),
            ("a/tests/device/c.rs", ""),
            ("a/tests/alone.rs", ""),
        ];
        let findings = dead_files(&Tree::of(&files));
        assert_eq!(
            findings
                .iter()
                .map(|finding| finding.path.as_str())
                .collect::<Vec<_>>(),
            ["a/tests/device/c.rs"]
        );
    }
}
