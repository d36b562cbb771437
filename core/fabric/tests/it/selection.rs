//! Transmission selection against 802.1Q clauses 8.6.8 and 37 (802.1Qaz), whatever waits where and when:
//! a port never idles while something waits, higher levels go first, and queues of one level share by weight.

use crate::driver::profile;
use fabric::config::{CLASSES, GroupConfig, Profile};
use fabric::{Egress, Next, Packet, Packets, Pcg32, Rate, Time};
use proptest::prelude::*;

/// Credit per round of a queue of weight 1 (`schedule.rs`).
const QUANTUM_BYTES: f64 = 256.0;

/// A port, with its state as seen from outside.
struct Port {
    egress: Egress,
    profile: Profile,
    packets: Packets,
    random: Pcg32,
    waiting: [u32; CLASSES],
    /// Bytes of one class and of another that left since both wait without a break.
    sent: [[[u64; 2]; CLASSES]; CLASSES],
    longest: u16,
}

impl Port {
    fn new(profile: Profile) -> Self {
        Self {
            egress: Egress::new(Rate::from_gbps(100), &profile),
            profile,
            packets: Packets::new(1 << 16),
            random: Pcg32::new(1, 1),
            waiting: [0; CLASSES],
            sent: Default::default(),
            longest: 0,
        }
    }

    fn come(&mut self, class: u8, length: u16) {
        let packet = Packet::new(0, 0, length, class << 2, 0);
        let id = self
            .packets
            .insert(packet)
            .expect("the test stays below the limit of packets");
        self.egress.enqueue(id, class, &mut self.packets);
        self.waiting[usize::from(class)] += 1;
        self.longest = self.longest.max(length);
    }

    /// Lets the port choose, and checks the choice; returns when the port is free again.
    fn choose(&mut self, now: Time) -> Result<Option<Time>, TestCaseError> {
        let next = self
            .egress
            .next(now, &self.profile, &mut self.packets, &mut self.random);
        let level = |class: usize| self.profile.queues[class].level;
        let highest = (0..CLASSES)
            .filter(|class| self.waiting[*class] > 0)
            .map(level)
            .max();
        let Next::Packet { id, end } = next else {
            prop_assert_eq!(
                highest,
                None,
                "{:?}: the port idles while something waits",
                next
            );
            return Ok(None);
        };
        let packet = self.packets.remove(id);
        let class = usize::from(packet.tos >> 2);
        prop_assert_eq!(
            Some(level(class)),
            highest,
            "class {} goes before a higher level",
            class
        );
        self.waiting[class] -= 1;
        self.share(class, u64::from(packet.length))?;
        Ok(Some(end))
    }

    /// A frame left: between queues that both wait, rounds differ by one at most, and frames are not split
    /// (Shreedhar and Varghese, 1995, theorem 3).
    fn share(&mut self, class: usize, length: u64) -> Result<(), TestCaseError> {
        for other in (0..CLASSES).filter(|other| *other != class) {
            let alike = self.profile.queues[class].level == self.profile.queues[other].level;
            for (index, pair) in [(0, [class, other]), (1, [other, class])] {
                let sent = &mut self.sent[pair[0]][pair[1]];
                sent[index] += length;
                let weights = pair.map(|class| f64::from(self.profile.queues[class].weight));
                let [one, two] = [0, 1].map(|index| sent[index] as f64 / weights[index]);
                let frames = f64::from(self.longest) * (1.0 / weights[0] + 1.0 / weights[1]);
                let both = self.waiting[other] > 0;
                if alike && both {
                    let apart = (one - two).abs();
                    prop_assert!(
                        apart <= QUANTUM_BYTES + frames,
                        "{:?}: {} apart",
                        pair,
                        apart
                    );
                }
                if !both || self.waiting[class] == 0 {
                    *sent = [0; 2];
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_backlog_is_served_by_level_and_weight(
        queues in prop::array::uniform8((0_u8..3, 1_u16..=100)),
        coming in prop::collection::vec((0_u64..800, 0_u8..8, 64_u16..=9216), 50..800),
    ) {
        let mut profile = profile(GroupConfig::default());
        for (queue, (level, weight)) in profile.queues.iter_mut().zip(queues) {
            (queue.level, queue.weight) = (level, weight);
        }
        let mut port = Port::new(profile);
        let (mut now, mut free) = (Time(0), Time(0));
        for (after_ns, class, length) in coming {
            now = Time(now.0 + after_ns * 1000);
            while free < now {
                match port.choose(free)? {
                    Some(end) => free = end,
                    None => free = now,
                }
            }
            port.come(class, length);
        }
        while let Some(end) = port.choose(free)? {
            free = end;
        }
        prop_assert!(port.packets.is_empty());
    }

    /// While all queues are backlogged for a long time, each gets the share of its weight, to the byte of a
    /// round.
    #[test]
    fn shares_are_exact_over_any_time(
        weights in prop::array::uniform8(1_u16..=100),
        lengths in prop::array::uniform8(64_u16..=9216),
    ) {
        let mut profile = profile(GroupConfig::default());
        profile.queues.iter_mut().zip(weights).for_each(|(queue, weight)| queue.weight = weight);
        let mut port = Port::new(profile);
        let mut free = Time(0);
        for _ in 0..2000 {
            for (class, length) in (0_u8..).zip(lengths) {
                while port.waiting[usize::from(class)] < 2 {
                    port.come(class, length);
                }
            }
            free = port.choose(free)?.expect("everything waits");
        }
    }
}
