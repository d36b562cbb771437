//! Programs of ranks: what a rank computes, and when it begins a repetition of a job or waits for one. Loops
//! stay loops: a program is as long for a hundred layers as for one.

use fabric::{Span, Time};

/// What ranks of one kind do, one instruction after the other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RankProgram {
    /// What is done, in order.
    pub instructions: Vec<Instruction>,
    /// Loops among them.
    pub loops: u32,
    /// Jobs that it names.
    pub slots: u32,
}

/// An instruction of a program. Jobs are named by their slots: each rank has jobs of its own there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// The rank computes.
    Compute(Span),
    /// Queues a repetition of a job behind those of its group, and goes on.
    Begin(u32),
    /// Waits until so many repetitions of the job that have begun are not over.
    Wait {
        /// The slot of what it waits for.
        slot: u32,
        /// Repetitions that may go on.
        behind: u32,
    },
    /// Goes back, until all between has been done so often.
    Repeat {
        /// The number of the loop.
        number: u32,
        /// The first instruction of it.
        first: u32,
        /// How often it is done.
        times: u32,
    },
    /// A step is over: its time is kept.
    StepEnd,
}

/// A host that follows a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgrammedHost {
    /// The host that the program is of.
    pub host: u32,
    /// The program, among those of the plan.
    pub program: u32,
    /// The job of each slot.
    pub jobs: Vec<u32>,
    /// When it begins.
    pub start: Time,
}

/// What became of a program at a host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProgramResult {
    /// When each step ended, of those that did.
    pub steps: Vec<Time>,
    /// How long the host computed.
    pub computed: Span,
    /// How long it waited for the job of each slot.
    pub waited: Vec<Span>,
}

/// In place of the number of a part, where the program of a host plans something.
pub(super) const OF_PROGRAM: u32 = (1 << 31) - 1;

/// Where a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgramState {
    Starts(Time),
    Computes(Time),
    /// It waits for a slot since then.
    Waits(u32, Time),
    Runs,
    Over,
}

/// A program under way at a host.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) program: u32,
    /// The host's part of each slot's job.
    pub(super) parts: Vec<u32>,
    pub(super) next: usize,
    /// How often each loop was done.
    done: Vec<u32>,
    /// Repetitions of each slot that have begun.
    pub(super) begun: Vec<u32>,
    pub(super) state: ProgramState,
    /// When it computed last.
    pub(super) computed: [Time; 2],
    pub(super) result: ProgramResult,
}

impl Follower {
    pub(super) fn new(host: &ProgrammedHost, program: &RankProgram, parts: Vec<u32>) -> Self {
        let slots = program.slots as usize;
        Self {
            program: host.program,
            parts,
            next: 0,
            done: vec![0; program.loops as usize],
            begun: vec![0; slots],
            state: ProgramState::Starts(host.start),
            computed: [host.start; 2],
            result: ProgramResult {
                waited: vec![Span::ZERO; slots],
                ..ProgramResult::default()
            },
        }
    }

    /// The part of the job that it waits for.
    pub(super) fn waits_for(&self) -> Option<u32> {
        match self.state {
            ProgramState::Waits(slot, _) => self.parts.get(slot as usize).copied(),
            _ => None,
        }
    }

    /// Goes to the next instruction, or back to the begin of a loop.
    pub(super) fn step(&mut self, instruction: Instruction) {
        self.next += 1;
        let Instruction::Repeat {
            number,
            first,
            times,
        } = instruction
        else {
            return;
        };
        let done = &mut self.done[number as usize];
        *done += 1;
        if *done < times {
            self.next = first as usize;
        } else {
            *done = 0;
        }
    }
}
