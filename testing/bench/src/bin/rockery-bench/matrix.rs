//! The jobs of the published comparisons.

/// Jobs of the sequential measurement: each is a thread with a queue.
pub(super) const JOBS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The matrix of CrystalDiskMark: how, bytes, commands at once and threads.
pub(super) const MATRIX: [(&str, &str, &str); 6] = [
    ("SEQ1M Q8T1", "", "1m:8"),
    ("SEQ1M Q1T1", "", "1m:1"),
    ("SEQ128K Q32T1", "", "128k:32"),
    ("RND4K Q32T16", "rand", "4k:32t16"),
    ("RND4K Q32T1", "rand", "4k:32"),
    ("RND4K Q1T1", "rand", "4k:1"),
];

/// 1 MiB sequential by so many jobs, one command at once of each.
pub(super) fn sequential(what: &str, jobs: u16) -> String {
    if jobs == 1 {
        format!("{what}:1m:1")
    } else {
        format!("{what}:1m:1t{jobs}")
    }
}

/// The same job without threads of its own.
pub(super) fn in_one_thread(job: &str) -> String {
    let (kind, many) = job.rsplit_once(':').unwrap_or(("", job));
    format!("{kind}:{}", many.replace('t', "x"))
}
