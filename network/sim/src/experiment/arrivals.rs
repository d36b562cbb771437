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
    let rates = super::attached_rates(all.network);
    let load = all.load.0 as f64 / (1_u64 << 32) as f64;
    let alike = all.workload.message.0;
    let mean = all.sizes.map_or(alike as f64, SizeTable::mean);
    if let Some(senders) = all.workload.incast {
        return all.incasts(from, to, senders as usize, operation, rng);
    }
    let mut flows = Vec::new();
    for sender in from {
        let others: Vec<u32> = to.iter().copied().filter(|host| host != sender).collect();
        if others.is_empty() || load <= 0.0 {
            continue;
        }
        let gap_ps = mean * 8e12 / (rates[*sender as usize].bps() as f64 * load);
        let mut at = all.workload.start.0.0 as f64;
        loop {
            at += rng.exponential(gap_ps);
            if at >= all.end.0 as f64 {
                break;
            }
            if flows.len() >= FLOWS_MAX {
                return Err(format!("more than {FLOWS_MAX} messages come"));
            }
            let bytes = all.sizes.map_or(alike, |sizes| sizes.length(rng));
            flows.push(Flow {
                operation,
                start: Time(at as u64),
                workload: all.number,
                ..Flow::write(
                    *sender,
                    rng.pick(&others),
                    u32::try_from(bytes.max(1)).unwrap_or(1 << 30),
                )
            });
        }
    }
    if flows.is_empty() {
        Err("nothing comes".to_owned())
    } else {
        Ok(flows)
    }
}

impl Arrivals<'_> {
    /// Groups of messages to each receiver, those of a group at once, from different senders.
    fn incasts(
        &self,
        from: &[u32],
        to: &[u32],
        senders: usize,
        operation: Transfer,
        rng: &mut RunRng,
    ) -> Result<Vec<Flow>, String> {
        let rates = super::attached_rates(self.network);
        let load = self.load.0 as f64 / (1_u64 << 32) as f64;
        let alike = self.workload.message.0;
        let mean = self.sizes.map_or(alike as f64, SizeTable::mean);
        let mut flows = Vec::new();
        for receiver in to.iter().filter(|_| load > 0.0) {
            let mut others: Vec<u32> = from.iter().copied().filter(|it| it != receiver).collect();
            let bits = mean * 8e12 * senders as f64;
            let gap_ps = bits / (rates[*receiver as usize].bps() as f64 * load);
            let mut at = self.workload.start.0.0 as f64;
            loop {
                at += rng.exponential(gap_ps);
                if at >= self.end.0 as f64 {
                    break;
                }
                if flows.len() + senders > FLOWS_MAX {
                    return Err(format!("more than {FLOWS_MAX} messages come"));
                }
                // The first ones of a shuffle that goes no further.
                for place in 0..senders.min(others.len()) {
                    let rest = (others.len() - place) as u64;
                    others.swap(place, place + rng.below(rest) as usize);
                    let bytes = self.sizes.map_or(alike, |sizes| sizes.length(rng));
                    let bytes = u32::try_from(bytes.max(1)).unwrap_or(1 << 30);
                    flows.push(Flow {
                        operation,
                        start: Time(at as u64),
                        workload: self.number,
                        ..Flow::write(others[place], *receiver, bytes)
                    });
                }
            }
        }
        match flows.is_empty() {
            true => Err("nothing comes".to_owned()),
            false => Ok(flows),
        }
    }
}
