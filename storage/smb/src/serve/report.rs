//! The report of a gateway or a dial: counters, and its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use server::prometheus::Exposition;

use super::Shared;
use crate::relay::Moved;

/// Requests whose data moved by RDMA, and the bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    /// The number of requests.
    pub requests: u64,
    /// Data of the transfers in bytes.
    pub bytes: u64,
}

/// A connection that is open, and its transfers so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// A number that no other connection of the process has.
    pub id: u64,
    /// The client's address.
    pub client: String,
    /// Whether the client has set up a session.
    pub has_session: bool,
    /// READs over buffer descriptors.
    pub read: TransferReport,
    /// WRITEs over buffer descriptors.
    pub write: TransferReport,
}

/// The state of a gateway or a dial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `gateway` or `dial`.
    pub smb: String,
    /// The time of the report, in nanoseconds since the start.
    pub at_ns: u64,
    /// Connections that were refused because of a limit.
    pub refused: u64,
    /// Connections that have ended.
    pub ended: u64,
    /// Registered data buffers of all connections, in bytes.
    pub data_bytes: u64,
    /// Memory of clients that have not authenticated, in bytes, without half-open connections.
    pub unauthenticated_bytes: u64,
    /// READs over buffer descriptors, of all connections so far.
    pub read: TransferReport,
    /// WRITEs over buffer descriptors, of all connections so far.
    pub write: TransferReport,
    /// Keys that a SEND with Invalidate has ended: by the gateway at clients, by the server at the dial.
    pub invalidated: u64,
    /// The connections that are open.
    pub connections: Vec<ConnectionReport>,
}

/// Counters of a connection, or of several.
#[derive(Default, Debug)]
pub(super) struct Counters {
    /// Requests and bytes of READs, then of WRITEs.
    moved: [[AtomicU64; 2]; 2],
    invalidated: AtomicU64,
}

impl Counters {
    pub(super) fn set(&self, moved: &[Moved; 2], invalidated: u64) {
        for (counters, moved) in self.moved.iter().zip(moved) {
            counters[0].store(moved.requests, Ordering::Relaxed);
            counters[1].store(moved.bytes, Ordering::Relaxed);
        }
        self.invalidated.store(invalidated, Ordering::Relaxed);
    }

    fn add(&self, other: &Self) {
        for (counter, other) in self.all().zip(other.all()) {
            counter.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        self.moved.iter().flatten().chain([&self.invalidated])
    }

    fn report(&self) -> ([TransferReport; 2], u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let moved = self.moved.each_ref();
        (
            moved.map(|[requests, bytes]| TransferReport {
                requests: load(requests),
                bytes: load(bytes),
            }),
            load(&self.invalidated),
        )
    }
}

/// A connection in the list; it leaves the list when this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    shared: Arc<Shared>,
    pub(super) entry: Arc<Entry>,
}

/// The state of a connection in the list.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    client: String,
    pub(super) counters: Counters,
    pub(super) has_session: std::sync::atomic::AtomicBool,
}

impl Shared {
    /// Adds a connection to the list.
    pub(super) fn list(self: &Arc<Self>, client: String) -> Listed {
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (counters, has_session) = Default::default();
        let entry = Arc::new(Entry {
            id,
            client,
            counters,
            has_session,
        });
        self.lock().push(Arc::clone(&entry));
        Listed {
            shared: Arc::clone(self),
            entry,
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut entries = self.shared.lock();
        self.shared.moved.add(&self.entry.counters);
        self.shared.ended.fetch_add(1, Ordering::Relaxed);
        entries.retain(|entry| entry.id != self.entry.id);
    }
}

impl Report {
    /// The report of a gateway or a dial.
    pub fn of(shared: &Shared, role: &str) -> Self {
        let entries = shared.lock();
        let sum = Counters::default();
        sum.add(&shared.moved);
        let mut connections = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            sum.add(&entry.counters);
            let ([read, write], _) = entry.counters.report();
            let has_session = entry.has_session.load(Ordering::Relaxed);
            let client = entry.client.clone();
            connections.push(ConnectionReport {
                id: entry.id,
                client,
                has_session,
                read,
                write,
            });
        }
        let ([read, write], invalidated) = sum.report();
        Self {
            smb: role.to_owned(),
            at_ns: shared.clock.now_ns(),
            refused: shared.refused.load(Ordering::Relaxed),
            ended: shared.ended.load(Ordering::Relaxed),
            data_bytes: shared.memory.used() as u64,
            unauthenticated_bytes: shared.unauthenticated.used() as u64,
            read,
            write,
            invalidated,
            connections,
        }
    }

    /// The report in the text format of Prometheus. All samples have the role as a label.
    pub fn to_prometheus(&self) -> String {
        let mut text = Exposition::new("rockery_smb_").labelled("role", &self.smb);
        self.write_connections(&mut text);
        self.write_transfers(&mut text);
        text.into_text()
    }

    /// Metrics of the connections and of their memory.
    fn write_connections(&self, text: &mut Exposition) {
        let with_session = self.connections.iter().filter(|it| it.has_session).count();
        let help = "Open connections, with and without a session.";
        text.gauge("connections", help)
            .sample(&[("session", &"yes")], with_session)
            .sample(&[("session", &"no")], self.connections.len() - with_session);
        text.counter("ended_total", "Connections that have ended.")
            .sample(&[], self.ended);
        text.counter("refused_total", "Connections that a limit refused.")
            .sample(&[], self.refused);
        text.gauge("data_bytes", "Registered data buffers in bytes.")
            .sample(&[], self.data_bytes);
        let help = "Memory of clients that have not authenticated, in bytes.";
        text.gauge("unauthenticated_bytes", help)
            .sample(&[], self.unauthenticated_bytes);
    }

    /// Metrics of the data that moved by RDMA.
    fn write_transfers(&self, text: &mut Exposition) {
        text.counter("rdma_requests_total", "Requests whose data moved by RDMA.")
            .sample(&[("operation", &"read")], self.read.requests)
            .sample(&[("operation", &"write")], self.write.requests);
        text.counter("rdma_bytes_total", "Data that moved by RDMA, in bytes.")
            .sample(&[("operation", &"read")], self.read.bytes)
            .sample(&[("operation", &"write")], self.write.bytes);
        text.counter(
            "invalidated_total",
            "Keys that a SEND with Invalidate ended.",
        )
        .sample(&[], self.invalidated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_ended_connections_are_kept() {
        let shared = Shared::new();
        let one = shared.list("192.0.2.1".to_owned());
        one.entry.counters.set(
            &[
                Moved {
                    requests: 3,
                    bytes: 30,
                },
                Moved::default(),
            ],
            3,
        );
        let other = shared.list("192.0.2.2".to_owned());
        other.entry.counters.set(
            &[
                Moved::default(),
                Moved {
                    requests: 1,
                    bytes: 5,
                },
            ],
            1,
        );
        drop(one);
        let report = Report::of(&shared, "gateway");
        assert_eq!((report.connections.len(), report.ended), (1, 1));
        assert_eq!(
            report.read,
            TransferReport {
                requests: 3,
                bytes: 30
            }
        );
        assert_eq!(report.invalidated, 4);
        let metrics = report.to_prometheus();
        let line = "rockery_smb_rdma_bytes_total{role=\"gateway\",operation=\"write\"} 5\n";
        assert!(metrics.contains(line), "{metrics}");
        assert!(metrics.contains("rockery_smb_connections{role=\"gateway\",session=\"no\"} 1\n"));
    }
}
