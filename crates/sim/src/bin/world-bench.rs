//! How fast the engine is: `world-bench [NAME]` runs the scenarios whose names begin so, and prints packet
//! hops per second of real time.

use fabric::topology::{LinkConfig, Speeds, Topology, fat_tree, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig, Mtu};
use sim::dice::Dice;
use sim::world::{Flow, HostConfig, Lossless, Scenario, Watch, World, lossless_switches};
use std::process::ExitCode;

const LINK: LinkConfig = LinkConfig { rate: Rate::from_gbps(100), delay: Span::from_us(1), loss: 0 };
const SPEEDS: Speeds = Speeds { hosts: LINK, fabric: LINK };

fn scenario(topology: Topology, mtu: Mtu, flows: Vec<Flow>, threads: u32) -> Scenario {
    let dcqcn = DcqcnConfig { line_rate_bps: 100_000_000_000, ..DcqcnConfig::default() };
    let host = HostConfig {
        mtu,
        ack_interval: 1,
        window_bytes: 1 << 30,
        congestion: CongestionConfig::Dcqcn(dcqcn),
        ..HostConfig::new()
    };
    let red = fabric::config::Red {
        min_bytes: 400_000,
        max_bytes: 1_600_000,
        probability: u32::MAX / 5,
        mark: true,
        drop: false,
        at: fabric::config::RedAt::Dequeue,
    };
    let common = Lossless { red: Some(red), ..Lossless::default() };
    Scenario {
        switches: lossless_switches(&topology, &common),
        hosts: vec![host; topology.hosts() as usize],
        topology,
        spread: Spread::Hash,
        flows,
        seed: 1,
        end: Time::NEVER,
        threads,
        watch: Watch::default(),
    }
}

/// Each host to another, none twice.
fn permutation(hosts: u32, bytes: u32) -> Vec<Flow> {
    let mut dice = Dice::new(1);
    let mut order: Vec<u32> = (0..hosts).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, dice.below(index as u64 + 1) as usize);
    }
    (0..order.len()).map(|at| Flow::write(order[at], order[(at + 1) % order.len()], bytes)).collect()
}

fn scenarios(threads: u32) -> Vec<(String, Option<Scenario>)> {
    let tree = |k| fat_tree(k, SPEEDS).ok();
    let fat = |k: u32, mtu, bytes| {
        tree(k).map(|tree| scenario(tree, mtu, permutation(k * k * k / 4, bytes), threads))
    };
    let incast: Vec<Flow> = (1..=16).map(|from| Flow::write(from, 0, 10_000_000)).collect();
    vec![
        (
            "one-flow".into(),
            star(2, LINK)
                .ok()
                .map(|two| scenario(two, Mtu::B4096, vec![Flow::write(0, 1, 1_000_000_000)], threads)),
        ),
        ("incast-16".into(), star(17, LINK).ok().map(|star| scenario(star, Mtu::B1024, incast, threads))),
        ("fat-tree-8".into(), fat(8, Mtu::B4096, 10_000_000)),
        ("fat-tree-8-mtu-1024".into(), fat(8, Mtu::B1024, 10_000_000)),
        ("fat-tree-16".into(), fat(16, Mtu::B4096, 10_000_000)),
        ("fat-tree-32".into(), fat(32, Mtu::B4096, 1_000_000)),
    ]
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let threads = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(1);
    for (title, scenario) in scenarios(threads).into_iter().filter(|(title, _)| title.starts_with(&name)) {
        let Some(scenario) = scenario else { return ExitCode::FAILURE };
        let mut world = match World::new(&scenario) {
            Ok(world) => world,
            Err(error) => {
                eprintln!("{title}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let began = std::time::Instant::now();
        world.run();
        let seconds = began.elapsed().as_secs_f64();
        let results = world.results();
        println!(
            "{title}: {:.2} M hops/s, {seconds:.3} s, {} hops, {} events, {} us virtual, \
             {} pauses, {} marks, {} MB",
            results.hops as f64 / seconds / 1e6,
            results.hops,
            results.events,
            results.end.0 / 1_000_000,
            results.pauses(),
            results.marks(),
            resident_mb(),
        );
    }
    ExitCode::SUCCESS
}
