//! Intents, written for NVUE: what fits, and the text.

use std::fmt::Write;

use crate::highest_rate::KILOBIT;
use crate::intent::{Ecn, Fit, Intent, Port, Queue, Schedule, Trust};
use crate::path_spread::PathSpread;
use crate::text::{classes, ranges};
use crate::watchdog::{PauseWatchdog, nearest_product};

/// The profile with the highest rates of queues.
const SHAPER: &str = "ROCKERY";

/// The largest rate of a queue in bits per second: 2,147,483,647 kb/s.
const RATE_MAX: u64 = 2_147_483_647_000;

/// Milliseconds between two looks of the PFC watchdog.
pub(super) const INTERVAL_MS: core::ops::RangeInclusive<u32> = 100..=5000;

/// Looks after which a queue that is paused in all of them is in a storm.
pub(super) const INTERVALS: core::ops::RangeInclusive<u32> = 1..=1000;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.no_remark(intent);
    fit.no_flowlets(intent);
    fit.mtu(intent);
    fit.percents(intent);
    fit.thresholds(intent, 1);
    fit.rates(intent, KILOBIT, RATE_MAX);
    fit.watchdog(intent, |wanted| PauseWatchdog {
        detect_ms: wanted.detect_ms.map(|detect| {
            let (interval, intervals) = nearest_product(detect, INTERVAL_MS, INTERVALS);
            interval * intervals
        }),
        // Packets are dropped until pauses end.
        restore_ms: None,
    });
    for (class, queue) in intent.queues.iter_mut().enumerate() {
        if let Some(Ecn::Thresholds { percent, .. }) = &mut queue.ecn
            && *percent != 100
        {
            fit.add_note(format!(
                "queue {class}: the chance of a mark grows to 100 %"
            ));
            *percent = 100;
        }
    }
    let own = if intent.pfc_send == 0 {
        intent.pfc_obey
    } else {
        intent.pfc_send
    };
    if intent.pfc_obey != 0 && intent.pfc_obey != own {
        fit.add_note("PFC is sent and obeyed for the same priorities");
        intent.pfc_obey = own;
    }
    if intent.pause.headroom.is_some() {
        fit.add_note("headroom is computed from the length of the cable");
        intent.pause.headroom = None;
    }
    intent.ports.iter_mut().for_each(|port| port.metres = None);
}

/// Writes PFC, which has one list of priorities for both directions.
fn write_pfc(text: &mut String, intent: &Intent) {
    let own = if intent.pfc_send == 0 {
        intent.pfc_obey
    } else {
        intent.pfc_send
    };
    if own == 0 {
        return;
    }
    let pfc = "nv set qos pfc default-global";
    let able = |mask: u8| if mask == 0 { "disable" } else { "enable" };
    let _ = writeln!(
        text,
        "{pfc} switch-priority {}\n{pfc} tx {}\n{pfc} rx {}",
        ranges(classes(own)),
        able(intent.pfc_send),
        able(intent.pfc_obey)
    );
    for (name, bytes) in [
        ("xoff-threshold", intent.pause.xoff),
        ("xon-threshold", intent.pause.xon),
    ] {
        let _ = bytes.map(|bytes| writeln!(text, "{pfc} {name} {bytes}"));
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    let trust = match intent.trust {
        Trust::None => "port",
        Trust::Pcp => "l2",
        Trust::Dscp => "l3",
        Trust::Both => "both",
    };
    let map = "nv set qos mapping default-global";
    let _ = writeln!(
        text,
        "{map} trust {trust}\n{map} port-default-sp {}",
        intent.default_class
    );
    let dscp = (0..64).filter(|_| intent.trust.dscp());
    for value in dscp {
        let _ = writeln!(
            text,
            "{map} dscp {value} switch-priority {}",
            intent.dscp[value]
        );
    }
    for value in (0..8).filter(|_| intent.trust.pcp()) {
        let _ = writeln!(
            text,
            "{map} pcp {value} switch-priority {}",
            intent.pcp[value]
        );
    }
    for (class, queue) in intent.queues.iter().enumerate() {
        let _ = writeln!(
            text,
            "nv set qos egress-queue-mapping default-global switch-priority {class} traffic-class {class}"
        );
        write_queue(&mut text, class, queue);
    }
    write_pfc(&mut text, intent);
    if let Some(detect) = intent.watchdog.and_then(|watchdog| watchdog.detect_ms) {
        let (interval, intervals) = nearest_product(detect, INTERVAL_MS, INTERVALS);
        let _ = writeln!(
            text,
            "nv set qos pfc-watchdog polling-interval {interval}\n\
             nv set qos pfc-watchdog robustness {intervals}"
        );
    }
    if intent.spread == PathSpread::Packets {
        text.push_str("nv set router adaptive-routing enable on\n");
    }
    intent
        .ports
        .iter()
        .for_each(|port| write_port(&mut text, intent, port));
    text
}

/// Writes the settings of one port.
fn write_port(text: &mut String, intent: &Intent, port: &Port) {
    let _ = writeln!(
        text,
        "nv set interface {} link mtu {}",
        port.name, intent.mtu
    );
    if let Some(mbps) = port.mbps {
        let speed = match mbps % 1000 {
            0 => format!("{}G", mbps / 1000),
            _ => format!("{mbps}M"),
        };
        let _ = writeln!(text, "nv set interface {} link speed {speed}", port.name);
    }
    if intent.queues.iter().any(|queue| queue.rate.is_some()) {
        let _ = writeln!(
            text,
            "nv set interface {} qos egress-shaper profile {SHAPER}",
            port.name
        );
    }
    if intent.watchdog.is_some() {
        let _ = writeln!(
            text,
            "nv set interface {} qos pfc-watchdog state enable",
            port.name
        );
    }
    if intent.spread == PathSpread::Packets {
        let _ = writeln!(
            text,
            "nv set interface {} router adaptive-routing enable on",
            port.name
        );
    }
    if intent.dcbx {
        for tlv in ["dcbx-pfc-tlv", "dcbx-ets-config-tlv", "dcbx-ets-recomm-tlv"] {
            let _ = writeln!(text, "nv set interface {} lldp {tlv} on", port.name);
        }
    }
}

fn write_queue(text: &mut String, class: usize, queue: &Queue) {
    let scheduler = format!("nv set qos egress-scheduler default-global traffic-class {class}");
    match queue.schedule {
        Schedule::Strict => {
            let _ = writeln!(text, "{scheduler} mode strict");
        }
        Schedule::Weighted(percent) | Schedule::Background(percent) => {
            let _ = writeln!(
                text,
                "{scheduler} mode dwrr\n{scheduler} bw-percent {percent}"
            );
        }
    }
    if let Some(rate) = queue.rate {
        let _ = writeln!(
            text,
            "nv set qos egress-shaper {SHAPER} traffic-class {class} max-rate {}",
            rate.kbps()
        );
    }
    let control = format!("nv set qos congestion-control default-global traffic-class {class}");
    match queue.ecn {
        Some(Ecn::Thresholds { min, max, .. }) => {
            let _ = writeln!(
                text,
                "{control} ecn enable\n{control} min-threshold {min}\n{control} max-threshold {max}"
            );
        }
        _ => {
            let _ = writeln!(text, "{control} ecn disable");
        }
    }
}
