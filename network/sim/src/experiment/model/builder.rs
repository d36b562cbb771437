//! Programs of ranks, written with loops.

use super::layout::{PairEnd, Within};
use crate::world::{Instruction, RankProgram};
use fabric::Span;
use fabric_file::schema::CollectiveKind;

/// What ranks of a group exchange, over and over with the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Its name in results, within those of its model.
    pub name: &'static str,
    /// The operation; between two ranks of which one sends there is none.
    pub kind: Option<CollectiveKind>,
    /// Which ranks exchange it.
    pub within: Within,
    /// Bytes as nccl-tests count them.
    pub bytes: u64,
    /// The end of a pair that the rank is.
    pub end: PairEnd,
}

impl Exchange {
    /// Whether another one is the same, at the other end perhaps.
    pub fn is_same(&self, other: &Self) -> bool {
        let whole = |one: &Self| Self {
            end: PairEnd::Both,
            ..*one
        };
        whole(self) == whole(other)
    }
}

/// A program with what its slots stand for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// What a rank does, in order.
    pub program: RankProgram,
    /// What each slot stands for, and how often it is begun.
    pub exchanges: Vec<(Exchange, u64)>,
    /// How long it computes in all.
    pub computing: Span,
    /// Instructions that are carried out in all.
    pub carried_out: u64,
}

/// Writes a program.
#[derive(Default)]
pub(super) struct ProgramBuilder {
    written: Written,
    /// How often what is written is done.
    often: Vec<u64>,
}

impl ProgramBuilder {
    pub(super) fn compute(&mut self, span: Span) {
        if span > Span::ZERO {
            let all = span.0.saturating_mul(self.times());
            let computing = &mut self.written.computing.0;
            *computing = computing.saturating_add(all);
            self.push(Instruction::Compute(span));
        }
    }

    /// Begins an exchange.
    pub(super) fn begin(&mut self, exchange: Exchange) {
        let slot = self.slot(exchange);
        let all = &mut self.written.exchanges[slot as usize].1;
        *all = all.saturating_add(self.often.iter().product());
        self.push(Instruction::Begin(slot));
    }

    /// Waits until an exchange is over, but for so many of it.
    pub(super) fn wait(&mut self, exchange: Exchange, behind: u32) {
        let slot = self.slot(exchange);
        self.push(Instruction::Wait { slot, behind });
    }

    /// Begins an exchange, and waits for it.
    pub(super) fn call(&mut self, exchange: Exchange) {
        self.begin(exchange);
        self.wait(exchange, 0);
    }

    /// Does something so often.
    pub(super) fn repeat(&mut self, times: u32, mut body: impl FnMut(&mut Self)) {
        if times < 2 {
            (0..times).for_each(|_| body(self));
            return;
        }
        let program = &mut self.written.program;
        let (number, first) = (program.loops, program.instructions.len() as u32);
        program.loops += 1;
        self.often.push(u64::from(times));
        body(self);
        self.often.pop();
        self.push(Instruction::Repeat {
            number,
            first,
            times,
        });
    }

    pub(super) fn end_step(&mut self) {
        self.push(Instruction::StepEnd);
    }

    pub(super) fn written(self) -> Written {
        self.written
    }

    /// How often what is written is done: no product of loops is beyond 64 bits.
    fn times(&self) -> u64 {
        self.often.iter().product()
    }

    fn push(&mut self, instruction: Instruction) {
        let carried_out = &mut self.written.carried_out;
        *carried_out = carried_out.saturating_add(self.often.iter().product());
        self.written.program.instructions.push(instruction);
    }

    fn slot(&mut self, exchange: Exchange) -> u32 {
        let all = &mut self.written.exchanges;
        let found = all.iter().position(|(one, _)| *one == exchange);
        let slot = found.unwrap_or_else(|| {
            all.push((exchange, 0));
            all.len() - 1
        });
        self.written.program.slots = all.len() as u32;
        slot as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Exchange = Exchange {
        name: "one",
        kind: Some(CollectiveKind::AllReduce),
        within: Within::Tensor,
        bytes: 1,
        end: PairEnd::Both,
    };

    #[test]
    fn loops_are_counted_and_not_written_out() {
        let mut builder = ProgramBuilder::default();
        builder.repeat(3, |builder| {
            builder.repeat(5, |builder| builder.call(ONE));
            builder.repeat(1, |builder| builder.call(ONE));
            builder.repeat(0, |builder| builder.call(ONE));
        });
        let written = builder.written();
        assert_eq!(written.exchanges, [(ONE, 18)]);
        assert_eq!(written.program.instructions.len(), 6);
        assert_eq!((written.program.loops, written.program.slots), (2, 1));
    }
}
