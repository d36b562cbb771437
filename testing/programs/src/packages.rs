//! Packages of rockery, as `make dist` makes them.
//!
//! All tests share one build. It has the profile `packages`, which takes a fraction of the time of a release:
//! `DIST_PROFILE=release` in the environment makes packages as users get them, as each night.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::workspace;

/// A folder with packages.
#[derive(Clone, Debug)]
pub struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Makes them, once in each test program.
    ///
    /// # Panics
    /// When that fails.
    pub fn made() -> Self {
        static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let make = || {
            let folder = workspace().join("target/packages");
            dist(&folder.to_string_lossy()).map(|()| folder)
        };
        Self {
            folder: FOLDER.get_or_init(make).clone().expect("packages"),
        }
    }

    /// The folder with the command and the libraries that packages are made of.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn built() -> PathBuf {
        // The error is kept: each test of a program would build again, for minutes, and fail again.
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let build = || {
            dist("--build")?;
            built_folder("built")
        };
        BUILT
            .get_or_init(build)
            .clone()
            .expect("a build for packages")
    }

    /// The folder with the C libraries for 64-bit ARM.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn libraries_of_arm() -> PathBuf {
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let build = || {
            dist_for("aarch64", "--libraries")?;
            built_folder("built-aarch64")
        };
        let built = BUILT.get_or_init(build).clone();
        built.expect("libraries for 64-bit ARM")
    }

    /// The folder with the programs that packages are built with: Python and pip among them.
    pub fn tools() -> PathBuf {
        workspace().join("target/dist/tools/bin")
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The only package whose name begins and ends so.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub fn named(&self, begin: &str, end: &str) -> String {
        let entries = fs::read_dir(&self.folder).expect("the packages' folder");
        let names = entries.map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        let found: Vec<String> = names
            .filter(|name| name.starts_with(begin) && name.ends_with(end))
            .collect();
        let [name] = &*found else {
            panic!("one {begin}*{end} expected, not {found:?}")
        };
        name.clone()
    }
}

/// The folder that `dist.sh` names in a file of `target/dist`.
fn built_folder(file: &str) -> Result<PathBuf, String> {
    let name = workspace().join("target/dist").join(file);
    let name = fs::read_to_string(name).map_err(|error| format!("what dist.sh writes: {error}"))?;
    Ok(PathBuf::from(name.trim()))
}

fn dist(argument: &str) -> Result<(), String> {
    dist_for("x86_64", argument)
}

fn dist_for(architecture: &str, argument: &str) -> Result<(), String> {
    let profile = std::env::var("DIST_PROFILE").unwrap_or_else(|_| "packages".to_owned());
    let mut script = Command::new(workspace().join("scripts/dist.sh"));
    script
        .env("ARCH", architecture)
        .env("DIST_PROFILE", profile);
    // An emulated processor takes its time for what is not optimized.
    if architecture == "aarch64" {
        script.env("CARGO_PROFILE_PACKAGES_OPT_LEVEL", "1");
    }
    let output = script.arg(argument).output();
    let output = output.map_err(|error| format!("scripts/dist.sh: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("make dist: {}", String::from_utf8_lossy(&said))),
    }
}
