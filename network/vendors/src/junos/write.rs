//! Intents, written for Junos as `set` commands: what fits, and the text. Queue n is class n and priority n.

use std::fmt::Write;

use super::interfaces::HEADER;
use crate::highest_rate::HighestRate;
use crate::intent::{Ecn, Fit, Intent, Port, Queue, Schedule, Trust};
use crate::path_spread::PathSpread;
use crate::text::classes;
use crate::watchdog::PauseWatchdog;

/// The largest MTU of an interface, without the header that it counts.
const MTU_MAX: u32 = 9216 - HEADER;

/// The largest rate of a queue in bits per second.
const RATE_MAX: u64 = 1_000_000_000_000;

/// The PFC watchdog with Juniper's defaults ("PFC Watchdog"): other times are not written, since their ranges
/// are those of the platform.
const WATCHDOG: PauseWatchdog = PauseWatchdog {
    detect_ms: Some(200),
    restore_ms: Some(200),
};

/// Percents of the queue's memory at which marking begins and becomes certain: those of Juniper's validated
/// design for QFX5240 (Juniper/jvd, "AI/ML multitenancy backend").
const FILL: (u8, u8) = (55, 90);

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.no_remark(intent);
    fit_classes(intent, fit);
    fit.percents(intent);
    for (class, queue) in intent.queues.iter_mut().enumerate() {
        if let Some(Ecn::Thresholds { min, max, .. }) = queue.ecn {
            fit.add_note(format!(
                "queue {class}: ECN thresholds are percents of the queue's memory: {} and {} % are written, \
                 and not {min} and {max} bytes",
                FILL.0, FILL.1
            ));
            queue.ecn = Some(Ecn::Automatic);
        }
    }
    fit_pauses(intent, fit);
    fit.no_buffers(intent);
    fit.bare_ports(intent);
    fit.rates(intent, 1, RATE_MAX);
    fit.watchdog(intent, |_| WATCHDOG);
    if intent.mtu > MTU_MAX {
        fit.add_note(format!(
            "an MTU is at most {MTU_MAX} bytes without the Ethernet header"
        ));
        intent.mtu = MTU_MAX;
    }
}

fn fit_classes(intent: &mut Intent, fit: &mut Fit) {
    if intent.default_class != 0 {
        fit.add_note("packets without a trusted header are in class 0");
    }
    match intent.trust {
        Trust::None => {
            fit.add_note(
                "a port has a classifier: it trusts DSCP, and all values are in one class",
            );
            (intent.trust, intent.dscp) = (Trust::Dscp, [intent.default_class; 64]);
        }
        Trust::Both => {
            fit.add_note("a profile pauses by DSCP or by PCP: the port trusts DSCP");
            intent.trust = Trust::Dscp;
        }
        Trust::Pcp | Trust::Dscp => {}
    }
    intent.default_class = 0;
}

fn fit_pauses(intent: &mut Intent, fit: &mut Fit) {
    if intent.trust.dscp() {
        for class in classes(intent.pfc_send) {
            if intent.dscp_of(class).next().is_none() {
                fit.add_note(format!(
                    "class {class} is paused by its DSCPs, and has none: it is not lossless"
                ));
                intent.pfc_send &= !(1 << class);
            }
        }
    }
    if intent.pfc_send != 0 && intent.pfc_obey == 0 {
        fit.add_note(
            "pauses are obeyed where they are sent: without an output part those of 3 and 4 are",
        );
        intent.pfc_obey = intent.pfc_send;
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    let cos = "set class-of-service";
    for class in 0..8_u8 {
        let lossless = match intent.lossless(class) {
            true => format!(" no-loss pfc-priority {class}"),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "{cos} forwarding-classes class {} queue-num {class}{lossless}",
            name(class)
        );
    }
    write_classifier(&mut text, intent);
    if intent.queues.iter().any(|queue| queue.ecn.is_some()) {
        let profile = format!("{cos} drop-profiles ROCKERY-ECN interpolate");
        let _ = writeln!(
            text,
            "{profile} fill-level [ {} {} ]\n{profile} drop-probability [ 0 100 ]",
            FILL.0, FILL.1
        );
    }
    for (class, queue) in (0_u8..).zip(&intent.queues) {
        write_queue(&mut text, class, queue);
    }
    let has_profile = intent.pfc_send | intent.pfc_obey != 0;
    if has_profile {
        write_profile(&mut text, intent);
    }
    for port in &intent.ports {
        write_port(&mut text, intent, port, has_profile);
    }
    write_spread(&mut text, intent.spread);
    text
}

/// The forwarding class of a queue.
fn name(class: u8) -> String {
    format!("roce-queue-{class}")
}

fn write_classifier(text: &mut String, intent: &Intent) {
    let is_dscp = intent.trust.dscp();
    let kind = if is_dscp { "dscp" } else { "ieee-802.1" };
    for class in 0..8_u8 {
        let points: Vec<String> = match is_dscp {
            true => intent
                .dscp_of(class)
                .map(|value| format!("{value:06b}"))
                .collect(),
            false => intent
                .pcp_of(class)
                .map(|value| format!("{value:03b}"))
                .collect(),
        };
        if !points.is_empty() {
            let _ = writeln!(
                text,
                "set class-of-service classifiers {kind} ROCKERY forwarding-class {} loss-priority low \
                 code-points [ {} ]",
                name(class),
                points.join(" ")
            );
        }
    }
}

fn write_queue(text: &mut String, class: u8, queue: &Queue) {
    let scheduler = format!("set class-of-service schedulers ROCKERY-{class}");
    let _ = match queue.schedule {
        Schedule::Strict => writeln!(text, "{scheduler} priority strict-high"),
        Schedule::Weighted(percent) | Schedule::Background(percent) => writeln!(
            text,
            "{scheduler} transmit-rate percent {percent}\n{scheduler} priority low"
        ),
    };
    if let Some(HighestRate { bps, .. }) = queue.rate {
        let _ = writeln!(text, "{scheduler} shaping-rate {bps}");
    }
    if queue.ecn.is_some() {
        let _ = writeln!(
            text,
            "{scheduler} drop-profile-map loss-priority any protocol any drop-profile ROCKERY-ECN\n\
             {scheduler} explicit-congestion-notification"
        );
    }
    let _ = writeln!(
        text,
        "set class-of-service scheduler-maps ROCKERY forwarding-class {} scheduler ROCKERY-{class}",
        name(class)
    );
}

/// Writes PFC: the input part sends pauses, the output part obeys them.
fn write_profile(text: &mut String, intent: &Intent) {
    let profile = "set class-of-service congestion-notification-profile ROCKERY";
    for class in classes(intent.pfc_send) {
        match intent.trust.dscp() {
            true => {
                for dscp in intent.dscp_of(class) {
                    let _ = writeln!(text, "{profile} input dscp code-point {dscp:06b} pfc");
                }
            }
            false => {
                let _ = writeln!(
                    text,
                    "{profile} input ieee-802.1 code-point {class:03b} pfc"
                );
            }
        }
    }
    for class in classes(intent.pfc_obey) {
        let _ = writeln!(
            text,
            "{profile} output ieee-802.1 code-point {class:03b} flow-control-queue {class}"
        );
    }
    if intent.watchdog.is_some() {
        let _ = writeln!(text, "{profile} pfc-watchdog");
    }
}

fn write_port(text: &mut String, intent: &Intent, port: &Port, has_profile: bool) {
    let own = format!("set class-of-service interfaces {}", port.name);
    let kind = if intent.trust.dscp() {
        "dscp"
    } else {
        "ieee-802.1"
    };
    let _ = writeln!(
        text,
        "set interfaces {} mtu {}",
        port.name,
        intent.mtu + HEADER
    );
    if has_profile {
        let _ = writeln!(text, "{own} congestion-notification-profile ROCKERY");
    }
    let _ = writeln!(
        text,
        "{own} scheduler-map ROCKERY\n{own} unit 0 classifiers {kind} ROCKERY"
    );
    if intent.dcbx {
        let _ = writeln!(text, "set protocols dcbx interface {}", port.name);
    }
}

fn write_spread(text: &mut String, spread: PathSpread) {
    let balancing = "set forwarding-options enhanced-hash-key ecmp-dlb";
    let _ = match spread {
        PathSpread::Flows => Ok(()),
        PathSpread::Packets => writeln!(text, "{balancing} per-packet"),
        PathSpread::Flowlets(None) => writeln!(text, "{balancing} flowlet"),
        PathSpread::Flowlets(Some(us)) => {
            writeln!(text, "{balancing} flowlet inactivity-interval {us}")
        }
    };
}
