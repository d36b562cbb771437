//! Counters of a lab for Prometheus.

use ::lab::{FunctionStatus, HostCounters, HostStatus, Status};
use ::sim::world::FunctionDrops;
use server::prometheus::{Exposition, Kind, Value, seconds};

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

/// A metric of a lab.
struct LabMetric {
    kind: Kind,
    name: &'static str,
    help: &'static str,
    value: fn(&Status) -> Value,
}

const LAB_METRICS: [LabMetric; 8] = [
    LabMetric {
        kind: Kind::Counter,
        name: "clock_seconds",
        help: "Time of the lab's clock.",
        value: |status| seconds(status.now_ns).into(),
    },
    LabMetric {
        kind: Kind::Gauge,
        name: "slowdown",
        help: "Factor by which the clock is slow.",
        value: |status| status.slowdown.into(),
    },
    LabMetric {
        kind: Kind::Gauge,
        name: "valid",
        help: "Whether lateness is within the shortest link.",
        value: |status| status.valid.into(),
    },
    LabMetric {
        kind: Kind::Gauge,
        name: "lateness_p999_seconds",
        help: "99.9th percentile of lateness.",
        value: |status| seconds(status.lateness.p999_ns).into(),
    },
    LabMetric {
        kind: Kind::Gauge,
        name: "lateness_max_seconds",
        help: "Greatest lateness.",
        value: |status| seconds(status.lateness.max_ns).into(),
    },
    LabMetric {
        kind: Kind::Counter,
        name: "dropped_total",
        help: "Packets that switches dropped.",
        value: |status| status.dropped.into(),
    },
    LabMetric {
        kind: Kind::Counter,
        name: "marked_total",
        help: "Packets that switches marked.",
        value: |status| status.marked.into(),
    },
    LabMetric {
        kind: Kind::Counter,
        name: "pauses_total",
        help: "Pause frames of switches.",
        value: |status| status.pauses.into(),
    },
];

/// The exposition text of a lab.
pub(super) fn text(status: &Status) -> String {
    let mut text = Exposition::new("rockery_lab_").labelled("lab", &status.name);
    for metric in LAB_METRICS {
        text.family(metric.kind, metric.name, metric.help)
            .sample(&[], (metric.value)(status));
    }
    for (name, help, value) in HOST_COUNTERS {
        let mut family = text.counter(&format!("host_{name}_total"), help);
        for HostStatus {
            name: host,
            counters,
            ..
        } in &status.hosts
        {
            family.sample(&[("host", host)], value(counters));
        }
    }
    write_function_drops(&mut text, status);
    text.into_text()
}

/// Packets that embedded switches dropped, by function and cause.
fn write_function_drops(text: &mut Exposition, status: &Status) {
    let functions: Vec<(&HostStatus, &FunctionStatus)> = status
        .hosts
        .iter()
        .filter_map(|host| Some((host, host.function.as_ref()?)))
        .collect();
    if functions.is_empty() {
        return;
    }
    let help = "Packets that the embedded switch dropped, by cause.";
    let mut family = text.counter("function_dropped_total", help);
    for (host, function) in functions {
        let FunctionDrops {
            spoofed_gid,
            spoofed_mac,
            vlan,
        } = function.dropped;
        for (cause, value) in [
            ("spoofed_gid", spoofed_gid),
            ("spoofed_mac", spoofed_mac),
            ("vlan", vlan),
        ] {
            family.sample(&[("host", &host.name), ("cause", &cause)], value);
        }
    }
}
