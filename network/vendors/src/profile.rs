//! The settings of a simulated port as an intent.

use fabric::config::{Limit, Profile};

use crate::intent::{Ecn, Intent, Pause, Queue, Schedule, Trust};

/// The intent of a simulated port.
pub fn intent_of(profile: &Profile) -> Intent {
    let mut queues = [Queue {
        schedule: Schedule::Weighted(1),
        ecn: None,
    }; 8];
    for (queue, own) in queues.iter_mut().zip(&profile.queues) {
        queue.schedule = match own.level {
            0 => Schedule::Weighted(own.weight.min(255) as u8),
            _ => Schedule::Strict,
        };
        queue.ecn = own.red.filter(|red| red.mark).map(|red| Ecn::Thresholds {
            min: red.min_bytes,
            max: red.max_bytes,
            percent: ((u64::from(red.probability) * 100 + (1 << 31)) >> 32) as u8,
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
