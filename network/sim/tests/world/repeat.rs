//! The same scenario gives the same results: again, and on several threads.

use fabric::topology::{LinkConfig, Speeds, fat_tree};
use fabric::{Drop, Rate, Span, Spread, Time};
use proptest::prelude::*;
use rnic::{CongestionConfig, DcqcnConfig, HpccConfig, Nanos};
use sim::world::{
    Flow, FlowResult, HostConfig, Lossless, Results, Scenario, Traced, Transfer, Watch, World,
    lossless_switches,
};

fn scenario(seed: u64, spread: Spread, loss: u32, threads: u32) -> Scenario {
    let link = LinkConfig {
        loss,
        ..LinkConfig::new(Rate::from_gbps(100), Span::from_ns(500))
    };
    let topology = fat_tree(
        4,
        Speeds {
            hosts: link,
            fabric: link,
        },
    )
    .unwrap();
    let congestion = CongestionConfig::Dcqcn(DcqcnConfig {
        line_rate_bps: 100_000_000_000,
        ..DcqcnConfig::default()
    });
    let host = HostConfig {
        out_of_order: spread != Spread::Hash,
        timeout: 8,
        congestion,
        ..HostConfig::new()
    };
    let operations = [Transfer::Write, Transfer::Send, Transfer::Read];
    let flow = |from: u32| Flow {
        operation: operations[from as usize % 3],
        messages: 8,
        depth: 3,
        start: Time::from_ns(u64::from(from) * 777),
        ..Flow::write(from, (from * 7 + 3) % 16, 50_000)
    };
    let common = Lossless {
        buffer_bytes: 1 << 20,
        red: Some(fabric::config::Red {
            min_bytes: 10_000,
            max_bytes: 100_000,
            probability: u32::MAX / 5,
            mark: true,
            drop: false,
            at: fabric::config::RedAt::Dequeue,
        }),
        ..Lossless::default()
    };
    Scenario {
        switches: lossless_switches(&topology, &common),
        hosts: vec![host; 16],
        topology,
        spread,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        flows: (0..16)
            .map(flow)
            .filter(|flow| flow.from != flow.to)
            .collect(),
        seed,
        end: Time::from_ns(100_000_000),
        threads,
        watch: Watch {
            sample_every: Some(Span::from_us(20)),
            captures: vec![0, 20],
            captured_max: 1000,
            hops: true,
            traced: Some(Traced { flow: 0, psn: None }),
        },
        skip_steady: None,
        collectives: None,
    }
}

fn run(scenario: &Scenario) -> Results {
    let mut world = World::new(scenario).unwrap();
    world.run();
    world.results()
}

#[test]
fn threads_and_pauses_of_the_clock_leave_no_trace() {
    for (spread, loss) in [
        (Spread::Hash, 0),
        (Spread::Random, 0),
        (Spread::Adaptive, u32::MAX / 1000),
    ] {
        let one = run(&scenario(1, spread, loss, 1));
        assert!(
            one.flows.iter().all(|flow| flow.finished != Time::NEVER),
            "everything is done"
        );
        for threads in [2, 3, 8] {
            assert_eq!(
                run(&scenario(1, spread, loss, threads)),
                one,
                "{threads} threads"
            );
        }
        let mut piecewise = World::new(&scenario(1, spread, loss, 2)).unwrap();
        let mut at = 0;
        while !piecewise.run_until(Time::from_ns(at)) {
            at += 3_333;
        }
        assert_eq!(piecewise.results(), one);
        assert_ne!(
            run(&scenario(2, spread, loss, 1)),
            one,
            "another seed is another run"
        );
    }
}

/// A link that is watched has all nodes driven together, in the order of time.
#[test]
fn nodes_that_take_turns_leave_no_trace() {
    for (spread, loss) in [(Spread::Hash, 0), (Spread::Adaptive, u32::MAX / 1000)] {
        for seed in 1..4 {
            let run = |captures: &[u32], threads| {
                let mut scenario = scenario(seed, spread, loss, threads);
                scenario.watch.captures = captures.to_vec();
                scenario.watch.captured_max = 0;
                run(&scenario)
            };
            let together = run(&[0], 1);
            assert!(
                together
                    .flows
                    .iter()
                    .all(|flow| flow.finished != Time::NEVER),
                "everything is done"
            );
            for threads in [1, 2, 3] {
                assert_eq!(
                    run(&[], threads),
                    together,
                    "{threads} threads, seed {seed}"
                );
            }
        }
    }
}

/// With more than a thousand ports, lines of memory are loaded before they are needed.
#[test]
fn loading_memory_in_advance_leaves_no_trace() {
    let run = |captures: &[u32]| {
        let mut scenario = scenario(1, Spread::Hash, 0, 1);
        let link = LinkConfig::new(Rate::from_gbps(100), Span::from_ns(500));
        scenario.topology = fat_tree(
            10,
            Speeds {
                hosts: link,
                fabric: link,
            },
        )
        .unwrap();
        scenario.switches = lossless_switches(&scenario.topology, &Lossless::default());
        scenario.hosts = vec![scenario.hosts[0].clone(); 250];
        let flows = scenario.flows.iter().cycle().zip(0..250);
        let flows = flows.map(|(flow, from)| Flow {
            from,
            to: (from * 7 + 3) % 250,
            ..*flow
        });
        scenario.flows = flows.filter(|flow| flow.from != flow.to).collect();
        scenario.watch = Watch {
            captures: captures.to_vec(),
            ..Watch::default()
        };
        run(&scenario)
    };
    let together = run(&[0]);
    assert!(
        together
            .flows
            .iter()
            .all(|flow| flow.finished != Time::NEVER),
        "everything is done"
    );
    assert_eq!(run(&[]), together);
}

#[test]
fn watching_hops_does_not_change_results() {
    let watched = scenario(1, Spread::Random, u32::MAX / 1000, 1);
    let plain = Scenario {
        watch: Watch::default(),
        ..watched.clone()
    };
    let [watched, plain] = [watched, plain].map(|scenario| run(&scenario));
    assert!(watched.flows.iter().all(|flow| !flow.hops.is_empty()));
    let forget = |flow: &FlowResult| FlowResult {
        hops: Vec::new(),
        ..flow.clone()
    };
    assert_eq!(
        watched.flows.iter().map(forget).collect::<Vec<_>>(),
        plain.flows
    );
    assert_eq!(
        (watched.switches, watched.hosts),
        (plain.switches, plain.hosts)
    );
}

#[test]
fn telemetry_and_rerouting_are_equal_on_any_number_of_threads() {
    let told = |threads| {
        let mut scenario = scenario(1, Spread::Hash, 0, threads);
        let hpcc = HpccConfig {
            base_rtt_ns: Nanos(8_000),
            ..HpccConfig::default()
        };
        scenario
            .hosts
            .iter_mut()
            .for_each(|host| host.congestion = CongestionConfig::Hpcc(hpcc.clone()));
        // From edge to aggregation.
        scenario
            .topology
            .take_down(16, Time::from_ns(40_000), Time::from_ns(120_000));
        scenario.reaction = Some(Span::from_us(20));
        run(&scenario)
    };
    let one = told(1);
    assert!(
        one.flows.iter().all(|flow| flow.finished != Time::NEVER),
        "everything is done"
    );
    let slowed = one
        .flows
        .iter()
        .filter(|flow| flow.rate_bps.is_some_and(|bps| bps < 60_000_000_000));
    assert!(slowed.count() > 2, "senders react");
    assert!(one.damaged > 0, "the link is in use");
    for threads in [2, 3] {
        assert_eq!(told(threads), one, "{threads} threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every packet that was sent was received, dropped with a counter, or damaged with a counter.
    #[test]
    fn packets_are_conserved(seed in any::<u64>(), loss in 0..u32::MAX / 200, lossy in any::<bool>()) {
        let mut scenario = scenario(seed, Spread::Random, loss, 1);
        if lossy {
            let common = Lossless { class: None, buffer_bytes: 60_000, ..Lossless::default() };
            scenario.switches = lossless_switches(&scenario.topology, &common);
        }
        let results = run(&scenario);
        let sum = |counter: fn(&rnic::PortCounters) -> u64| -> u64 {
            results.hosts.iter().map(|host| counter(&host.device)).sum()
        };
        let dropped: u64 = Drop::ALL.into_iter().map(|why| results.drops(why)).sum();
        let lost = dropped + results.damaged;
        let received = sum(|device| device.received_packets);
        prop_assert_eq!(sum(|device| device.sent_packets), received + lost + u64::from(results.left));
        if !lossy {
            prop_assert_eq!(dropped, 0);
        }
        for flow in &results.flows {
            prop_assert!(flow.failed || flow.bytes == 8 * 50_000);
        }
    }
}
