//! Results that do not change unnoticed: a digest of each run of an example, and the digest that is kept.
//! Packets, events and times are whole numbers, so that any machine has the same. A change that means to
//! change results writes the digests anew:
//! `UPDATE_DIGESTS=1 cargo test -p rockery-sim --test examples digests`.

use super::{Ran, run};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Runs of all congestion controls, of queues with and without pauses and marks, of paths, collectives and
/// storage. The first part of a name is that of the file.
const EXAMPLES: [&str; 27] = [
    "around.toml",
    "collectives/all-reduce.toml",
    "collectives/gpt.toml",
    "collectives/trees.toml",
    "crs504/ecn-off.toml",
    "crs504/mapped.toml",
    "crs504/paths.toml",
    "crs504/routed.toml",
    "crs504/shares.toml",
    "functions.toml",
    "incast-thresholds.toml",
    "incast.toml",
    "incast/dcqcn.toml",
    "incast/dctcp.toml",
    "incast/hpcc.toml",
    "incast/ring.toml",
    "incast/storm.toml",
    "incast/swift.toml",
    "incast/timely.toml",
    "incast/watchdog.toml",
    "infiniband/ring.toml",
    "nvme/rdma.toml",
    "nvme/tcp.toml",
    "sonic/lab.toml",
    "uet/incast.toml",
    "uet/permutation.toml",
    "uneven-paths.toml",
];

/// What a run did, in whole numbers.
fn digest(ran: &Ran) -> String {
    let results = &ran.results;
    let mut sum = Sha256::new();
    let mut add = |numbers: &[u64]| numbers.iter().for_each(|it| sum.update(it.to_le_bytes()));
    add(&[
        results.end.0,
        results.hops,
        results.events,
        results.damaged,
        u64::from(results.left),
    ]);
    for flow in &results.flows {
        let latency = &flow.latency;
        add(&[flow.started.0, flow.finished.0, flow.last_completion.0]);
        add(&[flow.messages, flow.bytes, flow.delivered_bytes]);
        add(&[latency.count, latency.sum_ns]);
        add(&[flow.rate_bps.unwrap_or(0), u64::from(flow.failed)]);
    }
    for host in &results.hosts {
        add(&[host.dropped, host.pauses_sent, host.pauses_received]);
    }
    let dropped = ran.report.switches.iter().map(|switch| switch.dropped);
    add(&dropped.collect::<Vec<u64>>());
    let sum = sum.finalize();
    sum[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn runs_have_the_results_that_they_had() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/examples/digests.txt");
    let lines = EXAMPLES.map(|name| format!("{} {name}\n", digest(&run(name, &[]))));
    let now = lines.concat();
    if std::env::var_os("UPDATE_DIGESTS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<&str> = now
        .lines()
        .filter(|line| !kept.lines().any(|own| own == *line))
        .collect();
    assert!(
        changed.is_empty() && kept.lines().count() == EXAMPLES.len(),
        "results have changed: {changed:#?}; where that is meant, UPDATE_DIGESTS=1 keeps these"
    );
}
