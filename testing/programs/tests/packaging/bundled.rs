//! Programs that bring a libibverbs of their own, as Python packages do: `auditwheel` copies the
//! distribution's into the package, gives it another name, and has the program load it by that name and its
//! own path.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{Exchange, Finished, Job, Namespace, Pair, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// The ping-pongs' TCP port.
const PORT: u16 = 18515;
/// Names of the same length, so that one fits where the other stands in a file.
const NAME: &str = "libibverbs.so.1";
const RENAMED: &str = "libibverbs-1.so";

/// A folder with a program and the distribution's libibverbs under another name.
struct Bundle {
    folder: TempDir,
    program: PathBuf,
}

impl Bundle {
    fn of(program: &str) -> Self {
        let path = PathBuf::from("/usr/bin").join(program);
        let folder = TempDir::new().expect("a temporary folder");
        let copy = folder.path().join(program);
        rename(&path, &copy);
        rename(&library_of(&path), &folder.path().join(RENAMED));
        Self {
            folder,
            program: copy,
        }
    }

    /// The program with its folder as the only library path, whatever `rockery run` has set.
    fn argv<'a>(&'a self, variable: &'a mut String) -> [&'a str; 3] {
        *variable = format!("LD_LIBRARY_PATH={}", self.folder.path().display());
        [
            "env",
            variable,
            self.program.to_str().expect("a path of ours"),
        ]
    }
}

/// Where the dynamic linker finds the program's libibverbs.
fn library_of(program: &Path) -> PathBuf {
    let said = Command::new("ldd")
        .arg(program)
        .output()
        .expect("ldd comes with the C library")
        .stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let line = said
        .lines()
        .find(|line| line.contains(NAME))
        .expect("a program of verbs");
    line.split_whitespace()
        .find(|word| word.starts_with('/'))
        .expect("it is installed")
        .into()
}

/// Copies a file, with the library's name replaced in its table of strings.
fn rename(from: &Path, to: &Path) {
    let mut bytes = fs::read(from).expect("it is installed");
    let (old, new) = (format!("\0{NAME}\0"), format!("\0{RENAMED}\0"));
    let places: Vec<usize> = (0..bytes.len() - old.len())
        .filter(|at| bytes[*at..].starts_with(old.as_bytes()))
        .collect();
    assert!(
        !places.is_empty(),
        "{} does not name {NAME}",
        from.display()
    );
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
    }
    fs::write(to, bytes).expect("a folder of ours");
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("a file of ours");
}

fn run(namespace: &Namespace, options: &[&str], argv: &[&str]) -> Finished {
    let rockery = Rockery::built();
    let path = rockery.path().to_string_lossy();
    let words = [&[&*path, "run"], options, &["--"], argv].concat();
    namespace
        .start_plain(&words)
        .expect("it starts")
        .wait(SECONDS)
        .expect("in time")
}

#[test]
fn a_program_with_a_renamed_libibverbs_finds_rockerys_devices() {
    let pair = Pair::new(1500).unwrap();
    let bundle = Bundle::of("ibv_devinfo");
    let mut variable = String::new();
    let argv = [&bundle.argv(&mut variable)[..], &["-d", "rk_eth0"]].concat();
    let said = run(&pair.left, &[], &argv).expect_success().output;
    assert!(
        said.contains("hca_id:\trk_eth0") && said.contains("PORT_ACTIVE"),
        "{said}"
    );
}

#[test]
fn traffic_flows_between_programs_with_a_renamed_libibverbs() {
    let rockery = Rockery::built();
    let pair = Pair::new(1500).unwrap().with(&rockery);
    let bundle = Bundle::of("ibv_rc_pingpong");
    let mut variable = String::new();
    let argv = [
        &bundle.argv(&mut variable)[..],
        &["-g", "1", "-n", "100", "-c"],
    ]
    .concat();
    let done = Exchange::run(&pair.left, &pair.right, &argv, "-g", PORT, SECONDS).unwrap();
    done.expect_success();
}

#[test]
fn without_preload_a_bundled_libibverbs_is_used_with_a_warning() {
    let pair = Pair::new(1500).unwrap();
    let bundle = Bundle::of("ibv_devinfo");
    let mut variable = String::new();
    let argv = [&bundle.argv(&mut variable)[..], &["-d", "rk_eth0"]].concat();
    let finished = run(&pair.left, &["--no-preload"], &argv);
    assert!(
        !finished.succeeded() && !finished.output.contains("PORT_ACTIVE"),
        "{}",
        finished.output
    );
    assert!(
        finished.output.contains("rockery: --no-preload:"),
        "{}",
        finished.output
    );
    // A program that loads the library by its usual name needs no preloading.
    let said = run(
        &pair.left,
        &["--no-preload"],
        &["ibv_devinfo", "-d", "rk_eth0"],
    )
    .expect_success();
    assert!(said.output.contains("PORT_ACTIVE"), "{}", said.output);
}
