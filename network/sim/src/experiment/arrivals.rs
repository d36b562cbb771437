//! Messages that arrive at random times.

use super::FLOWS_MAX;
use super::size_table::SizeTable;
use crate::random::RunRng;
use crate::world::{Flow, Transfer};
use fabric::Time;
use fabric_file::Network;
use fabric_file::schema::Workload;
use units::Ratio;

/// Messages that arrive at random times, at a load.
pub(super) struct Arrivals<'a> {
    pub(super) workload: &'a Workload,
    pub(super) number: u32,
    pub(super) load: Ratio,
    /// Lengths; without them all are alike.
    pub(super) sizes: Option<&'a SizeTable>,
    pub(super) end: Time,
    pub(super) network: &'a Network,
}

/// The messages of each sender, in their order; of groups, those to each receiver.
pub(super) fn arrivals(
    all: &Arrivals<'_>,
    from: &[u32],
    to: &[u32],
    operation: Transfer,
    rng: &mut RunRng,
) -> Result<Vec<Flow>, String> {
    let groups = all.workload.incast.map(|senders| senders as usize);
    let (hosts, others) = match groups {
        Some(_) => (to, from),
        None => (from, to),
    };
    let rates = super::attached_rates(all.network);
    let mut flows = Vec::new();
    for host in hosts {
        let mut others: Vec<u32> = others.iter().copied().filter(|it| it != host).collect();
        let bps = rates[*host as usize].bps() as f64 * all.load();
        if others.is_empty() || bps <= 0.0 {
            continue;
        }
        let at_once = groups.unwrap_or(1);
        let gap_ps = all.mean_bytes() * 8e12 * at_once as f64 / bps;
        let mut at = all.workload.start.0.0 as f64;
        loop {
            at += rng.exponential(gap_ps);
            if at >= all.end.0 as f64 {
                break;
            }
            if flows.len() + at_once > FLOWS_MAX {
                return Err(format!("more than {FLOWS_MAX} messages come"));
            }
            let flow = |from: u32, to: u32, bytes: u32| Flow {
                operation,
                start: Time(at as u64),
                workload: all.number,
                ..Flow::write(from, to, bytes)
            };
            if groups.is_none() {
                let bytes = all.bytes(rng);
                flows.push(flow(*host, rng.pick(&others), bytes));
                continue;
            }
            // The first ones of a shuffle that goes no further.
            for place in 0..at_once.min(others.len()) {
                let rest = (others.len() - place) as u64;
                others.swap(place, place + rng.below(rest) as usize);
                flows.push(flow(others[place], *host, all.bytes(rng)));
            }
        }
    }
    if flows.is_empty() {
        let why =
            "no message begins before the end: the time is too short, or no sender has a receiver";
        Err(why.to_owned())
    } else {
        Ok(flows)
    }
}

impl Arrivals<'_> {
    /// The load as a part of a link's rate.
    fn load(&self) -> f64 {
        self.load.0 as f64 / (1_u64 << 32) as f64
    }

    /// The mean length of a message.
    fn mean_bytes(&self) -> f64 {
        let alike = self.workload.message.0 as f64;
        self.sizes.map_or(alike, SizeTable::mean)
    }

    /// The length of the next message.
    fn bytes(&self, rng: &mut RunRng) -> u32 {
        let alike = self.workload.message.0;
        let bytes = self.sizes.map_or(alike, |sizes| sizes.length(rng));
        u32::try_from(bytes.max(1)).unwrap_or(1 << 30)
    }
}
