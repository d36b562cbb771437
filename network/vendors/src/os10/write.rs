//! Intents, written for OS10: what fits, and the text.

use std::fmt::Write;

use crate::highest_rate::KILOBIT;
use crate::intent::{Ecn, Fit, Intent, Schedule};
use crate::text::{classes, ranges};

/// The largest rate of a queue in bits per second.
const RATE_MAX: u64 = 1_000_000_000_000;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.by_flow(intent);
    if intent.default_class != 0 {
        fit.add_note("packets without a trusted header are in class 0");
        intent.default_class = 0;
    }
    fit.no_remark(intent);
    fit.percents(intent);
    fit.thresholds(intent, 1000);
    fit.symmetric_pfc(intent);
    fit.no_buffers(intent);
    fit.bare_ports(intent);
    fit.rates(intent, KILOBIT, RATE_MAX);
    fit.no_watchdog(intent);
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::new();
    if intent.dcbx {
        text.push_str("dcbx enable\n");
    }
    let dscp: Vec<(u8, String)> = (0..8)
        .map(|class| (class, ranges(intent.dscp_of(class))))
        .collect();
    let pcp: Vec<(u8, String)> = (0..8)
        .map(|class| (class, ranges(intent.pcp_of(class))))
        .collect();
    for (header, trusted, values) in [
        ("dscp", intent.trust.dscp(), dscp),
        ("dot1p", intent.trust.pcp(), pcp),
    ] {
        if !trusted {
            continue;
        }
        let _ = writeln!(text, "trust {header}-map ROCKERY-{header}");
        for (class, list) in values.iter().filter(|(_, list)| !list.is_empty()) {
            let _ = writeln!(text, " qos-group {class} {header} {list}");
        }
    }
    text.push_str("qos-map traffic-class ROCKERY-QUEUES\n");
    for class in 0..8 {
        let _ = writeln!(text, " queue {class} qos-group {class}");
    }
    for (class, queue) in intent.queues.iter().enumerate() {
        if let Some(Ecn::Thresholds { min, max, percent }) = queue.ecn {
            let (min, max) = (min / 1000, max / 1000);
            let _ = writeln!(
                text,
                "wred ROCKERY-WRED-{class}\n random-detect color green minimum-threshold {min} \
                 maximum-threshold {max} drop-probability {percent}\n random-detect ecn"
            );
        }
        let _ = writeln!(
            text,
            "class-map type queuing ROCKERY-Q{class}\n match queue {class}"
        );
    }
    write_policies(&mut text, intent);
    for port in &intent.ports {
        let _ = writeln!(
            text,
            "interface {}\n mtu {}\n flowcontrol receive off\n flowcontrol transmit off",
            port.name, intent.mtu
        );
        if intent.pfc_send != 0 {
            text.push_str(
                " priority-flow-control mode on\n service-policy input type network-qos ROCKERY-PFC\n",
            );
        }
        text.push_str(
            " service-policy output type queuing ROCKERY-ETS\n ets mode on\n qos-map traffic-class \
                ROCKERY-QUEUES\n",
        );
        for (header, trusted) in [("dscp", intent.trust.dscp()), ("dot1p", intent.trust.pcp())] {
            if trusted {
                let _ = writeln!(text, " trust-map {header} ROCKERY-{header}");
            }
        }
    }
    text
}

fn write_policies(text: &mut String, intent: &Intent) {
    for class in classes(intent.pfc_send) {
        let _ = writeln!(
            text,
            "class-map type network-qos ROCKERY-N{class}\n match qos-group {class}"
        );
    }
    if intent.pfc_send != 0 {
        text.push_str("policy-map type network-qos ROCKERY-PFC\n");
    }
    for class in classes(intent.pfc_send) {
        let _ = writeln!(text, " class ROCKERY-N{class}\n  pause\n  pfc-cos {class}");
    }
    text.push_str("policy-map type queuing ROCKERY-ETS\n");
    for (class, queue) in intent.queues.iter().enumerate() {
        let _ = writeln!(text, " class ROCKERY-Q{class}");
        let _ = match queue.schedule {
            Schedule::Strict => writeln!(text, "  priority"),
            Schedule::Weighted(percent) | Schedule::Background(percent) => {
                writeln!(text, "  bandwidth percent {percent}")
            }
        };
        if let Some(rate) = queue.rate {
            let _ = writeln!(text, "  shape min kbps 0 max kbps {}", rate.kbps());
        }
        if queue.ecn.is_some() {
            let _ = writeln!(text, "  random-detect ROCKERY-WRED-{class}");
        }
    }
    text.push_str("system qos\n ets mode on\n");
}
