//! Sweeps on a distributed engine give the same bytes as on one machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use programs::Rockery;
use tempfile::TempDir;

/// Six runs of a few milliseconds each.
const SWEEP: &str = r#"
title = "A sweep"
topology = { kind = "star", hosts = 5 }
[[workload]]
pattern = "each"
from = ["h[1-4]"]
to = ["h0"]
message = "64KiB"
messages = 20
[sweep]
"nic.default.mtu" = [1024, 4096]
seed = [1, 2, 3]
"#;

fn driver(file: &Path, out: &Path, more: &[&str]) -> Output {
    let script = programs::workspace().join("examples/sweeps/sweep.py");
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg("-B")
        .arg(script)
        .arg(file)
        .arg("--out")
        .arg(out)
        .args(["--workers", "2"]);
    command
        .arg("--rockery")
        .arg(Rockery::built().path())
        .args(more)
        .output()
        .expect("python3 is there")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The files of a folder, by name.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        (
            path.file_name().expect("a name").into(),
            std::fs::read(path).expect("a file"),
        )
    };
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut all: Vec<_> = entries
        .map(|entry| read(entry.expect("an entry").path()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_sweep_gives_the_same_bytes_on_cores_and_on_dask() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("sweep.toml");
    std::fs::write(&file, SWEEP).expect("our own folder");
    let (cores, dask) = (folder.path().join("cores"), folder.path().join("dask"));
    for (out, engine) in [(&cores, "cores"), (&dask, "dask")] {
        let ran = driver(&file, out, &["--on", engine]);
        assert!(
            ran.status.success(),
            "{engine} (package python3-distributed): {}",
            said(&ran)
        );
    }
    let results = contents(&cores);
    assert_eq!(results.len(), 7, "six runs and the list of them");
    assert_eq!(results, contents(&dask));
    assert_ne!(
        results[0].1, results[1].1,
        "another point is another result"
    );
    // Results that exist are not made again, and never mixed with another sweep's.
    let again = driver(&file, &cores, &[]);
    assert!(
        again.status.success() && !said(&again).contains(".json"),
        "{}",
        said(&again)
    );
    let other = driver(&file, &cores, &["--set", "sweep.seed=[7]"]);
    assert!(!other.status.success(), "{}", said(&other));
}
