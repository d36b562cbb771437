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
        let make = || made_in("target/packages", "x86_64");
        Self {
            folder: FOLDER.get_or_init(make).clone().expect("packages"),
        }
    }

    /// Makes those for 64-bit ARM, once in each test program.
    ///
    /// # Panics
    /// When that fails.
    pub fn made_for_arm() -> Self {
        static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let make = || made_in("target/packages-aarch64", "aarch64");
        let folder = FOLDER.get_or_init(make).clone();
        Self {
            folder: folder.expect("packages for 64-bit ARM"),
        }
    }

    /// The folder with the command and the libraries that packages are made of.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn built() -> PathBuf {
        // The error is kept: each test of a program would build again, for minutes, and fail again.
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let build = || build_for("x86_64");
        BUILT
            .get_or_init(build)
            .clone()
            .expect("a build for packages")
    }

    /// The same for 64-bit ARM.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn built_for_arm() -> PathBuf {
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let built = BUILT.get_or_init(|| build_for("aarch64")).clone();
        built.expect("a build for 64-bit ARM")
    }

    /// Test programs for 64-bit ARM that an emulator runs, and the folder with the C library that they need.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn tests_for_arm() -> (Vec<PathBuf>, PathBuf) {
        static BUILT: OnceLock<Result<Vec<PathBuf>, String>> = OnceLock::new();
        let build = || {
            dist_for("aarch64", "--tests")?;
            let list = workspace().join("target/dist/tests-aarch64");
            let list = fs::read_to_string(list).map_err(|error| format!("the list: {error}"))?;
            Ok(list.lines().map(PathBuf::from).collect())
        };
        let programs = BUILT.get_or_init(build).clone();
        let libraries = workspace().join("target/dist/debian-aarch64");
        (programs.expect("test programs for 64-bit ARM"), libraries)
    }

    /// The profile of the build.
    pub fn profile() -> String {
        std::env::var("DIST_PROFILE").unwrap_or_else(|_| "packages".to_owned())
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

/// Makes packages in a folder of the workspace.
fn made_in(folder: &str, architecture: &str) -> Result<PathBuf, String> {
    let folder = workspace().join(folder);
    dist_for(architecture, &folder.to_string_lossy()).map(|()| folder)
}

/// Builds, and returns the folder, which `dist.sh` names in a file.
fn build_for(architecture: &str) -> Result<PathBuf, String> {
    dist_for(architecture, "--build")?;
    let file = workspace()
        .join("target/dist")
        .join(format!("built-{architecture}"));
    let name = fs::read_to_string(file).map_err(|error| format!("what dist.sh writes: {error}"))?;
    Ok(PathBuf::from(name.trim()))
}

fn dist_for(architecture: &str, argument: &str) -> Result<(), String> {
    let mut script = Command::new(workspace().join("scripts/dist.sh"));
    script
        .env("ARCH", architecture)
        .env("DIST_PROFILE", Packages::profile());
    let output = script.arg(argument).output();
    let output = output.map_err(|error| format!("scripts/dist.sh: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("make dist: {}", String::from_utf8_lossy(&said))),
    }
}
