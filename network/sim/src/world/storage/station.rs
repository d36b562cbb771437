//! The service stations of storage besides the network: cores that work, drives that serve.

use super::config::{Drives, Processor};
use crate::random::natural_log;
use fabric::{Pcg32, Span, Time};

/// A core, which does one thing after the other.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Core {
    until: Time,
    pub(super) busy_ps: u64,
    /// An interrupt is being held back.
    pub(super) interrupted: bool,
}

impl Core {
    /// Works for this long, when it is free; returns when it is done.
    pub(super) fn work(&mut self, now: Time, span: Span) -> Time {
        self.until = self.until.max(now) + span;
        self.busy_ps += span.0;
        self.until
    }

    /// Comes this much later, and does not work meanwhile.
    pub(super) fn rest(&mut self, now: Time, span: Span) {
        self.until = self.until.max(now) + span;
    }

    pub(super) fn is_busy(&self, now: Time) -> bool {
        self.until > now
    }
}

impl Processor {
    /// How late an interrupt finds its core: mostly not at all.
    pub(super) fn lateness(&self, random: &mut Pcg32) -> Span {
        if self.late_chance == 0 || random.next_u32() >= self.late_chance {
            return Span::ZERO;
        }
        Span(((u128::from(self.late_by.0) * u128::from(random.next_u32())) >> 32) as u64)
    }
}

/// The drives of a host: each moves one block after the other, and many commands are under way.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    config: Drives,
    until: Vec<Time>,
    pub(super) busy_ps: Vec<u64>,
}

impl Shelf {
    pub(super) fn new(config: Drives) -> Self {
        let count = config.count.max(1) as usize;
        Self {
            config,
            until: vec![Time(0); count],
            busy_ps: vec![0; count],
        }
    }

    /// Serves an I/O; returns when it is done.
    pub(super) fn serve(
        &mut self,
        now: Time,
        number: u64,
        bytes: u32,
        write: bool,
        random: &mut Pcg32,
    ) -> Time {
        let drive = (number % self.until.len() as u64) as usize;
        let media = if write {
            self.config.write
        } else {
            self.config.read
        };
        let span = media.rate.time_of(bytes).max(self.config.per_command);
        self.until[drive] = self.until[drive].max(now) + span;
        self.busy_ps[drive] += span.0;
        self.until[drive] + media.latency + exponential(self.config.tail, random)
    }
}

/// A random span, exponentially distributed, with this mean.
fn exponential(mean: Span, random: &mut Pcg32) -> Span {
    if mean.0 == 0 {
        return Span::ZERO;
    }
    Span(
        (-natural_log(f64::from(random.next_u32().max(1)) / 4_294_967_296.0) * mean.0 as f64)
            as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_come_out() {
        let mut random = Pcg32::new(1, 1);
        let sum: u64 = (0..10_000)
            .map(|_| exponential(Span::from_us(1), &mut random).0)
            .sum();
        assert!((9_700_000_000..10_300_000_000).contains(&sum), "{sum}");
    }

    #[test]
    fn a_core_does_one_thing_after_the_other() {
        let mut core = Core::default();
        assert_eq!(core.work(Time(5), Span(10)), Time(15));
        assert_eq!(core.work(Time(6), Span(10)), Time(25));
        core.rest(Time(25), Span(5));
        assert!(core.is_busy(Time(29)) && !core.is_busy(Time(30)));
        assert_eq!(core.busy_ps, 20);
    }
}
