//! All-reduce in three parts: reduce-scatter within each server, all-reduce of each part among the ranks that
//! have the same place in their servers, all-gather within each server. Each part is a ring.

use super::{Peers, Piece, Schedule, Stage, StrandId};
use crate::world::collective::plan::round_up;

/// A step of a ring: the members before and behind, and the part that is moved, as places in the ring.
struct RingStep {
    members: u32,
    place: u32,
    part: u32,
    receives: bool,
    sends: bool,
}

impl RingStep {
    /// The step of this number, of which the first sends the part that is `ahead` places before the own one.
    const fn new(members: u32, place: u32, number: u32, last: u32, ahead: u32) -> Self {
        Self {
            members,
            place,
            part: (place + 2 * members - ahead - number) % members,
            receives: number > 0,
            sends: number < last,
        }
    }

    const fn next(&self) -> u32 {
        (self.place + 1) % self.members
    }

    const fn before(&self) -> u32 {
        (self.place + self.members - 1) % self.members
    }
}

/// The part of a piece that has this number, if it has so many.
fn part_of(piece: Piece, parts: u32, number: u32) -> Piece {
    let unit = round_up(piece.bytes.div_ceil(u64::from(parts)));
    let from = (unit * u64::from(number)).min(piece.bytes);
    Piece {
        offset: piece.offset + from,
        bytes: (piece.bytes - from).min(unit),
    }
}

impl Schedule<'_> {
    const fn servers(&self) -> u32 {
        self.ranks / self.job.per_server
    }

    pub(super) const fn hierarchical_stages(&self) -> u32 {
        2 * self.job.per_server + 2 * self.servers() - 1
    }

    pub(super) fn hierarchical_stage(&self, id: StrandId, round: u32, stage: u32) -> Stage {
        let (within, servers) = (self.job.per_server, self.servers());
        let (server, place) = (id.rank / within, id.rank % within);
        let whole = self.chunk_of(id, round);
        let rank_in_server = |place: u32| server * within + place;
        let rank_at_place = |server: u32| server * within + place;
        let across = 2 * servers - 1;
        if stage < within {
            let step = RingStep::new(within, place, stage, within - 1, 1);
            let piece = part_of(whole, within, step.part);
            return ring_stage(&step, piece, true, rank_in_server);
        }
        let stage = stage - within;
        if stage < across {
            let own = part_of(whole, within, place);
            let step = RingStep::new(servers, server, stage, across - 1, 1);
            let piece = part_of(own, servers, step.part);
            return ring_stage(&step, piece, stage < servers, rank_at_place);
        }
        let step = RingStep::new(within, place, stage - across, within - 1, 0);
        let piece = part_of(whole, within, step.part);
        ring_stage(&step, piece, false, rank_in_server)
    }
}

fn ring_stage(step: &RingStep, piece: Piece, reduces: bool, rank: impl Fn(u32) -> u32) -> Stage {
    let peer = |there: bool, place: u32| match there {
        true => Peers::one(rank(place)),
        false => Peers::NONE,
    };
    Stage {
        receive: peer(step.receives, step.before()),
        received: piece,
        send: peer(step.sends, step.next()),
        sent: piece,
        passes_on: step.receives && step.sends,
        reduces,
    }
}
