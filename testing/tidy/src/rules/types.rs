//! One name, one meaning: within a crate, a public or crate-wide type's name is used once.

use std::collections::BTreeMap;

use crate::{File, Finding, Tree};

/// Names that a crate uses for several types today: folder, name, how many. Entries may shrink and go.
pub const SEVERAL: &[(&str, &str, usize)] = &[
    // NVMe has each of these at both ends of a connection: those of the target, and those of our host.
    ("storage/nvme", "Controller", 2),
    ("storage/nvme", "Namespace", 2),
    ("storage/nvme", "Queue", 2),
    ("storage/nvme", "Transport", 2),
    // The target of a server, and the one that an NBD export connects to; the session of a host, and that of
    // an NBD client.
    ("storage/nvme", "Session", 2),
    ("storage/nvme", "Target", 2),
];

const LIST: &str = "testing/tidy/src/rules/types.rs";
const VISIBILITIES: &[&str] = &["pub ", "pub(crate) "];
const KINDS: &[&str] = &["struct ", "enum ", "trait ", "union "];

/// Type names with several meanings within one crate.
pub fn with_several_meanings(tree: &Tree) -> Vec<Finding> {
    several_but_for(tree, SEVERAL)
}

fn several_but_for(tree: &Tree, ratchet: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut places: BTreeMap<(&str, &str), Vec<Finding>> = BTreeMap::new();
    for file in tree.with_extension(&["rs"]) {
        let Some(package) = package_of(file) else {
            continue;
        };
        for (index, line) in file.text.lines().enumerate() {
            let Some(name) = type_defined(line) else {
                continue;
            };
            let finding = file.finding(
                index + 1,
                format!("`{name}` is the name of another type as well"),
            );
            places.entry((package, name)).or_default().push(finding);
        }
    }
    let mut findings = Vec::new();
    for ((package, name), found) in &places {
        let allowed = ratchet
            .iter()
            .find(|(of, entry, _)| of == package && entry == name);
        if found.len() > allowed.map_or(1, |entry| entry.2) {
            findings.extend(found.iter().cloned());
        }
    }
    for (package, name, number) in ratchet {
        let found = places.get(&(*package, *name)).map_or(0, Vec::len);
        if found < *number {
            let what = format!("`{name}` is used {found} times now: bring {LIST} up to date");
            findings.push(Finding {
                path: (*package).to_owned(),
                line: 0,
                what,
            });
        }
    }
    findings
}

/// The name in `pub struct Name` at the beginning of a line.
fn type_defined(line: &str) -> Option<&str> {
    let after = VISIBILITIES
        .iter()
        .find_map(|visibility| line.trim_start().strip_prefix(visibility))?;
    let rest = KINDS.iter().find_map(|kind| after.strip_prefix(kind))?;
    let name = rest
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .next()?;
    // In a macro the name may be a parameter.
    (!name.is_empty()).then_some(name)
}

fn package_of(file: &File) -> Option<&str> {
    let folder = file.path.split_once("/src/")?.0;
    // Programs of tests are small crates in one folder.
    (!folder.starts_with("testing/")).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_types_are_found() {
        let first = (
            "core/a/src/b.rs",
            "pub struct Slot {}\nstruct Own;\npub(crate) enum Port {}\n",
        );
        let second = (
            "core/a/src/c.rs",
            "pub(crate) struct Slot;\npub struct Own;\n",
        );
        let other = ("core/d/src/c.rs", "pub struct Port;\n");
        let tree = Tree::of(&[first, second, other]);
        assert_eq!(several_but_for(&tree, &[]).len(), 2);
        assert_eq!(several_but_for(&tree, &[("core/a", "Slot", 2)]).len(), 0);
        assert_eq!(several_but_for(&tree, &[("core/a", "Slot", 3)]).len(), 1);
    }
}
