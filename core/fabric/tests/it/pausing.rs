//! Priority flow control against 802.1Q clause 36 (802.1Qbb), for arbitrary sequences of frames: a pause
//! stops its priorities and no others, from its time on and for its duration; a pause of zero ends it; and a
//! receiver that pauses its peer repeats the pause before it ends.

use crate::driver::profile;
use fabric::config::{CLASSES, GroupConfig};
use fabric::{Egress, Next, Packet, Packets, PauseFrame, Pcg32, PfcSignal, Rate, Time};
use proptest::prelude::*;

/// A quantum is the time of 512 bits (802.3 annex 31B.2).
fn quanta(rate: Rate, count: u16) -> u64 {
    rate.time_of(64).0 * u64::from(count)
}

struct Port {
    egress: Egress,
    packets: Packets,
    random: Pcg32,
    profile: fabric::config::Profile,
}

impl Port {
    fn new(rate: Rate, obey: u8) -> Self {
        let mut profile = profile(GroupConfig::default());
        profile.pfc.obey = obey;
        let egress = Egress::new(rate, &profile);
        Self {
            egress,
            packets: Packets::new(1 << 16),
            random: Pcg32::new(1, 1),
            profile,
        }
    }

    /// A frame of each class that has none.
    fn fill(&mut self, length: u16) {
        let occupied = self.egress.occupied();
        for class in (0..CLASSES as u8).filter(|class| occupied >> class & 1 == 0) {
            let packet = Packet::new(0, 0, length, class << 2, 0);
            let id = self
                .packets
                .insert(packet)
                .expect("the test stays below the limit of packets");
            self.egress.enqueue(id, class, &mut self.packets);
        }
    }

    fn next(&mut self, now: Time) -> Next {
        self.egress
            .next(now, &self.profile, &mut self.packets, &mut self.random)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pause_stops_its_priorities_for_its_time_and_no_others(
        gbps in 1_u64..=400,
        obey in any::<u8>(),
        length in 64_u16..=9216,
        frames in prop::collection::vec((0_u64..3_000_000, any::<u8>(), any::<u8>(), any::<u16>()), 1..60),
    ) {
        let rate = Rate::from_gbps(gbps);
        let mut port = Port::new(rate, obey);
        // Until when each priority is stopped, by the standard.
        let mut until = [0_u64; CLASSES];
        let mut now = 0;
        for (after, priorities, stopped, count) in frames {
            let at = now + after;
            while now < at {
                port.fill(length);
                match port.next(Time(now)) {
                    Next::Packet { id, end } => {
                        let class = usize::from(port.packets.remove(id).tos >> 2);
                        prop_assert!(until[class] <= now, "class {} is paused until {}", class, until[class]);
                        now = end.0;
                    }
                    Next::Wait(when) => {
                        // Everything waits: all are stopped, and the first goes on in its very moment.
                        prop_assert_eq!(Some(when.0), until.iter().min().copied());
                        prop_assert!(when.0 > now);
                        now = when.0.min(at);
                    }
                    other => prop_assert!(false, "{:?} while everything waits", other),
                }
            }
            let frame = PauseFrame { priorities, stopped, quanta: count };
            let frees = port.egress.handle_pause(frame, Time(now), &port.profile.pfc);
            let mut freed = false;
            for class in (0..CLASSES).filter(|class| (priorities & obey) >> class & 1 == 1) {
                let stops = stopped >> class & 1 == 1 && count > 0;
                freed |= !stops && until[class] > now;
                // The newest frame counts, and not the longest.
                until[class] = if stops { now + quanta(rate, count) } else { now };
            }
            prop_assert_eq!(frees, freed);
        }
    }

    #[test]
    fn pause_frames_are_renewed_in_time_and_ended_once(
        gbps in 1_u64..=400,
        count in 1024_u16..=0xffff,
        length in 64_u16..=9216,
        changes in prop::collection::vec((1_u64..200_000_000, 0_u8..8, any::<bool>()), 1..30),
    ) {
        let rate = Rate::from_gbps(gbps);
        let mut port = Port::new(rate, 0);
        port.profile.pfc.quanta = count;
        // The peer's state by the last pause frame: until when it has to stop, by priority.
        let (mut told, mut xoff_sent, mut news) = ([0_u64; CLASSES], 0_u8, 0_u8);
        let mut now = 0;
        for (after, priority, stop) in changes {
            let at = now + after;
            port.egress.signal(priority, if stop { PfcSignal::Xoff } else { PfcSignal::Xon });
            news |= 1 << priority;
            xoff_sent = if stop { xoff_sent | 1 << priority } else { xoff_sent & !(1 << priority) };
            while now < at {
                port.fill(length);
                match port.next(Time(now)) {
                    Next::Pause { frame, end } => {
                        prop_assert_eq!(frame.stopped, frame.priorities & xoff_sent);
                        prop_assert_eq!(news & !frame.priorities, 0, "all that is new is told");
                        prop_assert_eq!(frame.priorities & !(news | xoff_sent), 0, "and nothing else");
                        prop_assert_eq!(end.0 - now, rate.time_of(84).0, "64 bytes, preamble and gap");
                        now = end.0;
                        news = 0;
                        for class in (0..CLASSES).filter(|class| frame.stopped >> class & 1 == 1) {
                            told[class] = now + quanta(rate, frame.quanta);
                        }
                    }
                    Next::Packet { id, end } => {
                        prop_assert_eq!(news, 0, "what is new is told before the next frame");
                        port.packets.remove(id);
                        now = end.0;
                    }
                    other => prop_assert!(false, "{:?} while everything waits", other),
                }
                for class in (0..CLASSES).filter(|class| (xoff_sent & !news) >> class & 1 == 1) {
                    prop_assert!(told[class] > now, "{} ends before it is told again", class);
                }
            }
        }
    }
}
