//! Entropy values: which of its paths a packet takes. Switches hash the value, so that each stands for a
//! path, and the sender chooses one for each packet.

use fabric::{Pcg32, Span, Time};

/// The largest penalty of a value: rounds in which it is passed over.
const PENALTY_MAX: u8 = 15;

/// Good values that REPS keeps.
const KEPT: usize = 8;

/// How long REPS uses the values that it has, and no others, after a timeout.
const FROZEN: Span = Span::from_us(10_000);

/// Packets that REPS sends at random after that.
const EXPLORED: u8 = 16;

/// How entropy values are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntropyKind {
    /// All values in turn, in an order that changes from round to round.
    Oblivious,
    /// The same, and values are passed over whose packets were marked, trimmed or lost.
    Bitmap,
    /// REPS (Bonato et al., 2024): values whose packets arrived without a mark are used again, others are
    /// drawn by chance.
    Reps,
    /// A value that was good, and where there is none, that of the bitmap.
    Mixed,
}

/// What became of a packet with some value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Good,
    Marked,
    Trimmed,
    Lost,
}

impl Fate {
    /// Rounds in which the value is passed over.
    const fn penalty(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Marked => 1,
            Self::Trimmed => 4,
            Self::Lost => PENALTY_MAX,
        }
    }
}

/// The choice of one sender.
#[derive(Clone, Debug)]
pub(super) struct Entropy {
    kind: EntropyKind,
    /// The number of values less 1: a power of two less 1.
    mask: u16,
    random: Pcg32,
    /// Where in the round it is, and what changes the order of this round.
    index: u16,
    order: u16,
    /// Rounds in which each value is passed over.
    penalties: Box<[u8]>,
    kept: Kept,
}

impl Entropy {
    /// `values` is a power of two.
    pub(super) fn new(kind: EntropyKind, values: u16, mut random: Pcg32) -> Self {
        let order = random.below(u32::from(values)) as u16;
        let penalties = match kind {
            EntropyKind::Bitmap | EntropyKind::Mixed => usize::from(values),
            EntropyKind::Oblivious | EntropyKind::Reps => 0,
        };
        Self {
            kind,
            mask: values - 1,
            random,
            index: 0,
            order,
            penalties: vec![0; penalties].into(),
            kept: Kept::default(),
        }
    }

    /// The value of the next packet.
    pub(super) fn next(&mut self, now: Time) -> u16 {
        match self.kind {
            EntropyKind::Oblivious => self.turn(),
            EntropyKind::Bitmap => self.unpunished(),
            EntropyKind::Reps => match self.kept.next(now) {
                Some(value) => value,
                None => self.random.below(u32::from(self.mask) + 1) as u16,
            },
            EntropyKind::Mixed => match self.kept.fresh() {
                Some(value) => value,
                None => self.unpunished(),
            },
        }
    }

    /// What became of a packet.
    pub(super) fn learn(&mut self, value: u16, fate: Fate, now: Time) {
        if let Some(penalty) = self.penalties.get_mut(usize::from(value)) {
            *penalty = (*penalty + fate.penalty()).min(PENALTY_MAX);
        }
        match (self.kind, fate) {
            (EntropyKind::Reps | EntropyKind::Mixed, Fate::Good) => self.kept.add(value),
            (EntropyKind::Reps, Fate::Lost) => self.kept.freeze(now),
            _ => {}
        }
    }

    /// The next value of the round.
    fn turn(&mut self) -> u16 {
        let value = (self.index ^ self.order) & self.mask;
        self.index = (self.index + 1) & self.mask;
        if self.index == 0 {
            self.order = self.random.next_u32() as u16;
        }
        value
    }

    /// The next value of the round without a penalty. The first that has one serves a part of it; where all
    /// have one, that of the last is taken.
    fn unpunished(&mut self) -> u16 {
        let mut value = self.turn();
        if self.penalties[usize::from(value)] == 0 {
            return value;
        }
        self.penalties[usize::from(value)] -= 1;
        for _ in 0..=self.mask {
            value = self.turn();
            if self.penalties[usize::from(value)] == 0 {
                break;
            }
        }
        value
    }
}

/// The good values of REPS: the last eight, in a ring.
#[derive(Clone, Copy, Default, Debug)]
struct Kept {
    values: [u16; KEPT],
    /// Where the next one is put, how many were ever kept, up to the size of the ring, and how many of them
    /// were not used since.
    head: u8,
    count: u8,
    fresh: u8,
    /// Packets that take a value at random, whatever is kept.
    explores: u8,
    /// Until when the ring is used round and round.
    frozen_until: Option<Time>,
    turn: u8,
}

impl Kept {
    fn add(&mut self, value: u16) {
        self.values[usize::from(self.head)] = value;
        self.head = (self.head + 1) % KEPT as u8;
        self.count = (self.count + 1).min(KEPT as u8);
        self.fresh = (self.fresh + 1).min(KEPT as u8);
    }

    /// The value that was kept the longest without being used.
    fn fresh(&mut self) -> Option<u16> {
        let at = (KEPT as u8 + self.head - self.fresh) % KEPT as u8;
        self.fresh = self.fresh.checked_sub(1)?;
        Some(self.values[usize::from(at)])
    }

    fn next(&mut self, now: Time) -> Option<u16> {
        if self.frozen_until.is_some_and(|until| now >= until) {
            *self = Self {
                explores: EXPLORED,
                ..Self::default()
            };
        }
        if self.explores > 0 {
            self.explores -= 1;
            return None;
        }
        if self.frozen_until.is_none() {
            return self.fresh();
        }
        let value =
            (self.count > 0).then(|| self.values[usize::from(self.turn % self.count.max(1))]);
        self.turn = (self.turn + 1) % KEPT as u8;
        value
    }

    fn freeze(&mut self, now: Time) {
        if self.frozen_until.is_none() && self.explores == 0 {
            self.frozen_until = Some(now + FROZEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn chosen(entropy: &mut Entropy, count: usize) -> Vec<u16> {
        (0..count).map(|_| entropy.next(Time(0))).collect()
    }

    fn entropy(kind: EntropyKind, values: u16) -> Entropy {
        Entropy::new(kind, values, Pcg32::new(7, 1))
    }

    #[test]
    fn each_round_has_each_value_once() {
        for kind in [
            EntropyKind::Oblivious,
            EntropyKind::Bitmap,
            EntropyKind::Mixed,
        ] {
            let mut entropy = entropy(kind, 64);
            let rounds: Vec<Vec<u16>> = (0..4).map(|_| chosen(&mut entropy, 64)).collect();
            for round in &rounds {
                let all: BTreeSet<u16> = round.iter().copied().collect();
                assert_eq!(all.len(), 64, "{kind:?}");
            }
            assert!(rounds.iter().any(|round| *round != rounds[0]), "{kind:?}");
        }
    }

    #[test]
    fn the_bitmap_passes_over_values_for_as_many_rounds_as_their_penalty() {
        let mut entropy = entropy(EntropyKind::Bitmap, 4);
        entropy.learn(2, Fate::Trimmed, Time(0));
        entropy.learn(2, Fate::Good, Time(0));
        let all = chosen(&mut entropy, 40);
        // Four rounds of three values, and then those of four.
        assert!(all[..12].iter().all(|value| *value != 2), "{all:?}");
        assert!(all[12..].contains(&2), "{all:?}");
        let mut all_bad = entropy.clone();
        (0..4).for_each(|value| all_bad.learn(value, Fate::Lost, Time(0)));
        assert_eq!(chosen(&mut all_bad, 100).len(), 100);
    }

    #[test]
    fn reps_uses_good_values_once_and_the_earliest_first() {
        let mut entropy = entropy(EntropyKind::Reps, 64);
        for value in [3, 9, 27] {
            entropy.learn(value, Fate::Good, Time(0));
        }
        entropy.learn(50, Fate::Marked, Time(0));
        assert_eq!(chosen(&mut entropy, 3), [3, 9, 27]);
        let others: BTreeSet<u16> = chosen(&mut entropy, 200).into_iter().collect();
        assert!(others.len() > 40, "by chance from all: {others:?}");
        (0..20).for_each(|value| entropy.learn(value, Fate::Good, Time(0)));
        let last: Vec<u16> = (12..20).collect();
        assert_eq!(chosen(&mut entropy, 8), last, "eight are kept");
    }

    #[test]
    fn after_a_timeout_reps_goes_round_among_good_values_for_ten_milliseconds() {
        let mut entropy = entropy(EntropyKind::Reps, 64);
        (0..8).for_each(|value| entropy.learn(value, Fate::Good, Time(0)));
        entropy.learn(60, Fate::Lost, Time(0));
        assert!(chosen(&mut entropy, 100).iter().all(|value| *value < 8));
        let later = Time::from_ns(10_000_000);
        let after: BTreeSet<u16> = (0..16).map(|_| entropy.next(later)).collect();
        assert!(after.iter().any(|value| *value >= 8), "{after:?}");
    }
}
