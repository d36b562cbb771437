//! The settings of a simulated port as an intent, and those that no intent has.

use fabric::config::{ALPHA_ONE, Limit, Profile, QueueConfig, RedAt, Weigh};

use crate::highest_rate::HighestRate;
use crate::intent::{Ecn, Intent, Pause, Queue, Schedule, Trust};
use crate::text::classes;

/// The largest weight of an intent.
const WEIGHT_MAX: u16 = 255;

/// Distance of Xon below Xoff where a fabric file names none.
const XON_OFFSET_DEFAULT: u32 = 18_432;

/// Xoff where a fabric file names none, as a part of what is free.
const XOFF_DEFAULT: Limit = Limit::Dynamic(ALPHA_ONE / 8);

/// The intent of a simulated port.
pub fn intent_of(profile: &Profile) -> Intent {
    let mut queues = [Queue::WEIGHTED; 8];
    let weights = weights(profile);
    let lowest = lowest_level(profile);
    for (class, (queue, own)) in queues.iter_mut().zip(&profile.queues).enumerate() {
        let is_weighted = own.level == lowest && !(class == 0 && are_all_strict(profile));
        queue.schedule = match is_weighted {
            true => Schedule::Weighted(weights[class]),
            false => Schedule::Strict,
        };
        queue.ecn = own.red.filter(|red| red.mark).map(|red| Ecn::Thresholds {
            min: red.min_bytes,
            max: red.max_bytes,
            percent: percent(red.probability),
        });
        queue.rate = own.shaper.map(|shaper| HighestRate {
            bps: shaper.rate.bps(),
            burst: Some(shaper.burst_bytes),
        });
    }
    let map = &profile.map;
    let first = profile.pfc.send.trailing_zeros() as usize;
    let xoff = profile
        .groups
        .get(first)
        .and_then(|group| match group.limit {
            Limit::Static(bytes) => Some(bytes),
            Limit::None | Limit::Dynamic(_) => None,
        });
    Intent {
        trust: Trust::of(map.trust_dscp, map.trust_pcp),
        dscp: map.dscp.map(|treatment| treatment.class),
        pcp: map.pcp.map(|treatment| treatment.class),
        default_class: map.default.class,
        queues,
        pfc_send: profile.pfc.send,
        pfc_obey: profile.pfc.obey,
        pause: Pause {
            xoff,
            ..Pause::default()
        },
        ..Intent::default()
    }
}

/// The buffers of the first lossless class, with Xon and with headroom that differs from the `automatic` one.
pub fn pause_of(profile: &Profile, automatic: u32) -> Pause {
    let first = profile.pfc.send.trailing_zeros() as usize;
    let Some(group) = profile.groups.get(first) else {
        return Pause::default();
    };
    let xoff = match group.limit {
        Limit::Static(bytes) => Some(bytes),
        Limit::None | Limit::Dynamic(_) => None,
    };
    Pause {
        xoff,
        xon: xoff.map(|xoff| xoff.saturating_sub(group.xon_offset_bytes)),
        headroom: (group.headroom_bytes != automatic).then_some(group.headroom_bytes),
    }
}

/// A chance as percent.
fn percent(chance: u32) -> u8 {
    ((u64::from(chance) * 100 + (1 << 31)) >> 32) as u8
}

/// The lowest level of all queues: that of the weighted ones.
fn lowest_level(profile: &Profile) -> u8 {
    let levels = profile.queues.iter().map(|queue| queue.level);
    levels.min().unwrap_or_default()
}

/// Whether even queue 0, the last one, has a level of its own above that of weighted queues.
fn are_all_strict(profile: &Profile) -> bool {
    let lowest = profile.queues[0].level;
    lowest > 0 && profile.queues[1..].iter().all(|queue| queue.level > lowest)
}

/// The weights of the weighted queues, made smaller together where one is larger than an intent's.
fn weights(profile: &Profile) -> [u8; 8] {
    let lowest = lowest_level(profile);
    let weighted = |queue: &&QueueConfig| queue.level == lowest;
    let all = profile.queues.iter().filter(weighted);
    let most = all.map(|queue| queue.weight).max().unwrap_or(1).max(1);
    let smaller = |queue: &QueueConfig| match most > WEIGHT_MAX {
        true => (u32::from(queue.weight) * u32::from(WEIGHT_MAX) / u32::from(most)).max(1) as u8,
        false => queue.weight as u8,
    };
    profile.queues.each_ref().map(smaller)
}

/// Why devices cannot serve the queues in this order: they serve strict queues before weighted ones, the
/// highest class first.
///
/// # Errors
/// The two queues whose order would change.
pub fn check_order(profile: &Profile) -> Result<(), String> {
    let lowest = lowest_level(profile);
    let strict: Vec<(usize, u8)> = profile
        .queues
        .iter()
        .map(|queue| queue.level)
        .enumerate()
        .filter(|(_, level)| *level != lowest)
        .collect();
    for pair in strict.windows(2) {
        let [(below, low), (above, high)] = *pair else {
            continue;
        };
        if low > high {
            return Err(format!(
                "queue {below} has level {low} and queue {above} level {high}: devices serve the strict \
                 queue of the higher class first, so the order would change"
            ));
        }
        if low == high {
            return Err(format!(
                "queues {below} and {above} share level {high} by weight: devices weigh only queues below \
                 all strict ones"
            ));
        }
    }
    Ok(())
}

/// Settings of a port that no intent has, each as a sentence about what is not written.
pub fn left_out(profile: &Profile) -> Vec<String> {
    let mut left = Vec::new();
    for (class, queue) in profile.queues.iter().enumerate() {
        left_out_of_queue(class, queue, &mut left);
    }
    let rounded = weights(profile);
    let first = profile.queues.iter().zip(rounded).next();
    let is_scaled = profile.queues.iter().zip(rounded).any(|(queue, rounded)| {
        let scaled = |(other, smaller): (&QueueConfig, u8)| {
            u32::from(queue.weight) * u32::from(smaller)
                != u32::from(other.weight) * u32::from(rounded)
        };
        first.is_some_and(scaled)
    });
    if is_scaled {
        left.push(format!(
            "weights above {WEIGHT_MAX} are written in proportion, rounded"
        ));
    }
    if profile.weigh == Weigh::Packets {
        left.push("weights count bytes, not packets".to_owned());
    }
    left_out_of_groups(profile, &mut left);
    left
}

fn left_out_of_queue(class: usize, queue: &QueueConfig, left: &mut Vec<String>) {
    match queue.limit {
        Limit::None => {}
        Limit::Static(bytes) => left.push(format!(
            "queue {class}: its limit of {bytes} bytes is not written"
        )),
        Limit::Dynamic(alpha) => left.push(format!(
            "queue {class}: its limit of {} is not written",
            part_of_free(alpha)
        )),
    }
    if let Some(trim) = queue.trim {
        left.push(format!(
            "queue {class}: cutting packets to their headers above {} bytes is not written",
            trim.at_bytes
        ));
    }
    let Some(red) = queue.red else { return };
    if red.drop {
        left.push(format!(
            "queue {class}: dropping packets that do not take part in ECN is not written"
        ));
    }
    if red.at == RedAt::Enqueue {
        left.push(format!(
            "queue {class}: whether packets are marked on arrival or departure is left to the device"
        ));
    }
    let exact = (u64::from(percent(red.probability)) << 32) / 100;
    if red.mark && exact.abs_diff(u64::from(red.probability)) > 1 << 12 {
        left.push(format!(
            "queue {class}: the chance of a mark is written in whole percent"
        ));
    }
}

fn left_out_of_groups(profile: &Profile, left: &mut Vec<String>) {
    let lossless = || classes(profile.pfc.send).map(usize::from);
    let Some(first) = lossless().next() else {
        return;
    };
    let group = &profile.groups[first];
    for class in lossless().skip(1) {
        if profile.groups[class] != *group {
            left.push(format!(
                "class {class} has other buffers than class {first}: those of class {first} are written"
            ));
        }
    }
    match group.limit {
        XOFF_DEFAULT | Limit::Static(_) => {}
        Limit::None => left.push("Xoff is left to the device: the file has none".to_owned()),
        Limit::Dynamic(alpha) => left.push(format!(
            "Xoff of {} is left to the device",
            part_of_free(alpha)
        )),
    }
    let is_static = matches!(group.limit, Limit::Static(_));
    if !is_static && group.xon_offset_bytes != XON_OFFSET_DEFAULT {
        left.push(format!(
            "Xon, {} bytes below Xoff, is left to the device",
            group.xon_offset_bytes
        ));
    }
    for class in lossless().filter(|class| profile.groups[*class].reserve_bytes > 0) {
        left.push(format!(
            "class {class}: its reserve of {} bytes is not written",
            profile.groups[class].reserve_bytes
        ));
    }
    if profile.pfc.quanta != u16::MAX {
        left.push("the pause time (quanta) is left to the device".to_owned());
    }
    let lossy = Limit::Dynamic(ALPHA_ONE);
    let lossy = (0..8)
        .find(|class| profile.pfc.send >> class & 1 == 0 && profile.groups[*class].limit != lossy);
    if lossy.is_some() {
        left.push("the share of the buffer that lossy classes may use is not written".to_owned());
    }
}

fn part_of_free(alpha: u32) -> String {
    let part = f64::from(alpha) / f64::from(ALPHA_ONE);
    format!("{part} times the free shared buffer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::config::{ClassMap, GroupConfig, PfcConfig, Treatment};

    fn plain() -> Profile {
        let class = Treatment::default();
        Profile {
            map: ClassMap {
                trust_dscp: true,
                trust_pcp: false,
                dscp: [class; 64],
                pcp: [class; 8],
                default: class,
            },
            queues: [QueueConfig::default(); 8],
            weigh: Weigh::Bytes,
            group_of_class: [0, 1, 2, 3, 4, 5, 6, 7],
            groups: [GroupConfig::default(); 8],
            pfc: PfcConfig::default(),
        }
    }

    fn with_levels(levels: [u8; 8]) -> Profile {
        let mut profile = plain();
        for (queue, level) in profile.queues.iter_mut().zip(levels) {
            queue.level = level;
        }
        profile
    }

    #[test]
    fn strict_levels_keep_their_order_or_are_refused() {
        assert_eq!(check_order(&with_levels([0; 8])), Ok(()));
        assert_eq!(check_order(&with_levels([0, 0, 0, 1, 0, 0, 2, 7])), Ok(()));
        assert_eq!(check_order(&with_levels([1, 1, 1, 2, 1, 1, 1, 1])), Ok(()));
        let turned = check_order(&with_levels([2, 0, 0, 0, 0, 0, 1, 0])).unwrap_err();
        assert!(
            turned.contains("queue 0 has level 2 and queue 6 level 1"),
            "{turned}"
        );
        let shared = check_order(&with_levels([0, 0, 0, 1, 1, 0, 0, 0])).unwrap_err();
        assert!(shared.contains("queues 3 and 4 share level 1"), "{shared}");
    }

    #[test]
    fn queues_of_the_lowest_level_are_weighted() {
        let intent = intent_of(&with_levels([1, 1, 1, 2, 1, 1, 1, 1]));
        let strict = intent
            .queues
            .map(|queue| queue.schedule == Schedule::Strict);
        assert_eq!(
            strict,
            [false, false, false, true, false, false, false, false]
        );
    }

    #[test]
    fn a_last_queue_alone_at_its_level_is_strict() {
        let strict = |levels: [u8; 8]| {
            let queues = intent_of(&with_levels(levels)).queues;
            queues.map(|queue| queue.schedule == Schedule::Strict)
        };
        assert_eq!(strict([1, 2, 3, 4, 5, 6, 7, 8]), [true; 8]);
        assert!(!strict([0, 2, 3, 4, 5, 6, 7, 8])[0]);
        assert!(!strict([2, 3, 4, 5, 6, 7, 8, 1])[7]);
    }

    #[test]
    fn large_weights_keep_their_proportion() {
        let mut profile = plain();
        (profile.queues[0].weight, profile.queues[3].weight) = (1000, 500);
        let queues = intent_of(&profile).queues;
        assert_eq!(queues[0].schedule, Schedule::Weighted(255));
        assert_eq!(queues[3].schedule, Schedule::Weighted(127));
        assert!(
            left_out(&profile)
                .iter()
                .any(|note| note.contains("in proportion"))
        );
    }
}
