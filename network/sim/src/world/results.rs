//! The results of a run. Everything is in the order of the scenario: flows, hosts, links.

use super::collective::JobResult;
use super::collective::program::ProgramResult;
use super::life::Life;
use super::sriov_adapter::FunctionDrops;
use fabric::config::CLASSES;
use fabric::{
    BufferCounters, Drop, Incidents, LinkCounters, PortCounters, QueueCounters, Span, Time,
};
use rnic::QpCounters;
use std::collections::BTreeSet;

/// Flag of a packet's flow number: the other bits are the token of a live packet.
pub(super) const LIVE_FLOW: u32 = 1 << 31;

/// All that a run left.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// When the run ended: all flows done, no event left, or the scenario's end.
    pub end: Time,
    /// Packets that crossed a link, acknowledgements included; pause frames are not counted.
    pub hops: u64,
    /// Events that the engine handled.
    pub events: u64,
    /// The results of each flow, in the order of the scenario.
    pub flows: Vec<FlowResult>,
    /// The counters of each host.
    pub hosts: Vec<HostResult>,
    /// The counters of each switch.
    pub switches: Vec<SwitchResult>,
    /// Packets damaged on links.
    pub damaged: u64,
    /// Packets that were still under way, or waiting somewhere, at the end.
    pub left: u32,
    /// PFC deadlocks that were found, in order.
    pub deadlocks: Vec<Deadlock>,
    /// Captured packets in order of time.
    pub captured: Vec<Captured>,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Times that were skipped, if the scenario allows that: hops, events, latencies and the order of packets
    /// are of the rest of the run.
    pub skips: Vec<Skip>,
    /// What became of each job of the collective plan.
    pub jobs: Vec<JobResult>,
    /// What became of the programs of hosts, by host.
    pub programs: Vec<(u32, ProgramResult)>,
    /// The life of the queue pair that the scenario watches.
    pub life: Option<Life>,
}

/// A time in which nothing was simulated packet by packet: flows went on as in the windows before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skip {
    /// When it began.
    pub at: Time,
    /// How long it was.
    pub span: Span,
}

/// The results of one flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowResult {
    /// When its first message was posted; `NEVER` if the run ended before.
    pub started: Time,
    /// When its last message completed; `NEVER` if it did not.
    pub finished: Time,
    /// Messages that completed at the poster.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Payload that was written into the receiver's memory, each byte once; messages that did not complete
    /// included.
    pub delivered_bytes: u64,
    /// When the first message completed: the steady state lies between this and `last_completion`.
    pub first_completion: Time,
    /// When the last message completed so far.
    pub last_completion: Time,
    /// From post to completion.
    pub latency: Latency,
    /// The queue pair failed.
    pub failed: bool,
    /// Data packets as they arrived at the receiver of the data.
    pub order: Order,
    /// Counters of the queue pair that sends the data.
    pub sender: QpCounters,
    /// Counters of the one that receives it.
    pub receiver: QpCounters,
    /// Rate that congestion control allows at the end, in bits per second, where it sets one.
    pub rate_bps: Option<u64>,
    /// Packets that its receiver asked for because switches had trimmed them.
    pub trimmed: u64,
    /// Ports that its data crossed, in the order of the path, if the scenario watches them
    /// ([`super::Watch::hops`]).
    pub hops: Vec<FlowHop>,
}

/// The counters of one flow's data at one port, and on the link behind it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowHop {
    /// Link in the topology.
    pub link: u32,
    /// Direction in the link: 0 from its first end, 1 from its second.
    pub direction: u8,
    /// Host that the data comes from.
    pub from: u32,
    /// Switches that it has crossed when it leaves this port.
    pub crossed: u8,
    /// Packets that left.
    pub packets: u64,
    /// Bytes of these, headers included.
    pub bytes: u64,
    /// Packets that this port marked.
    pub marked: u64,
    /// Packets that were damaged on the link, or dropped where it ends.
    pub lost: u64,
    /// From a packet's arrival until it began to leave, all together. A host's packets do not wait: they are
    /// made when they may leave.
    pub waited_ps: u64,
    /// The longest of these.
    pub waited_max_ps: u64,
    /// Of that, how long the queue was paused. At a host, from one packet of the flow to the next.
    pub paused_ps: u64,
}

/// In which order data packets arrived.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Order {
    /// Data packets received.
    pub packets: u64,
    /// Packets with a lower PSN than the packet that arrived before them.
    pub descents: u64,
    /// Those that arrived before the one whose PSN is one lower: pairs that were swapped.
    pub swapped: u64,
    /// By reorder distance: how far the packet lies behind the highest PSN so far. Entry n counts distances
    /// from 2^n to 2^(n+1) - 1.
    pub distances: [u64; 16],
    /// The largest distance.
    pub distance_max: u32,
    /// By the step from one swapped packet to the next one, in packets of the flow as they arrive: 1 is the
    /// packet right behind. Entry n counts steps from 2^n to 2^(n+1) - 1.
    pub swap_steps: [u64; 16],
    /// The largest step.
    pub swap_step_max: u64,
    /// The number of the last swapped packet, from 1 on.
    last_swapped: u64,
}

/// Latencies in a histogram with 32 buckets per power of two (within 3 %).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// How many latencies were added.
    pub count: u64,
    /// Sum of the latencies in nanoseconds.
    pub sum_ns: u64,
    /// The longest in nanoseconds.
    pub max_ns: u64,
    /// Counts by bucket; as long as needed.
    pub buckets: Vec<u64>,
}

/// The counters of one host.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct HostResult {
    /// The device's counters.
    pub device: rnic::PortCounters,
    /// Its port's queues, by class.
    pub queues: [QueueCounters; CLASSES],
    /// Pause frames received.
    pub pauses_received: u64,
    /// Pause frames sent because the PCIe link was slower than the network.
    pub pauses_sent: u64,
    /// Frames of priority flow control by priority, where there were any.
    pub incidents: Option<Box<Incidents>>,
    /// Losses on the link to it.
    pub link: LinkCounters,
    /// Packets dropped because the PCIe link was slower, where the adapter sends no pause frames.
    pub dropped: u64,
    /// Bytes that waited for the PCIe link at most.
    pub receive_peak_bytes: u32,
    /// How long the busier direction of the PCIe link was busy.
    pub pcie_busy_ps: u64,
    /// Packets that the embedded switch dropped at its port, where it is a function of an adapter.
    pub function_drops: FunctionDrops,
    /// How long each core worked for storage; those that did not are left out at the end.
    pub cores_busy_ps: Vec<u64>,
    /// How long memory was busy with copies for storage, where its speed is limited.
    pub memory_busy_ps: u64,
    /// How long each drive moved data, or commands.
    pub drives_busy_ps: Vec<u64>,
    /// I/Os for storage that took too long.
    pub io_timeouts: IoTimeouts,
}

/// I/Os of a host that took too long, and what followed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct IoTimeouts {
    /// I/Os without a response in time.
    pub ios: u64,
    /// Controllers that were reset for that.
    pub resets: u64,
    /// I/Os that a reset cancelled, and that were sent again.
    pub cancelled: u64,
    /// I/Os that were cancelled once too often, and ended with an error.
    pub errors: u64,
}

/// The counters of one switch.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct SwitchResult {
    /// The counters of each port.
    pub ports: Vec<PortCounters>,
    /// Its packet memory.
    pub buffer: BufferCounters,
}

/// A circle of ports, each of which is paused because the next one is full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// When it was found.
    pub at: Time,
    /// The traffic class that is stuck.
    pub class: u8,
    /// Switch and port whose queue is paused by the next, the last by the first.
    pub circle: Vec<(u32, u16)>,
}

/// A packet on a link.
#[derive(Clone, PartialEq, Debug)]
pub struct Captured {
    /// When its last bit left.
    pub at: Time,
    /// Link in the topology.
    pub link: u32,
    /// 0: from the link's first end; 1: from its second.
    pub direction: u8,
    /// The frame's content.
    pub frame: CapturedFrame,
}

/// The content of a captured frame.
#[derive(Clone, PartialEq, Debug)]
pub enum CapturedFrame {
    /// A packet of a host's.
    Packet {
        /// The host that sent the packet.
        from: u32,
        /// The flow that it belongs to.
        flow: u32,
        /// UDP source port.
        source_port: u16,
        /// DSCP and ECN as they are on this link.
        tos: u8,
        /// Priority code point, if it is tagged.
        pcp: Option<u8>,
        /// TTL on this link.
        hop_limit: u8,
        /// The transport headers of the packet.
        headers: wire::Packet,
        /// Bytes of payload, which a simulation does not have.
        payload: u32,
    },
    /// A pause frame.
    Pause(fabric::PauseFrame),
    /// A flow control packet of InfiniBand.
    Credits(fabric::lanes::CreditUpdate),
}

impl CapturedFrame {
    /// The token of a live host's packet, whose content is outside of the simulation.
    pub const fn live_token(&self) -> Option<u32> {
        match self {
            Self::Packet { flow, .. } if *flow & LIVE_FLOW != 0 => Some(*flow & !LIVE_FLOW),
            _ => None,
        }
    }
}

/// A look at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When the port was sampled.
    pub at: Time,
    /// Link in the topology, and the direction that the port sends in.
    pub link: u32,
    /// Direction in the link: 0 from its first end, 1 from its second.
    pub direction: u8,
    /// Bytes that wait in all of its queues.
    pub queued_bytes: u32,
    /// Bytes that wait in each, by class.
    pub class_bytes: [u32; CLASSES],
    /// Bytes sent since the start.
    pub sent_bytes: u64,
    /// Queues that are paused, one bit each.
    pub paused: u8,
}

impl FlowResult {
    /// Results of a flow of which nothing has been seen.
    pub fn of_nothing() -> Self {
        Self {
            started: Time::NEVER,
            finished: Time::NEVER,
            messages: 0,
            bytes: 0,
            delivered_bytes: 0,
            first_completion: Time(0),
            last_completion: Time(0),
            latency: Latency::default(),
            failed: false,
            order: Order::default(),
            sender: QpCounters::default(),
            receiver: QpCounters::default(),
            rate_bps: None,
            trimmed: 0,
            hops: Vec::new(),
        }
    }

    /// Payload bits per second between first and last completion, the steady state; `None` with fewer than
    /// two.
    pub fn goodput_bps(&self, message_bytes: u32) -> Option<f64> {
        let span = (self.last_completion - self.first_completion).0;
        let bits = self.messages.saturating_sub(1) as f64 * f64::from(message_bytes) * 8.0;
        (self.messages > 1 && span > 0).then(|| bits * 1e12 / span as f64)
    }

    /// Flow completion time in picoseconds.
    pub fn completion_ps(&self) -> Option<u64> {
        (self.finished != Time::NEVER).then(|| (self.finished - self.started).0)
    }
}

impl Results {
    /// Packets that switches dropped, by reason.
    pub fn drops(&self, why: Drop) -> u64 {
        let ports = self.switches.iter().flat_map(|switch| &switch.ports);
        ports.map(|port| port.ingress.dropped[why as usize]).sum()
    }

    /// Frames that paused a priority, over all switches.
    pub fn pauses(&self) -> u64 {
        self.switches
            .iter()
            .flat_map(|switch| &switch.ports)
            .map(|port| port.ingress.pauses_sent)
            .sum()
    }

    /// Packets that switches marked.
    pub fn marks(&self) -> u64 {
        let ports = self.switches.iter().flat_map(|switch| &switch.ports);
        ports
            .flat_map(|port| &port.queues)
            .map(|queue| queue.marked_packets)
            .sum()
    }
}

/// PSNs that are remembered as missing at most: those that were lost for good must not stay for ever.
const MISSING_MAX: usize = 8192;

/// Buckets per power of two.
const BUCKETS_PER_OCTAVE: u64 = 32;

impl Latency {
    /// Adds one latency in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
        let index = bucket(ns);
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
    }

    /// Adds all of another one's.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets
            .iter_mut()
            .zip(&other.buckets)
            .for_each(|(mine, more)| *mine += more);
    }

    /// The latency that so many of a million are not above, in nanoseconds: the upper end of its bucket.
    pub fn quantile_ns(&self, per_million: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(per_million))
            .div_ceil(1_000_000)
            .max(1) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket(ns: u64) -> usize {
    if ns < BUCKETS_PER_OCTAVE {
        return ns as usize;
    }
    let octave = u64::from(ns.ilog2() - BUCKETS_PER_OCTAVE.ilog2());
    ((octave + 1) * BUCKETS_PER_OCTAVE + (ns >> octave) - BUCKETS_PER_OCTAVE) as usize
}

fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < BUCKETS_PER_OCTAVE {
        return index;
    }
    let octave = index / BUCKETS_PER_OCTAVE - 1;
    ((index % BUCKETS_PER_OCTAVE + BUCKETS_PER_OCTAVE + 1) << octave) - 1
}

impl Order {
    /// Notes a packet whose PSN lies `ahead` (negative: behind) of the highest so far, and whether it is
    /// lower than the one before it.
    #[inline]
    pub(crate) fn note_packet(&mut self, ahead: i32, descends: bool) {
        self.packets += 1;
        if ahead < 0 {
            let distance = ahead.unsigned_abs();
            self.distances[(distance.ilog2() as usize).min(15)] += 1;
            self.distance_max = self.distance_max.max(distance);
        }
        self.descents += u64::from(descends);
    }

    /// Notes that the last packet is a swapped one.
    fn note_swap(&mut self) {
        self.swapped += 1;
        if let Some(before) = core::num::NonZeroU64::new(self.last_swapped) {
            let step = self.packets - before.get();
            self.swap_steps[(step.max(1).ilog2() as usize).min(15)] += 1;
            self.swap_step_max = self.swap_step_max.max(step);
        }
        self.last_swapped = self.packets;
    }

    /// Keeps track of PSNs that were passed over: `ahead` of `highest`, counted without end.
    #[inline]
    pub(crate) fn note_gaps(&mut self, ahead: i32, highest: u64, missing: &mut BTreeSet<u64>) {
        if ahead <= 1 && missing.is_empty() {
            return;
        }
        let number = highest.wrapping_add_signed(i64::from(ahead));
        if ahead > 0 {
            missing.extend(highest + 1..number);
            while missing.len() > MISSING_MAX {
                missing.pop_first();
            }
        } else {
            missing.remove(&number);
        }
        if missing.contains(&number.wrapping_sub(1)) {
            self.note_swap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut latency = Latency::default();
        (1..=100_000).for_each(|ns| latency.add(ns));
        for (quantile, exact) in [
            (500_000, 50_000_u64),
            (990_000, 99_000),
            (1_000_000, 100_000),
        ] {
            assert!(latency.quantile_ns(quantile).abs_diff(exact) * 100 <= 3 * exact);
        }
        let mut twice = latency.clone();
        twice.merge(&latency);
        assert_eq!((twice.count, twice.quantile_ns(10)), (200_000, 1));
        assert!(
            (0..5000).all(
                |ns| upper_end(bucket(ns)) >= ns && bucket(upper_end(bucket(ns))) == bucket(ns)
            )
        );
    }
}
