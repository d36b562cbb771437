//! Selection of the next queue: strict levels, and shares within a level by deficit round robin (Shreedhar
//! and Varghese, 1995), which implements enhanced transmission selection (802.1Qaz).

use crate::config::{CLASSES, QueueConfig, Weigh};

/// Credit per round of a queue of weight 1, in bytes. Small against a frame, so that large weights do not
/// make long bursts.
const QUANTUM_BYTES: i32 = 256;

/// The levels of a profile, the highest first: each a set of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Levels {
    masks: [u8; CLASSES],
    count: u8,
}

impl Levels {
    pub(crate) fn of(queues: &[QueueConfig; CLASSES]) -> Self {
        let mut masks = [0; CLASSES];
        let mut count = 0;
        for level in (0..=u8::MAX).rev() {
            let mask = (0..CLASSES).filter(|class| queues[*class].level == level);
            let mask = mask.fold(0, |mask, class| mask | 1 << class);
            if mask != 0 {
                masks[count] = mask;
                count += 1;
            }
        }
        Self {
            masks,
            count: count as u8,
        }
    }

    /// The queues of the highest level that has any of `eligible`.
    #[inline]
    pub(crate) fn highest(&self, eligible: u8) -> Candidates {
        let levels = &self.masks[..usize::from(self.count)];
        let found = levels
            .iter()
            .position(|mask| mask & eligible != 0)
            .unwrap_or(0);
        Candidates {
            level: found,
            classes: self.masks[found] & eligible,
        }
    }
}

/// Queues of one level, of which one sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidates {
    pub(crate) level: usize,
    /// One bit for each class.
    pub(crate) classes: u8,
}

/// Deficit round robin among the queues of each level.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RoundRobin {
    /// The queue whose turn it is, by level.
    turn: [u8; CLASSES],
    /// Whether that queue has received this round's quantum.
    credited: u8,
}

impl RoundRobin {
    /// Chooses among `candidates`, which is not empty. `head_bytes` is the length of a queue's first packet,
    /// `deficits` the credit of each queue.
    pub(crate) fn choose(
        &mut self,
        candidates: Candidates,
        queues: &[QueueConfig; CLASSES],
        weigh: Weigh,
        deficits: &mut [i32; CLASSES],
        head_bytes: impl Fn(usize) -> u32,
    ) -> usize {
        let Candidates { level, classes } = candidates;
        debug_assert!(classes != 0, "the caller saw a candidate");
        loop {
            let class = usize::from(self.turn[level]);
            if classes >> class & 1 == 1 {
                let cost = match weigh {
                    Weigh::Bytes => head_bytes(class) as i32,
                    Weigh::Packets => QUANTUM_BYTES,
                };
                if self.credited >> level & 1 == 0 {
                    deficits[class] += i32::from(queues[class].weight.max(1)) * QUANTUM_BYTES;
                    self.credited |= 1 << level;
                }
                if deficits[class] >= cost {
                    deficits[class] -= cost;
                    return class;
                }
            }
            self.turn[level] = (self.turn[level] + 1) % CLASSES as u8;
            self.credited &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: [u16; CLASSES], lengths: [u32; CLASSES], weigh: Weigh) -> [u64; CLASSES] {
        let queues = weights.map(|weight| QueueConfig {
            weight,
            ..QueueConfig::default()
        });
        let (mut round, mut deficits, mut sent) =
            (RoundRobin::default(), [0; CLASSES], [0; CLASSES]);
        let classes = (0..CLASSES)
            .filter(|class| weights[*class] > 0)
            .fold(0, |mask, class| mask | 1 << class);
        let candidates = Candidates { level: 0, classes };
        for _ in 0..20_000 {
            let class = round.choose(candidates, &queues, weigh, &mut deficits, |class| {
                lengths[class]
            });
            sent[class] += u64::from(lengths[class]);
        }
        sent
    }

    #[test]
    fn shares_follow_weights_whatever_the_lengths() {
        let sent = shares(
            [0, 0, 1, 3, 0, 6, 0, 0],
            [0, 0, 64, 4178, 0, 9000, 0, 0],
            Weigh::Bytes,
        );
        let total: u64 = sent.iter().sum();
        for (class, share) in [(2, 100), (3, 300), (5, 600)] {
            let got = sent[class] * 1000 / total;
            assert!(
                got.abs_diff(share) <= 5,
                "class {class}: {got} of 1000, not {share}"
            );
        }
    }

    #[test]
    fn weights_that_count_packets_let_long_packets_have_more() {
        let sent = shares(
            [1, 1, 0, 0, 0, 0, 0, 0],
            [1000, 4000, 0, 0, 0, 0, 0, 0],
            Weigh::Packets,
        );
        assert!(sent[1].abs_diff(4 * sent[0]) < 10_000, "{sent:?}");
    }

    #[test]
    fn levels_are_strict() {
        let queues: [QueueConfig; CLASSES] = core::array::from_fn(|class| QueueConfig {
            level: [0, 0, 0, 1, 1, 0, 7, 7][class],
            ..QueueConfig::default()
        });
        let levels = Levels::of(&queues);
        let highest = |eligible| {
            let Candidates { level, classes } = levels.highest(eligible);
            (level, classes)
        };
        assert_eq!(highest(0b1100_1001), (0, 0b1100_0000));
        assert_eq!(highest(0b0000_1001), (1, 0b0000_1000));
        assert_eq!(highest(0b0000_0011), (2, 0b0000_0011));
    }
}
