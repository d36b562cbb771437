//! Intents, written for EOS: what fits, and the text.

use std::fmt::Write;

use crate::highest_rate::KILOBIT;
use crate::intent::{Ecn, Fit, Intent, Queue, Schedule, Trust};
use crate::limits::within;
use crate::text::classes;
use crate::watchdog::PauseWatchdog;

/// Name of the profile that is written.
const PROFILE: &str = "ROCKERY";

/// The largest rate of a queue in bits per second.
const RATE_MAX: u64 = 1_000_000_000_000;

/// Times of the watchdog in milliseconds.
pub(super) const WATCHDOG_MS: core::ops::RangeInclusive<u32> = 10..=60_000;

/// Class by class of service on a new switch: 0 and 1 are exchanged.
pub(super) const COS: [u8; 8] = [1, 0, 2, 3, 4, 5, 6, 7];

/// Class by DSCP on a new switch: the DSCP divided by eight, with 0 and 1 exchanged.
pub(super) fn dscp_default() -> [u8; 64] {
    core::array::from_fn(|value| COS[value / 8])
}

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.by_flow(intent);
    if intent.trust == Trust::Both {
        fit.add_note("a port trusts DSCP or CoS: it trusts DSCP");
        intent.trust = Trust::Dscp;
    }
    if intent.trust.pcp() && !intent.pcp.contains(&intent.default_class) {
        fit.add_note(
            "untagged packets have a class of service, and with it a class that tagged packets have",
        );
        intent.default_class = intent.pcp[0];
    }
    fit.no_remark(intent);
    fit.percents(intent);
    fit.thresholds(intent, 1000);
    fit.symmetric_pfc(intent);
    fit.no_buffers(intent);
    fit.bare_ports(intent);
    fit.rates(intent, KILOBIT, RATE_MAX);
    fit.watchdog(intent, |wanted| PauseWatchdog {
        detect_ms: within(wanted.detect_ms, WATCHDOG_MS),
        restore_ms: within(wanted.restore_ms, WATCHDOG_MS),
    });
}

/// Writes the class of each value that has another one on a new switch.
fn write_map(text: &mut String, field: &str, class_of: &[u8], default: &[u8]) {
    for class in 0..8 {
        let values: Vec<String> = (0..class_of.len())
            .filter(|value| class_of[*value] == class && default[*value] != class)
            .map(|value| value.to_string())
            .collect();
        if !values.is_empty() {
            let values = values.join(" ");
            let _ = writeln!(text, "qos map {field} {values} to traffic-class {class}");
        }
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    if intent.trust.dscp() {
        write_map(&mut text, "dscp", &intent.dscp, &dscp_default());
    }
    if intent.trust.pcp() {
        write_map(&mut text, "cos", &intent.pcp, &COS);
    }
    let _ = writeln!(text, "!\nqos profile {PROFILE}");
    if intent.pfc_send != 0 {
        text.push_str("   priority-flow-control on\n");
        for class in classes(intent.pfc_send) {
            let _ = writeln!(text, "   priority-flow-control priority {class} no-drop");
        }
    }
    if let Some(watchdog) = intent.watchdog {
        write_watchdog(&mut text, watchdog);
    }
    for (class, queue) in intent.queues.iter().enumerate() {
        write_queue(&mut text, class, queue);
    }
    let map = if intent.trust.pcp() { intent.pcp } else { COS };
    let cos = map
        .iter()
        .position(|class| *class == intent.default_class)
        .unwrap_or(0);
    for port in &intent.ports {
        let _ = writeln!(
            text,
            "!\ninterface {}\n   mtu {}\n   qos cos {cos}",
            port.name, intent.mtu
        );
        let trust = match intent.trust {
            Trust::None => "no qos trust",
            Trust::Pcp => "qos trust cos",
            Trust::Dscp | Trust::Both => "qos trust dscp",
        };
        let _ = writeln!(text, "   {trust}\n   service-profile {PROFILE}");
        if intent.dcbx {
            text.push_str("   dcbx mode ieee\n");
        }
    }
    text
}

/// Writes the watchdog of the profile, with times in seconds.
fn write_watchdog(text: &mut String, watchdog: PauseWatchdog) {
    let seconds = |time: Option<u32>| {
        let ms = time.unwrap_or(*WATCHDOG_MS.start());
        format!("{}.{:03}", ms / 1000, ms % 1000)
    };
    let _ = writeln!(
        text,
        "   priority-flow-control pause watchdog\n   \
         priority-flow-control pause watchdog port action drop\n   \
         priority-flow-control pause watchdog port timer timeout {} polling-interval auto \
         recovery-time {}",
        seconds(watchdog.detect_ms),
        seconds(watchdog.restore_ms)
    );
}

fn write_queue(text: &mut String, class: usize, queue: &Queue) {
    let _ = writeln!(text, "   !\n   tx-queue {class}");
    match queue.schedule {
        Schedule::Strict => text.push_str("      priority strict\n"),
        Schedule::Weighted(percent) | Schedule::Background(percent) => {
            let _ = writeln!(text, "      no priority\n      bandwidth percent {percent}");
        }
    }
    if let Some(rate) = queue.rate {
        let _ = writeln!(text, "      shape rate {} kbps", rate.kbps());
    }
    if let Some(Ecn::Thresholds { min, max, percent }) = queue.ecn {
        let (min, max) = (min / 1000, max / 1000);
        let _ = writeln!(
            text,
            "      random-detect ecn minimum-threshold {min} kbytes maximum-threshold {max} kbytes \
             max-mark-probability {percent} weight 0"
        );
    }
}
