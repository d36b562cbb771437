//! Findings about InfiniBand subnets: loops of credits, ports that wait for credits, packets that waited for
//! too long, and routes that use links unevenly.

use super::super::PortReport;
use super::{FULL_LOAD, Rule, STORM_PART, View, finding};
use super::{Finding, Severity, counted};
use crate::experiment::ManagedSubnet;
use fabric::lanes::{BLOCK_BYTES, blocks};
use fabric::topology::{End, Node};
use fabric_file::schema::RoutingEngine;

/// The rules for a subnet.
pub(super) fn rules<'a>() -> [Rule<'a>; 12] {
    [
        View::stuck_lanes,
        View::credit_loops,
        View::losses,
        View::damaged,
        View::failures,
        View::short_buffers,
        View::waits_for_credits,
        View::victims,
        View::uneven_routes,
        View::reordering,
        View::io_timeouts,
        View::pcie_links,
    ]
}

/// A link with this many times the mean of its kind is used unevenly.
const UNEVEN: f64 = 1.5;

/// Bytes of most packets around their payload: LRH, BTH, ICRC, VCRC.
const HEADERS_BYTES: u32 = 26;

/// Why a switch drops packets at the head of a lane, and what to do.
pub(super) fn lifetime(switch: &str) -> (String, &'static str) {
    (
        format!("{switch}: packets had no credits for their lifetime at the head of a lane"),
        "find what takes no packets: a loop of credits, or a host that is slower than what arrives",
    )
}

/// The name of an engine, as `sm.routing` has it.
fn engine_name(routing: RoutingEngine) -> &'static str {
    match routing {
        RoutingEngine::Minhop => "minhop",
        RoutingEngine::Updn => "updn",
        RoutingEngine::Ftree => "ftree",
        RoutingEngine::File => "file",
    }
}

impl View<'_> {
    fn subnet(&self) -> Option<&ManagedSubnet> {
        self.experiment.subnet.as_ref()
    }

    fn engine(&self) -> &'static str {
        engine_name(self.experiment.file.sm.routing)
    }

    /// Lanes that wait for each other in a circle.
    fn stuck_lanes(&self) -> Vec<Finding> {
        let one = |deadlock: &crate::world::Deadlock| {
            let name = |(switch, port): &(u32, u16)| {
                self.name(End {
                    node: Node::Switch(*switch),
                    port: *port,
                })
            };
            let circle: Vec<String> = deadlock.circle.iter().map(name).collect();
            finding(
                Severity::Broken,
                format!(
                    "credit deadlock at {:.1} us: {} wait for credits of each other, and none can send again",
                    deadlock.at.0 as f64 / 1e6,
                    circle.join(" → ")
                ),
                self.why_loop(deadlock.class),
                "routing without loops: sm.routing = \"updn\", or \"ftree\" in a fat tree; a lifetime at \
                 the head of lanes ends it by dropping packets",
            )
        };
        self.results.deadlocks.iter().map(one).collect()
    }

    fn why_loop(&self, lane: u8) -> String {
        let engine = self.engine();
        match self.subnet().and_then(|subnet| subnet.credit_loop.as_ref()) {
            Some(found) => {
                let [from, to] = self.host_names(found.closed_by);
                format!(
                    "the tables of {engine} have a loop of credits; packets from {from} to {to} close it"
                )
            }
            None => format!("packets of virtual lane {lane} wait in a circle of links"),
        }
    }

    fn host_names(&self, hosts: [usize; 2]) -> [&str; 2] {
        hosts.map(|host| self.experiment.network.hosts[host].name.as_str())
    }

    /// A loop of credits in the tables, where the run did not come to stand in it.
    fn credit_loops(&self) -> Vec<Finding> {
        let Some(subnet) = self.subnet().filter(|_| self.results.deadlocks.is_empty()) else {
            return Vec::new();
        };
        let one = |found: &infiniband::routing::CreditLoop| {
            let ports = found.ports.iter().filter_map(|end| subnet.port_at(*end));
            let ports: Vec<String> = ports.map(|place| self.name(place)).collect();
            let [from, to] = self.host_names(found.closed_by);
            let last = ports.last().cloned().unwrap_or_default();
            let first = ports.first().cloned().unwrap_or_default();
            finding(
                Severity::Note,
                format!(
                    "the tables of {} have a loop of credits: {}; this run did not come to stand in it",
                    self.engine(),
                    ports.join(" → ")
                ),
                format!("packets from {from} to {to} close it: from {last} to {first}"),
                "routing without loops: sm.routing = \"updn\", or \"ftree\" in a fat tree",
            )
        };
        subnet.credit_loop.iter().map(one).collect()
    }

    /// Ports between switches that waited for credits much of the time, and ports of hosts.
    fn waiting(&self) -> Vec<&PortReport> {
        let end_us = self.results.end.0 as f64 / 1e6;
        let waits = |port: &&PortReport| {
            let mut queues = port.queues.iter();
            queues.any(|queue| queue.paused_us > STORM_PART * end_us)
        };
        self.report.ports.iter().filter(waits).collect()
    }

    /// Receive buffers that are too small for a link: what is under way in the time until credits come back.
    fn short_buffers(&self) -> Vec<Finding> {
        let Some(subnet) = self.subnet() else {
            return Vec::new();
        };
        let links = self.experiment.network.topology.links();
        let mtu = self
            .experiment
            .scenario
            .hosts
            .iter()
            .map(|host| host.mtu.bytes());
        let packet = mtu.max().unwrap_or_default() + HEADERS_BYTES;
        let one = |port: &&PortReport| {
            let link = links.get(port.link as usize)?;
            let lanes = subnet.setup.links.get(port.link as usize)?;
            let peer = &lanes.ends[usize::from(1 - port.direction)];
            let buffer = u64::from(peer.buffer_blocks) * u64::from(BLOCK_BYTES);
            // Whole packets, until the credits of the first one are back.
            let whole = u64::from(peer.buffer_blocks / blocks(packet as u16)) * u64::from(packet);
            let there_and_back = 2 * link.config.delay.0 + link.config.rate.time_of(packet).0;
            let bps =
                (u128::from(whole) * 8_000_000_000_000 / u128::from(there_and_back.max(1))) as u64;
            (bps < link.config.rate.bps()).then(|| {
                finding(
                    Severity::Slow,
                    format!(
                        "{} waited for credits of {}: {} KiB for a lane let it send {:.1} Gb/s at most",
                        port.port,
                        port.to,
                        buffer >> 10,
                        bps as f64 / 1e9
                    ),
                    format!(
                        "credits come back after {:.2} us, in which {:.0} Gb/s are {} KiB",
                        there_and_back as f64 / 1e6,
                        link.config.rate.bps() as f64 / 1e9,
                        u128::from(link.config.rate.bps()) * u128::from(there_and_back)
                            / 8_000_000_000_000
                            / 1_024
                    ),
                    "a larger lane-buffer of the receiver (128 KiB at most), or a shorter link",
                )
            })
        };
        self.waiting().iter().filter_map(one).collect()
    }

    /// Ports that had no credits much of the time.
    fn waits_for_credits(&self) -> Vec<Finding> {
        if !self.results.deadlocks.is_empty() || !self.short_buffers().is_empty() {
            // Whatever waits does so because of that.
            return Vec::new();
        }
        let waiting = self.waiting();
        let end_us = self.results.end.0 as f64 / 1e6;
        let longest = |port: &PortReport| {
            let queues = port.queues.iter().map(|queue| queue.paused_us);
            queues.fold(0.0, f64::max)
        };
        let by_wait =
            |one: &&&PortReport, other: &&&PortReport| longest(one).total_cmp(&longest(other));
        let Some(worst) = waiting.iter().max_by(by_wait) else {
            return Vec::new();
        };
        let all = self.report.ports.len();
        let seen = format!(
            "{} without credits more than {:.0} % of the time ({}: {:.0} %)",
            counted(
                waiting.len() as u64,
                &format!("of {all} ports was"),
                &format!("of {all} ports were")
            ),
            100.0 * STORM_PART,
            worst.port,
            100.0 * longest(worst) / end_us
        );
        let full = self
            .report
            .ports
            .iter()
            .filter(|port| port.load > FULL_LOAD);
        let full = full.max_by(|one, other| one.load.total_cmp(&other.load));
        let slow = self.pcie_links();
        let (cause, instead) = match (full, slow.first()) {
            (_, Some(pcie)) => (
                format!(
                    "a host takes packets more slowly than they arrive: {}",
                    pcie.seen
                ),
                "a wider or newer PCIe link: see nic.NAME.pcie",
            ),
            (Some(port), None) => (
                format!(
                    "the link {} → {} is full ({:.0} %), and what waits for it fills the buffers before it",
                    port.port,
                    port.to,
                    (100.0 * port.load).min(100.0)
                ),
                "routes that share fewer links, more links, or congestion control at the hosts",
            ),
            (None, None) => (
                "packets wait in lanes whose first packet is for a port without credits".to_owned(),
                "another service level and lane for part of the traffic",
            ),
        };
        vec![finding(Severity::Slow, seen, cause, instead)]
    }

    /// A link between switches that carries much more than others of its kind when all hosts send to all.
    fn uneven_routes(&self) -> Vec<Finding> {
        let Some(subnet) = self.subnet() else {
            return Vec::new();
        };
        let ratio =
            |share: &infiniband::routing::LinkShare| share.pairs as f64 / share.mean.max(1) as f64;
        let shares = subnet.shares.iter();
        let worst = shares.max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let Some(worst) = worst.filter(|share| ratio(share) > UNEVEN) else {
            return Vec::new();
        };
        let Some(place) = subnet.port_at(worst.port) else {
            return Vec::new();
        };
        let port = self.name(place);
        let mut ports = self.report.ports.iter();
        let load = ports
            .find(|report| report.port == port)
            .map_or(0.0, |port| port.load);
        let severity = if load > FULL_LOAD {
            Severity::Slow
        } else {
            Severity::Note
        };
        vec![finding(
            severity,
            format!(
                "uneven routes: {port} has {} of all pairs of hosts, and links like it {} on average",
                worst.pairs, worst.mean
            ),
            format!(
                "the tables of {} spread destinations unevenly",
                self.engine()
            ),
            "sm.routing = \"ftree\" in a fat tree, or more links where paths meet",
        )]
    }
}
