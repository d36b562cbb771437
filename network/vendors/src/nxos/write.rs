//! Intents, written for NX-OS: what fits, and the text.

use std::fmt::Write;

use super::dlb;
use super::timers::Timers;
use crate::highest_rate::KILOBIT;
use crate::intent::{Ecn, Fit, Intent, Queue, Schedule, Trust};
use crate::text::{classes, ranges};

/// The largest rate of a queue in bits per second.
const RATE_MAX: u64 = 1_000_000_000_000;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.no_remark(intent);
    fit.percents(intent);
    fit.thresholds(intent, 1000);
    fit.symmetric_pfc(intent);
    fit.no_buffers(intent);
    fit.bare_ports(intent);
    fit.mtu(intent);
    fit.flowlet_gap(intent, dlb::GAP_US);
    fit.rates(intent, KILOBIT, RATE_MAX);
    fit.watchdog(intent, |wanted| Timers::near(wanted).watchdog());
    // A header without matches has no effect.
    let default = intent.default_class;
    let decides = |values: &[u8]| values.iter().any(|class| *class != default);
    intent.trust = Trust::of(
        intent.trust.dscp() && decides(&intent.dscp),
        intent.trust.pcp() && decides(&intent.pcp),
    );
}

/// The name of a queue's class: that of queue 0 is `default`.
fn queue_name(class: u8) -> String {
    if class == 0 {
        "default".to_owned()
    } else {
        class.to_string()
    }
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    let default = intent.default_class;
    let matched: Vec<u8> = classes(intent.used())
        .filter(|class| *class != default)
        .collect();
    for class in &matched {
        let _ = writeln!(text, "class-map type qos match-any ROCKERY-{class}");
        let dscp = ranges(intent.dscp_of(*class).filter(|_| intent.trust.dscp()));
        let pcp = ranges(intent.pcp_of(*class).filter(|_| intent.trust.pcp()));
        for (header, values) in [("dscp", dscp), ("cos", pcp)] {
            if !values.is_empty() {
                let _ = writeln!(text, "  match {header} {values}");
            }
        }
    }
    text.push_str("policy-map type qos ROCKERY-IN\n");
    for class in &matched {
        let _ = writeln!(text, "  class ROCKERY-{class}\n    set qos-group {class}");
    }
    let _ = writeln!(text, "  class class-default\n    set qos-group {default}");
    text.push_str("policy-map type network-qos ROCKERY-NQ\n");
    for class in (0..8_u8).rev() {
        let name = if class == 0 {
            "c-8q-nq-default".to_owned()
        } else {
            format!("c-8q-nq{class}")
        };
        let _ = writeln!(
            text,
            "  class type network-qos {name}\n    mtu {}",
            intent.mtu
        );
        if intent.lossless(class) {
            let _ = writeln!(text, "    pause pfc-cos {class}");
        }
    }
    text.push_str("policy-map type queuing ROCKERY-OUT\n");
    let mut level = 0;
    for class in (0..8_u8).rev() {
        let _ = writeln!(
            text,
            "  class type queuing c-out-8q-q{}",
            queue_suffix(class)
        );
        write_queue(&mut text, &intent.queues[usize::from(class)], &mut level);
    }
    text.push_str(
        "system qos\n  service-policy type network-qos ROCKERY-NQ\n  \
         service-policy type queuing output ROCKERY-OUT\n",
    );
    if intent.dcbx {
        text.push_str("feature lldp\n");
    }
    if let Some(watchdog) = intent.watchdog {
        text.push_str(&Timers::near(watchdog).commands());
    }
    dlb::write(&mut text, intent.spread, &intent.ports);
    let mode = if intent.pfc_send == 0 { "off" } else { "on" };
    for port in &intent.ports {
        let _ = writeln!(
            text,
            "interface {}\n  mtu {}\n  priority-flow-control mode {mode}\n  \
             service-policy type qos input ROCKERY-IN",
            port.name, intent.mtu
        );
        if intent.watchdog.is_some() {
            text.push_str("  priority-flow-control watch-dog-interval on\n");
        }
    }
    text
}

fn queue_suffix(class: u8) -> String {
    if class == 0 {
        format!("-{}", queue_name(class))
    } else {
        queue_name(class)
    }
}

fn write_queue(text: &mut String, queue: &Queue, level: &mut u8) {
    match queue.schedule {
        Schedule::Strict => {
            *level += 1;
            let _ = writeln!(text, "    priority level {level}");
        }
        Schedule::Weighted(percent) | Schedule::Background(percent) => {
            let _ = writeln!(text, "    bandwidth remaining percent {percent}");
        }
    }
    if let Some(rate) = queue.rate {
        let _ = writeln!(text, "    shape min 0 kbps max {} kbps", rate.kbps());
    }
    if let Some(Ecn::Thresholds { min, max, percent }) = queue.ecn {
        let (min, max) = (min / 1000, max / 1000);
        let _ = writeln!(
            text,
            "    random-detect minimum-threshold {min} kbytes maximum-threshold {max} kbytes \
             drop-probability {percent} weight 0 ecn"
        );
    }
}
