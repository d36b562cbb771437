//! Packet spraying between two hosts on 100 Gb/s Ethernet: `ib_write_bw` with 64 KiB WRITEs, 128 posted, MTU
//! 4096, one queue pair, between them a router that sends data packets by chance over several paths.
//!
//! Goodputs are those that were measured on ConnectX-6 Dx ("Nvidia's packet spraying and adaptive routing,
//! tried"; see `docs/fabric.md`). Two constants were not published and are fitted: the time that the adapter
//! takes to recover from a sequence error (500 us, which is also how long HPCC's model of the adapter waits
//! between NAKs) and how many packets it has unacknowledged at most.

mod calibration;
mod prediction;

use fabric::topology::{Extra, LinkConfig, Node, Topology};
use fabric::{Rate, Span, Spread, Time};
use sim::world::{
    Flow, FlowResult, HostConfig, Lossless, Results, Scenario, Transfer, Watch, World,
};

const MESSAGE_BYTES: u32 = 64 << 10;

/// 4,096 bytes and 98 of headers, preamble and gap at 100 Gb/s.
const PACKET_PS: u64 = (4096 + 98) * 80;

/// Round trip without extra delay: the delays of links, the time of frames on them, and the time that packets
/// wait: in the last router, where paths meet, and for the acknowledgement that three more share.
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
        let link = LinkConfig::new(
            Rate::from_gbps(100),
            Span((RTT_PS - (3 + WAITS) * PACKET_PS) / 6),
        );
        let mut topology = Topology::default();
        let hosts = [(); 2].map(|()| Node::Host(topology.add_host()));
        let routers = [(); 2].map(|()| Node::Switch(topology.add_switch()));
        topology.connect(hosts[0], routers[0], link).unwrap();
        topology.connect(hosts[1], routers[1], link).unwrap();
        for packets in &self.paths {
            topology.connect(routers[0], routers[1], link).unwrap();
            // Only packets to the receiver are delayed.
            topology.slow_down(
                topology.links().len() as u32 - 1,
                0,
                Extra::of(Span(packets * PACKET_PS)),
            );
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
            spread: if self.spray {
                Spread::Random
            } else {
                Spread::Hash
            },
            hash_seed: 0,
            reaction: None,
            cards: Vec::new(),
            traces: Vec::new(),
            hosts: vec![host; 2],
            flows: vec![flow],
            seed: 7,
            end: Time::from_ns(self.milliseconds * 1_000_000),
            threads: 1,
            watch: Watch::default(),
            skip_steady: None,
            collectives: None,
        };
        let mut world = World::new(&scenario).unwrap();
        world.run();
        world.results()
    }
}

const QUIET: Router = Router {
    paths: Vec::new(),
    out_of_order: false,
    spray: false,
    recovery: Span::ZERO,
    milliseconds: 20,
};

fn gbps(flow: &FlowResult) -> f64 {
    flow.goodput_bps(MESSAGE_BYTES).unwrap() / 1e9
}

#[track_caller]
fn near(value: f64, wanted: f64, within: f64) {
    assert!(
        (value - wanted).abs() <= within,
        "{value}, not {wanted} within {within}"
    );
}

/// Go-back-N over two paths, with a recovery time in microseconds.
fn go_back_n(microseconds: u64) -> Results {
    let recovery = Span::from_us(microseconds);
    let milliseconds = 100 + 2 * microseconds;
    Router {
        paths: vec![0, 12],
        spray: true,
        recovery,
        milliseconds,
        ..QUIET
    }
    .run()
}

/// Out-of-order receive over eight paths, each later than the one before, and the last by so many packets.
fn eight_paths(distance: u64) -> Results {
    let paths = (0..8).map(|path| path * distance / 7).collect();
    Router {
        paths,
        out_of_order: true,
        spray: true,
        ..QUIET
    }
    .run()
}
