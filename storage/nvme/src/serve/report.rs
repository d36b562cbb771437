//! Counters of a server, for `rockery top` and, as text, for Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use server::prometheus::{Bucket, Exposition, Histograms, Kind, Label, seconds};

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
    /// Size of the namespace in bytes.
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

    /// The report in the text format of Prometheus.
    pub fn to_prometheus(&self) -> String {
        let mut text = Exposition::new("rockery_nvme_");
        self.write_connections(&mut text);
        self.write_namespaces(&mut text);
        self.write_latencies(&mut text);
        text.into_text()
    }

    /// Metrics of the server as a whole.
    fn write_connections(&self, text: &mut Exposition) {
        text.gauge("connections", "Connections that are open.")
            .sample(&[], self.connections);
        let help = "RDMA connections that their peers have not confirmed.";
        text.gauge("connections_half_open", help)
            .sample(&[], self.half_open);
        text.gauge("controllers", "Controllers that hosts have.")
            .sample(&[], self.controllers);
        let help = "Bytes of data buffers of all connections, in use and free.";
        text.gauge("data_bytes", help).sample(&[], self.data_bytes);
        let help = "Connections that ended, by why.";
        let mut ended = text.counter("connections_ended_total", help);
        for (why, count) in &self.ended {
            ended.sample(&[("reason", why)], *count);
        }
    }

    /// Counters of each namespace.
    fn write_namespaces(&self, text: &mut Exposition) {
        for metric in NAMESPACE_METRICS {
            let mut family = text.family(metric.kind, metric.name, metric.help);
            for it in &self.namespaces {
                family.sample(&it.labels(), (metric.value)(it));
            }
        }
    }

    /// Histograms of each namespace, and of each queue.
    fn write_latencies(&self, text: &mut Exposition) {
        let help =
            "What commands took in the target, from the arrival of their data to their completion.";
        let mut histograms = text.histogram("latency_seconds", help);
        for it in &self.namespaces {
            write_classes(&mut histograms, &it.labels(), &it.latency);
        }
        let help = "The same, of each queue that is open.";
        let mut histograms = text.histogram("queue_latency_seconds", help);
        for it in &self.queues {
            write_classes(&mut histograms, &it.labels(), &it.latency);
        }
    }
}

/// A metric with one value for each namespace.
struct NamespaceMetric {
    /// The name behind `rockery_nvme_`.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&NamespaceReport) -> u64,
}

const NAMESPACE_METRICS: [NamespaceMetric; 5] = [
    NamespaceMetric {
        name: "namespace_size_bytes",
        kind: Kind::Gauge,
        help: "The namespace's size.",
        value: |it| it.bytes,
    },
    NamespaceMetric {
        name: "commands_in_flight",
        kind: Kind::Gauge,
        help: "Commands that act on the namespace's medium, or wait until they may.",
        value: |it| it.in_flight,
    },
    NamespaceMetric {
        name: "read_bytes_total",
        kind: Kind::Counter,
        help: "Bytes that hosts read.",
        value: |it| it.read_bytes,
    },
    NamespaceMetric {
        name: "written_bytes_total",
        kind: Kind::Counter,
        help: "Bytes that hosts wrote.",
        value: |it| it.written_bytes,
    },
    NamespaceMetric {
        name: "errors_total",
        kind: Kind::Counter,
        help: "Commands that failed.",
        value: |it| it.errors,
    },
];

impl NamespaceReport {
    fn labels(&self) -> [Label<'_>; 2] {
        [("subsystem", &self.subsystem), ("namespace", &self.id)]
    }
}

impl QueueReport {
    fn labels(&self) -> [Label<'_>; 5] {
        [
            ("subsystem", &self.subsystem),
            ("namespace", &self.id),
            ("host", &self.host),
            ("controller", &self.controller),
            ("queue", &self.queue),
        ]
    }
}

/// Buckets for Prometheus, as powers of two in nanoseconds from 1 us to 8 s. Each is the upper bound of a
/// bucket of ours too.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=33;

/// Writes the histograms of reads, writes and others.
fn write_classes(
    histograms: &mut Histograms<'_>,
    labels: &[Label<'_>],
    latency: &[LatencyReport; 3],
) {
    for (class, latency) in Class::ALL.iter().zip(latency) {
        let operation = class.name();
        let labels = [labels, &[("operation", &operation)]].concat();
        let total = latency.counts.iter().map(|(_, count)| count).sum();
        let sum = seconds(latency.sum_ns);
        histograms.sample(&labels, latency.buckets(), sum, total);
    }
}

impl LatencyReport {
    fn buckets(&self) -> impl Iterator<Item = Bucket> {
        BUCKETS.map(|shift| {
            let limit_ns = 1_u64 << shift;
            let is_below = |place: u16| longest_ns(place.into()) < limit_ns;
            let below = self.counts.iter().filter(|(place, _)| is_below(*place));
            Bucket {
                limit: seconds(limit_ns),
                count: below.map(|(_, count)| count).sum(),
            }
        })
    }
}
