//! Counters of a lab for Prometheus.

use ::lab::{FunctionStatus, HostCounters, HostStatus, Status};
use ::sim::world::FunctionDrops;
use std::fmt::Write;

/// A counter of a host: name, meaning, value.
type HostCounter = (&'static str, &'static str, fn(&HostCounters) -> u64);

const HOST_COUNTERS: [HostCounter; 8] = [
    (
        "rdma_sent",
        "RoCEv2 packets of devices that entered the network.",
        |counters| counters.rdma_sent,
    ),
    (
        "rdma_received",
        "RoCEv2 packets handed to devices.",
        |counters| counters.rdma_received,
    ),
    (
        "frames_sent",
        "Frames of the kernel that entered the network.",
        |counters| counters.frames_sent,
    ),
    (
        "frames_received",
        "Frames handed to the kernel.",
        |counters| counters.frames_received,
    ),
    (
        "no_destination",
        "Packets to addresses that no live host has.",
        |counters| counters.no_destination,
    ),
    (
        "forged",
        "Packets with a source address of another host.",
        |counters| counters.forged,
    ),
    (
        "not_taken",
        "Packets that no device or kernel took.",
        |counters| counters.not_taken,
    ),
    ("lost", "Packets that the network lost.", |counters| {
        counters.lost
    }),
];

/// A metric of a lab: name, meaning, type, value.
type LabMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Status) -> String,
);

const LAB_METRICS: [LabMetric; 8] = [
    (
        "clock_seconds",
        "Time of the lab's clock.",
        "counter",
        |status| seconds(status.now_ns),
    ),
    (
        "slowdown",
        "Factor by which the clock is slow.",
        "gauge",
        |status| status.slowdown.to_string(),
    ),
    (
        "valid",
        "Whether lateness is within the shortest link.",
        "gauge",
        |status| u8::from(status.valid).to_string(),
    ),
    (
        "lateness_p999_seconds",
        "99.9th percentile of lateness.",
        "gauge",
        |status| seconds(status.lateness.p999_ns),
    ),
    (
        "lateness_max_seconds",
        "Greatest lateness.",
        "gauge",
        |status| seconds(status.lateness.max_ns),
    ),
    (
        "dropped_total",
        "Packets that switches dropped.",
        "counter",
        |status| status.dropped.to_string(),
    ),
    (
        "marked_total",
        "Packets that switches marked.",
        "counter",
        |status| status.marked.to_string(),
    ),
    (
        "pauses_total",
        "Pause frames of switches.",
        "counter",
        |status| status.pauses.to_string(),
    ),
];

fn seconds(ns: u64) -> String {
    format!("{}", ns as f64 / 1e9)
}

/// The exposition text of a lab.
pub(super) fn text(status: &Status) -> String {
    let mut text = String::new();
    let lab = label(&status.name);
    for (name, help, kind, value) in LAB_METRICS {
        let value = value(status);
        let _ = writeln!(
            text,
            "# HELP rockery_lab_{name} {help}\n# TYPE rockery_lab_{name} {kind}"
        );
        let _ = writeln!(text, "rockery_lab_{name}{{lab=\"{lab}\"}} {value}");
    }
    for (name, help, value) in HOST_COUNTERS {
        let _ = writeln!(text, "# HELP rockery_lab_host_{name}_total {help}");
        let _ = writeln!(text, "# TYPE rockery_lab_host_{name}_total counter");
        for HostStatus {
            name: host,
            counters,
            ..
        } in &status.hosts
        {
            let (host, value) = (label(host), value(counters));
            let _ = writeln!(
                text,
                "rockery_lab_host_{name}_total{{lab=\"{lab}\",host=\"{host}\"}} {value}"
            );
        }
    }
    function_drops(&mut text, &lab, status);
    text
}

/// Packets that embedded switches dropped, by function and cause.
fn function_drops(text: &mut String, lab: &str, status: &Status) {
    let functions: Vec<(&HostStatus, &FunctionStatus)> = status
        .hosts
        .iter()
        .filter_map(|host| Some((host, host.function.as_ref()?)))
        .collect();
    if functions.is_empty() {
        return;
    }
    let name = "rockery_lab_function_dropped_total";
    let _ = writeln!(
        text,
        "# HELP {name} Packets that the embedded switch dropped, by cause."
    );
    let _ = writeln!(text, "# TYPE {name} counter");
    for (host, function) in functions {
        let FunctionDrops {
            spoofed_gid,
            spoofed_mac,
            vlan,
        } = function.dropped;
        let host = label(&host.name);
        for (cause, value) in [
            ("spoofed_gid", spoofed_gid),
            ("spoofed_mac", spoofed_mac),
            ("vlan", vlan),
        ] {
            let labels = format!("lab=\"{lab}\",host=\"{host}\",cause=\"{cause}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
}

/// A value between quotation marks.
fn label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
