//! Packet spraying between two hosts on 100 Gb/s Ethernet: `ib_write_bw` with 64 KiB WRITEs, 128 posted, MTU
//! 4096, one queue pair, between them a router that sends data packets by chance over several paths.
//!
//! Goodputs are those that were measured on ConnectX-6 Dx (see `docs/fabric.md`). Two constants were not
//! published and are fitted: the time that the adapter takes to recover from a sequence error (500 us, which
//! is also how long HPCC's model of the adapter waits between NAKs) and how many packets it has
//! unacknowledged at most.

use fabric::topology::{Extra, LinkConfig, Node, Topology};
use fabric::{Rate, Span, Spread, Time};
use sim::world::{Flow, FlowResult, HostConfig, Lossless, Results, Scenario, Transfer, Watch, World};

const MESSAGE_BYTES: u32 = 64 << 10;

/// 4,096 bytes and 98 of headers, preamble and gap at 100 Gb/s.
const PACKET_PS: u64 = (4096 + 98) * 80;

/// Round trip without extra delay: what links and the frames on them take, and what packets wait: in the last
/// router, where paths meet, and for the acknowledgement that three more share.
const RTT_PS: u64 = 8_000_000;

/// The last part of it, in packets.
const WAITS: u64 = 3;

/// Fitted: packets that the adapter has unacknowledged at most.
const WINDOW_PACKETS: u32 = 381;

struct Router {
    /// Extra delay of each path, in packets of the line.
    paths: Vec<u64>,
    out_of_order: bool,
    spray: bool,
    recovery: Span,
    milliseconds: u64,
}

impl Router {
    fn run(&self) -> Results {
        // Host, router, router, host: three links each way.
        let link = LinkConfig::new(Rate::from_gbps(100), Span((RTT_PS - (3 + WAITS) * PACKET_PS) / 6));
        let mut topology = Topology::default();
        let hosts = [(); 2].map(|()| Node::Host(topology.add_host()));
        let routers = [(); 2].map(|()| Node::Switch(topology.add_switch()));
        topology.connect(hosts[0], routers[0], link).unwrap();
        topology.connect(hosts[1], routers[1], link).unwrap();
        for packets in &self.paths {
            topology.connect(routers[0], routers[1], link).unwrap();
            // Only what goes to the receiver is delayed.
            topology.slow_down(topology.links().len() as u32 - 1, 0, Extra::of(Span(packets * PACKET_PS)));
        }
        let host = HostConfig {
            out_of_order: self.out_of_order,
            window_bytes: WINDOW_PACKETS * 4096,
            recovery: self.recovery,
            ..HostConfig::new()
        };
        let flow = Flow {
            message_bytes: MESSAGE_BYTES,
            messages: u64::MAX,
            depth: 128,
            operation: Transfer::Write,
            ..Flow::write(0, 1, MESSAGE_BYTES)
        };
        let scenario = Scenario {
            switches: sim::world::lossless_switches(&topology, &Lossless::default()),
            topology,
            spread: if self.spray { Spread::Random } else { Spread::Hash },
            hash_seed: 0,
            reaction: None,
            hosts: vec![host; 2],
            flows: vec![flow],
            seed: 7,
            end: Time::from_ns(self.milliseconds * 1_000_000),
            threads: 1,
            watch: Watch::default(),
        };
        let mut world = World::new(&scenario).unwrap();
        world.run();
        world.results()
    }
}

const QUIET: Router =
    Router { paths: Vec::new(), out_of_order: false, spray: false, recovery: Span::ZERO, milliseconds: 20 };

fn gbps(flow: &FlowResult) -> f64 {
    flow.goodput_bps(MESSAGE_BYTES).unwrap() / 1e9
}

#[track_caller]
fn near(value: f64, wanted: f64, within: f64) {
    assert!((value - wanted).abs() <= within, "{value}, not {wanted} within {within}");
}

#[test]
fn an_address_in_every_packet_costs_what_it_weighs() {
    let on = Router { paths: vec![0], out_of_order: true, ..QUIET }.run();
    let off = Router { paths: vec![0], ..QUIET }.run();
    near(gbps(&on.flows[0]), 100.0 * 4096.0 / (4096.0 + 98.0), 0.01);
    near(gbps(&off.flows[0]), 100.0 * 4096.0 / (4096.0 + 82.0 + 1.0), 0.01);
    near(gbps(&on.flows[0]), 97.66, 0.01);
    near(gbps(&off.flows[0]), 98.01, 0.01);
    near((gbps(&off.flows[0]) / gbps(&on.flows[0]) - 1.0) * 100.0, 0.34, 0.03);
    for results in [&on, &off] {
        let flow = &results.flows[0];
        let per_ack = flow.sender.sent_packets as f64 / flow.receiver.sent_packets as f64;
        assert!((3.0..=4.01).contains(&per_ack), "an acknowledgement for {per_ack} packets");
        assert_eq!(flow.sender.retransmitted_packets, 0);
    }
    // Acknowledgements are frames of 66 bytes.
    let queue = &on.hosts[1].queues[3];
    assert_eq!(queue.sent_bytes, queue.sent_packets * 66);
}

#[test]
fn spraying_over_two_paths_costs_nothing_with_out_of_order_receive() {
    let results = Router { paths: vec![0, 12], out_of_order: true, spray: true, ..QUIET }.run();
    let flow = &results.flows[0];
    near(gbps(flow), 97.66, 0.01);
    // Delayed, and the next one not: a quarter (25.03 % were measured).
    let swapped = flow.order.swapped as f64 / flow.order.packets as f64;
    near(swapped, 0.25, 0.01);
    assert!(flow.order.distance_max > 10 && flow.order.distance_max <= 20, "{:?}", flow.order);
    assert_eq!(flow.sender.retransmitted_packets, 0);
    assert_eq!(results.hosts[1].device.sent_sequence_naks, 0);
}

#[test]
fn go_back_n_collapses_under_spraying_as_far_as_its_recovery_takes() {
    let run = |microseconds: u64| {
        let recovery = Span::from_us(microseconds);
        let milliseconds = 100 + 2 * microseconds;
        Router { paths: vec![0, 12], spray: true, recovery, milliseconds, ..QUIET }.run()
    };
    let measured = run(500);
    let rate = gbps(&measured.flows[0]);
    assert!(rate < 0.5, "{rate} Gb/s is more than 0.5 % of the line");
    near(rate, 0.19, 0.019);
    // The law: p packets per recovery, and a round trip to begin again.
    let packets_per_recovery = |microseconds: u64| {
        let results = run(microseconds);
        let period_ps = (microseconds * 1_000_000 + RTT_PS) as f64;
        gbps(&results.flows[0]) * 1e9 * period_ps / 1e12 / (4096.0 * 8.0)
    };
    let of_500 = packets_per_recovery(500);
    for microseconds in [50, 200, 1000] {
        near(packets_per_recovery(microseconds) / of_500, 1.0, 0.1);
    }
}

#[test]
fn far_reordering_is_limited_by_what_may_be_unacknowledged() {
    let law = |distance: u64| {
        let room = distance as f64 + RTT_PS as f64 / PACKET_PS as f64 + 1.0;
        97.66 * (f64::from(WINDOW_PACKETS) / room).min(1.0)
    };
    for distance in [200, 400, 500] {
        // Eight paths, each later than the one before.
        let paths = (0..8).map(|path| path * distance / 7).collect();
        let results = Router { paths, out_of_order: true, spray: true, ..QUIET }.run();
        let flow = &results.flows[0];
        let rate = gbps(flow);
        match distance {
            200 => assert!(rate >= 97.6, "{rate}"),
            400 => near(rate, 87.58, 1.0),
            _ => {}
        }
        println!("distance {distance}: {rate} Gb/s, {} by the law", law(distance));
        near(rate / law(distance), 1.0, 0.01);
        assert_eq!(flow.sender.retransmitted_packets, 0);
        assert_eq!(results.hosts[1].device.sent_sequence_naks, 0, "nothing is asked for again");
    }
}
