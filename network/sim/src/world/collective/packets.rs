//! The job that a packet of a collective belongs to: messages of a pipe are those of its group's jobs, one
//! job after the other, so that the packet sequence number says which.

use super::plan::CollectivePlan;
use super::schedule::{Schedule, StrandId};
use crate::world::scenario::HostConfig;
use std::collections::BTreeMap;
use wire::Psn;

/// The jobs of one direction of a queue pair, in their order: the number of the first packet behind each.
type Ends = Vec<(u64, u32)>;

/// The jobs of all pipes by packet.
#[derive(Debug)]
pub(in crate::world) struct JobsByPacket {
    /// By flow: the host that sends data, what it sends, and the records that come back.
    flows: BTreeMap<u32, (u32, [Ends; 2])>,
}

impl JobsByPacket {
    pub(in crate::world) fn new(plan: &CollectivePlan, hosts: &[HostConfig]) -> Self {
        let mut by_key = BTreeMap::new();
        let mut flows = BTreeMap::new();
        for pipe in &plan.pipes {
            let key = (pipe.group, pipe.channel, pipe.from, pipe.to);
            by_key.insert(key, pipe.flow);
            let sender = plan.groups[pipe.group as usize].hosts[pipe.from as usize];
            flows.insert(pipe.flow, (sender, [Ends::new(), Ends::new()]));
        }
        for (job, number) in plan.jobs.iter().zip(0..) {
            let group = &plan.groups[job.group as usize];
            let ranks = group.hosts.len() as u32;
            let schedule = Schedule::new(job, ranks);
            let strands = schedule.strands();
            let each = (0..ranks)
                .flat_map(|rank| (0..job.channels * strands).map(move |strand| (rank, strand)));
            for (rank, strand) in each {
                let id = StrandId {
                    rank,
                    channel: strand / strands,
                    strand: strand % strands,
                };
                let mtu = hosts[group.hosts[rank as usize] as usize].mtu.bytes();
                for (stage, times) in schedule.stages(id) {
                    let slices = u64::from(schedule.slices(&stage)[1]);
                    let packets = job.cut.packets(stage.sent.bytes, mtu);
                    let all = u64::from(times) * u64::from(job.repeat);
                    for to in stage.send.ranks() {
                        let key = (job.group, id.channel, id.rank, *to);
                        let found = by_key.get(&key).and_then(|flow| flows.get_mut(flow));
                        if let Some((_, [data, records])) = found {
                            add(data, number, packets.saturating_mul(all));
                            add(records, number, slices.saturating_mul(all));
                        }
                    }
                }
            }
        }
        Self { flows }
    }

    /// The direction of a flow's packet, and its job. `before` is the number of the packet that was looked up
    /// last in this direction: it says how often sequence numbers have begun anew.
    pub(in crate::world) fn job_of(
        &self,
        flow: u32,
        from: u32,
        psn: Psn,
        before: &mut BTreeMap<(u32, bool), u64>,
    ) -> Option<u32> {
        let (sender, ends) = self.flows.get(&flow)?;
        let is_record = from != *sender;
        let last = before.entry((flow, is_record)).or_default();
        // Numbers have 24 bits, which `Psn` keeps.
        let ahead = psn.distance_from(Psn::new((*last & 0xff_ffff) as u32));
        let number = last.saturating_add_signed(i64::from(ahead));
        *last = number.max(*last);
        let ends = &ends[usize::from(is_record)];
        let place = ends.partition_point(|(end, _)| *end <= number);
        ends.get(place).map(|(_, job)| *job)
    }
}

/// Adds packets of a job to those before.
fn add(ends: &mut Ends, job: u32, packets: u64) {
    let before = ends.last().copied();
    match ends.last_mut() {
        Some((end, last)) if *last == job => *end += packets,
        _ if packets == 0 => {}
        _ => ends.push((before.map_or(0, |(end, _)| end) + packets, job)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_begin_anew_are_counted_on() {
        let ends = [vec![(10, 0), (1 << 25, 1), (1 << 26, 2)], vec![(3, 0)]];
        let jobs = JobsByPacket {
            flows: BTreeMap::from([(7, (4, ends))]),
        };
        let mut before = BTreeMap::new();
        let mut of = |number: u32, from: u32| jobs.job_of(7, from, Psn::new(number), &mut before);
        assert_eq!([0, 9, 10, 9].map(|psn| of(psn, 4)), [0, 0, 1, 0].map(Some));
        assert_eq!(
            [of(2, 5), of(3, 5)],
            [Some(0), None],
            "records are counted apart"
        );
        for round in 0..4_u32 {
            for part in [0x10_0000, 0x60_0000, 0xb0_0000, 0xff_ffff] {
                let expected = if round < 2 { 1 } else { 2 };
                assert_eq!(of(part, 4), Some(expected), "round {round}");
            }
        }
        assert_eq!(of(5, 4), None, "behind the last");
    }
}
