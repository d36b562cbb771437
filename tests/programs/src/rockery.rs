//! Rockery as the tests run it: as built in this workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The binary, with its libraries where it finds them.
#[derive(Clone, Debug)]
pub struct Rockery {
    path: PathBuf,
    options: &'static [&'static str],
}

impl Rockery {
    /// Builds it, once in each test program: a test of what was built last week proves nothing.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn built() -> Self {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        Self { path: PATH.get_or_init(build).clone(), options: &[] }
    }

    /// The same, for programs that reach those on the same host by packets too.
    pub fn by_packets() -> Self {
        Self { options: &["--no-same-host"], ..Self::built() }
    }

    /// The same, for programs whose sockets become rsockets.
    pub fn with_sockets() -> Self {
        Self { options: &["--sockets"], ..Self::built() }
    }

    /// The options with which programs are run.
    pub fn options(&self) -> &[&str] {
        self.options
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Installs it where every user can read it; the repository may lie where only its owner can.
    ///
    /// # Panics
    /// When it cannot be installed.
    pub fn installed(&self) -> (TempDir, PathBuf) {
        let prefix = TempDir::new().expect("a temporary folder");
        fs::set_permissions(prefix.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = self.path.ancestors().nth(2).expect("cargo builds in target/release");
        let mut install = Command::new(root.join("scripts/install.sh"));
        let done = install.arg(prefix.path()).env("CARGO_TARGET_DIR", target).current_dir(&root).status();
        assert!(done.is_ok_and(|status| status.success()), "rockery cannot be installed: {install:?}");
        let binary = prefix.path().join("bin/rockery");
        (prefix, binary)
    }

    /// All that it takes on another machine, at the same paths: itself, its libraries, and OpenSSL's.
    ///
    /// # Panics
    /// When the dynamic linker does not say where they are.
    pub fn files(&self) -> Vec<PathBuf> {
        let own = ["rockery", "libibverbs.so", "librdmacm.so", "libview.so", "libsockets.so"];
        let said = Command::new("ldd").arg(&self.path).output().expect("ldd comes with the C library").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let others = said.split_whitespace().filter(|word| {
            word.starts_with('/') && (word.contains("/libssl.") || word.contains("/libcrypto."))
        });
        own.iter().map(|name| self.path.with_file_name(name)).chain(others.map(PathBuf::from)).collect()
    }
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--workspace", "--lib", "--bins"])
        .args(["--exclude", "rockery-tidy", "--exclude", "rockery-programs"])
        .current_dir(&root)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "rockery cannot be built: cargo build --release");
    let binary = target.join("release/rockery");
    binary.canonicalize().unwrap_or(binary)
}
