//! Ten thousand seeds of the torture test; `torture --seeds 1000000` runs more.

use torture::Between;

/// Seeds in every test run.
const SEEDS: u64 = 10_000;

#[test]
fn every_byte_and_every_completion_is_right_whatever_the_network_does() {
    assert_eq!(run_all(Between::Network), 0);
}

#[test]
fn every_byte_and_every_completion_is_right_on_a_shared_memory_channel_and_when_it_ends() {
    let executed = run_all(Between::SharedMemory);
    assert!(
        executed > SEEDS / 10,
        "only {executed} requests were executed when they were posted"
    );
}

/// Runs all seeds. Returns the number of requests that were executed when they were posted.
fn run_all(between: Between) -> u64 {
    let half = |range: std::ops::Range<u64>| {
        std::thread::spawn(move || {
            let (mut completed, mut executed) = (0, 0);
            for seed in range {
                let summary =
                    torture::run(seed, between).unwrap_or_else(|failure| panic!("{failure}"));
                completed += summary.completed;
                executed += summary.executed;
            }
            (completed, executed)
        })
    };
    let halves = [half(0..SEEDS / 2), half(SEEDS / 2..SEEDS)];
    let halves = halves.map(|half| half.join().expect("a seed failed; see above"));
    let (completed, executed) = halves
        .iter()
        .fold((0, 0), |sum, half| (sum.0 + half.0, sum.1 + half.1));
    assert!(
        completed > SEEDS * 10,
        "only {completed} requests completed: the test tests nothing"
    );
    executed
}

/// Seeds that failed once, with what runs them. 35,115: READs held ahead of their turn and those sent again
/// were more than agreed. 45,117: a WRITE was repeated together with the packets after it, which were taken
/// for duplicates and lost. 65 and 5,016: after a NAK on a channel only one record was repeated, and an ACK
/// timeout the rest. 84,846 and 86,131: one end gave up while its acknowledgement of a request of the other
/// end was on its way, and the test took that request's success for a fault.
const SEEDS_THAT_FAILED: &[(u64, Between)] = &[
    (35_115, Between::Network),
    (45_117, Between::SharedMemory),
    (65, Between::SharedMemory),
    (5_016, Between::SharedMemory),
    (84_846, Between::Network),
    (86_131, Between::Network),
];

#[test]
fn seeds_that_once_failed_stay_fixed() {
    for (seed, between) in SEEDS_THAT_FAILED {
        torture::run(*seed, *between).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..50 {
        for between in [Between::Network, Between::SharedMemory] {
            assert_eq!(torture::run(seed, between), torture::run(seed, between));
        }
    }
}

/// Scenarios that run over the network and over a channel.
const STORIES: u64 = 4_000;

#[test]
fn a_shared_memory_channel_shows_programs_what_a_network_shows_them() {
    let failures: u64 = (0..STORIES)
        .map(|seed| torture::compare(seed).unwrap_or_else(|failure| panic!("{failure}")))
        .sum();
    assert!(
        failures > STORIES,
        "only {failures} completions with an error: the stories are too good"
    );
}
