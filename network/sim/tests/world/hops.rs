//! The waiting times of flows, compared with the counters of the ports themselves.

use fabric::config::{Limit, Red, RedAt};
use fabric::topology::{LinkConfig, star};
use fabric::{Drop, FRAME_OVERHEAD_BYTES, Rate, Span, Spread, Time};
use rnic::CongestionConfig;
use sim::world::{
    Flow, FlowHop, HostConfig, Lossless, Results, Scenario, Watch, World, lossless_switches,
};

const RECEIVER: u32 = 3;

/// Three hosts write to a fourth.
fn incast(common: &Lossless, loss: u32) -> Results {
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
        messages: 20,
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
        flows: (0..3).map(flow).collect(),
        seed: 1,
        end: Time::from_ns(50_000_000),
        threads: 1,
        watch: Watch {
            sample_every: Some(Span::from_ns(100)),
            hops: true,
            ..Watch::default()
        },
        skip_steady: None,
        collectives: None,
    };
    let mut world = World::new(&scenario).unwrap();
    world.run();
    world.results()
}

/// The hop of a flow that leads to the receiver.
fn last(results: &Results, flow: usize) -> FlowHop {
    *results.flows[flow].hops.last().unwrap()
}

#[test]
fn waits_marks_and_pauses_add_up_to_what_ports_count() {
    let red = Red {
        min_bytes: 10_000,
        max_bytes: 200_000,
        probability: u32::MAX / 5,
        mark: true,
        drop: false,
        at: RedAt::Dequeue,
    };
    let common = Lossless {
        xoff: Limit::Static(60_000),
        red: Some(red),
        ..Lossless::default()
    };
    let results = incast(&common, 0);
    let port = &results.switches[0].ports[RECEIVER as usize].queues[3];
    let hops: Vec<FlowHop> = (0..3).map(|flow| last(&results, flow)).collect();
    let sum = |of: fn(&FlowHop) -> u64| hops.iter().map(of).sum::<u64>();
    assert_eq!(sum(|hop| hop.packets), port.sent_packets);
    assert_eq!(
        (sum(|hop| hop.bytes), sum(|hop| hop.marked)),
        (port.sent_bytes, port.marked_packets)
    );
    assert!(port.marked_packets > 10 && hops.iter().all(|hop| hop.crossed == 1 && hop.lost == 0));
    // Little's law: bytes times their waits are the queue's area.
    let frame = port.sent_bytes as f64 / port.sent_packets as f64;
    let waits = sum(|hop| hop.waited_ps) as f64 / 1e6 * frame;
    let samples = results
        .samples
        .iter()
        .filter(|at| (at.link, at.direction) == (last(&results, 0).link, 1));
    let area: f64 = samples
        .map(|sample| f64::from(sample.queued_bytes) * 0.1)
        .sum();
    assert!(
        (waits / area - 1.0).abs() < 0.03,
        "{waits} and {area} bytes x us"
    );
    // The longest wait is the longest queue, less the frame that is leaving.
    let longest = hops.iter().map(|hop| hop.waited_max_ps).max().unwrap() as f64 / 1e6;
    let drained =
        f64::from(port.peak_bytes) * (1.0 + f64::from(FRAME_OVERHEAD_BYTES) / frame) * 8.0 / 100e3;
    assert!(
        (longest / drained - 1.0).abs() < 0.1,
        "{longest} us, and {drained} by the longest queue"
    );
    for (host, flow) in results.flows.iter().enumerate().take(3) {
        let sender = flow.hops[0];
        let paused = results.hosts[host].queues[3].paused_ps;
        assert!(sender.crossed == 0 && sender.waited_ps == 0);
        assert!(
            paused > 0 && sender.paused_ps <= paused && sender.paused_ps * 10 > paused * 8,
            "{sender:?}"
        );
    }
}

#[test]
fn lost_packets_are_counted_at_one_hop() {
    let lossy = Lossless {
        class: None,
        buffer_bytes: 60_000,
        ..Lossless::default()
    };
    for (common, loss) in [(&Lossless::default(), u32::MAX / 100), (&lossy, 0)] {
        let results = incast(common, loss);
        let mut lost = 0;
        for flow in &results.flows {
            let [sent, behind] = flow.hops[..] else {
                panic!("two ports: {:?}", flow.hops)
            };
            assert_eq!(behind.packets, sent.packets - sent.lost);
            assert_eq!(flow.order.packets, behind.packets - behind.lost);
            lost += sent.lost + behind.lost;
        }
        let dropped: u64 = Drop::ALL.into_iter().map(|why| results.drops(why)).sum();
        assert!(
            lost > 0 && lost <= dropped + results.damaged,
            "acknowledgements are lost as well"
        );
        assert_eq!(results.left, 0);
    }
}
