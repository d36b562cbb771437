//! Many queue pairs in one program.

use programs::probe::Probe;
use programs::{Machine, Namespace};

const SECONDS: u64 = 120;
/// The most bytes that an idle queue pair may cost.
const BYTES_MAX: u64 = 8 << 10;

fn figure(output: &str, name: &str) -> Option<u64> {
    output
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
}

#[test]
fn a_hundred_thousand_queue_pairs_take_little_memory_and_all_work() {
    let probe = Probe::compile("many_queue_pairs").unwrap();
    let alone = Namespace::with_rockery();
    let path = probe.path().to_string_lossy();
    let finished = alone
        .run(&[&path, "-d", "rk_lo", "100000", "1"], SECONDS)
        .unwrap()
        .expect_success();
    let bytes = figure(&finished.output, "bytes per queue pair");
    assert!(
        bytes.is_some_and(|bytes| bytes <= BYTES_MAX),
        "{}",
        finished.output
    );
    assert!(
        figure(&finished.output, "nanoseconds per message").is_some(),
        "{}",
        finished.output
    );
}
