//! Collectives in a scenario: who takes part, what they do, and what they wait for. Plain data.

use super::program::{ProgrammedHost, RankProgram};
use fabric::{Rate, Span, Time};
use std::sync::Arc;

/// All collectives and dependent transfers of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CollectivePlan {
    /// The groups, which are NCCL's communicators.
    pub groups: Vec<RankGroup>,
    /// What they do: a job comes after all that it waits for, and a group's jobs run in this order.
    pub jobs: Vec<Job>,
    /// The queue pairs that they use, in the order of their flows.
    pub pipes: Vec<Pipe>,
    /// The ways within servers.
    pub local_pipes: Vec<LocalPipe>,
    /// What hosts with a program do.
    pub programs: Vec<RankProgram>,
    /// These hosts, in the order of their numbers. Their programs begin the repetitions of their jobs.
    pub programmed: Vec<ProgrammedHost>,
    /// Seed of the jitter.
    pub seed: u64,
    /// Whether the last repetition of each job is logged, for its critical path: about 100 bytes a slice.
    pub is_logged: bool,
}

impl CollectivePlan {
    /// The pipe that a flow is.
    pub fn pipe_of(&self, flow: u32) -> Option<u32> {
        let found = self.pipes.binary_search_by_key(&flow, |pipe| pipe.flow);
        found.ok().map(|index| index as u32)
    }

    /// The shortest delay within servers, if they have ways between ranks.
    pub(in crate::world) fn local_delay(&self) -> Option<Span> {
        let groups = self.local_pipes.iter().map(|pipe| pipe.group as usize);
        groups.map(|group| self.groups[group].local.delay).min()
    }

    /// By host: the groups that it is in, and its rank there.
    pub(in crate::world) fn seats(&self, hosts: usize) -> Vec<Vec<[u32; 2]>> {
        let mut seats = vec![Vec::new(); hosts];
        for (group, number) in self.groups.iter().zip(0..) {
            for (host, rank) in group.hosts.iter().zip(0..) {
                seats[*host as usize].push([number, rank]);
            }
        }
        seats
    }
}

/// The ranks of collectives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankGroup {
    /// The host of each rank; no host has two.
    pub hosts: Vec<u32>,
    /// Ranks of a server, which stand side by side: they reach each other without the network.
    pub per_server: u32,
    /// The links by which they do.
    pub local: LocalLinks,
}

/// What joins the ranks of a server: each has a way to each other one, and no packets are on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalLinks {
    /// How fast a rank sends.
    pub rate: Rate,
    /// From the last byte sent until the other rank has it.
    pub delay: Span,
}

/// A way between two ranks of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPipe {
    /// The group that uses it.
    pub group: u32,
    /// The channel of the group.
    pub channel: u32,
    /// The rank that sends data.
    pub from: u32,
    /// The rank that receives it.
    pub to: u32,
    /// Slices that cross it in the whole run.
    pub messages: u64,
}

/// A queue pair of a group, for data in one direction; what clears the way comes back on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipe {
    /// The group that uses it.
    pub group: u32,
    /// The channel of the group.
    pub channel: u32,
    /// The rank that sends data.
    pub from: u32,
    /// The rank that receives it.
    pub to: u32,
    /// The flow of the scenario that it is.
    pub flow: u32,
    /// Messages for which the receiver has buffers at most, over all jobs.
    pub credit: u32,
}

/// A collective, or a transfer, which is a broadcast in a group of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The group whose ranks carry it out.
    pub group: u32,
    /// What it does.
    pub work: CollectiveWork,
    /// Bytes as nccl-tests count them.
    pub bytes: u64,
    /// Channels that the data is divided among.
    pub channels: u32,
    /// Ranks of a server.
    pub per_server: u32,
    /// How it is cut.
    pub cut: Cut,
    /// Everyone with everyone: the order in which a rank turns to those that are so far ahead.
    pub turns: Arc<[u32]>,
    /// Jobs that it waits for; each rank for those that its host takes part in.
    pub after: Vec<u32>,
    /// Time that ranks compute before each repetition.
    pub compute: Span,
    /// Whether the root alone computes.
    pub root_computes: bool,
    /// When it may begin.
    pub start: Time,
    /// How much longer each rank computes before each repetition at most, by chance.
    pub jitter: Span,
    /// Repetitions, at least 1.
    pub repeat: u32,
}

/// The operation, and how data travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveWork {
    /// All-reduce round the ring.
    RingAllReduce,
    /// Reduce-scatter round the ring.
    RingReduceScatter,
    /// All-gather round the ring.
    RingAllGather,
    /// Broadcast along the ring from this rank.
    ChainBroadcast {
        /// The rank that has the data.
        root: u32,
    },
    /// Reduce along the ring to this rank.
    ChainReduce {
        /// The rank that gets the sum.
        root: u32,
    },
    /// All-reduce up a binary tree and down again.
    TreeAllReduce {
        /// Odd channels use a second tree, in which inner ranks of the first are leaves.
        double: bool,
    },
    /// Recursive halving, which reduces, and doubling, which gathers.
    HalvingDoubling {
        /// Whether the schedule begins with halving: reduce-scatter.
        reduces: bool,
        /// Whether the schedule ends with doubling: all-gather.
        gathers: bool,
    },
    /// Everyone sends a vector to the rank after it.
    SendToNext,
    /// Everyone sends a part of its own to everyone else.
    DirectAllToAll,
    /// Everyone sends to each its part.
    DirectReduceScatter,
    /// Everyone sends its part to each.
    DirectAllGather,
    /// Nobody goes on before everyone has come here.
    Barrier,
    /// All-reduce within servers, and among the ranks that have the same place in their servers.
    Hierarchical,
}

/// How data is cut into messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Bytes of data that a stage moves at most.
    pub chunk_bytes: u64,
    /// Messages of a whole chunk.
    pub slices: u32,
    /// Messages for which a receiver has buffers.
    pub credit: u32,
    /// Bytes on the network by bytes of data, as a fraction.
    pub on_wire: [u32; 2],
}

/// Slices and last chunks are whole multiples of this many bytes.
const GRAIN: u64 = 16;

/// A short chunk is not cut into slices below this part of a whole one.
const SLICE_PART_MIN: u64 = 32;

impl Cut {
    /// Bytes of data in each slice of so many bytes, but for the last. What is longer than a chunk has slices
    /// of whole chunks.
    pub(super) fn slice_bytes(&self, chunk: u64) -> u64 {
        let slices = u64::from(self.slices.max(1));
        let whole = self.chunk_bytes.div_ceil(slices).max(1);
        if chunk >= self.chunk_bytes {
            return whole;
        }
        round_up(chunk.div_ceil(slices)).max(whole / SLICE_PART_MIN)
    }

    /// Slices of a chunk of so many bytes. Those for which a short one has no data are sent without any, as
    /// NCCL does.
    pub fn slices_of(&self, chunk: u64) -> u32 {
        match self.slices_with_data(chunk) {
            0 => 0,
            slices => slices.max(self.slices),
        }
    }

    fn slices_with_data(&self, chunk: u64) -> u32 {
        if chunk == 0 {
            return 0;
        }
        u32::try_from(chunk.div_ceil(self.slice_bytes(chunk))).unwrap_or(u32::MAX)
    }

    /// Bytes of the messages of all slices of a chunk.
    pub fn all_bytes(&self, chunk: u64) -> u64 {
        let Some(last) = self.slices_with_data(chunk).checked_sub(1) else {
            return 0;
        };
        let whole = u64::from(self.message_bytes(chunk, 0));
        whole * u64::from(last) + u64::from(self.message_bytes(chunk, last))
    }

    /// Packets of the messages of all slices of a chunk.
    pub(super) fn packets(&self, chunk: u64, mtu: u32) -> u64 {
        let slices = u64::from(self.slices_of(chunk));
        let Some(last) = self.slices_with_data(chunk).checked_sub(1) else {
            return 0;
        };
        let packets = |slice: u32| self.message_bytes(chunk, slice).div_ceil(mtu.max(1)).max(1);
        let whole = u64::from(packets(0)) * u64::from(last);
        let empty = slices - u64::from(last) - 1;
        whole + u64::from(packets(last)) + empty
    }

    /// Bytes of the message that is the slice of this number.
    pub fn message_bytes(&self, chunk: u64, slice: u32) -> u32 {
        let each = self.slice_bytes(chunk);
        let data = chunk.saturating_sub(each * u64::from(slice)).min(each);
        let [wire, of] = self.on_wire.map(u64::from);
        u32::try_from((data * wire).div_ceil(of.max(1))).unwrap_or(u32::MAX)
    }
}

/// The next multiple of [`GRAIN`].
pub(super) const fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(GRAIN) * GRAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NCCL's `Simple`: chunks of 2 MiB in two slices.
    const SIMPLE: Cut = Cut {
        chunk_bytes: 2 << 20,
        slices: 2,
        credit: 4,
        on_wire: [1, 1],
    };

    #[test]
    fn whole_chunks_and_short_ones_are_cut_as_nccl_cuts_them() {
        let cut = |chunk: u64| {
            let slices = SIMPLE.slices_of(chunk);
            let bytes = (0..slices).map(|slice| SIMPLE.message_bytes(chunk, slice));
            bytes.collect::<Vec<_>>()
        };
        assert_eq!(cut(2 << 20), [1 << 20, 1 << 20]);
        // 16 MiB over 8 channels and 16 ranks.
        assert_eq!(cut(131_072), [65_536, 65_536]);
        // No slice is shorter than 32 KiB, but for the last.
        assert_eq!(cut(40_000), [32_768, 7_232]);
        assert_eq!(cut(100), [100, 0]);
        assert_eq!(cut(0), [] as [u32; 0]);
        assert_eq!(cut(5 << 19), [1 << 20, 1 << 20, 1 << 19]);
        for chunk in [0, 1, 100, 40_000, 131_072, 2 << 20, 5 << 19] {
            let bytes: u32 = cut(chunk).iter().sum();
            assert_eq!([SIMPLE.all_bytes(chunk), u64::from(bytes)], [chunk; 2]);
            let packets: u32 = cut(chunk).iter().map(|it| it.div_ceil(1000).max(1)).sum();
            assert_eq!(SIMPLE.packets(chunk, 1000), u64::from(packets), "{chunk}");
        }
    }

    #[test]
    fn flags_among_the_data_take_room() {
        let of = |chunk_bytes, on_wire| Cut {
            chunk_bytes,
            slices: 1,
            credit: 8,
            on_wire,
        };
        assert_eq!(of(32_768, [2, 1]).message_bytes(32_768, 0), 65_536);
        assert_eq!(of(576_000, [16, 15]).message_bytes(576_000, 0), 614_400);
        assert_eq!(of(576_000, [16, 15]).message_bytes(1_000, 0), 1_067);
    }
}
