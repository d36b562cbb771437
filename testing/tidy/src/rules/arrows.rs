//! Which crate may see which. A crate sees only crates of lower ranks, so that there is always a bottom to
//! start reading from, and two crates of one rank can be replaced without each other.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Finding;

/// The crates by rank, the lowest first. A crate of this list that does not exist yet is no finding; one that
/// exists and is not in this list is.
pub const RANKS: &[&[&str]] = &[
    &["wire", "abi", "buffer", "bench"],
    &["rnic", "fabric", "link"],
    &["host", "sim", "rdma"],
    &["door", "lab", "page"],
    &["verbs", "rdmacm", "providers", "view", "sockets", "clocks", "nvme", "smb", "gear", "kubelet"],
    &["playground"],
    &["cli", "python"],
];

/// Crates that are not shipped: they may see everything, and nothing may see them.
pub const BESIDE: &[&str] = &["tidy", "programs"];

/// A dependency of one crate of ours on another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// The crate that depends on the other.
    pub from: String,
    /// The crate that is depended on.
    pub to: String,
}

/// The workspace, as `cargo metadata` describes it.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Names of the workspace's crates.
    pub crates: Vec<String>,
    /// Dependencies among them, of all kinds: tests obey the ranks as well.
    pub arrows: Vec<Arrow>,
    /// Crates of others that are depended on.
    pub foreign: Vec<String>,
}

const PREFIX: &str = "rockery-";

impl Workspace {
    /// Asks cargo for the crates and their dependencies.
    ///
    /// # Panics
    /// When cargo does not answer: there is nothing to check then.
    pub fn of(root: &Path) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root);
        let output = command.output().expect("cargo runs");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
        Self::from_metadata(&metadata)
    }

    fn from_metadata(metadata: &Value) -> Self {
        let mut workspace = Self::default();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let from = short(&package["name"]);
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let to = short(&dependency["name"]);
                if dependency["path"].is_string() {
                    workspace.arrows.push(Arrow { from: from.clone(), to });
                } else if !workspace.foreign.contains(&to) {
                    workspace.foreign.push(to);
                }
            }
            workspace.crates.push(from);
        }
        workspace
    }
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix(PREFIX).unwrap_or(name).to_owned()
}

fn rank_of(name: &str) -> Option<usize> {
    RANKS.iter().position(|rank| rank.contains(&name))
}

/// Arrows that do not point down, and crates without a rank.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find =
        |name: &str, what| findings.push(Finding { path: format!("crates/{name}"), line: 0, what });
    for name in &workspace.crates {
        if rank_of(name).is_none() && !BESIDE.contains(&name.as_str()) {
            find(name, format!("crate `{name}` has no rank: give it one in testing/tidy/src/rules/arrows.rs"));
        }
    }
    for Arrow { from, to } in &workspace.arrows {
        if BESIDE.contains(&to.as_str()) {
            find(from, format!("depends on `{to}`, which is not shipped"));
        } else if let (Some(above), Some(below)) = (rank_of(from), rank_of(to))
            && above <= below
        {
            find(
                from,
                format!("rank {above} depends on `{to}` of rank {below}: arrows point to lower ranks only"),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Value {
        let ours = |&(name, ours): &(&str, bool)| match ours {
            true => json!({ "name": name, "path": "/somewhere" }),
            false => json!({ "name": name, "path": null }),
        };
        json!({ "name": name, "dependencies": dependencies.iter().map(ours).collect::<Vec<_>>() })
    }

    fn check_packages(packages: &[Value]) -> Vec<String> {
        let workspace = Workspace::from_metadata(&json!({ "packages": packages }));
        check(&workspace).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn arrows_down_are_fine() {
        let wire = package("rockery-wire", &[("thiserror", false)]);
        let rnic = package("rockery-rnic", &[("rockery-wire", true)]);
        let cli = package("rockery-cli", &[("rockery-wire", true), ("rockery-bench", true)]);
        assert!(check_packages(&[wire, rnic, cli]).is_empty());
    }

    #[test]
    fn arrows_sideways_and_up_are_found() {
        let sideways = package("rockery-rnic", &[("rockery-fabric", true)]);
        assert!(check_packages(&[sideways])[0].contains("rank 1 depends on `fabric` of rank 1"));
        let up = package("rockery-wire", &[("rockery-host", true)]);
        assert!(check_packages(&[up])[0].contains("rank 0 depends on `host` of rank 2"));
    }

    #[test]
    fn strangers_are_found() {
        assert!(check_packages(&[package("rockery-misc", &[])])[0].contains("has no rank"));
        let seen = package("rockery-cli", &[("rockery-tidy", true)]);
        assert!(check_packages(&[seen])[0].contains("not shipped"));
    }
}
