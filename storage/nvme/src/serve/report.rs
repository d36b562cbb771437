//! Counters of a server, for `rockery top` and, as text, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::{End, Shared};
use crate::controller::Namespace;
use crate::latency::{Class, Latency, longest_ns};
use crate::nqn::Nqn;

/// All counters at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The time in nanoseconds since the start of the server.
    pub at_ns: u64,
    /// The number of open connections.
    pub connections: usize,
    /// The number of RDMA connections that their peers have not confirmed.
    #[serde(default)]
    pub half_open: usize,
    /// The number of controllers.
    pub controllers: usize,
    /// Bytes of data buffers of all connections, in use and free.
    #[serde(default)]
    pub data_bytes: usize,
    /// The number of connections that ended, by reason.
    pub ended: BTreeMap<String, u64>,
    /// One entry for each namespace.
    pub namespaces: Vec<NamespaceReport>,
    /// Queues that have executed commands: one entry for each namespace that a queue used.
    pub queues: Vec<QueueReport>,
}

/// Counters of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NamespaceReport {
    /// The NQN of the subsystem that has the namespace.
    pub subsystem: Nqn,
    /// The namespace identifier (NSID).
    pub id: u32,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The number of bytes read.
    pub read_bytes: u64,
    /// The number of bytes written.
    pub written_bytes: u64,
    /// The number of failed commands.
    pub errors: u64,
    /// The number of commands that act on its medium, or wait until they may.
    #[serde(default)]
    pub in_flight: u64,
    /// Latency histograms: reads, writes, others.
    pub latency: [LatencyReport; 3],
}

/// Counters of one queue for one namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueReport {
    /// The NQN of the subsystem.
    pub subsystem: Nqn,
    /// The namespace identifier (NSID).
    pub id: u32,
    /// The NQN of the host.
    pub host: Nqn,
    /// The controller identifier (CNTLID).
    pub controller: u16,
    /// The queue identifier (QID).
    pub queue: u16,
    /// Latency histograms: reads, writes, others.
    pub latency: [LatencyReport; 3],
}

/// A histogram: its buckets that are not zero.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LatencyReport {
    /// The index and count of each bucket that is not zero.
    pub counts: Vec<(u16, u64)>,
    /// The sum of all latencies, in nanoseconds.
    pub sum_ns: u64,
}

impl From<Latency> for LatencyReport {
    fn from(latency: Latency) -> Self {
        let numbered = (0..).zip(latency.places);
        Self {
            counts: numbered.filter(|(_, count)| *count != 0).collect(),
            sum_ns: latency.sum_ns,
        }
    }
}

impl LatencyReport {
    /// The histogram with all its buckets.
    pub fn latency(&self) -> Latency {
        let mut latency = Latency {
            sum_ns: self.sum_ns,
            ..Latency::default()
        };
        for (place, count) in &self.counts {
            if let Some(here) = latency.places.get_mut(usize::from(*place)) {
                *here = *count;
            }
        }
        latency
    }

    /// The counts since an earlier report.
    pub fn since(&self, earlier: &Self) -> Latency {
        let mut latency = self.latency();
        for (now, before) in latency.places.iter_mut().zip(earlier.latency().places) {
            *now = now.saturating_sub(before);
        }
        latency.sum_ns = latency.sum_ns.saturating_sub(earlier.sum_ns);
        latency
    }
}

impl Report {
    /// Counters of the server at this moment.
    pub(super) fn of(shared: &Shared) -> Self {
        let mut report = Self {
            at_ns: shared.now_ns(),
            connections: shared.connections(),
            half_open: shared.half_open(),
            controllers: shared.target.controllers().len(),
            data_bytes: shared.data_bytes(),
            ended: End::ALL
                .iter()
                .map(|end| (end.name().to_owned(), shared.ended_so_far(*end)))
                .collect(),
            namespaces: Vec::new(),
            queues: Vec::new(),
        };
        for subsystem in shared.target.subsystems() {
            for namespace in subsystem.namespaces() {
                report.add(subsystem.name(), &namespace);
            }
        }
        report
    }

    fn add(&mut self, subsystem: &Nqn, namespace: &Namespace) {
        let counters = &namespace.counters;
        let observed = namespace.observed();
        self.namespaces.push(NamespaceReport {
            subsystem: subsystem.clone(),
            id: namespace.nsid(),
            bytes: namespace.bytes(),
            read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            in_flight: namespace.in_flight(),
            latency: Class::ALL.map(|it| observed.latency(it).into()),
        });
        for figures in observed.queues() {
            let Some(name) = figures.queue() else {
                continue;
            };
            self.queues.push(QueueReport {
                subsystem: subsystem.clone(),
                id: namespace.nsid(),
                host: name.host.clone(),
                controller: name.controller,
                queue: name.queue,
                latency: Class::ALL.map(|it| figures.latency(it).into()),
            });
        }
    }

    /// The report in the text format 0.0.4 of Prometheus.
    pub fn to_prometheus(&self) -> String {
        let mut text = Text(String::new());
        self.write_connections(&mut text);
        self.write_namespaces(&mut text);
        self.write_latencies(&mut text);
        text.0
    }

    /// Metrics of the server as a whole.
    fn write_connections(&self, text: &mut Text) {
        let gauges = [
            (
                "connections",
                "Connections that are open.",
                self.connections,
            ),
            (
                "connections_half_open",
                "RDMA connections that their peers have not confirmed.",
                self.half_open,
            ),
            (
                "controllers",
                "Controllers that hosts have.",
                self.controllers,
            ),
            (
                "data_bytes",
                "Bytes of data buffers of all connections, in use and free.",
                self.data_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            text.plain(
                &format!("rockery_nvme_{name}"),
                "gauge",
                help,
                &[(String::new(), value as u64)],
            );
        }
        let ended: Vec<_> = self
            .ended
            .iter()
            .map(|(why, count)| (label("reason", why), *count))
            .collect();
        text.plain(
            "rockery_nvme_connections_ended_total",
            "counter",
            "Connections that ended, by why.",
            &ended,
        );
    }

    /// Counters of each namespace.
    fn write_namespaces(&self, text: &mut Text) {
        for metric in NAMESPACE_METRICS {
            let values: Vec<_> = self
                .namespaces
                .iter()
                .map(|it| (it.labels(), (metric.value)(it)))
                .collect();
            text.plain(
                &format!("rockery_nvme_{}", metric.name),
                metric.kind,
                metric.help,
                &values,
            );
        }
    }

    /// Histograms of each namespace, and of each queue.
    fn write_latencies(&self, text: &mut Text) {
        let namespaces = self.namespaces.iter().map(|it| (it.labels(), &it.latency));
        let help =
            "What commands took in the target, from the arrival of their data to their completion.";
        text.histogram("rockery_nvme_latency_seconds", help, namespaces);
        let queues = self.queues.iter().map(|it| (it.labels(), &it.latency));
        text.histogram(
            "rockery_nvme_queue_latency_seconds",
            "The same, of each queue that is open.",
            queues,
        );
    }
}

/// A metric with one value for each namespace.
struct NamespaceMetric {
    /// The name behind `rockery_nvme_`.
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&NamespaceReport) -> u64,
}

const NAMESPACE_METRICS: [NamespaceMetric; 5] = [
    NamespaceMetric {
        name: "namespace_size_bytes",
        kind: "gauge",
        help: "The namespace's size.",
        value: |it| it.bytes,
    },
    NamespaceMetric {
        name: "commands_in_flight",
        kind: "gauge",
        help: "Commands that act on the namespace's medium, or wait until they may.",
        value: |it| it.in_flight,
    },
    NamespaceMetric {
        name: "read_bytes_total",
        kind: "counter",
        help: "Bytes that hosts read.",
        value: |it| it.read_bytes,
    },
    NamespaceMetric {
        name: "written_bytes_total",
        kind: "counter",
        help: "Bytes that hosts wrote.",
        value: |it| it.written_bytes,
    },
    NamespaceMetric {
        name: "errors_total",
        kind: "counter",
        help: "Commands that failed.",
        value: |it| it.errors,
    },
];

impl NamespaceReport {
    fn labels(&self) -> String {
        namespace_labels(&self.subsystem, self.id)
    }
}

impl QueueReport {
    fn labels(&self) -> String {
        let Self {
            subsystem,
            id,
            host,
            controller,
            queue,
            ..
        } = self;
        let host = label("host", host.as_str());
        format!(
            "{},{host},controller=\"{controller}\",queue=\"{queue}\"",
            namespace_labels(subsystem, *id)
        )
    }
}

fn namespace_labels(subsystem: &Nqn, id: u32) -> String {
    format!(
        "{},namespace=\"{id}\"",
        label("subsystem", subsystem.as_str())
    )
}

fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// Buckets for Prometheus, as powers of two in nanoseconds from 1 us to 8 s. Each is the upper bound of a
/// bucket of ours too.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=33;

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn plain(&mut self, name: &str, kind: &str, help: &str, values: &[(String, u64)]) {
        self.head(name, kind, help);
        for (labels, value) in values {
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{labels}}}")
            };
            _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = (String, &'a [LatencyReport; 3])>,
    ) {
        self.head(name, "histogram", help);
        for (labels, latency) in series {
            for (operation, latency) in Class::ALL.iter().zip(latency) {
                self.buckets(
                    name,
                    &format!("{labels},operation=\"{}\"", operation.name()),
                    latency,
                );
            }
        }
    }

    fn buckets(&mut self, name: &str, labels: &str, latency: &LatencyReport) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let up_to = |ns: u64| -> u64 {
            let below = latency
                .counts
                .iter()
                .filter(|(place, _)| longest_ns((*place).into()) < ns);
            below.map(|(_, count)| count).sum()
        };
        for shift in BUCKETS {
            let limit_ns = 1_u64 << shift;
            let count = up_to(limit_ns);
            _ = writeln!(
                self.0,
                "{name}_bucket{{{labels},le=\"{}\"}} {count}",
                seconds(limit_ns)
            );
        }
        let total: u64 = latency.counts.iter().map(|(_, count)| count).sum();
        _ = writeln!(self.0, "{name}_bucket{{{labels},le=\"+Inf\"}} {total}");
        _ = writeln!(self.0, "{name}_sum{{{labels}}} {}", seconds(latency.sum_ns));
        _ = writeln!(self.0, "{name}_count{{{labels}}} {total}");
    }
}
