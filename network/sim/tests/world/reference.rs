//! Flow completion times held against those of HPCC's ns-3 model: see `tests/reference/README.md`.

use fabric::config::{Limit, Red, RedAt};
use fabric::topology::{LinkConfig, Node, Topology};
use fabric::{Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig, FirmwareDcqcn, Mtu, Nanos};
use sim::world::{
    Flow, Headers, HostConfig, Lossless, Marking, Scenario, Watch, World, lossless_switches,
};
use std::collections::BTreeMap;
use std::path::Path;

/// The numbers of each line of a file, the first `skip` lines left out. Addresses like `0b000101` have none.
fn lines(run: &str, file: &str, skip: usize) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/reference")
        .join(run)
        .join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    text.lines()
        .skip(skip)
        .map(words)
        .filter(|line| !line.is_empty())
        .collect()
}

fn topology(run: &str) -> Topology {
    let numbers = lines(run, "topology.txt", 0);
    let switches: Vec<u32> = numbers[1].iter().map(|id| id.parse().unwrap()).collect();
    let nodes: u32 = numbers[0][0].parse().unwrap();
    let mut topology = Topology::default();
    let node = |id: u32| match switches.iter().position(|switch| *switch == id) {
        Some(switch) => Node::Switch(switch as u32),
        // Hosts have the first numbers.
        None => Node::Host(id),
    };
    for id in 0..nodes {
        match node(id) {
            Node::Host(_) => assert_eq!(topology.add_host(), id),
            Node::Switch(_) => drop(topology.add_switch()),
        }
    }
    for link in &numbers[2..] {
        assert_eq!((link[2].as_str(), link[3].as_str()), ("100Gbps", "1000ns"));
        let config = LinkConfig::new(Rate::from_gbps(100), Span::from_us(1));
        topology
            .connect(
                node(link[0].parse().unwrap()),
                node(link[1].parse().unwrap()),
                config,
            )
            .unwrap();
    }
    topology
}

/// The adapter of the model's `parameters.txt`.
fn host() -> HostConfig {
    let dcqcn = DcqcnConfig {
        line_rate_bps: 100_000_000_000,
        minimum_rate_bps: 100_000_000,
        g_shift: 8,
        // Each acknowledgement carries its packet's mark there.
        cnp_interval_ns: Nanos(0),
        alpha_interval_ns: Nanos(1_000),
        increase_interval_ns: Nanos::from_micros(300),
        increase_bytes: u64::MAX,
        fast_recovery_steps: 1,
        additive_bps: 50_000_000,
        hyper_bps: 100_000_000,
        burst_bytes: 0,
        firmware: Some(FirmwareDcqcn {
            cut_interval_ns: Nanos(4_000),
            clamp_target: false,
        }),
    };
    // `ACK_HIGH_PRIO` reaches the hosts only (`ack_q_idx`): it is not set on switches, whose queue for an
    // acknowledgement is that of its data.
    let control = Marking {
        class: 6,
        dscp: 26,
        pcp: None,
        ecn: false,
    };
    HostConfig {
        mtu: Mtu::B4096,
        // 20 bytes of preamble and gap come on top.
        headers: Headers::Fixed {
            data: 22,
            control: 40,
        },
        window_bytes: 1 << 30,
        ack_interval: 1,
        acknowledgements: control,
        notifications: control,
        congestion: CongestionConfig::Dcqcn(dcqcn),
        ..HostConfig::new()
    }
}

/// A host by its address there.
fn host_at(address: &str) -> u32 {
    let address = u32::from_str_radix(address, 16).unwrap();
    (address >> 16 & 0xff) * 256 + (address >> 8 & 0xff)
}

/// The network and the flows of a run of theirs, with our switches and adapters.
fn scenario(run: &str, seed: u64) -> Scenario {
    let topology = topology(run);
    let flows = lines(run, "flow.txt", 1).into_iter().map(|flow| {
        Flow::write(
            flow[0].parse().unwrap(),
            flow[1].parse().unwrap(),
            flow[4].parse().unwrap(),
        )
    });
    let red = Red {
        min_bytes: 400_000,
        max_bytes: 1_600_000,
        probability: u32::MAX / 5,
        mark: true,
        drop: false,
        at: RedAt::Dequeue,
    };
    let common = Lossless {
        buffer_bytes: 32 << 20,
        xoff: Limit::Dynamic(fabric::config::ALPHA_ONE / 8),
        // Three times the bytes that the link holds.
        headroom_bytes: Some(37_500),
        red: Some(red),
        ..Lossless::default()
    };
    Scenario {
        switches: lossless_switches(&topology, &common),
        hosts: vec![host(); topology.hosts() as usize],
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        flows: flows.collect(),
        seed,
        end: Time::from_ns(1_000_000_000),
        threads: 1,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    }
}

/// Completion times in microseconds by flow: theirs, and ours with this seed.
fn completion_times(
    run: &str,
    seed: u64,
    place: impl Fn(&Topology, &Flow) -> Option<u32>,
) -> [Vec<f64>; 2] {
    let scenario = scenario(run, seed);
    let mut world = World::new(&scenario).unwrap();
    for (number, flow) in (0..).zip(&scenario.flows) {
        if let Some(entropy) = place(&scenario.topology, flow) {
            world.set_entropy(number, entropy);
        }
    }
    world.run();
    let results = world.results();
    let ours = results
        .flows
        .iter()
        .map(|flow| flow.completion_ps().unwrap() as f64 / 1e6)
        .collect();
    let theirs = lines(run, "fct.txt", 0).into_iter().map(|line| {
        let ns: f64 = line[6].parse().unwrap();
        ((host_at(&line[0]), host_at(&line[1])), ns / 1e3)
    });
    let theirs: BTreeMap<_, _> = theirs.collect();
    assert_eq!(theirs.len(), scenario.flows.len());
    [
        scenario
            .flows
            .iter()
            .map(|flow| theirs[&(flow.from, flow.to)])
            .collect(),
        ours,
    ]
}

/// The nearest rank.
fn quantile(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1]
}

#[track_caller]
fn within(ours: f64, theirs: f64, part: f64) {
    assert!(
        (ours / theirs - 1.0).abs() <= part,
        "{ours} us, not {theirs} us within {} %",
        part * 100.0
    );
}

fn anywhere(_: &Topology, _: &Flow) -> Option<u32> {
    None
}

#[test]
fn one_flow_takes_as_long() {
    let [theirs, ours] = completion_times("one-flow", 1, anywhere);
    within(ours[0], theirs[0], 0.001);
}

/// Marks are thrown: each seed gives other times. Theirs is one throw.
#[test]
fn an_incast_takes_as_long() {
    let runs: Vec<_> = (1..=9)
        .map(|seed| completion_times("incast-16", seed, anywhere))
        .collect();
    for part in [0.5, 0.99] {
        let ours: Vec<f64> = runs.iter().map(|[_, ours]| quantile(ours, part)).collect();
        println!(
            "quantile {part}: ours {ours:?}, theirs {}",
            quantile(&runs[0][0], part)
        );
        within(quantile(&ours, 0.5), quantile(&runs[0][0], part), 0.05);
    }
}

/// Their switches' hash (MurmurHash3 of addresses and ports, seeded by the switch's number) of a flow.
fn their_hash(switch: u32, flow: &Flow) -> u32 {
    let address = |host: u32| 0x0b00_0001 + (host / 256) * 0x1_0000 + (host % 256) * 0x100;
    let mut hash = switch;
    for word in [address(flow.from), address(flow.to), 10_000 | 100 << 16] {
        let word = word
            .wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593);
        hash = (hash ^ word)
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    hash ^= 12;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// An entropy with which a flow takes the same links up as it does there. Their switches' ways are in the
/// order of their neighbours' places in memory, which is the opposite of ours: a switch is so large there
/// that each is mapped by itself, below the one before.
fn as_there(topology: &Topology, flow: &Flow, seed: u64) -> Option<u32> {
    const HOSTS: u32 = 128;
    let attachments = topology.attachments();
    let (edge, _) = attachments[flow.from as usize]?;
    let (leaf, _) = attachments[flow.to as usize]?;
    let next_hops = topology.next_hops();
    let next = |switch: u32, port: u16| {
        let ends = topology
            .links()
            .iter()
            .flat_map(|link| [link.ends, [link.ends[1], link.ends[0]]]);
        let far = ends
            .into_iter()
            .find(|[near, _]| near.node == Node::Switch(switch) && near.port == port);
        far.and_then(|[_, far]| {
            if let Node::Switch(next) = far.node {
                Some(next)
            } else {
                None
            }
        })
    };
    (0..u32::MAX).find(|entropy| {
        let mut switch = edge;
        while switch != leaf {
            let ports = next_hops[switch as usize].to(leaf);
            let count = ports.len() as u16;
            let theirs = u32::from(count) - 1 - their_hash(HOSTS + switch, flow) % u32::from(count);
            let ours = fabric::ecmp_select(*entropy, sim::world::salt_of(seed, switch), count);
            if u32::from(ours) != theirs {
                return false;
            }
            let Some(onward) = next(switch, ports[usize::from(ours)]) else {
                return false;
            };
            switch = onward;
        }
        true
    })
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Pearson's correlation coefficient.
fn correlation(one: &[f64], two: &[f64]) -> f64 {
    let (first, second) = (mean(one), mean(two));
    let sum = |left: &[f64], right: &[f64], means: (f64, f64)| -> f64 {
        left.iter()
            .zip(right)
            .map(|(left, right)| (left - means.0) * (right - means.1))
            .sum()
    };
    let squares = sum(one, one, (first, first)) * sum(two, two, (second, second));
    sum(one, two, (first, second)) / squares.sqrt()
}

/// How flows meet on links decides about their times: so flows are put where they are there, and then each
/// takes as long. Marks are thrown: a flow's time is the mean of three throws, theirs is one.
#[test]
fn a_permutation_in_a_fat_tree_takes_as_long_flow_by_flow() {
    let seeds = 1..=3;
    let runs: Vec<[Vec<f64>; 2]> = seeds
        .map(|seed| {
            completion_times("fat-tree-k8", seed, |topology, flow| {
                as_there(topology, flow, seed)
            })
        })
        .collect();
    let theirs = &runs[0][0];
    let ours: Vec<f64> = (0..theirs.len())
        .map(|flow| mean(&[0, 1, 2].map(|run: usize| runs[run][1][flow])))
        .collect();
    let alike = correlation(theirs, &ours);
    let whole = |part: f64| mean(&[0, 1, 2].map(|run: usize| quantile(&runs[run][1], part)));
    println!(
        "mean {} and {}, correlation {alike}",
        mean(&ours),
        mean(theirs)
    );
    println!("median {} and {}", whole(0.5), quantile(theirs, 0.5));
    println!("p99 {} and {}", whole(0.99), quantile(theirs, 0.99));
    assert!(alike > 0.93, "the same flows are slow: {alike}");
    within(mean(&ours), mean(theirs), 0.04);
    within(whole(0.5), quantile(theirs, 0.5), 0.1);
    within(whole(0.99), quantile(theirs, 0.99), 0.05);
}

/// With 20 other hash seeds, half of the flows take as long.
#[test]
fn other_placements_spread_around_it() {
    let run = |seeds: std::ops::RangeInclusive<u64>| {
        seeds
            .map(|seed| completion_times("fat-tree-k8", seed, anywhere))
            .collect::<Vec<_>>()
    };
    let runs = std::thread::scope(|scope| {
        let others = scope.spawn(|| run(11..=20));
        [run(1..=10), others.join().unwrap()].concat()
    });
    let theirs = &runs[0][0];
    let of = |what: fn(&[f64]) -> f64| {
        runs.iter()
            .map(|[_, ours]| what(ours))
            .collect::<Vec<f64>>()
    };
    let (means, medians) = (of(mean), of(|times| quantile(times, 0.5)));
    println!("medians {medians:?}, means {means:?}");
    within(mean(&means), mean(theirs), 0.1);
    within(mean(&medians), quantile(theirs, 0.5), 0.1);
}
