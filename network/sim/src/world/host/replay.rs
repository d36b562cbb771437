//! A program that posts recorded work requests: each when as many have completed as when it was recorded, and
//! when the program has taken as long as it did then.

use super::Host;
use super::program::Poster;
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
    /// Posts the requests that programs have prepared by now.
    pub(super) fn think(&mut self, now: Time) {
        while self
            .thinking
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= now)
        {
            if let Some(Reverse((_, index))) = self.thinking.pop() {
                self.replay(now, index as usize);
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
