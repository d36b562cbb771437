//! A host follows its program.

use super::program::{Follower, Instruction, OF_PROGRAM, ProgramState};
use super::worker::{Order, PartState, Worker};
use fabric::{Span, Time};

impl Worker {
    /// When the program is to be called first.
    pub(super) fn program_start(&self) -> Option<Time> {
        match self.follower.as_ref()?.state {
            ProgramState::Starts(at) => Some(at),
            _ => None,
        }
    }

    /// The time that a program planned has come.
    pub(super) fn program_planned(&mut self, now: Time) {
        let Some(follower) = &mut self.follower else {
            return;
        };
        match follower.state {
            ProgramState::Starts(at) | ProgramState::Computes(at) if at <= now => {
                follower.state = ProgramState::Runs;
            }
            _ => {}
        }
    }

    /// Follows the program until it computes, waits, or has begun a repetition: then this is true.
    pub(super) fn follow(&mut self, now: Time) -> bool {
        let Some(mut follower) = self.follower.take() else {
            return false;
        };
        let has_begun = self.follow_on(now, &mut follower);
        self.follower = Some(follower);
        if let Some(part) = has_begun {
            self.begin(now, part);
        }
        has_begun.is_some()
    }

    /// The part of which a repetition is to begin.
    fn follow_on(&mut self, now: Time, follower: &mut Follower) -> Option<u32> {
        if let ProgramState::Waits(slot, since) = follower.state {
            follower.state = ProgramState::Runs;
            follower.result.waited[slot as usize] += now - since;
        }
        let plan = self.plan.clone();
        let program = &plan.programs[follower.program as usize];
        while follower.state == ProgramState::Runs {
            let Some(instruction) = program.instructions.get(follower.next).copied() else {
                follower.state = ProgramState::Over;
                self.left -= 1;
                return None;
            };
            match instruction {
                Instruction::Compute(Span(0)) | Instruction::Repeat { .. } => {}
                Instruction::Compute(span) => {
                    let begin = self.busy_until.max(now);
                    let end = begin + span;
                    self.busy_until = end;
                    follower.computed = [begin, end];
                    follower.result.computed += span;
                    follower.state = ProgramState::Computes(end);
                    let part = OF_PROGRAM;
                    self.orders.push_back(Order::Plan { part, at: end });
                }
                Instruction::Begin(slot) => {
                    follower.begun[slot as usize] += 1;
                    let part = follower.parts[slot as usize];
                    let computed = follower.computed;
                    self.parts[part as usize].computed = (computed[1] == now).then_some(computed);
                    follower.step(instruction);
                    return Some(part);
                }
                Instruction::Wait { slot, behind } => {
                    let part = &self.parts[follower.parts[slot as usize] as usize];
                    let left = follower.begun[slot as usize] - part.times.len() as u32;
                    if left > behind {
                        follower.state = ProgramState::Waits(slot, now);
                        return None;
                    }
                }
                Instruction::StepEnd => follower.result.steps.push(now),
            }
            follower.step(instruction);
        }
        None
    }

    /// Queues a repetition of a part behind those of its seat.
    fn begin(&mut self, now: Time, part: u32) {
        let this = &mut self.parts[part as usize];
        if this.state == PartState::Waits {
            this.state = PartState::Queued;
        }
        let queue = &mut self.seats[this.seat as usize].queue;
        queue.push_back(part);
        if queue.len() == 1 {
            self.run(now, part);
        }
    }
}
