//! Runs in which steady states are skipped, held against the same runs packet by packet.

use fabric::topology::{LinkConfig, Speeds, Topology, fat_tree, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig};
use sim::world::{
    Flow, HostConfig, Lossless, Results, Scenario, ScenarioError, SkipSteady, Transfer, Watch,
    World, lossless_switches,
};

const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span::from_us(1));
const MESSAGE: u32 = 64 << 10;

fn scenario(topology: Topology, flows: Vec<Flow>) -> Scenario {
    with(HostConfig::new(), topology, flows)
}

fn with(host: HostConfig, topology: Topology, flows: Vec<Flow>) -> Scenario {
    let red = fabric::config::Red {
        min_bytes: 400_000,
        max_bytes: 1_600_000,
        probability: u32::MAX / 5,
        mark: true,
        drop: false,
        at: fabric::config::RedAt::Dequeue,
    };
    Scenario {
        switches: lossless_switches(
            &topology,
            &Lossless {
                red: Some(red),
                ..Lossless::default()
            },
        ),
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
        threads: 1,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    }
}

fn transfer(from: u32, to: u32, messages: u64) -> Flow {
    Flow {
        messages,
        depth: 8,
        ..Flow::write(from, to, MESSAGE)
    }
}

/// Four transfers across the core of a fat tree, of two lengths.
fn across_the_core() -> Scenario {
    let topology = fat_tree(
        4,
        Speeds {
            hosts: LINK,
            fabric: LINK,
        },
    )
    .unwrap();
    let flows = (0..4)
        .map(|at| transfer(at, 15 - at, 8_000 + 4_000 * u64::from(at % 2)))
        .collect();
    scenario(topology, flows)
}

fn run(scenario: &Scenario) -> Results {
    let mut world = World::new(scenario).unwrap();
    world.run();
    world.results()
}

fn skipping(scenario: &Scenario) -> Results {
    run(&Scenario {
        skip_steady: Some(SkipSteady::ONE_PERCENT),
        ..scenario.clone()
    })
}

/// The largest difference of a flow's completion time, as a part of the exact one.
fn worst(exact: &Results, skipped: &Results) -> f64 {
    let flows = exact.flows.iter().zip(&skipped.flows);
    let error = flows.map(|(exact, skipped)| {
        assert_eq!(
            (exact.messages, exact.delivered_bytes),
            (skipped.messages, skipped.delivered_bytes)
        );
        let [exact, skipped] = [exact, skipped].map(|flow| flow.completion_ps().unwrap() as f64);
        (skipped - exact).abs() / exact
    });
    error.fold(0.0, f64::max)
}

/// Counted over the whole run, whatever part of it was simulated.
fn marked_and_sent(results: &Results) -> [f64; 2] {
    let queues = || {
        results
            .switches
            .iter()
            .flat_map(|switch| &switch.ports)
            .flat_map(|port| &port.queues)
    };
    let sum = |count: fn(&fabric::QueueCounters) -> u64| queues().map(count).sum::<u64>() as f64;
    [
        sum(|queue| queue.marked_packets),
        sum(|queue| queue.sent_bytes),
    ]
}

#[test]
fn completion_times_are_within_one_percent_of_an_exact_run() {
    for (name, scenario, factor) in [
        ("two flows, one of them late", late_flow(), 4),
        (
            "incast",
            scenario(
                star(5, LINK).unwrap(),
                (1..5).map(|from| transfer(from, 0, 20_000)).collect(),
            ),
            4,
        ),
        ("fat tree", across_the_core(), 4),
        ("DCQCN", dcqcn(), 4),
    ] {
        let (exact, skipped) = (run(&scenario), skipping(&scenario));
        let error = worst(&exact, &skipped);
        println!(
            "{name}: {error} at most, {} skips, {} of {} hops",
            skipped.skips.len(),
            skipped.hops,
            exact.hops
        );
        assert!(error < 0.01, "{name}: {error}");
        assert!(
            skipped.hops * factor <= exact.hops,
            "{name}: {} of {} hops",
            skipped.hops,
            exact.hops
        );
        let [exact, skipped] = [&exact, &skipped].map(marked_and_sent);
        assert!(
            (skipped[1] / exact[1] - 1.0).abs() < 0.01,
            "{name}: {skipped:?} bytes, not {exact:?}"
        );
    }
}

/// Alone, then beside another flow, then alone again.
fn late_flow() -> Scenario {
    let flows = vec![
        transfer(0, 2, 10_000),
        Flow {
            start: Time::from_ns(20_000_000),
            ..transfer(1, 2, 2_000)
        },
    ];
    scenario(star(3, LINK).unwrap(), flows)
}

/// Two flows that share a port of 10 Gb/s for four seconds, and one of them alone for as long.
fn dcqcn() -> Scenario {
    let config = DcqcnConfig {
        line_rate_bps: 10_000_000_000,
        ..DcqcnConfig::default()
    };
    let host = HostConfig {
        congestion: CongestionConfig::Dcqcn(config),
        ..HostConfig::new()
    };
    let link = LinkConfig::new(Rate::from_gbps(10), Span::from_us(1));
    with(
        host,
        star(3, link).unwrap(),
        vec![transfer(0, 2, 120_000), transfer(1, 2, 40_000)],
    )
}

#[test]
fn skips_are_reported_and_do_not_overlap() {
    let results = skipping(&late_flow());
    assert!(!results.skips.is_empty());
    for pair in results.skips.windows(2) {
        assert!(
            pair[0].at + pair[0].span < pair[1].at,
            "they do not overlap: {pair:?}"
        );
    }
    let last = results.skips.last().unwrap();
    assert!(last.at + last.span < results.end);
    let late = &results.flows[1];
    assert!(
        (19_999..20_001).contains(&(late.started.0 / 1_000_000)),
        "starts when it should: {:?}",
        late.started
    );
}

#[test]
fn a_run_without_end_ends_at_its_time() {
    let endless = Flow {
        messages: u64::MAX,
        ..transfer(0, 1, 0)
    };
    let end = Time::from_ns(1_000_000_000);
    let scenario = Scenario {
        end,
        ..scenario(star(2, LINK).unwrap(), vec![endless])
    };
    let results = skipping(&scenario);
    assert_eq!(results.end, end);
    // 100 Gb/s less the headers, for a second.
    let gbytes = results.flows[0].delivered_bytes as f64 / 1e9;
    assert!((12.0..12.5).contains(&gbytes), "{gbytes} GB");
    assert!(results.hops < 1_000_000, "{} hops", results.hops);
}

#[test]
fn threads_and_pieces_leave_no_trace() {
    let one = across_the_core();
    let all = skipping(&one);
    assert!(!all.skips.is_empty());
    for threads in [2, 3] {
        assert!(
            skipping(&Scenario {
                threads,
                ..one.clone()
            }) == all,
            "{threads} threads differ"
        );
    }
    let mut piecewise = World::new(&Scenario {
        skip_steady: Some(SkipSteady::ONE_PERCENT),
        ..one.clone()
    })
    .unwrap();
    while !piecewise.run_until(piecewise.now() + Span::from_us(777)) {}
    assert!(piecewise.results() == all, "pieces differ");
}

#[test]
fn links_that_go_down_are_waited_for() {
    let mut scenario = late_flow();
    let (down, up) = (Time::from_ns(30_000_000), Time::from_ns(30_100_000));
    scenario.topology.take_down(0, down, up);
    let (exact, skipped) = (run(&scenario), skipping(&scenario));
    assert!(worst(&exact, &skipped) < 0.01);
    assert!(
        skipped.skips.iter().all(|skip| skip.at > up),
        "{:?}",
        skipped.skips
    );
}

#[test]
fn datagrams_are_not_skipped() {
    let datagrams = Flow {
        operation: Transfer::Datagram,
        messages: 20_000,
        ..Flow::write(0, 1, 4096)
    };
    let scenario = scenario(star(2, LINK).unwrap(), vec![datagrams]);
    assert!(
        skipping(&scenario) == run(&scenario),
        "datagrams are not skipped"
    );
}

#[test]
fn packets_that_are_watched_are_not_skipped() {
    let watch = Watch {
        hops: true,
        ..Watch::default()
    };
    let scenario = Scenario {
        watch,
        skip_steady: Some(SkipSteady::ONE_PERCENT),
        ..across_the_core()
    };
    assert_eq!(
        World::new(&scenario).err(),
        Some(ScenarioError::SkippedAndWatched)
    );
}
