//! The Python package, as it was built here: its own tests, with pandas, pyarrow and Dask, and its examples.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use programs::{Job, Namespace, Rockery, workspace};
use tempfile::TempDir;

const SECONDS: u64 = 900;

/// The interpreter of an environment with the packages that tests use, which is kept in `target/python`.
fn interpreter() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = workspace().join("target/python");
        let requirements = workspace().join("apps/python/tests/requirements.txt");
        let wanted = fs::read_to_string(&requirements).expect("the requirements");
        let (python, stamp) = (folder.join("bin/python"), folder.join("made-by"));
        if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
            return python;
        }
        done(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
        );
        done(
            Command::new(&python)
                .args(["-m", "pip", "install", "-q", "-r"])
                .arg(&requirements),
        );
        fs::write(&stamp, wanted).expect("our own folder");
        python
    };
    PYTHON.get_or_init(make).clone()
}

fn done(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&said)
    );
}

/// A folder for PYTHONPATH with the package, as a wheel has it.
fn package(rockery: &Rockery) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let package = folder.path().join("rockery");
    fs::create_dir(&package).expect("our own folder");
    for entry in fs::read_dir(workspace().join("apps/python/rockery")).expect("the package") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fs::copy(&path, package.join(path.file_name().expect("a name")))
                .expect("our own folder");
        }
    }
    let library = rockery.path().with_file_name("lib_rockery.so");
    fs::copy(&library, package.join("_rockery.abi3.so"))
        .unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    folder
}

/// Runs pytest in a network namespace, and returns what it prints.
fn pytest(arguments: &[&str]) -> String {
    let rockery = Rockery::built();
    let package = package(&rockery);
    let path = package.path().to_string_lossy();
    let variables = [
        format!("PYTHONPATH={path}"),
        format!("ROCKERY_COMMAND={}", rockery.path().display()),
        format!("ROCKERY_SOURCE={}", workspace().display()),
        format!(
            "ROCKERY_TEST_ENGINES={}",
            std::env::var("ROCKERY_TEST_ENGINES").unwrap_or("threads dask".into())
        ),
        "PYTHONDONTWRITEBYTECODE=1".to_owned(),
    ];
    let mut argv = vec!["env".to_owned()];
    argv.extend(variables);
    argv.push(interpreter().to_string_lossy().into_owned());
    let plugin = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "rockery.pytest_plugin",
    ];
    argv.extend(plugin.map(str::to_owned));
    argv.extend(
        arguments
            .iter()
            .map(|argument| argument.replace("PACKAGE", &path)),
    );
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let alone = Namespace::alone().expect("a namespace");
    let mut job = alone.start_plain(&argv).expect("python");
    job.wait(SECONDS).expect("in time").expect_success().output
}

#[test]
fn the_tests_of_the_module_pass() {
    let said = pytest(&[&workspace().join("apps/python/tests").to_string_lossy()]);
    assert!(
        said.contains(" passed") && !said.contains("skipped"),
        "{said}"
    );
}

#[test]
fn the_examples_in_its_documentation_are_right() {
    let page = workspace().join("docs/python.md");
    let page = page.to_string_lossy();
    let said = pytest(&[
        "--doctest-modules",
        "--doctest-glob=*.md",
        "PACKAGE/rockery",
        &page,
    ]);
    assert!(said.contains("6 passed"), "{said}");
}
