//! Counters of a lab for Prometheus.

use ::lab::{FunctionStatus, HostCounters, HostStatus, InfinibandPort, Status};
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

/// A metric of an InfiniBand port.
struct PortMetric {
    kind: Kind,
    name: &'static str,
    help: &'static str,
    value: fn(&InfinibandPort) -> Value,
}

const PORT_METRICS: [PortMetric; 12] = [
    PortMetric {
        kind: Kind::Gauge,
        name: "state",
        help: "State of an InfiniBand port: 1 down, 2 initializing, 3 armed, 4 active.",
        value: |port| u64::from(port.state_number).into(),
    },
    PortMetric {
        kind: Kind::Gauge,
        name: "lid",
        help: "LID of an InfiniBand port; 0 without a manager.",
        value: |port| u64::from(port.lid).into(),
    },
    PortMetric {
        kind: Kind::Gauge,
        name: "manager_lid",
        help: "LID of the manager, as the port knows it.",
        value: |port| u64::from(port.manager_lid).into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "transmit_bytes_total",
        help: "Bytes that an InfiniBand port sent, headers included.",
        value: |port| port.transmit_bytes.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "receive_bytes_total",
        help: "Bytes that arrived at an InfiniBand port.",
        value: |port| port.receive_bytes.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "transmit_packets_total",
        help: "Packets that an InfiniBand port sent.",
        value: |port| port.transmit_packets.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "receive_packets_total",
        help: "Packets that arrived at an InfiniBand port.",
        value: |port| port.receive_packets.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "transmit_wait_seconds_total",
        help: "Time for which data waited for room at the other end of the link, added over lanes.",
        value: |port| (port.transmit_wait_us as f64 / 1e6).into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "transmit_discards_total",
        help: "Packets that an InfiniBand port did not send.",
        value: |port| port.transmit_discards.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "receive_errors_total",
        help: "Packets that arrived damaged at an InfiniBand port.",
        value: |port| port.receive_errors.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "management_dropped_total",
        help: "Packets of subnet management (virtual lane 15) that found no room.",
        value: |port| port.management_dropped.into(),
    },
    PortMetric {
        kind: Kind::Counter,
        name: "link_downed_total",
        help: "How often the link of an InfiniBand port went down.",
        value: |port| port.link_downed.into(),
    },
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
    write_ports(&mut text, status);
    write_function_drops(&mut text, status);
    text.into_text()
}

/// The InfiniBand ports of hosts.
fn write_ports(text: &mut Exposition, status: &Status) {
    let ports = status.hosts.iter();
    let ports = ports.filter_map(|host| Some((&host.name, host.infiniband.as_ref()?)));
    let ports: Vec<(&String, &InfinibandPort)> = ports.collect();
    if ports.is_empty() {
        return;
    }
    for metric in PORT_METRICS {
        let name = format!("infiniband_port_{}", metric.name);
        let mut family = text.family(metric.kind, &name, metric.help);
        for (host, port) in &ports {
            family.sample(&[("host", host)], (metric.value)(port));
        }
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    const BEGINNING: &str = "\
# Metrics

Here you look up the metrics that rockery serves to Prometheus. The page is made of what is served, by
`apps/rockery/src/lab/metrics.rs`.
";

    /// The families of an exposition as rows of a table: name, type and help.
    fn rows(exposition: &str) -> String {
        let mut rows = String::new();
        let lines: Vec<&str> = exposition.lines().collect();
        for pair in lines.windows(2) {
            let Some(help) = pair[0].strip_prefix("# HELP ") else {
                continue;
            };
            let (name, help) = help.split_once(' ').expect("a name and its help");
            let kind = pair[1].rsplit(' ').next().expect("a type");
            rows += &format!("| `{name}` | {kind} | {help} |\n");
        }
        rows
    }

    /// A lab with a function of an adapter and a port of InfiniBand, since only such labs count what these
    /// do.
    fn lab() -> Status {
        let function =
            json!({"of": "h0", "vf": 0, "up": true, "dropped": FunctionDrops::default()});
        let host = json!({
            "name": "h0v0", "v4": "", "v6": "", "mac": "", "devices": 0,
            "counters": HostCounters::default(), "function": function,
            "infiniband": InfinibandPort::default(),
        });
        let lateness = json!({"packets": 0, "p50_ns": 0, "p99_ns": 0, "p999_ns": 0, "max_ns": 0});
        let status = json!({
            "name": "it", "title": "", "process": 1, "now_ns": 0, "slowdown": 1, "lateness": lateness,
            "shortest_link_ns": 1, "valid": true, "dropped": 0, "pauses": 0, "marked": 0,
            "hosts": [host], "simulated": 0, "captured": [],
        });
        serde_json::from_value(status).expect("a status")
    }

    fn nvme() -> ::nvme::serve::Report {
        let report = json!({
            "at-ns": 0, "connections": 0, "controllers": 0, "ended": {}, "namespaces": [], "queues": [],
        });
        serde_json::from_value(report).expect("a report")
    }

    fn smb() -> ::smb::serve::Report {
        let none = json!({"requests": 0, "bytes": 0});
        let report = json!({
            "smb": "gateway", "at_ns": 0, "refused": 0, "ended": 0, "data_bytes": 0,
            "unauthenticated_bytes": 0, "read": none, "write": none, "invalidated": 0,
            "connections": [],
        });
        serde_json::from_value(report).expect("a report")
    }

    /// `UPDATE_DOCS=1 cargo test -p rockery --bin rockery metrics` writes the page.
    #[test]
    fn the_page_of_metrics_has_each_family() {
        let mut page = BEGINNING.to_owned();
        for (title, served) in [
            ("`rockery serve nvme`", nvme().to_prometheus()),
            ("`rockery smb gateway` and `dial`", smb().to_prometheus()),
            ("`rockery lab metrics`", text(&lab())),
        ] {
            let rows = rows(&served);
            page += &format!("\n## {title}\n\n| metric | type | meaning |\n|---|---|---|\n{rows}");
        }
        assert!(
            page.contains("rockery_lab_function_dropped_total"),
            "{page}"
        );
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).expect("the page can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let what = "docs/reference/metrics.md is not what is served; UPDATE_DOCS=1 writes it";
        assert!(page == written, "{what}");
    }
}
