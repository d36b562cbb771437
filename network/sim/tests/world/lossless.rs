//! Priority flow control: nothing is lost with the headroom of the formula, circles of waits are found, and
//! the effect of congestion control.

use fabric::config::{ALPHA_ONE, Limit, Red, RedAt};
use fabric::topology::{LinkConfig, Node, Speeds, Topology, leaf_spine, star};
use fabric::{Drop, Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig, Mtu};
use sim::random::RunRng;
use sim::world::{
    Flow, HostConfig, Lossless, Results, Scenario, Transfer, Watch, World, lossless_switches,
};

fn run(scenario: &Scenario) -> Results {
    let mut world = World::new(scenario).unwrap();
    world.run();
    world.results()
}

fn scenario(topology: Topology, common: &Lossless, host: HostConfig, flows: Vec<Flow>) -> Scenario {
    Scenario {
        switches: lossless_switches(&topology, common),
        hosts: vec![host; topology.hosts() as usize],
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        flows,
        seed: 1,
        end: Time::from_ns(100_000_000),
        threads: 1,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    }
}

/// A random network: leaves and spines or one switch, rates, lengths, MTU, thresholds, spreading; senders
/// that only pauses hold back.
fn any_network(seed: u64, headroom_part: u64) -> Scenario {
    let mut rng = RunRng::new(seed);
    let mut link = |rates: &[u64]| {
        let rate = Rate::from_gbps(rng.pick(rates));
        LinkConfig::new(rate, Span::from_ns(rng.below(3_000)))
    };
    let speeds = Speeds {
        hosts: link(&[10, 25, 40, 100, 200]),
        fabric: link(&[25, 40, 100, 400]),
    };
    let topology = match rng.below(3) {
        0 => star(2 + rng.below(7) as u32, speeds.hosts).unwrap(),
        _ => leaf_spine(
            2 + rng.below(2) as u32,
            1 + rng.below(3) as u32,
            1 + rng.below(4) as u32,
            speeds,
        )
        .unwrap(),
    };
    let hosts = topology.hosts();
    let target = rng.below(u64::from(hosts)) as u32;
    let flows = (0..hosts).filter(|host| *host != target).map(|from| Flow {
        start: Time::from_ns(rng.below(2_000)),
        ..Flow::write(from, target, 20_000 + rng.below(100_000) as u32)
    });
    let flows = flows.collect();
    let mut common = Lossless {
        buffer_bytes: 64 << 20,
        xoff: match rng.below(2) {
            0 => Limit::Static(rng.below(60_000) as u32),
            _ => Limit::Dynamic(ALPHA_ONE >> rng.below(12)),
        },
        ..Lossless::default()
    };
    let mtu = rng.pick(&[Mtu::B256, Mtu::B1024, Mtu::B4096]);
    let host = HostConfig {
        mtu,
        window_bytes: 1 << 30,
        out_of_order: true,
        acknowledgements: HostConfig::new().data,
        ..HostConfig::new()
    };
    if headroom_part < 100 {
        common.xoff = Limit::Static(10_000);
    }
    let mut scenario = scenario(topology, &common, host, flows);
    scenario.spread = rng.pick(&[
        Spread::Hash,
        Spread::Random,
        Spread::RoundRobin,
        Spread::Adaptive,
    ]);
    scenario.seed = seed;
    for profile in scenario
        .switches
        .iter_mut()
        .flat_map(|switch| &mut switch.profiles)
    {
        let headroom = &mut profile.groups[3].headroom_bytes;
        *headroom = (u64::from(*headroom) * headroom_part / 100).max(1) as u32;
    }
    scenario
}

#[test]
fn a_thousand_networks_lose_nothing() {
    let mut pauses = 0;
    for seed in 0..1000 {
        let results = run(&any_network(seed, 100));
        let dropped: u64 = Drop::ALL.into_iter().map(|why| results.drops(why)).sum();
        assert_eq!(dropped, 0, "seed {seed}");
        assert!(
            results
                .flows
                .iter()
                .all(|flow| flow.finished != Time::NEVER),
            "seed {seed}: all arrive"
        );
        pauses += u64::from(results.pauses() > 0);
    }
    assert!(pauses > 300, "only {pauses} of the networks were congested");
}

#[test]
fn with_headroom_too_small_they_do() {
    let losing = (0..100)
        .filter(|seed| run(&any_network(*seed, 10)).drops(Drop::Ingress) > 0)
        .count();
    assert!(losing > 20, "{losing} of 100");
}

/// Five switches in a ring, and from each a flow to the second next: every link waits for the next one.
fn ring() -> Scenario {
    let link = |gbps| LinkConfig::new(Rate::from_gbps(gbps), Span::from_ns(500));
    let mut topology = Topology::default();
    let switches = [(); 5].map(|()| Node::Switch(topology.add_switch()));
    for (index, switch) in switches.into_iter().enumerate() {
        let host = Node::Host(topology.add_host());
        topology.connect(host, switch, link(100)).unwrap();
        topology
            .connect(switch, switches[(index + 1) % 5], link(40))
            .unwrap();
    }
    let flow = |from| Flow {
        messages: 100,
        depth: 4,
        ..Flow::write(from, (from + 2) % 5, 1 << 20)
    };
    let common = Lossless {
        buffer_bytes: 4 << 20,
        xoff: Limit::Static(40_000),
        ..Lossless::default()
    };
    let host = HostConfig {
        window_bytes: 1 << 30,
        timeout: 0,
        ..HostConfig::new()
    };
    scenario(topology, &common, host, (0..5).map(flow).collect())
}

#[test]
fn a_ring_of_waits_is_found_and_named() {
    let mut scenario = ring();
    scenario.end = Time::from_ns(20_000_000);
    let results = run(&scenario);
    assert_eq!(results.deadlocks.len(), 1, "{:?}", results.deadlocks);
    let deadlock = &results.deadlocks[0];
    assert_eq!(deadlock.class, 3);
    let mut switches: Vec<u32> = deadlock.circle.iter().map(|(switch, _)| *switch).collect();
    switches.sort_unstable();
    assert_eq!(switches, [0, 1, 2, 3, 4]);
    assert!(
        results
            .flows
            .iter()
            .all(|flow| flow.finished == Time::NEVER),
        "nobody gets on"
    );
    let dropped: u64 = Drop::ALL.into_iter().map(|why| results.drops(why)).sum();
    assert_eq!(dropped, 0);
}

#[test]
fn the_watchdog_breaks_the_ring() {
    let mut scenario = ring();
    // 1 ms, and messages that get through between two storms.
    scenario
        .hosts
        .iter_mut()
        .for_each(|host| (host.timeout, host.window_bytes) = (8, 256 << 10));
    scenario
        .flows
        .iter_mut()
        .for_each(|flow| (flow.message_bytes, flow.depth) = (16 << 10, 64));
    let mut world = World::new(&scenario).unwrap();
    world.set_watchdog(Span::from_us(500), Span::from_us(500));
    world.run();
    let results = world.results();
    assert!(results.drops(Drop::Storm) > 0, "it drops what is stuck");
    let got_on = results
        .flows
        .iter()
        .filter(|flow| flow.messages > 0)
        .count();
    assert_eq!(
        got_on,
        5,
        "{:?}",
        results
            .flows
            .iter()
            .map(|flow| flow.messages)
            .collect::<Vec<_>>()
    );
}

/// Sixteen senders into one host, and one that only shares their leaf's uplink.
fn incast(congestion: CongestionConfig) -> Results {
    let link = LinkConfig::new(Rate::from_gbps(40), Span::from_us(1));
    let topology = leaf_spine(
        2,
        1,
        17,
        Speeds {
            hosts: link,
            fabric: LinkConfig {
                rate: Rate::from_gbps(400),
                ..link
            },
        },
    )
    .unwrap();
    let stream = |from, to| Flow {
        messages: u64::MAX,
        depth: 2,
        ..Flow::write(from, to, 1 << 20)
    };
    let mut flows: Vec<Flow> = (0..16).map(|from| stream(from, 17)).collect();
    flows.push(Flow {
        operation: Transfer::Write,
        ..stream(16, 18)
    });
    let red = Red {
        min_bytes: 5_000,
        max_bytes: 200_000,
        probability: u32::MAX / 100,
        mark: true,
        drop: false,
        at: RedAt::Dequeue,
    };
    let common = Lossless {
        buffer_bytes: 12 << 20,
        red: Some(red),
        ..Lossless::default()
    };
    let host = HostConfig {
        mtu: Mtu::B1024,
        congestion,
        window_bytes: 1 << 30,
        ..HostConfig::new()
    };
    let mut scenario = scenario(topology, &common, host, flows);
    scenario.end = Time::from_ns(100_000_000);
    run(&scenario)
}

#[test]
fn without_congestion_control_pauses_slow_a_victim_flow() {
    let storm = incast(CongestionConfig::Off);
    let calm = incast(CongestionConfig::Dcqcn(DcqcnConfig::default()));
    let gbps = |results: &Results, flow: usize| results.flows[flow].bytes as f64 * 8.0 / 1e8;
    assert!(
        storm.pauses() > 20 * calm.pauses().max(1),
        "{} and {}",
        storm.pauses(),
        calm.pauses()
    );
    let victim = [&storm, &calm].map(|results| gbps(results, 16));
    println!(
        "the victim has {victim:?} of 40 Gb/s, {} and {} pauses",
        storm.pauses(),
        calm.pauses()
    );
    assert!(
        victim[0] < 5.0 && victim[1] > 5.0 * victim[0],
        "the victim has {victim:?} of 40 Gb/s"
    );
    assert!(calm.marks() > 0);
    // DCQCN's paper: the link is used, and shares are fair.
    let rates: Vec<f64> = (0..16).map(|flow| gbps(&calm, flow)).collect();
    let sum: f64 = rates.iter().sum();
    let fairness = sum * sum / (16.0 * rates.iter().map(|rate| rate * rate).sum::<f64>());
    println!(
        "DCQCN: {sum} Gb/s, fairness {fairness}, {} pauses, {} marks",
        calm.pauses(),
        calm.marks()
    );
    assert!(sum > 0.85 * 40.0, "{sum} Gb/s of 40");
    assert!(fairness > 0.9, "Jain's index {fairness}: {rates:?}");
    assert_eq!(
        [&storm, &calm].map(|results| results.drops(Drop::Ingress)),
        [0, 0]
    );
}
