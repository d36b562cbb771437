//! Prefetching: events need packets, ports and queue pairs that are spread over more memory than the cache
//! holds. While an event is handled, the processor is asked for what later events need. It does not wait for
//! it, so that many lines are on their way at once.
//!
//! An address is often found in a line that has to be loaded itself. So each event is looked at several times
//! before its turn: in each step at what the steps before have loaded.

use super::event_key::{EventKey, EventKind};
use super::events::Events;
use super::host::Host;
use super::link_direction::Content;
use super::link_state::HotDirection;
use super::placed_switch::PlacedSwitch;
use crate::sys::prefetch::prefetch;
use fabric::config::CLASSES;
use fabric::{PacketId, Packets};
use rnic::simulation::{Depth, Simulated as _};

/// Networks with fewer ports are in the cache. With the 768 of 128 hosts, reading ahead takes an eighth of
/// all instructions, and gains less than that.
const CACHED_PORTS: usize = 1024;

/// How many events ahead each step is.
const DISTANCES: [usize; 6] = [40, 32, 25, 19, 13, 7];

/// Packets of a queue that are loaded.
const QUEUED_MAX: usize = 2;

/// The part of the network that later events are looked up in.
pub(super) struct Ahead<'a> {
    pub(super) lanes: &'a [HotDirection],
    pub(super) events: &'a Events,
    pub(super) contents: &'a [Content],
    pub(super) hosts: &'a [Host],
    pub(super) switches: &'a [PlacedSwitch],
    pub(super) packets: &'a Packets,
}

/// Whether a network of so many ports is larger than the cache.
pub(super) fn is_large(ports: usize) -> bool {
    ports >= CACHED_PORTS
}

/// Asks for the first line of a value.
fn load<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast());
}

/// Asks for all lines of a value.
fn load_all<T>(value: &T) {
    let first: *const u8 = std::ptr::from_ref(value).cast();
    (0..size_of::<T>() + 63)
        .step_by(64)
        .for_each(|at| prefetch(first.wrapping_add(at)));
}

impl Ahead<'_> {
    /// Asks for the lines that later events need. (A call, so that the loop of small networks stays small.)
    #[inline(never)]
    pub(super) fn load(&self) {
        self.at::<0>();
        self.at::<1>();
        self.at::<2>();
        self.at::<3>();
        self.at::<4>();
        self.at::<5>();
    }

    /// A step, as code of its own.
    #[inline(always)]
    fn at<const STEP: usize>(&self) {
        if let Some((key, packet)) = self.events.ahead(DISTANCES[STEP]) {
            self.step(STEP, key, packet);
        }
    }

    #[inline(always)]
    fn step(&self, step: usize, key: EventKey, packet: Option<PacketId>) {
        let line = &self.lanes[key.lane() as usize];
        if step == 0 {
            load(line);
            return packet.into_iter().for_each(|id| load(&self.packets[id]));
        }
        match (key.kind(), packet) {
            (EventKind::Arrival, Some(id)) if line.to_host => self.host(step, line.node, Some(id)),
            (EventKind::Arrival, Some(id)) => self.arrival(step, line, id),
            (EventKind::Wake, _) if !line.from_host => self.wake(step, line),
            (EventKind::Wake | EventKind::Clock, _) => self.host(step, line.from_node, None),
            _ => {}
        }
    }

    /// A packet arrives at a switch.
    #[inline(always)]
    fn arrival(&self, step: usize, line: &HotDirection, id: PacketId) {
        let PlacedSwitch {
            switch, first_lane, ..
        } = &self.switches[line.node as usize];
        match step {
            2 => {
                let out = switch.arrival_lines(line.port, &self.packets[id], prefetch);
                out.into_iter()
                    .for_each(|out| load(&self.lanes[*first_lane as usize + usize::from(out)]));
            }
            5 => switch.queueing_lines(line.port, &self.packets[id], prefetch),
            _ => {}
        }
    }

    /// The port of a switch is free.
    #[inline(always)]
    fn wake(&self, step: usize, line: &HotDirection) {
        let switch = &self.switches[line.from_node as usize].switch;
        let egress = switch.egress(line.from_port);
        let class = egress.occupied().trailing_zeros() as usize % CLASSES;
        match step {
            1 => load(egress),
            2 => {
                egress.lines(class, prefetch);
                prefetch(egress.choice_line());
            }
            3 => egress.waiting(class, self.packets).take(1).for_each(load),
            4 => egress
                .waiting(class, self.packets)
                .take(1)
                .for_each(|packet| {
                    switch.release_lines(packet, prefetch);
                }),
            5 => egress
                .waiting(class, self.packets)
                .take(QUEUED_MAX)
                .for_each(load),
            _ => {}
        }
    }

    /// A packet arrives at a host, or its port is free, or its clock ticks.
    #[inline(always)]
    fn host(&self, step: usize, node: u32, id: Option<PacketId>) {
        let host = &self.hosts[node as usize];
        let qpn = || {
            let headers = &self.contents[id?.0 as usize].headers;
            headers.roce().map(|headers| headers.dest)
        };
        match step {
            1 => {
                host.load_first(prefetch);
                host.device.lines(Depth::Device, None, prefetch);
                id.into_iter()
                    .for_each(|id| load_all(&self.contents[id.0 as usize]));
            }
            2 => {
                host.load_second(prefetch);
                host.device.lines(Depth::Tables, None, prefetch);
            }
            3 => host.device.lines(Depth::Entries, qpn(), prefetch),
            4 => host.device.lines(Depth::QueuePair, qpn(), prefetch),
            5 => host.device.lines(Depth::Queues, qpn(), prefetch),
            _ => {}
        }
    }
}
