//! The service stations of storage besides the network: cores that work, drives that serve.

use super::config::{Drives, Media, Processor};
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
        let drives = self.until.len();
        let drive = (number % drives as u64) as usize;
        let Drives {
            read,
            write: written,
            parity,
            ..
        } = self.config;
        if !write {
            return self.access(now, drive, bytes, read, random);
        }
        if !parity || drives < 2 {
            return self.access(now, drive, bytes, written, random);
        }
        // The drive of the parity changes from one round of stripes to the next.
        let round = (number / drives as u64 % (drives as u64 - 1)) as usize;
        let both = [drive, (drive + 1 + round) % drives];
        // New parity is old parity, old data and new data: both are read first, then both are written.
        let read = both.map(|drive| self.access(now, drive, bytes, read, random));
        let known = read[0].max(read[1]);
        let done = both.map(|drive| self.access(known, drive, bytes, written, random));
        done[0].max(done[1])
    }

    /// One command of a drive; returns when it is done.
    fn access(
        &mut self,
        now: Time,
        drive: usize,
        bytes: u32,
        media: Media,
        random: &mut Pcg32,
    ) -> Time {
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
    fn a_write_with_parity_is_two_reads_and_two_writes_on_two_drives() {
        let media = |us: u64| Media {
            latency: Span::ZERO,
            rate: fabric::Rate::from_bps(4096 * 8 * 1_000_000 / us),
        };
        let config = |parity| Drives {
            count: 4,
            parity,
            read: media(10),
            write: media(30),
            tail: Span::ZERO,
            per_command: Span::ZERO,
        };
        let mut random = Pcg32::new(1, 1);
        let mut written = |parity| {
            let mut shelf = Shelf::new(config(parity));
            let done = shelf.serve(Time(0), 5, 4096, true, &mut random);
            (
                done.0 / 1_000_000,
                shelf.busy_ps.iter().filter(|busy| **busy > 0).count(),
            )
        };
        assert_eq!(written(false), (30, 1));
        assert_eq!(written(true), (40, 2));
        let mut shelf = Shelf::new(config(true));
        assert_eq!(
            shelf.serve(Time(0), 5, 4096, false, &mut random).0 / 1_000_000,
            10
        );
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
