//! Rockery as built in this workspace, in the profile of the caller. Tests run the debug build, which stops
//! at overflows and failed debug assertions; the benchmarks and the demonstration run the release build.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::Packages;

/// The binary, with its libraries where it finds them.
#[derive(Clone, Debug)]
pub struct Rockery {
    path: PathBuf,
    options: &'static [&'static str],
}

impl Rockery {
    /// Builds rockery, once in each test program, so that no test runs an older build.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn built() -> Self {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        Self {
            path: PATH.get_or_init(build).clone(),
            options: &[],
        }
    }

    /// A build whose command has this path, with its libraries beside it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            options: &[],
        }
    }

    /// As built for packages, which start with older C libraries than this machine's.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn packaged() -> Self {
        Self {
            path: Packages::built().join("rockery"),
            options: &[],
        }
    }

    /// The same, for programs that reach those on the same host by packets too.
    pub fn by_packets() -> Self {
        Self {
            options: &["--no-same-host"],
            ..Self::built()
        }
    }

    /// The same, for programs whose sockets become rsockets.
    pub fn with_sockets() -> Self {
        Self {
            options: &["--sockets"],
            ..Self::built()
        }
    }

    /// The same, for programs that are run with these options.
    pub fn with_options(options: &'static [&'static str]) -> Self {
        Self {
            options,
            ..Self::built()
        }
    }

    /// The options with which programs are run.
    pub fn options(&self) -> &[&str] {
        self.options
    }

    /// The path of the binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that starts the binary with the defaults of signals: a shell starts jobs in the background
    /// with SIGINT ignored, and `nohup` all with SIGHUP ignored, tests included.
    pub fn command(&self) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT").arg(&self.path);
        command
    }

    /// The path of the binary, as a word of a command line.
    ///
    /// # Panics
    /// When the path is no UTF-8.
    pub fn word(&self) -> &str {
        self.path.to_str().expect("a path in UTF-8")
    }

    /// Installs it where every user can read it; the repository may lie where only its owner can.
    ///
    /// # Panics
    /// When it cannot be installed.
    pub fn installed(&self) -> (TempDir, PathBuf) {
        let built = self.path.parent().expect("cargo builds in a folder");
        let prefix = install(built);
        let binary = prefix.path().join("bin/rockery");
        (prefix, binary)
    }

    /// The files that rockery needs on another machine, at the same paths: itself, its libraries, and
    /// OpenSSL's.
    ///
    /// # Panics
    /// When the dynamic linker does not print their paths.
    pub fn files(&self) -> Vec<PathBuf> {
        let own = [
            "rockery",
            "libibverbs.so",
            "librdmacm.so",
            "libdv_stubs.so",
            "libpreload_sysfs.so",
            "libpreload_sockets.so",
            "libpreload_clock.so",
        ];
        let said = Command::new("ldd")
            .arg(&self.path)
            .output()
            .expect("ldd comes with the C library")
            .stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let others = said.split_whitespace().filter(|word| {
            word.starts_with('/') && (word.contains("/libssl.") || word.contains("/libcrypto."))
        });
        own.iter()
            .map(|name| self.path.with_file_name(name))
            .chain(others.map(PathBuf::from))
            .collect()
    }
}

/// Installs what cargo built in this folder below a temporary one.
fn install(built: &Path) -> TempDir {
    let prefix = TempDir::new().expect("a temporary folder");
    fs::set_permissions(prefix.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut install = Command::new(root.join("scripts/install.sh"));
    install.arg(prefix.path()).arg(built).current_dir(&root);
    run_quietly(&mut install);
    let stripped = [
        "bin/rockery",
        "bin/rockery-bench",
        "bin/rockery-device-plugin",
        "lib/rockery/libibverbs.so.1",
        "lib/rockery/librdmacm.so.1",
        "lib/rockery/librockery-view.so",
        "lib/rockery/librspreload.so",
        "lib/rockery/librockery-clocks.so",
    ];
    // Debug information is most of the size, and a machine for tests may have little room.
    let mut strip = Command::new("strip");
    strip
        .arg("--strip-debug")
        .current_dir(prefix.path())
        .args(stripped);
    run_quietly(&mut strip);
    prefix
}

/// Runs a command whose output matters only where it fails.
fn run_quietly(command: &mut Command) {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&text);
    assert!(
        done.status.success(),
        "{command:?}: {}\n{said}",
        done.status
    );
}

/// The packages and targets of a release, as the Makefile has them: another set of packages could give
/// dependencies other features, and cargo would compile most of the workspace a second time.
pub const RELEASE: &[&str] = &[
    "--release",
    "--workspace",
    "--lib",
    "--bin",
    "rockery",
    "--exclude",
    "rockery-tidy",
    "--exclude",
    "rockery-torture",
    "--exclude",
    "rockery-python",
    "--bin",
    "rockery-bench",
    "--bin",
    "rockery-device-plugin",
];

/// What cargo builds for this program, and the folder below `target` where it puts that. Tests build all
/// targets, since cargo gives dependencies the features that tests need only then.
const BUILD: (&[&str], &str) = if cfg!(debug_assertions) {
    (&["--workspace", "--all-targets"], "debug")
} else {
    (RELEASE, "release")
};
/// Set by `scripts/test.py`, which has just built everything.
const IS_BUILT: &str = "ROCKERY_TEST_IS_BUILT";

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let (arguments, folder) = BUILD;
    if std::env::var_os(IS_BUILT).is_none() {
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet"])
            .args(arguments)
            .current_dir(&root);
        let succeeded = build.status().is_ok_and(|status| status.success());
        assert!(succeeded, "rockery cannot be built: {build:?}");
    }
    let binary = target.join(folder).join("rockery");
    binary.canonicalize().unwrap_or(binary)
}
