//! The state of a strand: where a rank is in the stages of one channel. It is an iterator, of the same size
//! whatever it moves.

use super::schedule::{Extent, Schedule, Stage, StrandId};

/// A place among the stages of a strand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Cursor {
    pub(super) round: u32,
    pub(super) stage: u32,
}

impl Cursor {
    pub(super) const fn is_in(self, extent: Extent) -> bool {
        self.round < extent.rounds
    }

    pub(super) fn step(&mut self, extent: Extent) {
        self.stage += 1;
        if self.stage >= extent.stages {
            self.stage = 0;
            self.round += 1;
        }
    }
}

/// The state of a strand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Strand {
    /// The stage that it is in, and the slices of it that were taken and given on.
    pub(super) at: Cursor,
    pub(super) taken: u32,
    pub(super) given: u32,
    /// The stage up to which the way is clear for senders, and slices of that stage.
    pub(super) ahead: Cursor,
    pub(super) ahead_slices: u32,
    /// Slices for which the way is clear and that were not taken.
    pub(super) cleared: u32,
}

const _: () = assert!(size_of::<Strand>() == 32, "an iterator, and no graph");

/// The round of a strand that is over.
const OVER: u32 = u32::MAX;

impl Strand {
    pub(super) const fn is_over(&self) -> bool {
        self.at.round == OVER
    }

    pub(super) fn end(&mut self) {
        self.at.round = OVER;
    }

    /// The next slice that the way can be cleared for: the stage that receives it. Every stage that receives
    /// nothing is passed over.
    pub(super) fn next_to_clear(
        &mut self,
        schedule: Schedule<'_>,
        id: StrandId,
        credit: u32,
    ) -> Option<Stage> {
        let extent = schedule.extent(id);
        while self.cleared < credit && self.ahead.is_in(extent) {
            let stage = schedule.stage(id, self.ahead.round, self.ahead.stage);
            let slices = schedule.slices(&stage)[0];
            if self.ahead_slices < slices {
                self.ahead_slices += 1;
                self.cleared += 1;
                return Some(stage);
            }
            self.ahead_slices = 0;
            self.ahead.step(extent);
        }
        None
    }
}
