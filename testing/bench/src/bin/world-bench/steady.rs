//! Exact runs beside runs in which steady states are skipped.

use super::{LINK, SPEEDS, permutation, scenario};
use bench::timed;
use fabric::topology::{fat_tree, star};
use rnic::{CongestionConfig, Mtu};
use sim::world::{Flow, Results, Scenario, SkipSteady, World};
use std::process::ExitCode;

/// Bytes of a transfer's messages: the skipped part is a number of whole messages.
const MESSAGE_BYTES: u32 = 256 << 10;

type Make = fn(u32) -> Option<Scenario>;

const SCENARIOS: [(&str, Make); 5] = [
    (
        "fat-tree-4, permutation of 5.2 GB, pauses only",
        |threads| permuted(20_000, threads),
    ),
    ("fat-tree-4, permutation of 13 GB, pauses only", |threads| {
        permuted(50_000, threads)
    }),
    (
        "fat-tree-4, four transfers across the core, pauses only",
        |threads| {
            let mut scenario = across_the_core(threads)?;
            scenario
                .hosts
                .iter_mut()
                .for_each(|host| host.congestion = CongestionConfig::Off);
            Some(scenario)
        },
    ),
    (
        "fat-tree-4, four transfers across the core, DCQCN",
        across_the_core,
    ),
    ("incast of 4, DCQCN", |threads| {
        let flows = (1..=4).map(|from| transfer(from, 0, 50_000)).collect();
        Some(scenario(star(5, LINK).ok()?, Mtu::B4096, flows, threads))
    }),
];

fn permuted(messages: u64, threads: u32) -> Option<Scenario> {
    let flows = permutation(16, MESSAGE_BYTES);
    let flows = flows
        .iter()
        .map(|flow| transfer(flow.from, flow.to, messages))
        .collect();
    let mut scenario = scenario(fat_tree(4, SPEEDS).ok()?, Mtu::B4096, flows, threads);
    scenario
        .hosts
        .iter_mut()
        .for_each(|host| host.congestion = CongestionConfig::Off);
    Some(scenario)
}

fn across_the_core(threads: u32) -> Option<Scenario> {
    let flows = (0..4).map(|at| transfer(at, 15 - at, 50_000)).collect();
    Some(scenario(
        fat_tree(4, SPEEDS).ok()?,
        Mtu::B4096,
        flows,
        threads,
    ))
}

fn transfer(from: u32, to: u32, messages: u64) -> Flow {
    Flow {
        messages,
        depth: 4,
        ..Flow::write(from, to, MESSAGE_BYTES)
    }
}

/// Results, and seconds of real time.
fn run(scenario: &Scenario) -> Option<(Results, f64)> {
    let mut world = World::new(scenario).ok()?;
    let ((), seconds) = timed(|| world.run());
    Some((world.results(), seconds))
}

/// Runs the scenarios with this in their titles, and prints a line for each.
pub(super) fn measure(threads: u32, part: &str) -> ExitCode {
    for (title, make) in SCENARIOS
        .into_iter()
        .filter(|(title, _)| title.contains(part))
    {
        let line = make(threads).and_then(|scenario| {
            let skipping = Scenario { skip_steady: Some(SkipSteady::ONE_PERCENT), ..scenario.clone() };
            let (exact, exact_s) = run(&scenario)?;
            let (skipped, skipped_s) = run(&skipping)?;
            let errors = exact.flows.iter().zip(&skipped.flows).map(|(exact, skipped)| {
                let times = exact.completion_ps().zip(skipped.completion_ps());
                times.map_or(f64::INFINITY, |(exact, skipped)| (skipped as f64 / exact as f64 - 1.0).abs())
            });
            let errors: Vec<f64> = errors.collect();
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let worst = errors.iter().copied().fold(0.0, f64::max);
            Some(format!(
                "{title}: {:.1} ms virtual, {} hops in {exact_s:.2} s, {} hops in {skipped_s:.2} s \
                 ({:.1} times faster), {} skips, completion times differ by {:.3} % on average, {:.3} % \
                 at most",
                exact.end.0 as f64 / 1e9,
                exact.hops,
                skipped.hops,
                exact_s / skipped_s,
                skipped.skips.len(),
                mean * 100.0,
                worst * 100.0,
            ))
        });
        let Some(line) = line else {
            eprintln!("{title}: the scenario does not fit together");
            return ExitCode::FAILURE;
        };
        println!("{line}");
    }
    ExitCode::SUCCESS
}
