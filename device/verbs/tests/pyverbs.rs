//! rdma-core's own tests of verbs, as Debian ships them in `rdma-core`'s documentation, over the loopback
//! device.

mod library;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Where the package `rdma-core` has its tests.
const CASES: &str = "/usr/share/doc/rdma-core/tests";

#[test]
fn every_expected_case_passes() {
    assert!(
        Path::new(CASES).exists(),
        "this test needs the package rdma-core, with its documentation"
    );
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pyverbs/run.py");
    let output = Command::new("/usr/bin/python3")
        .args([run, CASES, "--dev", "rk_lo", "--gid", "1"])
        .env("LD_LIBRARY_PATH", library::folder())
        .output()
        .expect("this test needs the packages python3 and python3-pyverbs");
    let (said, complaints) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let of_word = |word: &str| {
        said.lines()
            .filter_map(|line| line.strip_prefix(word))
            .map(str::trim)
            .collect()
    };
    let passed: BTreeSet<&str> = of_word("ok ");
    let expected: BTreeSet<&str> = include_str!("pyverbs/expected.txt").lines().collect();
    let lost: Vec<_> = expected.difference(&passed).collect();
    let new: Vec<_> = passed.difference(&expected).collect();
    assert!(
        lost.is_empty(),
        "no longer pass (python3-pyverbs installed?): {lost:#?}\n{said}\n{complaints}"
    );
    assert!(
        new.is_empty(),
        "pass now, add them to expected.txt: {new:#?}"
    );
}
