//! How fast the engine is: `world-bench [NAME]` runs one scenario, or all of them, and prints packet hops per
//! second of real time. `world-bench steady [THREADS [TITLE]]` runs other scenarios twice, packet by packet
//! and with steady states skipped, and prints how much faster the second run is and by how much its
//! completion times differ.

mod steady;

use bench::timed;
use command::process::peak_resident_kib;
use fabric::topology::{LinkConfig, Speeds, Topology, fat_tree, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig, Mtu};
use sim::random::RunRng;
use sim::world::{Flow, HostConfig, Lossless, Results, Scenario, Watch, World, lossless_switches};
use std::fmt::Write;
use std::process::ExitCode;

const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span::from_us(1));
const SPEEDS: Speeds = Speeds {
    hosts: LINK,
    fabric: LINK,
};

fn scenario(topology: Topology, mtu: Mtu, flows: Vec<Flow>, threads: u32) -> Scenario {
    let dcqcn = DcqcnConfig {
        line_rate_bps: 100_000_000_000,
        ..DcqcnConfig::default()
    };
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
    let common = Lossless {
        red: Some(red),
        ..Lossless::default()
    };
    Scenario {
        switches: lossless_switches(&topology, &common),
        hosts: vec![host; topology.hosts() as usize],
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        flows,
        seed: 1,
        end: Time::NEVER,
        threads,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    }
}

/// Each host to another, none twice.
fn permutation(hosts: u32, bytes: u32) -> Vec<Flow> {
    let mut rng = RunRng::new(1);
    let mut order: Vec<u32> = (0..hosts).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, rng.below(index as u64 + 1) as usize);
    }
    (0..order.len())
        .map(|at| Flow::write(order[at], order[(at + 1) % order.len()], bytes))
        .collect()
}

/// A scenario, made when it is its turn: that of 65,536 hosts takes 100 MB by itself.
type Make = fn(u32) -> Option<Scenario>;

fn permutation_on_tree(k: u32, mtu: Mtu, bytes: u32, threads: u32) -> Option<Scenario> {
    Some(scenario(
        fat_tree(k, SPEEDS).ok()?,
        mtu,
        permutation(k * k * k / 4, bytes),
        threads,
    ))
}

const SCENARIOS: [(&str, Make); 7] = [
    ("one-flow", |threads| {
        Some(scenario(
            star(2, LINK).ok()?,
            Mtu::B4096,
            vec![Flow::write(0, 1, 1_000_000_000)],
            threads,
        ))
    }),
    ("incast-16", |threads| {
        let flows = (1..=16)
            .map(|from| Flow::write(from, 0, 10_000_000))
            .collect();
        Some(scenario(star(17, LINK).ok()?, Mtu::B1024, flows, threads))
    }),
    ("fat-tree-8", |threads| {
        permutation_on_tree(8, Mtu::B4096, 10_000_000, threads)
    }),
    ("fat-tree-8-mtu-1024", |threads| {
        permutation_on_tree(8, Mtu::B1024, 10_000_000, threads)
    }),
    ("fat-tree-16", |threads| {
        permutation_on_tree(16, Mtu::B4096, 10_000_000, threads)
    }),
    ("fat-tree-32", |threads| {
        permutation_on_tree(32, Mtu::B4096, 1_000_000, threads)
    }),
    ("fat-tree-64", |threads| {
        permutation_on_tree(64, Mtu::B4096, 20_000, threads)
    }),
];

/// A digest of results, which distinguishes runs with different ones.
struct Digest(u64);

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // FNV-1a.
        self.0 = text.bytes().fold(self.0, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Ok(())
    }
}

/// The digest of the results of flows and hosts. (The number of events is not a result.)
fn digest(results: &Results) -> u32 {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    // Writing into a number cannot fail.
    let _always = write!(
        digest,
        "{:?} {:?} {:?}",
        results.end, results.flows, results.hosts
    );
    (digest.0 ^ digest.0 >> 32) as u32
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let threads = std::env::args()
        .nth(2)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1);
    if name == "steady" {
        return steady::measure(threads, &std::env::args().nth(3).unwrap_or_default());
    }
    let wanted = |title: &str| name.is_empty() || title == name;
    for (title, make) in SCENARIOS.into_iter().filter(|(title, _)| wanted(title)) {
        let Some(scenario) = make(threads) else {
            return ExitCode::FAILURE;
        };
        let (world, built) = timed(|| World::new(&scenario));
        let mut world = match world {
            Ok(world) => world,
            Err(error) => {
                eprintln!("{title}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let ((), seconds) = timed(|| world.run());
        let resident_mb = peak_resident_kib(std::process::id()).unwrap_or_default() / 1024;
        let results = world.results();
        println!(
            "{title}: {:.2} M hops/s, {seconds:.3} s ({built:.1} s to build), {} hops, {} events, \
             {} us virtual, {} pauses, {} marks, {resident_mb} MB, digest {:08x}",
            results.hops as f64 / seconds / 1e6,
            results.hops,
            results.events,
            results.end.0 / 1_000_000,
            results.pauses(),
            results.marks(),
            digest(&results),
        );
    }
    ExitCode::SUCCESS
}
