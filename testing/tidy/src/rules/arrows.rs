//! Which crate may see which. The crates live in six wings, which are the folders at the root. A wing sees
//! those below it only, so that there is always a bottom to start reading from. Within a wing cargo itself
//! refuses circles.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Finding;

/// A folder at the root with crates of one purpose.
#[derive(Debug)]
pub struct Wing {
    /// The name of the folder.
    pub name: &'static str,
    /// The other wings that its crates may depend on.
    pub sees: &'static [&'static str],
}

/// The wings from the bottom to the top.
pub const WINGS: &[Wing] = &[
    Wing {
        name: "core",
        sees: &[],
    },
    Wing {
        name: "device",
        sees: &["core"],
    },
    Wing {
        name: "network",
        sees: &["core"],
    },
    Wing {
        name: "storage",
        sees: &["core"],
    },
    Wing {
        name: "apps",
        sees: &["core", "device", "network", "storage"],
    },
    Wing {
        name: "testing",
        sees: &["core", "device", "network", "storage", "apps"],
    },
];

/// Arrows between wings that do not see each other: from, to, reason.
pub const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "doctor",
        "environment",
        "one crate reads the variables of the environment",
    ),
    (
        "lab",
        "environment",
        "one crate reads the variables of the environment",
    ),
    (
        "nvme",
        "environment",
        "one crate reads the variables of the environment",
    ),
    ("lab", "host", "a lab gives each of its hosts a device"),
    ("lab", "buffer", "workloads of a lab register memory"),
    (
        "lab",
        "rdma",
        "workloads of a lab post requests as any program does, through the C libraries",
    ),
    (
        "nvme",
        "buffer",
        "blocks are transferred from and to registered memory",
    ),
    (
        "nvme",
        "rdma",
        "NVMe over RDMA uses the C libraries, ours or the system's",
    ),
    (
        "smb",
        "buffer",
        "files are transferred from and to registered memory",
    ),
    (
        "smb",
        "rdma",
        "SMB Direct uses the C libraries, ours or the system's",
    ),
];

/// A crate of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crate {
    /// Its name without the prefix that all packages have.
    pub name: String,
    /// Its folder, from the root of the repository.
    pub folder: String,
}

impl Crate {
    /// The name of its wing: the first part of its folder.
    pub fn wing(&self) -> &str {
        self.folder.split('/').next().unwrap_or_default()
    }
}

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
    /// The workspace's crates.
    pub crates: Vec<Crate>,
    /// Dependencies among them, of all kinds: tests obey the rule as well.
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
        command
            .args([
                "metadata",
                "--format-version",
                "1",
                "--no-deps",
                "--offline",
            ])
            .current_dir(root);
        let output = command.output().expect("cargo runs");
        assert!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
        Self::from_metadata(&metadata)
    }

    fn from_metadata(metadata: &Value) -> Self {
        let root = metadata["workspace_root"].as_str().unwrap_or_default();
        let mut workspace = Self::default();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let from = short(&package["name"]);
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let to = short(&dependency["name"]);
                if dependency["path"].is_string() {
                    workspace.arrows.push(Arrow {
                        from: from.clone(),
                        to,
                    });
                } else if !workspace.foreign.contains(&to) {
                    workspace.foreign.push(to);
                }
            }
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let folder = manifest
                .strip_prefix(root)
                .unwrap_or(manifest)
                .trim_start_matches('/');
            let folder = folder
                .strip_suffix("/Cargo.toml")
                .unwrap_or(folder)
                .to_owned();
            workspace.crates.push(Crate { name: from, folder });
        }
        workspace
    }

    /// The crate of that name.
    pub fn crate_named(&self, name: &str) -> Option<&Crate> {
        self.crates.iter().find(|one| one.name == name)
    }
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix(PREFIX).unwrap_or(name).to_owned()
}

fn wing_named(name: &str) -> Option<&'static Wing> {
    WINGS.iter().find(|wing| wing.name == name)
}

/// Arrows between wings that do not see each other, crates outside the wings, and exceptions that no arrow
/// needs any more.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |folder: &str, what: String| {
        findings.push(Finding {
            path: folder.to_owned(),
            line: 0,
            what,
        })
    };
    for one in workspace
        .crates
        .iter()
        .filter(|one| wing_named(one.wing()).is_none())
    {
        find(
            &one.folder,
            format!(
                "`{}` is no wing of testing/tidy/src/rules/arrows.rs",
                one.wing()
            ),
        );
    }
    for Arrow { from, to } in &workspace.arrows {
        let (Some(above), Some(below)) = (workspace.crate_named(from), workspace.crate_named(to))
        else {
            continue;
        };
        let sees = wing_named(above.wing()).map_or(&[][..], |wing| wing.sees);
        let is_seen = above.wing() == below.wing() || sees.contains(&below.wing());
        if !is_seen
            && !EXCEPTIONS
                .iter()
                .any(|(source, target, _)| source == from && target == to)
        {
            let wings = format!("`{}` does not see `{}`", above.wing(), below.wing());
            find(
                &above.folder,
                format!("depends on `{to}`, and the wing {wings}"),
            );
        }
    }
    for (from, to, _) in EXCEPTIONS {
        let is_needed = workspace
            .arrows
            .iter()
            .any(|arrow| arrow.from == *from && arrow.to == *to);
        if !is_needed && workspace.crate_named(from).is_some() {
            find(
                from,
                format!("does not depend on `{to}`: remove the exception"),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package at a folder such as `core/wire`, whose name is the last part.
    fn package(folder: &str, dependencies: &[(&str, bool)]) -> Value {
        let ours = |&(name, ours): &(&str, bool)| match ours {
            true => json!({ "name": name, "path": "/somewhere" }),
            false => json!({ "name": name, "path": null }),
        };
        json!({
            "name": format!("rockery-{}", folder.rsplit('/').next().unwrap_or_default()),
            "manifest_path": format!("/r/{folder}/Cargo.toml"),
            "dependencies": dependencies.iter().map(ours).collect::<Vec<_>>(),
        })
    }

    fn check_packages(packages: &[Value]) -> Vec<String> {
        let metadata = json!({ "workspace_root": "/r", "packages": packages });
        check(&Workspace::from_metadata(&metadata))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn arrows_to_lower_wings_and_within_a_wing_are_allowed() {
        let wire = package("core/wire", &[("thiserror", false)]);
        let rnic = package("core/rnic", &[("rockery-wire", true)]);
        let app = package(
            "apps/top",
            &[("rockery-wire", true), ("rockery-rnic", true)],
        );
        assert_eq!(check_packages(&[wire, rnic, app]), [""; 0]);
    }

    #[test]
    fn arrows_up_and_between_wings_side_by_side_are_found() {
        let host = package("device/host", &[]);
        let up = package("core/wire", &[("rockery-host", true)]);
        assert!(check_packages(&[host.clone(), up])[0].contains("`core` does not see `device`"));
        let sideways = package("storage/iser", &[("rockery-host", true)]);
        assert!(check_packages(&[host, sideways])[0].contains("`storage` does not see `device`"));
        let tests = package("testing/programs", &[]);
        let app = package("apps/top", &[("rockery-programs", true)]);
        assert!(check_packages(&[tests, app])[0].contains("`apps` does not see `testing`"));
    }

    #[test]
    fn an_exception_permits_its_arrow_and_goes_with_it() {
        let others = ["buffer", "rdma"].map(|name| package(&format!("device/{name}"), &[]));
        let both = [("rockery-buffer", true), ("rockery-rdma", true)];
        let mut packages = others.to_vec();
        packages.push(package("storage/smb", &both));
        assert_eq!(check_packages(&packages), [""; 0]);
        packages[2] = package("storage/smb", &both[..1]);
        assert!(
            check_packages(&packages)[0]
                .contains("does not depend on `rdma`: remove the exception")
        );
    }

    #[test]
    fn crates_outside_the_wings_are_found() {
        assert!(check_packages(&[package("misc/a", &[])])[0].contains("`misc` is no wing"));
    }
}
