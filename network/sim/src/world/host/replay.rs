//! A program that posts recorded work requests: each when as many have completed as when it was recorded, and
//! when the program has taken as long as it did then.

use super::program::Poster;
use super::{Context, Host};
use crate::world::collective::OF_WORKER;
use crate::world::scenario::Step;
use fabric::Time;
use std::cmp::Reverse;

impl Poster {
    /// The recorded request that the device gets next.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        let step = self.trace.as_ref()?.get(self.handed as usize).copied();
        self.handed += 1;
        step
    }

    /// Bytes of the requests that completed.
    pub(in crate::world) fn completed_bytes(&self) -> u64 {
        match &self.trace {
            Some(trace) => trace
                .iter()
                .take(self.completed as usize)
                .map(|step| u64::from(step.bytes))
                .sum(),
            None => self.completed * u64::from(self.flow.message_bytes),
        }
    }
}

impl Host {
    /// Calls a poster again at some time.
    pub(in crate::world) fn think_at(&mut self, at: Time, poster: u32) {
        self.thinking.push(Reverse((at, poster)));
    }

    /// Posts the requests that programs have prepared by now.
    pub(super) fn think(&mut self, now: Time, context: &mut Context<'_>) {
        while self
            .thinking
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= now)
        {
            if let Some(Reverse((_, index))) = self.thinking.pop() {
                match index & OF_WORKER {
                    0 => self.replay(now, index as usize),
                    _ => self.go_on(now, index & !OF_WORKER, context),
                }
            }
        }
    }

    /// Posts the recorded requests that are due.
    pub(super) fn replay(&mut self, now: Time, index: usize) {
        loop {
            let poster = &mut self.posters[index];
            let next = poster
                .trace
                .as_ref()
                .and_then(|trace| trace.get(poster.posted as usize))
                .copied();
            let Some(step) = next.filter(|step| !poster.failed && poster.completed >= step.after)
            else {
                return;
            };
            if poster.ready_at == Time::NEVER {
                poster.ready_at = now + step.gap;
                if step.gap.0 > 0 {
                    self.thinking.push(Reverse((poster.ready_at, index as u32)));
                    return;
                }
            }
            if poster.ready_at > now {
                return;
            }
            poster.ready_at = Time::NEVER;
            poster.posted += 1;
            poster.posts.push_back(now);
            if !self
                .pcie
                .as_mut()
                .is_some_and(|pcie| pcie.post(now, index as u32))
            {
                self.post_to_device(now, index);
            }
        }
    }
}
