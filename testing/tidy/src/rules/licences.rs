//! The checks of `cargo-deny` on the crates of others, without a tool that takes minutes to build: their
//! licences, their sources, and that none is compiled in two versions. Advisories are not checked here.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Finding;

/// Licences under which rockery's binaries may be distributed, by SPDX identifiers.
pub const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are compiled in several versions today, because crates of others need different ones. Entries
/// may go.
pub const SEVERAL_VERSIONS: &[&str] = &[
    "bit-set",
    "bit-vec",
    "cpufeatures",
    "getrandom",
    "num-bigint",
    "rand_core",
    "syn",
];

/// Crates that are compiled for the one platform that rockery is for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
const LIST: &str = "testing/tidy/src/rules/licences.rs";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate of others.
#[derive(Clone, Debug)]
pub struct Package {
    name: String,
    version: String,
    licence: String,
    source: String,
}

/// Asks cargo for the crates of others that the workspace is built from.
///
/// # Panics
/// When cargo does not answer: there is nothing to check then.
pub fn packages(root: &Path) -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--filter-platform",
        PLATFORM,
    ]);
    let output = command.current_dir(root).output().expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let all = metadata["packages"].as_array().into_iter().flatten();
    all.filter_map(|package| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let source = text("source")?;
        let licence = text("license").unwrap_or_default();
        Some(Package {
            name: text("name")?,
            version: text("version")?,
            licence,
            source,
        })
    })
    .collect()
}

/// Licences that are not allowed, sources other than crates.io, and second versions.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |what: String| {
        findings.push(Finding {
            path: "Cargo.lock".to_owned(),
            line: 0,
            what,
        })
    };
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Package {
        name,
        version,
        licence,
        source,
    } in packages
    {
        if !is_allowed(licence) {
            find(format!(
                "{name} {version}: the licence {licence:?} is not in {LIST}"
            ));
        }
        if source != CRATES_IO {
            find(format!(
                "{name} {version} comes from {source}, not from crates.io"
            ));
        }
        versions.entry(name).or_default().push(version);
    }
    for (name, versions) in &versions {
        if versions.len() > 1 && !SEVERAL_VERSIONS.contains(name) {
            find(format!(
                "{name} is compiled in the versions {}: use one",
                versions.join(", ")
            ));
        }
    }
    for name in SEVERAL_VERSIONS {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            find(format!(
                "{name} has one version now: bring {LIST} up to date"
            ));
        }
    }
    findings
}

/// Whether an SPDX expression can be met by allowed licences. Parentheses only around alternatives.
fn is_allowed(expression: &str) -> bool {
    expression.split(" AND ").all(|group| {
        let group = group.trim_matches(['(', ')']).replace('/', " OR ");
        group
            .split(" OR ")
            .any(|licence| ALLOWED.contains(&licence.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: &str, source: &str) -> Package {
        let [name, version, licence, source] = [name, version, licence, source].map(str::to_owned);
        Package {
            name,
            version,
            licence,
            source,
        }
    }

    #[test]
    fn expressions_are_evaluated() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in [
            "",
            "GPL-2.0",
            "MIT AND GPL-2.0",
            "(GPL-2.0 OR AGPL-3.0) AND MIT",
        ] {
            assert!(!is_allowed(refused), "{refused:?}");
        }
    }

    #[test]
    fn wrong_licences_sources_and_second_versions_are_found() {
        let several = SEVERAL_VERSIONS
            .iter()
            .flat_map(|name| ["1", "2"].map(|version| package(name, version, "MIT", CRATES_IO)));
        let mut packages: Vec<Package> = several.collect();
        assert_eq!(check(&packages).len(), 0);
        packages.push(package("a", "1", "GPL-2.0", CRATES_IO));
        packages.push(package("b", "1", "MIT", "git+https://example.org/b"));
        packages.push(package("c", "1", "MIT", CRATES_IO));
        packages.push(package("c", "2", "MIT", CRATES_IO));
        assert_eq!(check(&packages).len(), 3);
        assert_eq!(
            check(&packages[1..]).len(),
            4,
            "one entry of the list is not needed then"
        );
    }
}
