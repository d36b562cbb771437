//! The cost of an adapter's PCIe link.

use fabric::topology::{LinkConfig, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::CongestionConfig;
use sim::world::{
    Flow, HostConfig, Lossless, PcieConfig, Results, Scenario, Transfer, Watch, World,
};

const MESSAGE_BYTES: u32 = 64 << 10;

fn pcie(bps: u64) -> PcieConfig {
    PcieConfig {
        rate: Rate::from_bps(bps),
        answer_rate: Rate::from_bps(bps),
        read_latency: Span::ZERO,
        write_latency: Span::ZERO,
        receive_buffer_bytes: 512 << 10,
        doorbell: Span::ZERO,
    }
}

fn run(links: [Option<PcieConfig>; 2], flow: Flow, change: impl Fn(&mut HostConfig)) -> Results {
    let link = LinkConfig::new(Rate::from_gbps(100), Span::from_ns(100));
    let topology = star(2, link).unwrap();
    let host = |pcie: Option<PcieConfig>| {
        let mut host = HostConfig {
            pcie,
            congestion: CongestionConfig::Off,
            ..HostConfig::new()
        };
        change(&mut host);
        host
    };
    let scenario = Scenario {
        switches: sim::world::lossless_switches(&topology, &Lossless::default()),
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        hosts: links.map(host).into(),
        flows: vec![flow],
        seed: 1,
        end: Time::from_ns(10_000_000),
        threads: 1,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    };
    let mut world = World::new(&scenario).unwrap();
    world.run();
    world.results()
}

fn stream(operation: Transfer) -> Flow {
    Flow {
        operation,
        messages: u64::MAX,
        depth: 16,
        ..Flow::write(0, 1, MESSAGE_BYTES)
    }
}

fn gbps(results: &Results) -> f64 {
    results.flows[0].goodput_bps(MESSAGE_BYTES).unwrap() / 1e9
}

#[test]
fn a_narrow_pcie_link_is_the_ceiling_at_either_end() {
    for operation in [Transfer::Write, Transfer::Read, Transfer::Send] {
        for links in [
            [Some(pcie(14_628_000_000)), None],
            [None, Some(pcie(14_628_000_000))],
        ] {
            let results = run(links, stream(operation), |_| ());
            let rate = gbps(&results);
            assert!(
                (14.4..=14.63).contains(&rate),
                "{operation:?} {links:?}: {rate}"
            );
            let dropped: u64 = results.hosts.iter().map(|host| host.dropped).sum();
            assert_eq!(
                dropped, 0,
                "the adapter stops the switch before its buffer is full"
            );
        }
    }
    let many = Flow {
        depth: 256,
        ..stream(Transfer::Write)
    };
    let results = run([None, Some(pcie(14_628_000_000))], many, |host| {
        host.window_bytes = 1 << 30
    });
    assert_eq!(results.hosts[1].dropped, 0);
    assert!(results.hosts[1].pauses_sent > 0 && results.hosts[0].pauses_received > 0);
    assert!(
        results.hosts[1].pcie_busy_ps * 100 > results.end.0 * 98,
        "and is what limits"
    );
}

#[test]
fn without_pauses_a_slow_pcie_link_drops() {
    let links = [None, Some(pcie(14_628_000_000))];
    let results = run(links, stream(Transfer::Write), |host| {
        (host.pfc.send, host.timeout) = (0, 5)
    });
    assert!(results.hosts[1].dropped > 0);
    let device = &results.hosts[1].device;
    assert!(
        device.sent_sequence_naks > 0,
        "what is lost is asked for again"
    );
}

#[test]
fn latencies_add_up() {
    let flow = Flow {
        messages: 100,
        ..Flow::write(0, 1, 8)
    };
    let fast = run([None, None], flow, |_| ());
    let link = PcieConfig {
        doorbell: Span::from_ns(300),
        read_latency: Span::from_ns(600),
        write_latency: Span::from_ns(250),
        ..pcie(126_000_000_000)
    };
    let slow = run([Some(link), None], flow, |_| ());
    let mean = |results: &Results| {
        let latency = &results.flows[0].latency;
        latency.sum_ns / latency.count
    };
    assert!(
        (mean(&slow) - mean(&fast)).abs_diff(300 + 600 + 250) <= 3,
        "{} {}",
        mean(&slow),
        mean(&fast)
    );
}
