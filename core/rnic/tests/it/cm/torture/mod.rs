//! Two hosts whose programs connect, answer late, reject, disconnect and exit, one by one or all at once,
//! over a network that loses, doubles, delays and forges datagrams. Everything follows from one seed.
//!
//! Safety, during the faults: [`story`] models the permitted events of each connection, independently of the
//! state machine. Liveness, after them: the network heals, programs exit, and in bounded time nothing is
//! left.

mod network;
mod programs;
mod story;
mod world;

use world::World;

/// Seeds in every test run.
const SEEDS: u64 = 10_000;

/// Seeds that have failed before.
const SEEDS_THAT_FAILED: &[u64] = &[79, 5087];

/// Statistics of a run, to detect a test that tests nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Summary {
    /// Connections that both ends agreed on.
    established: u64,
    /// Requests that ended otherwise.
    failed: u64,
    /// Service ID resolutions that were answered.
    resolved: u64,
    /// Datagrams lost, doubled, forged.
    spoiled: u64,
    /// Hosts whose programs all died.
    crashes: u64,
    /// A digest of all events.
    digest: u64,
}

fn run(seed: u64) -> Summary {
    let result = std::panic::catch_unwind(|| World::new(seed).run());
    result.unwrap_or_else(|_| {
        panic!("replay it: CM_SEED={seed} cargo test -p rockery-rnic cm::torture::one_seed")
    })
}

#[test]
fn both_ends_agree_and_leave_no_state_after_faults_of_the_network() {
    let part = |seeds: std::ops::Range<u64>| {
        std::thread::spawn(move || {
            let mut sum = Summary::default();
            for seed in seeds {
                let summary = run(seed);
                sum.established += summary.established;
                sum.failed += summary.failed;
                sum.resolved += summary.resolved;
                sum.spoiled += summary.spoiled;
                sum.crashes += summary.crashes;
            }
            sum
        })
    };
    let halves = [part(0..SEEDS / 2), part(SEEDS / 2..SEEDS)];
    for half in halves {
        let sum = half.join().expect("a seed failed; see above");
        let enough = sum.established > SEEDS && sum.failed > SEEDS && sum.resolved > SEEDS / 2;
        let spoiled = sum.spoiled > SEEDS * 10 && sum.crashes > SEEDS / 10;
        assert!(enough && spoiled, "the test tests nothing: {sum:?}");
    }
}

#[test]
fn seeds_that_once_failed_stay_fixed() {
    SEEDS_THAT_FAILED.iter().for_each(|seed| _ = run(*seed));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn one_seed() {
    let seed =
        std::env::var("CM_SEED").map_or(0, |text| text.parse().expect("CM_SEED is a number"));
    World::new(seed).run();
}
