//! Where each flow's data waits, is marked, paused and lost, port by port. Only if the scenario watches hops:
//! every packet then takes the slower path over its links.

use super::collective::{JobLink, JobsByPacket};
use super::link_direction::{Content, LinkDirection};
use super::results::FlowHop;
use fabric::config::CLASSES;
use fabric::lanes::DELIMITER_BYTES;
use fabric::{Egress, FRAME_OVERHEAD_BYTES, Packet, PacketId, Rate, Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Pauses of one queue that are remembered: those before them were over before anything waits that now does.
const PAUSES_KEPT: usize = 4096;

/// The hop limit of packets that leave a host (`Packet::new`).
const HOP_LIMIT: u8 = 64;

/// The counters of one flow's data at one port.
#[derive(Clone, Copy, Default, Debug)]
struct HopTally {
    hop: FlowHop,
    /// When a packet of it left last.
    left_at: Option<Time>,
}

/// A change in whether a queue may send: for how long it was paused before, and until when it now is.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Time,
    before_ps: u64,
    until: Time,
}

/// A packet that leaves a port.
pub(super) struct Departure<'a> {
    /// The lane that it leaves by.
    pub(super) lane: u32,
    pub(super) id: PacketId,
    pub(super) packet: &'a Packet,
    pub(super) content: &'a Content,
    /// Time at which the packet's last bit leaves.
    pub(super) end: Time,
}

/// The tallies of one part of the network.
#[derive(Debug)]
pub(super) struct Trace {
    tallies: BTreeMap<(u32, u32), HopTally>,
    /// By packet: when it arrives at the port that it leaves next, and whether it is marked already.
    arrivals: Vec<(Time, bool)>,
    /// By lane and class.
    pauses: BTreeMap<(u32, usize), VecDeque<Change>>,
    /// Speed of the port that sends into each lane.
    rates: Vec<Rate>,
    /// The lane of each link's directions: twice the link, and the direction.
    lanes: Vec<u32>,
    /// The jobs of collectives' packets, if there are collectives; the last packet of each flow and direction
    /// here, and what jobs sent, by job and lane.
    jobs: Option<Arc<JobsByPacket>>,
    last_packets: BTreeMap<(u32, bool), u64>,
    job_links: BTreeMap<(u32, u32), JobLink>,
}

impl Trace {
    /// `rates`: speed of the port that sends, by lane.
    pub(super) fn new(
        table: &[LinkDirection],
        rates: Vec<Rate>,
        jobs: Option<Arc<JobsByPacket>>,
    ) -> Self {
        let used = (0_u32..).zip(table).filter(|(_, info)| info.is_used());
        let place = |info: &LinkDirection| 2 * info.link as usize + usize::from(info.direction);
        let mut lanes = Vec::new();
        for (lane, info) in used {
            if lanes.len() <= place(info) {
                lanes.resize(place(info) + 1, u32::MAX);
            }
            lanes[place(info)] = lane;
        }
        Self {
            tallies: BTreeMap::new(),
            arrivals: Vec::new(),
            pauses: BTreeMap::new(),
            rates,
            lanes,
            jobs,
            last_packets: BTreeMap::new(),
            job_links: BTreeMap::new(),
        }
    }

    /// A packet leaves a port.
    pub(super) fn departs(&mut self, departure: Departure<'_>, info: &LinkDirection) {
        let Departure {
            lane,
            id,
            packet,
            content,
            end,
        } = departure;
        let (arrived, was_marked) = match info.from_host {
            true => (end, false),
            false => self
                .arrivals
                .get(id.0 as usize)
                .copied()
                .unwrap_or((end, false)),
        };
        if content.payload == 0 {
            return;
        }
        let length = u32::from(packet.length);
        // Packets of InfiniBand have no hop limit.
        let gap = match packet.hop_limit {
            0 => DELIMITER_BYTES,
            _ => FRAME_OVERHEAD_BYTES,
        };
        let start = Time(end.0 - self.rates[lane as usize].time_of(length + gap).0);
        let class = usize::from(packet.class());
        let key = (content.flow, lane);
        let left_at = self.tallies.get(&key).and_then(|tally| tally.left_at);
        // A host's packet is made when it may leave: it waits for its port.
        let since = if info.from_host {
            left_at.unwrap_or(start)
        } else {
            arrived
        };
        let paused = self
            .paused_ps((lane, class), start)
            .saturating_sub(self.paused_ps((lane, class), since));
        let waited = if info.from_host {
            0
        } else {
            start.0.saturating_sub(since.0)
        };
        let tally = self.tallies.entry(key).or_default();
        tally.left_at = Some(end);
        let hop = &mut tally.hop;
        hop.link = info.link;
        hop.direction = info.direction;
        hop.from = content.from;
        hop.crossed = match packet.hop_limit {
            0 => packet.exit as u8,
            left => HOP_LIMIT.saturating_sub(left),
        };
        hop.packets += 1;
        hop.bytes += u64::from(length);
        hop.marked += u64::from(packet.is_marked() && !was_marked);
        hop.waited_ps += waited;
        hop.waited_max_ps = hop.waited_max_ps.max(waited);
        hop.paused_ps += paused;
        self.add_to_job(lane, length, content, info);
    }

    /// Counts a packet for the job that sends it.
    fn add_to_job(&mut self, lane: u32, length: u32, content: &Content, info: &LinkDirection) {
        let Some(jobs) = &self.jobs else { return };
        let Some(headers) = content.headers.roce() else {
            return;
        };
        let psn = headers.psn;
        let job = jobs.job_of(content.flow, content.from, psn, &mut self.last_packets);
        let Some(job) = job else { return };
        let sum = self.job_links.entry((job, lane)).or_default();
        (sum.link, sum.direction) = (info.link, info.direction);
        sum.packets += 1;
        sum.bytes += u64::from(length);
    }

    /// What each job sent over each link.
    pub(super) fn job_links(&self) -> impl Iterator<Item = (u32, JobLink)> + '_ {
        self.job_links.iter().map(|((job, _), link)| (*job, *link))
    }

    /// A packet is on its way, and arrives at `at`.
    pub(super) fn under_way(&mut self, id: PacketId, at: Time, is_marked: bool) {
        let index = id.0 as usize;
        if self.arrivals.len() <= index {
            self.arrivals.resize(index + 1, (Time(0), false));
        }
        self.arrivals[index] = (at, is_marked);
    }

    /// A packet that left by this lane is lost on it.
    pub(super) fn lost(&mut self, lane: u32, info: &LinkDirection, content: &Content) {
        if content.payload > 0 {
            let hop = &mut self.tallies.entry((content.flow, lane)).or_default().hop;
            (hop.link, hop.direction, hop.from) = (info.link, info.direction, content.from);
            hop.lost += 1;
        }
    }

    /// The lane by which packets arrive at the port that sends into this one.
    pub(super) fn lane_towards(&self, info: &LinkDirection) -> Option<u32> {
        let place = 2 * info.link as usize + usize::from(1 - info.direction);
        self.lanes
            .get(place)
            .copied()
            .filter(|lane| *lane != u32::MAX)
    }

    /// The port that sends into `lane` got Xoff or Xon.
    pub(super) fn paused(&mut self, lane: u32, now: Time, egress: &Egress) {
        for class in 0..CLASSES {
            let until = egress.paused_until(class).unwrap_or(Time(0));
            let before_ps = egress.counters(class, now).paused_ps;
            if until == Time(0) && before_ps == 0 {
                continue;
            }
            let changes = self.pauses.entry((lane, class)).or_default();
            if changes.len() == PAUSES_KEPT {
                changes.pop_front();
            }
            changes.push_back(Change {
                at: now,
                before_ps,
                until,
            });
        }
    }

    /// For how long a queue had been paused by `at`.
    fn paused_ps(&self, queue: (u32, usize), at: Time) -> u64 {
        let Some(changes) = self.pauses.get(&queue) else {
            return 0;
        };
        let later = changes.partition_point(|change| change.at <= at);
        match later.checked_sub(1).and_then(|index| changes.get(index)) {
            Some(change) => change.before_ps + change.until.min(at).0.saturating_sub(change.at.0),
            None => changes.front().map_or(0, |first| first.before_ps),
        }
    }

    /// The counters of each flow at each port.
    pub(super) fn hops(&self) -> impl Iterator<Item = ((u32, u32), FlowHop)> + '_ {
        self.tallies.iter().map(|(key, tally)| (*key, tally.hop))
    }
}

/// Adds the counters of several parts, and sorts them in the order of the path: first the hops from the
/// flow's `from`, then those back.
pub(super) fn merge<'a>(
    traces: impl Iterator<Item = &'a Trace>,
    sources: &[u32],
) -> Vec<Vec<FlowHop>> {
    let mut sums: BTreeMap<(u32, u32), FlowHop> = BTreeMap::new();
    for (key, hop) in traces.flat_map(Trace::hops) {
        sums.entry(key)
            .or_insert(FlowHop {
                packets: 0,
                lost: 0,
                ..hop
            })
            .add(&hop);
    }
    let mut hops = vec![Vec::new(); sources.len()];
    for ((flow, _), hop) in sums {
        hops[flow as usize].push(hop);
    }
    for (hops, source) in hops.iter_mut().zip(sources) {
        hops.sort_by_key(|hop: &FlowHop| {
            (hop.from != *source, hop.crossed, hop.link, hop.direction)
        });
    }
    hops
}

impl FlowHop {
    /// Adds the counters of another part of the network: one of them sent, the other one may have lost
    /// packets.
    fn add(&mut self, other: &Self) {
        let lost = self.lost + other.lost;
        if other.packets > 0 {
            *self = *other;
        }
        self.lost = lost;
    }

    /// How long a packet waited on average.
    pub fn waited_mean(&self) -> Span {
        Span(self.waited_ps / self.packets.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_count_from_when_to_when_they_were() {
        let mut trace = Trace::new(&[], Vec::new(), None);
        let changes = [(100, 0, 150), (200, 50, 300), (230, 80, 0), (500, 80, 900)];
        let queue = changes.map(|(at, before_ps, until)| Change {
            at: Time(at),
            before_ps,
            until: Time(until),
        });
        trace.pauses.insert((1, 3), VecDeque::from(queue));
        let at = |at| trace.paused_ps((1, 3), Time(at));
        assert_eq!(
            [50, 100, 120, 160, 210, 260, 600, 1000].map(at),
            [0, 0, 20, 50, 60, 80, 180, 480]
        );
        assert_eq!(trace.paused_ps((2, 3), Time(600)), 0);
    }
}
