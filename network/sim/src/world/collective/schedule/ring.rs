//! Rings, and chains along them: NCCL's order of parts (2.30.7, `device/all_reduce.h` and its neighbours).

use super::{Peers, Piece, Schedule, Stage, StrandId};
use crate::world::collective::plan::{CollectiveWork, round_up};

impl Schedule<'_> {
    /// Bytes that a round of a channel moves of its share at most.
    fn round_bytes(&self) -> u64 {
        let chunk = self.job.cut.chunk_bytes.max(1);
        match self.job.work {
            CollectiveWork::RingAllReduce | CollectiveWork::Hierarchical => {
                chunk.saturating_mul(u64::from(self.ranks))
            }
            _ => chunk,
        }
    }

    /// What a channel moves: of the vector, or of each rank's part.
    pub(super) fn channel_share(&self, channel: u32) -> Piece {
        match self.job.work {
            CollectiveWork::RingReduceScatter | CollectiveWork::RingAllGather => {
                self.share(self.part_bytes(), channel)
            }
            _ => self.share(self.job.bytes, channel),
        }
    }

    pub(super) fn rounds(&self, channel: u32) -> u32 {
        let rounds = self
            .channel_share(channel)
            .bytes
            .div_ceil(self.round_bytes());
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// The part of the rank before comes first, and the own one is complete in the middle.
    pub(super) fn ring_all_reduce(&self, id: StrandId, round: u32, stage: u32) -> Stage {
        let share = self.channel_share(id.channel);
        let base = u64::from(round) * self.round_bytes();
        let left = (share.bytes - base).min(self.round_bytes());
        let chunk = round_up(left.div_ceil(u64::from(self.ranks))).min(self.job.cut.chunk_bytes);
        let place = self.place_in_ring(id);
        let part = (place + 2 * self.ranks - 1 - stage) % self.ranks;
        let within = (chunk * u64::from(part)).min(left);
        let piece = Piece {
            offset: share.offset + base + within,
            bytes: (left - within).min(chunk),
        };
        let last = 2 * self.ranks - 2;
        self.along(id, piece, [stage > 0, stage < last], stage < self.ranks)
    }

    /// Reduce-scatter and all-gather: each stage moves a piece of another rank's part.
    pub(super) fn ring_parts(&self, id: StrandId, round: u32, stage: u32, reduces: bool) -> Stage {
        let within = self.chunk_of(id, round);
        let place = self.place_in_ring(id);
        let part = (place + 2 * self.ranks - u32::from(reduces) - stage) % self.ranks;
        let owner = self.rank_in_ring(id.channel, part);
        let piece = Piece {
            offset: self.part_bytes() * u64::from(owner) + within.offset,
            bytes: within.bytes,
        };
        let last = self.ranks - 1;
        self.along(id, piece, [stage > 0, stage < last], reduces)
    }

    /// A chain round the ring from its root, or to it.
    pub(super) fn chain(&self, id: StrandId, round: u32, root: u32, reduces: bool) -> Stage {
        let of_root = self.place_in_ring(StrandId { rank: root, ..id });
        let first = of_root + u32::from(reduces);
        let behind = (self.place_in_ring(id) + 2 * self.ranks - first) % self.ranks;
        let piece = self.chunk_of(id, round);
        self.along(id, piece, [behind > 0, behind + 1 < self.ranks], reduces)
    }

    /// The chunk of a channel's share that a round moves.
    pub(super) fn chunk_of(&self, id: StrandId, round: u32) -> Piece {
        let share = self.channel_share(id.channel);
        let within = u64::from(round) * self.round_bytes();
        Piece {
            offset: share.offset + within,
            bytes: (share.bytes - within).min(self.round_bytes()),
        }
    }

    /// A stage that receives from the rank before, or sends to the next one, or passes on.
    fn along(
        &self,
        id: StrandId,
        piece: Piece,
        [receives, sends]: [bool; 2],
        reduces: bool,
    ) -> Stage {
        let place = self.place_in_ring(id);
        let peer = |there: bool, by: u32| match there {
            true => Peers::one(self.rank_in_ring(id.channel, self.ahead(place, by))),
            false => Peers::NONE,
        };
        Stage {
            receive: peer(receives, self.ranks - 1),
            received: piece,
            send: peer(sends, 1),
            sent: piece,
            passes_on: receives && sends,
            reduces,
        }
    }

    /// The place of a rank in the ring of a channel. Where servers have several ranks, the ring of each
    /// channel leaves and enters them at others, and so that it goes from one server to the next between
    /// ranks with the same place in both: it goes through every other server backwards.
    fn place_in_ring(&self, id: StrandId) -> u32 {
        let within = self.job.per_server;
        let (server, place) = (id.rank / within, id.rank % within);
        let exit = id.channel % within;
        let after = match server % 2 {
            0 => (place + 2 * within - exit - 1) % within,
            _ => (exit + within - place) % within,
        };
        server * within + after
    }

    /// The rank at a place.
    fn rank_in_ring(&self, channel: u32, place: u32) -> u32 {
        let within = self.job.per_server;
        let (server, after) = (place / within, place % within);
        let exit = channel % within;
        let place = match server % 2 {
            0 => (exit + 1 + after) % within,
            _ => (exit + within - after) % within,
        };
        server * within + place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::collective::plan::{Cut, Job};
    use fabric::{Span, Time};
    use std::sync::Arc;

    fn job(per_server: u32) -> Job {
        Job {
            group: 0,
            work: CollectiveWork::RingAllReduce,
            bytes: 1,
            channels: per_server,
            per_server,
            cut: Cut {
                chunk_bytes: 64,
                slices: 1,
                credit: 1,
                on_wire: [1, 1],
            },
            turns: Arc::default(),
            after: Vec::new(),
            compute: Span::ZERO,
            root_computes: false,
            start: Time(0),
            jitter: Span::ZERO,
            repeat: 1,
        }
    }

    #[test]
    fn rings_go_from_server_to_server_within_a_rail() {
        for (servers, within) in [(2, 2), (4, 8), (6, 3), (3, 4), (5, 1)] {
            let job = job(within);
            let schedule = Schedule::new(&job, servers * within);
            for channel in 0..within {
                let ring = (0..servers * within).map(|place| schedule.rank_in_ring(channel, place));
                let ring: Vec<u32> = ring.collect();
                for (rank, place) in ring.iter().zip(0..) {
                    let (rank, strand) = (*rank, 0);
                    let id = StrandId {
                        rank,
                        channel,
                        strand,
                    };
                    assert_eq!(schedule.place_in_ring(id), place);
                }
                let links = ring.iter().zip(ring.iter().cycle().skip(1));
                let leaving = links.filter(|(from, to)| *from / within != *to / within);
                let leaving: Vec<_> = leaving.collect();
                assert_eq!(leaving.len() as u32, servers, "each server is left once");
                // With an odd number of servers one link is between two rails.
                let across = leaving
                    .iter()
                    .filter(|(from, to)| *from % within != *to % within);
                let odd = servers % 2 == 1 && within > 1;
                assert_eq!(
                    across.count(),
                    usize::from(odd),
                    "{servers} servers of {within}"
                );
            }
        }
    }
}
