//! Counters of data: what the simulated network has carried, in the counters of the subnet's ports.

use super::LiveSubnet;
use fabric::topology::Node as Place;
use fabric::{LinkCounters, QueueCounters, Span, Time};
use fabric_file::{Network, Subnet as Description};
use infiniband::subnet::{Carried, End};
use sim::world::{Results, World};

/// Counters are at most this old when a program asks for them.
const AGE_MAX: Span = Span::from_us(10_000);
/// Bytes of a word of the counters.
const WORD_BYTES: u64 = 4;
/// Picoseconds of a tick of PortXmitWait: the unit is the adapter's, and here it is a microsecond.
const TICK_PS: u64 = 1_000_000;

/// One end of a link: in the subnet, and in the simulated network.
#[derive(Clone, Copy, Debug)]
struct CountedEnd {
    end: End,
    place: Place,
    port: u16,
}

/// What was counted so far.
#[derive(Debug, Default)]
pub(super) struct Counted {
    links: Vec<[CountedEnd; 2]>,
    /// By link and end: what the present network has carried.
    carried: Vec<[Carried; 2]>,
    /// Packets on links, and when, at the last count.
    hops: u64,
    at: Time,
}

impl Counted {
    /// Nothing is counted yet.
    pub(super) fn new(network: &Network, description: &Description) -> Self {
        let hosts = description.hosts.len();
        let links = network.topology.links().iter().zip(&description.links);
        let links: Vec<[CountedEnd; 2]> = links
            .map(|(link, subnet)| {
                [0, 1].map(|side| {
                    let end = link.ends[side];
                    let node = match end.node {
                        Place::Host(number) => number as usize,
                        Place::Switch(number) => hosts + number as usize,
                    };
                    let port = subnet.ports[side];
                    CountedEnd {
                        end: End { node, port },
                        place: end.node,
                        port: end.port,
                    }
                })
            })
            .collect();
        Self {
            carried: vec![Default::default(); links.len()],
            links,
            ..Self::default()
        }
    }

    /// The network is another one, which has carried nothing yet.
    pub(super) fn renew(&mut self) {
        self.carried.fill(Default::default());
        (self.hops, self.at) = (0, Time(0));
    }
}

impl LiveSubnet {
    /// Counts what the network has carried since the last count, before a program reads counters.
    pub(crate) fn count(&mut self, now: Time, world: &World) {
        let counted = &mut self.counted;
        let hops = world.hops();
        let is_recent = counted.at != Time(0) && now < counted.at + AGE_MAX;
        if hops == counted.hops || is_recent {
            return;
        }
        (counted.hops, counted.at) = (hops, now);
        let results = world.results();
        for (ends, before) in counted.links.iter().zip(&mut counted.carried) {
            let sent = ends.map(|end| sent_at(&results, end));
            for side in [0, 1] {
                let all = received(&results, ends[side], sent[side], sent[1 - side]);
                self.subnet
                    .add_carried(ends[side].end, all.since(&before[side]));
                before[side] = all;
            }
        }
    }
}

/// What left a port, and what was lost before it.
fn sent_at(results: &Results, at: CountedEnd) -> Carried {
    let (queues, discards, unroutable) = match at.place {
        Place::Host(host) => (&results.hosts[host as usize].queues, 0, 0),
        Place::Switch(switch) => {
            let port = &results.switches[switch as usize].ports[usize::from(at.port)];
            let dropped = |why: fabric::Drop| port.ingress.dropped[why as usize];
            let all: u64 = port.ingress.dropped.iter().sum();
            let unroutable = dropped(fabric::Drop::NoRoute);
            (&port.queues, all - unroutable, unroutable)
        }
    };
    let sum = |field: fn(&QueueCounters) -> u64| queues.iter().map(field).sum::<u64>();
    Carried {
        transmit_packets: sum(|queue| queue.sent_packets),
        transmit_words: sum(|queue| queue.sent_bytes) / WORD_BYTES,
        transmit_wait: sum(|queue| queue.paused_ps) / TICK_PS,
        transmit_discards: discards,
        switch_relay_errors: unroutable,
        ..Carried::default()
    }
}

/// Adds what arrived at a port: what the other end has sent, but for what was lost on the link.
fn received(results: &Results, at: CountedEnd, own: Carried, other: Carried) -> Carried {
    let LinkCounters { damaged, lost } = match at.place {
        Place::Host(host) => results.hosts[host as usize].link,
        Place::Switch(switch) => results.switches[switch as usize].ports[usize::from(at.port)].link,
    };
    let arrived = other.transmit_packets.saturating_sub(damaged + lost);
    let share = u128::from(arrived) * u128::from(other.transmit_words);
    let words = share
        .checked_div(other.transmit_packets.into())
        .unwrap_or(0);
    Carried {
        receive_packets: arrived,
        receive_words: words as u64,
        receive_errors: damaged,
        ..own
    }
}
