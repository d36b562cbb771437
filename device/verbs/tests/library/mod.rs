//! Locates the library that the tests load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// A folder with the library under the name that programs load, one for each test program. Cargo builds tests
/// beside the library, but does not build a `cdylib` because a test of its package runs.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "rockery-verbs"])
        .status();
    assert!(
        build.is_ok_and(|status| status.success()),
        "the library does not build"
    );
    let tests = std::env::current_exe().expect("a test knows its own path");
    let built = tests
        .parent()
        .expect("a file has a folder")
        .join("libibverbs.so");
    assert!(built.exists(), "{} is not there", built.display());
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(tests.file_name().expect("a file has a name"));
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let link = folder.join("libibverbs.so.1");
    if std::fs::read_link(&link).ok().as_deref() != Some(&built) {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&built, &link).expect("the target folder can be written");
    }
    folder
});

pub(crate) fn folder() -> &'static Path {
    &FOLDER
}
