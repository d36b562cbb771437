//! What happened in the last repetition of a job, slice by slice, for its critical path.

use fabric::Time;
use std::collections::BTreeMap;

/// A slice of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SliceRef {
    pub(super) pipe: u32,
    pub(super) number: u32,
}

/// A slice that a strand took or gave on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) at: Time,
    pub(super) cause: Cause,
}

/// What a strand had waited for last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The begin of the job.
    Begin,
    /// The move before it.
    Previous,
    /// A slice that arrived.
    Arrived(SliceRef),
    /// A slice that was acknowledged, which made room for another one.
    Acknowledged(SliceRef),
}

/// A move of a strand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MoveRef {
    pub(super) strand: u32,
    pub(super) number: u32,
}

/// A slice at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub(super) by: MoveRef,
    pub(super) bytes: u32,
    pub(super) given: Time,
    pub(super) posted: Time,
    pub(super) acknowledged: Time,
    /// How long the port was paused from when it was posted, and the slice before it acknowledged.
    pub(super) paused_ps: u64,
    /// Bytes that left the port in this time.
    pub(super) port_bytes: u64,
    /// Whether the queue pair sent anything again in this time.
    pub(super) resent: bool,
}

/// A slice at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cleared {
    /// The move that made room for it; the begin of the job without.
    pub(super) by: Option<MoveRef>,
    pub(super) cleared: Time,
    pub(super) arrived: Time,
}

/// The log of one repetition at one rank.
#[derive(Clone, Default, Debug)]
pub(super) struct Log {
    pub(super) repetition: u32,
    /// By strand; none if nothing is logged.
    pub(super) moves: Vec<Vec<Move>>,
    /// What each pipe has got, by pipe.
    pub(super) given: BTreeMap<u32, Vec<Given>>,
    pub(super) cleared: BTreeMap<u32, Vec<Cleared>>,
}

impl Log {
    pub(super) fn begin(&mut self, repetition: u32, strands: u32) {
        self.repetition = repetition;
        self.moves.clear();
        self.moves.resize(strands as usize, Vec::new());
        self.given.clear();
        self.cleared.clear();
    }

    fn last_move(&self, strand: u32) -> Option<MoveRef> {
        let number = self.moves.get(strand as usize)?.len().checked_sub(1)?;
        Some(MoveRef {
            strand,
            number: number as u32,
        })
    }

    /// A strand gives a slice to a pipe; its number there.
    pub(super) fn give(&mut self, pipe: u32, strand: u32, bytes: u32, now: Time) -> u32 {
        let Some(by) = self.last_move(strand) else {
            return 0;
        };
        let all = self.given.entry(pipe).or_default();
        all.push(Given {
            by,
            bytes,
            given: now,
            posted: Time::NEVER,
            acknowledged: Time::NEVER,
            paused_ps: 0,
            port_bytes: 0,
            resent: false,
        });
        all.len() as u32 - 1
    }

    /// A strand has room for a slice of a pipe.
    pub(super) fn clear(&mut self, pipe: u32, strand: u32, now: Time) {
        if self.moves.is_empty() {
            return;
        }
        let by = self.last_move(strand);
        self.cleared.entry(pipe).or_default().push(Cleared {
            by,
            cleared: now,
            arrived: Time::NEVER,
        });
    }
}
