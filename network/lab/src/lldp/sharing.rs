//! How a port shares its link among priorities, in the terms of DCBX: PFC and ETS.

use fabric::config::{CLASSES, PfcConfig, Profile, QueueConfig};
use sim::world::HostConfig;
use std::collections::BTreeMap;
use wire::lldp::{Application, EtsTlv, PfcTlv, Tsa};

/// Priorities, classes and percentages of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sharing {
    /// Priorities with PFC, one bit each.
    pub(crate) pfc: u8,
    /// Traffic class by priority.
    pub(crate) class_of_priority: [u8; CLASSES],
    /// Percent of bandwidth by traffic class, for those with ETS.
    pub(crate) bandwidth: [u8; CLASSES],
    /// Transmission selection algorithm by traffic class.
    pub(crate) tsa: [Tsa; CLASSES],
}

/// The queues of the port of a host.
pub(crate) fn host_queues(config: &HostConfig) -> [QueueConfig; CLASSES] {
    config.levels.map(|level| QueueConfig {
        level,
        ..QueueConfig::default()
    })
}

/// Entries of the application priority TLV: classes by DSCP, and that of RoCEv2, which is the first of them
/// with selector 3 (802.1Q table D-9).
pub(crate) fn applications_of(class_of_dscp: &BTreeMap<u8, u8>) -> Vec<Application> {
    const UDP_PORT: u8 = 3;
    const DSCP: u8 = 5;
    /// The DSCP of RoCEv2 packets that adapters use unless they are configured otherwise.
    const ROCE_DSCP: u8 = 26;
    let roce = class_of_dscp.get(&ROCE_DSCP).map(|class| Application {
        priority: *class,
        selector: UDP_PORT,
        protocol: wire::ROCE_PORT,
    });
    let marked = class_of_dscp.iter();
    let marked = marked.map(|(dscp, class)| Application {
        priority: *class,
        selector: DSCP,
        protocol: u16::from(*dscp),
    });
    roce.into_iter().chain(marked).collect()
}

impl Sharing {
    /// The port of an adapter: its queues are priorities.
    pub(crate) fn of_host(config: &HostConfig) -> Self {
        let identity = std::array::from_fn(|priority| priority as u8);
        Self::of_queues(&host_queues(config), identity, paused(&config.pfc))
    }

    /// A port of a switch.
    pub(crate) fn of_switch(profile: &Profile) -> Self {
        let class = |priority: usize| match profile.map.trust_pcp {
            true => profile.map.pcp[priority].class,
            false => profile.pfc.queues_of_priority[priority].trailing_zeros() as u8,
        };
        let classes = std::array::from_fn(|priority| class(priority) & 7);
        Self::of_queues(&profile.queues, classes, paused(&profile.pfc))
    }

    /// Queues of the lowest level share by weight; those above go first.
    fn of_queues(
        queues: &[QueueConfig; CLASSES],
        class_of_priority: [u8; CLASSES],
        pfc: u8,
    ) -> Self {
        let lowest = queues.iter().map(|queue| queue.level).min().unwrap_or(0);
        let shares = queues.map(|queue| queue.level == lowest);
        let weights: [u32; CLASSES] = std::array::from_fn(|class| match shares[class] {
            true => u32::from(queues[class].weight.max(1)),
            false => 0,
        });
        let tsa = shares.map(|shares| if shares { Tsa::Ets } else { Tsa::Strict });
        Self {
            pfc,
            class_of_priority,
            bandwidth: percentages(weights),
            tsa,
        }
    }

    /// This schedule with the ETS that a peer recommends.
    pub(crate) fn with_ets(self, ets: &EtsTlv) -> Self {
        let EtsTlv {
            class_of_priority,
            bandwidth,
            tsa,
            ..
        } = *ets;
        Self {
            class_of_priority: class_of_priority.map(|class| class & 7),
            bandwidth,
            tsa,
            ..self
        }
    }

    pub(crate) fn pfc_tlv(&self, willing: bool) -> PfcTlv {
        PfcTlv {
            willing,
            macsec_bypass: false,
            capability: CLASSES as u8,
            enabled: self.pfc,
        }
    }

    pub(crate) fn ets_tlv(&self, willing: bool, recommendation: bool) -> EtsTlv {
        EtsTlv {
            recommendation,
            willing: willing && !recommendation,
            credit_based: false,
            // 0 stands for eight.
            classes_max: 0,
            class_of_priority: self.class_of_priority,
            bandwidth: self.bandwidth,
            tsa: self.tsa,
        }
    }

    /// PFC of a port that operates so.
    pub(crate) fn pfc_of(&self, own: PfcConfig) -> PfcConfig {
        if self.pfc == paused(&own) {
            return own;
        }
        let sends = |group: &usize| self.pfc >> (own.priority_of_group[*group] & 7) & 1 == 1;
        let send = (0..CLASSES)
            .filter(sends)
            .fold(0, |mask, group| mask | 1 << group);
        PfcConfig {
            send,
            obey: self.pfc,
            ..own
        }
    }

    /// Queues that are traffic classes.
    pub(crate) fn by_class(&self, own: [QueueConfig; CLASSES]) -> [QueueConfig; CLASSES] {
        std::array::from_fn(|class| self.queue(own[class], class, u16::from(self.bandwidth[class])))
    }

    /// Queues that are priorities: those of one traffic class share its percentage.
    pub(crate) fn by_priority(&self, own: [QueueConfig; CLASSES]) -> [QueueConfig; CLASSES] {
        std::array::from_fn(|priority| {
            let class = usize::from(self.class_of_priority[priority] & 7);
            let alike = self
                .class_of_priority
                .iter()
                .filter(|other| usize::from(**other) == class)
                .count();
            let percent = u16::from(self.bandwidth[class]) * CLASSES as u16;
            self.queue(own[priority], class, percent / alike.max(1) as u16)
        })
    }

    /// A queue of a traffic class: ETS below strict priority, of which the highest class goes first.
    fn queue(&self, own: QueueConfig, class: usize, weight: u16) -> QueueConfig {
        let level = if self.tsa[class] == Tsa::Strict {
            class as u8 + 1
        } else {
            0
        };
        QueueConfig {
            level,
            weight: weight.max(1),
            ..own
        }
    }
}

/// Priorities for which a port sends pause frames, or stops at them.
fn paused(pfc: &PfcConfig) -> u8 {
    let groups = (0..CLASSES).filter(|group| pfc.send >> group & 1 == 1);
    groups.fold(pfc.obey, |mask, group| {
        mask | 1 << (pfc.priority_of_group[group] & 7)
    })
}

/// Whole percentages that are 100 together, by largest remainder.
fn percentages(weights: [u32; CLASSES]) -> [u8; CLASSES] {
    let sum = weights.iter().sum::<u32>().max(1);
    let mut percent = weights.map(|weight| (weight * 100 / sum) as u8);
    let mut by_rest: Vec<usize> = (0..CLASSES).filter(|class| weights[*class] > 0).collect();
    by_rest.sort_by_key(|class| std::cmp::Reverse(weights[*class] * 100 % sum));
    let left = 100_usize.saturating_sub(percent.iter().map(|one| usize::from(*one)).sum());
    by_rest
        .into_iter()
        .take(left)
        .for_each(|class| percent[class] += 1);
    percent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(change: impl Fn(usize, &mut QueueConfig)) -> [QueueConfig; CLASSES] {
        std::array::from_fn(|class| {
            let mut queue = QueueConfig::default();
            change(class, &mut queue);
            queue
        })
    }

    #[test]
    fn percentages_are_a_hundred_together() {
        for weights in [
            [1; 8],
            [1, 0, 0, 3, 0, 0, 0, 0],
            [3, 3, 3, 0, 0, 0, 0, 0],
            [1, 2, 3, 4, 5, 6, 7, 8],
        ] {
            let percent = percentages(weights);
            assert_eq!(
                percent.iter().map(|one| u32::from(*one)).sum::<u32>(),
                100,
                "{percent:?}"
            );
        }
        assert_eq!(
            percentages([1, 0, 0, 3, 0, 0, 0, 0]),
            [25, 0, 0, 75, 0, 0, 0, 0]
        );
    }

    #[test]
    fn queues_become_ets_and_ets_becomes_queues() {
        let identity = [0, 1, 2, 3, 4, 5, 6, 7];
        let own = queues(|class, queue| {
            queue.level = u8::from(class >= 6);
            queue.weight = if class == 3 { 5 } else { 1 };
        });
        let sharing = Sharing::of_queues(&own, identity, 1 << 3);
        assert_eq!(sharing.bandwidth, [10, 10, 10, 50, 10, 10, 0, 0]);
        assert_eq!((sharing.tsa[5], sharing.tsa[6]), (Tsa::Ets, Tsa::Strict));
        let back = sharing.by_class(queues(|_, _| {}));
        assert_eq!(back.map(|queue| queue.level), [0, 0, 0, 0, 0, 0, 7, 8]);
        assert_eq!(back[3].weight, 5 * back[0].weight);
        // Two priorities of one class share what it has.
        let both = Sharing {
            class_of_priority: [0, 1, 2, 3, 3, 5, 6, 7],
            ..sharing
        };
        let back = both.by_priority(queues(|_, _| {}));
        assert_eq!(
            (back[3].weight, back[4].weight, back[0].weight),
            (200, 200, 80)
        );
    }

    #[test]
    fn an_agreed_pfc_is_sent_and_obeyed() {
        let own = PfcConfig {
            send: 1 << 2,
            obey: 1 << 2,
            ..PfcConfig::default()
        };
        let sharing = Sharing::of_queues(&queues(|_, _| {}), [0; 8], 1 << 3);
        let agreed = sharing.pfc_of(own);
        assert_eq!((agreed.send, agreed.obey), (1 << 3, 1 << 3));
        // A port that only sends them stays so where nothing else is agreed.
        let sends = PfcConfig {
            obey: 0,
            send: 1 << 3,
            ..own
        };
        assert_eq!(sharing.pfc_of(sends), sends);
    }
}
