//! Ranks that exchange data with one other rank after the other: halving and doubling, everyone with
//! everyone, barriers.

use super::{Peers, Piece, Schedule, Stage, StrandId};
use crate::world::collective::plan::{CollectiveWork, round_up};

/// Exchanges of a channel that are under way at once, of everyone with everyone: NCCL's
/// `NCCL_MAX_DEV_WORK_P2P_PER_BATCH`.
pub(super) const STRANDS: u32 = 8;

/// Bytes of a message of a barrier.
const BARRIER_BYTES: u64 = 4;

/// The order in which a rank turns to the ranks that are so far ahead, itself first: NCCL's `ncclP2pSchedule`
/// (2.30.7, `init.cc`) among nodes with one rank each.
pub fn turns(ranks: u32) -> Vec<u32> {
    let power = u64::from(ranks.next_power_of_two());
    let all = (0..power).map(|x| (x * (x + 1) / 2) % power);
    all.filter(|by| *by < u64::from(ranks))
        .map(|by| by as u32)
        .collect()
}

/// Halving and doubling.
impl Schedule<'_> {
    /// The largest power of two that is not above the number of ranks, and its logarithm: the ranks beyond it
    /// give their data to others first, and get the result last (fold).
    fn power(&self) -> [u32; 2] {
        let log = self.ranks.max(1).ilog2();
        [1 << log, log]
    }

    pub(super) fn halvings(&self, reduces: bool, gathers: bool) -> u32 {
        let [power, log] = self.power();
        let fold = if power < self.ranks { 2 } else { 0 };
        log * (u32::from(reduces) + u32::from(gathers)) + fold
    }

    pub(super) fn halving_stage(&self, id: StrandId, stage: u32, reduces: bool) -> Stage {
        let [power, log] = self.power();
        let mut stage = stage;
        if power < self.ranks {
            let last = self.extent(id).stages - 1;
            if stage == 0 || stage == last {
                return self.fold(id, power, stage == 0);
            }
            stage -= 1;
        }
        if id.rank >= power {
            return Stage::default();
        }
        // Halves first the vector, then a half of it, and so on; gathering goes back.
        let is_halving = reduces && stage < log;
        let level = match (is_halving, reduces) {
            (true, _) => stage,
            (false, true) => 2 * log - 1 - stage,
            (false, false) => log - 1 - stage,
        };
        let own = self.halved(id, power, id.rank, level + 1);
        let partner = id.rank ^ (1 << level);
        let other = self.halved(id, power, partner, level + 1);
        let (received, sent) = match is_halving {
            true => (own, other),
            false => (other, own),
        };
        Stage {
            receive: Peers::one(partner),
            received,
            send: Peers::one(partner),
            sent,
            passes_on: false,
            reduces: is_halving,
        }
    }

    /// What a rank has after so many halvings.
    fn halved(&self, id: StrandId, power: u32, rank: u32, halvings: u32) -> Piece {
        let share = self.channel_share(id.channel);
        let unit = round_up(share.bytes.div_ceil(u64::from(power)));
        let halves = (0..halvings).filter(|level| rank >> level & 1 == 1);
        let first: u64 = halves.map(|level| u64::from(power >> (level + 1))).sum();
        let from = (unit * first).min(share.bytes);
        let width = unit * u64::from(power >> halvings);
        Piece {
            offset: share.offset + from,
            bytes: (share.bytes - from).min(width),
        }
    }

    /// Ranks beyond the power of two give all that they have, or get it.
    fn fold(&self, id: StrandId, power: u32, is_first: bool) -> Stage {
        let piece = self.channel_share(id.channel);
        let has_other = id.rank + power < self.ranks;
        let (gives, peer) = match (id.rank >= power, has_other) {
            (true, _) => (is_first, id.rank - power),
            (false, true) => (!is_first, id.rank + power),
            (false, false) => return Stage::default(),
        };
        let peer = Peers::one(peer);
        Stage {
            receive: if gives { Peers::NONE } else { peer },
            received: piece,
            send: if gives { peer } else { Peers::NONE },
            sent: piece,
            passes_on: false,
            reduces: is_first,
        }
    }
}

/// Everyone with everyone.
impl Schedule<'_> {
    /// Every eighth of the other ranks.
    pub(super) const fn direct_stages(&self, strand: u32) -> u32 {
        (self.ranks - 1 + STRANDS - 1 - strand) / STRANDS
    }

    pub(super) fn direct_stage(&self, id: StrandId, stage: u32) -> Stage {
        let turn = 1 + id.strand + stage * STRANDS;
        let Some(by) = self.job.turns.get(turn as usize).copied() else {
            return Stage::default();
        };
        let (to, from) = (
            self.ahead(id.rank, by),
            self.ahead(id.rank, self.ranks - by),
        );
        let share = self.share(self.part_bytes(), id.channel);
        let part = |rank: u32| Piece {
            offset: self.part_bytes() * u64::from(rank) + share.offset,
            bytes: share.bytes,
        };
        let (received, sent) = match self.job.work {
            CollectiveWork::DirectReduceScatter => (part(id.rank), part(to)),
            CollectiveWork::DirectAllGather => (part(from), part(id.rank)),
            _ => (part(from), part(to)),
        };
        Stage {
            receive: Peers::one(from),
            received,
            send: Peers::one(to),
            sent,
            passes_on: false,
            reduces: self.job.work == CollectiveWork::DirectReduceScatter,
        }
    }
}

/// Everyone to the next.
impl Schedule<'_> {
    pub(super) fn send_stage(&self, id: StrandId) -> Stage {
        let piece = self.channel_share(id.channel);
        Stage {
            receive: Peers::one(self.ahead(id.rank, self.ranks - 1)),
            received: piece,
            send: Peers::one(self.ahead(id.rank, 1)),
            sent: piece,
            passes_on: false,
            reduces: false,
        }
    }
}

/// Barriers (Hensgen, Finkel and Manber, 1988): in each stage twice as many ranks have been heard of.
impl Schedule<'_> {
    pub(super) const fn dissemination_stages(&self) -> u32 {
        self.ranks.next_power_of_two().ilog2()
    }

    pub(super) fn dissemination_stage(&self, id: StrandId, stage: u32) -> Stage {
        let by = 1 << stage;
        let piece = Piece {
            offset: 0,
            bytes: BARRIER_BYTES,
        };
        Stage {
            receive: Peers::one(self.ahead(id.rank, self.ranks - by)),
            received: piece,
            send: Peers::one(self.ahead(id.rank, by)),
            sent: piece,
            passes_on: false,
            reduces: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three of NCCL's orders.
    #[test]
    fn turns_are_those_of_nccl() {
        assert_eq!(turns(8), [0, 1, 3, 6, 2, 7, 5, 4]);
        assert_eq!(turns(6), [0, 1, 3, 2, 5, 4]);
        let sixteen = [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8];
        assert_eq!(turns(16), sixteen);
        for ranks in 1..100 {
            let mut all = turns(ranks);
            all.sort_unstable();
            assert_eq!(all, (0..ranks).collect::<Vec<_>>());
        }
    }
}
