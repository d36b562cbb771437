//! A small incast that tests of records run: three hosts write to a fourth.

use fabric::config::{Limit, Red, RedAt};
use fabric::topology::{LinkConfig, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::CongestionConfig;
use sim::world::{Flow, HostConfig, Lossless, Results, Scenario, Watch, World, lossless_switches};

pub(crate) const RECEIVER: u32 = 3;
/// Messages of each flow.
pub(crate) const MESSAGES: u64 = 20;

/// Runs it with another flow behind, where there is one. `loss` is that of [`LinkConfig`].
pub(crate) fn three_to_one(
    common: &Lossless,
    loss: u32,
    watch: Watch,
    more: Option<Flow>,
) -> Results {
    let link = LinkConfig {
        loss,
        ..LinkConfig::new(Rate::from_gbps(100), Span::from_ns(500))
    };
    let topology = star(4, link).unwrap();
    let host = HostConfig {
        congestion: CongestionConfig::Off,
        timeout: 8,
        ..HostConfig::new()
    };
    let flow = |from| Flow {
        messages: MESSAGES,
        depth: 4,
        ..Flow::write(from, RECEIVER, 50_000)
    };
    let scenario = Scenario {
        switches: lossless_switches(&topology, common),
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        hosts: vec![host; 4],
        flows: (0..3).map(flow).chain(more).collect(),
        seed: 1,
        end: Time::from_ns(50_000_000),
        threads: 1,
        watch,
        skip_steady: None,
        collectives: None,
    };
    let mut world = World::new(&scenario).unwrap();
    world.run();
    world.results()
}

/// Queues mark early, and stop senders late.
pub(crate) fn marking() -> Lossless {
    Lossless {
        xoff: Limit::Static(60_000),
        red: Some(Red {
            min_bytes: 10_000,
            max_bytes: 200_000,
            probability: u32::MAX / 5,
            mark: true,
            drop: false,
            at: RedAt::Dequeue,
        }),
        ..Lossless::default()
    }
}
