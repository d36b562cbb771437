//! rdma-core's own tests of RDMA-CM: they look for a device with an address in `/sys`, which takes
//! `rockery run`. Those of verbs alone run without it (`device/verbs/tests/pyverbs.rs`).

use programs::{Machine, Pair};

/// Where the package `rdma-core` has its tests.
const CASES: &str = "/usr/share/doc/rdma-core/tests";
const SECONDS: u64 = 240;

#[test]
fn all_cases_of_connections_pass() {
    let pair = Pair::with_rockery(1500);
    let run = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../device/verbs/tests/pyverbs/run.py"
    );
    let argv = [
        "env",
        "CASES=test_rdmacm.",
        "/usr/bin/python3",
        run,
        CASES,
        "--dev",
        "rk_eth0",
        "--gid",
        "1",
    ];
    let said = pair
        .left
        .run(&argv, SECONDS)
        .unwrap()
        .expect_success()
        .output;
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(passed, 10, "{said}");
}
