//! The counters of storage servers, which `rockery top` shows too. The page computes rates from two samples.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ::nvme::serve::{LatencyReport, NamespaceReport, QueueReport, Report};
use ::smb::serve::Report as SmbReport;
use serde_json::{Value, json};
use server::control::{ControlError, Query, ask_within};

use super::live::{Answer, TIME_MAX, ask_all, shown};
use crate::control::default_sockets;
use crate::server_report::ServerReport;

/// Bytes of a server's answer at most. A queue has some kilobytes at most.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Namespaces, hosts and SMB clients of a server that are listed at most.
const LISTED_MAX: usize = 128;

/// The storage servers of this user that have default control sockets, and their counters.
pub(super) fn now() -> Value {
    let sockets = match default_sockets() {
        Ok(sockets) => sockets,
        Err(error) => return json!({ "servers": [], "problems": [shown(&error.to_string())] }),
    };
    ask_all("servers", sockets, |path: PathBuf| match asked(&path) {
        Ok(report) => Answer::Figures(figures(&path, &report)),
        Err(error) if is_end(&error) => Answer::Ended,
        Err(error) => Answer::Problem(shown(&format!("{}: {error}", path.display()))),
    })
}

fn asked(path: &Path) -> Result<ServerReport, ControlError> {
    ServerReport::of(ask_within(
        path,
        &Query::Report,
        TIME_MAX,
        ANSWER_BYTES_MAX,
    )?)
}

/// Whether the error says that no server is there any more: a file that a killed server left, or one that
/// ends.
fn is_end(error: &ControlError) -> bool {
    match error {
        ControlError::NoServer { source, .. } => source.kind() != ErrorKind::TimedOut,
        ControlError::Gone(_) => true,
        _ => false,
    }
}

fn figures(path: &Path, report: &ServerReport) -> Value {
    let mut figures = match report {
        ServerReport::Nvme(report) => of_nvme(report),
        ServerReport::Smb(report) => of_smb(report),
    };
    figures["socket"] = json!(shown(&path.display().to_string()));
    figures
}

/// Commands of one class, and the sum of what they took. Divided by the time between two reports, that is the
/// mean number of commands that were in progress (Little's law).
#[derive(Clone, Copy, Default)]
struct Commands {
    count: u64,
    sum_ns: u64,
}

impl Commands {
    /// Reads, writes and others.
    fn of(latency: &[LatencyReport; 3]) -> [Self; 3] {
        latency.each_ref().map(|it| Self {
            count: it.counts.iter().map(|(_, count)| count).sum(),
            sum_ns: it.sum_ns,
        })
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    fn json(classes: [Self; 3]) -> Value {
        json!(classes.map(|it| json!({ "count": it.count, "sum_ns": it.sum_ns })))
    }
}

fn of_nvme(report: &Report) -> Value {
    let namespace = |it: &NamespaceReport| {
        json!({
            "subsystem": shown(it.subsystem.as_str()), "id": it.id, "size_bytes": it.bytes,
            "read_bytes": it.read_bytes, "written_bytes": it.written_bytes, "errors": it.errors,
            "commands": Commands::json(Commands::of(&it.latency)),
        })
    };
    let namespaces: Vec<Value> = report
        .namespaces
        .iter()
        .take(LISTED_MAX)
        .map(namespace)
        .collect();
    let hosts = hosts(&report.queues);
    json!({
        "kind": "nvme", "at_ns": report.at_ns, "connections": report.connections,
        "controllers": report.controllers, "namespaces": namespaces,
        "namespaces_total": report.namespaces.len(), "hosts_total": hosts.len(),
        "hosts": hosts.into_iter().take(LISTED_MAX).collect::<Vec<_>>(),
    })
}

/// The hosts of each subsystem: the sums of their open queues, the busiest host first.
fn hosts(queues: &[QueueReport]) -> Vec<Value> {
    /// Queues, and the commands of all of them.
    #[derive(Default)]
    struct Host {
        queues: BTreeSet<(u16, u16)>,
        commands: [Commands; 3],
    }
    let mut hosts: BTreeMap<(&str, &str), Host> = BTreeMap::new();
    for queue in queues {
        let host = hosts
            .entry((queue.subsystem.as_str(), queue.host.as_str()))
            .or_default();
        // A queue has an entry for each namespace that it used.
        host.queues.insert((queue.controller, queue.queue));
        host.commands
            .iter_mut()
            .zip(Commands::of(&queue.latency))
            .for_each(|(sum, one)| sum.add(one));
    }
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    let total = |host: &Host| host.commands.iter().map(|it| it.count).sum::<u64>();
    hosts.sort_by_key(|(_, host)| std::cmp::Reverse(total(host)));
    let json = |((subsystem, name), host): ((&str, &str), Host)| {
        json!({
            "subsystem": shown(subsystem), "host": shown(name), "queues": host.queues.len(),
            "commands": Commands::json(host.commands),
        })
    };
    hosts.into_iter().map(json).collect()
}

fn of_smb(report: &SmbReport) -> Value {
    let client = |it: &::smb::serve::ConnectionReport| {
        json!({
            "id": it.id, "client": shown(&it.client), "has_session": it.has_session, "read": it.read,
            "write": it.write,
        })
    };
    let clients: Vec<Value> = report
        .connections
        .iter()
        .take(LISTED_MAX)
        .map(client)
        .collect();
    json!({
        "kind": shown(&report.smb), "at_ns": report.at_ns, "refused": report.refused, "ended": report.ended,
        "read": report.read, "write": report.write, "clients": clients,
        "clients_total": report.connections.len(),
    })
}

#[cfg(test)]
mod tests {
    use ::nvme::Nqn;
    use ::smb::serve::{ConnectionReport, TransferReport};

    use super::*;

    fn nqn(name: &str) -> Nqn {
        format!("nqn.2024-01.org.example:{name}").parse().unwrap()
    }

    fn latency(reads: u64, writes: u64) -> [LatencyReport; 3] {
        let of = |count: u64| LatencyReport {
            counts: vec![(3, count), (9, 1)],
            sum_ns: 10 * count,
        };
        [of(reads), of(writes), LatencyReport::default()]
    }

    fn queue(host: &str, queue: u16, id: u32, reads: u64) -> QueueReport {
        let (subsystem, host) = (nqn("disk"), nqn(host));
        QueueReport {
            subsystem,
            id,
            host,
            controller: 1,
            queue,
            latency: latency(reads, 0),
        }
    }

    #[test]
    fn a_target_has_its_namespaces_and_the_sums_of_its_hosts() {
        let namespace = NamespaceReport {
            subsystem: nqn("disk"),
            id: 1,
            bytes: 1 << 20,
            read_bytes: 4096,
            written_bytes: 512,
            errors: 3,
            in_flight: 0,
            latency: latency(6, 2),
        };
        let report = Report {
            at_ns: 5_000_000_000,
            connections: 3,
            half_open: 0,
            controllers: 2,
            data_bytes: 0,
            ended: BTreeMap::new(),
            namespaces: vec![namespace],
            queues: vec![
                queue("one", 1, 1, 4),
                queue("two", 1, 1, 99),
                queue("one", 2, 1, 5),
                queue("one", 2, 2, 1),
            ],
        };
        let figures = figures(Path::new("/run/\u{1b}"), &ServerReport::Nvme(report));
        assert_eq!(
            (&figures["kind"], &figures["at_ns"]),
            (&json!("nvme"), &json!(5_000_000_000_u64))
        );
        assert_eq!(figures["socket"], "/run/\\u{1b}");
        let namespace = &figures["namespaces"][0];
        assert_eq!(
            (&namespace["read_bytes"], &namespace["errors"]),
            (&json!(4096), &json!(3))
        );
        assert_eq!(
            namespace["commands"][0],
            json!({ "count": 7, "sum_ns": 60 })
        );
        assert_eq!(
            namespace["commands"][1],
            json!({ "count": 3, "sum_ns": 20 })
        );
        let hosts = figures["hosts"].as_array().unwrap();
        assert_eq!(hosts[0]["host"], nqn("two").as_str());
        assert_eq!(
            hosts[1]["queues"], 2,
            "a queue that used two namespaces is one queue"
        );
        assert_eq!(
            hosts[1]["commands"][0],
            json!({ "count": 4 + 5 + 1 + 3, "sum_ns": 100 })
        );
    }

    #[test]
    fn a_gateway_has_its_clients() {
        let moved = TransferReport {
            requests: 2,
            bytes: 1 << 20,
        };
        let client = ConnectionReport {
            id: 4,
            client: "192.0.2.1:50000".to_owned(),
            has_session: true,
            read: moved,
            write: TransferReport::default(),
        };
        let report = SmbReport {
            smb: "gateway".to_owned(),
            at_ns: 9,
            refused: 1,
            ended: 2,
            data_bytes: 0,
            unauthenticated_bytes: 0,
            read: moved,
            write: TransferReport::default(),
            invalidated: 0,
            connections: vec![client],
        };
        let figures = of_smb(&report);
        assert_eq!(
            (&figures["kind"], &figures["clients_total"]),
            (&json!("gateway"), &json!(1))
        );
        assert_eq!(
            figures["clients"][0]["read"],
            json!({ "requests": 2, "bytes": 1 << 20 })
        );
    }

    #[test]
    fn lists_are_limited() {
        let queues: Vec<QueueReport> = (0..300)
            .map(|number| queue(&format!("host{number}"), 1, 1, number))
            .collect();
        let report = Report {
            at_ns: 1,
            connections: 0,
            half_open: 0,
            controllers: 0,
            data_bytes: 0,
            ended: BTreeMap::new(),
            namespaces: Vec::new(),
            queues,
        };
        let figures = of_nvme(&report);
        assert_eq!(figures["hosts"].as_array().unwrap().len(), LISTED_MAX);
        assert_eq!(figures["hosts_total"], 300);
        assert_eq!(figures["hosts"][0]["host"], nqn("host299").as_str());
    }

    #[test]
    fn a_server_that_has_ended_is_no_problem_and_a_silent_one_is() {
        let no_server = |kind: ErrorKind| ControlError::NoServer {
            path: PathBuf::new(),
            source: kind.into(),
        };
        assert!(
            is_end(&no_server(ErrorKind::ConnectionRefused))
                && is_end(&no_server(ErrorKind::NotFound))
        );
        assert!(is_end(&ControlError::Gone(ErrorKind::UnexpectedEof.into())));
        assert!(!is_end(&no_server(ErrorKind::TimedOut)) && !is_end(&ControlError::Silent));
    }
}
