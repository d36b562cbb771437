//! The counters of labs: `rockery lab ps --json`, and those of ports.

use ::lab::{Client, LabError, Ports, Status};
use serde_json::{Value, json};

use super::live::{Answer, TIME_MAX, ask_all, shown};

/// Hosts of a lab that are listed at most.
const HOSTS_MAX: usize = 256;

/// The labs of this user in this network namespace, and their counters.
pub(super) fn now() -> Value {
    ask_all("labs", ::lab::labs(), |name: String| match asked(&name) {
        Ok((status, ports)) => Answer::Figures(figures(&status, &ports)),
        // The lab ended after its socket was listed.
        Err(error) if error.is_gone() => Answer::Ended,
        Err(error) => Answer::Problem(shown(&format!("{name}: {error}"))),
    })
}

fn asked(name: &str) -> Result<(Status, Ports), LabError> {
    let client = Client::connect_within(name, TIME_MAX)?;
    Ok((client.status()?, client.ports()?))
}

fn figures(status: &Status, ports: &Ports) -> Value {
    let hosts = status.hosts.iter().take(HOSTS_MAX).map(|host| {
        json!({
            "name": shown(&host.name), "v4": host.v4, "v6": host.v6, "devices": host.devices,
            "counters": host.counters,
        })
    });
    let hosts: Vec<Value> = hosts.collect();
    let listed = ports.ports.iter().map(|port| {
        json!({
            "port": shown(&port.port), "to": shown(&port.to), "rate_bps": port.rate_bps,
            "packets": port.packets, "bytes": port.bytes, "marked": port.marked, "dropped": port.dropped,
            "pauses_sent": port.pauses_sent, "paused_us": port.paused_us,
        })
    });
    let listed: Vec<Value> = listed.collect();
    json!({
        "name": shown(&status.name), "title": shown(&status.title), "process": status.process,
        "at_ns": ports.now_ns, "slowdown": status.slowdown, "lateness": status.lateness,
        "shortest_link_ns": status.shortest_link_ns, "valid": status.valid, "dropped": status.dropped,
        "marked": status.marked, "pauses": status.pauses, "hosts": hosts, "hosts_total": status.hosts.len(),
        "simulated": status.simulated, "ports": listed, "ports_total": ports.total,
    })
}

#[cfg(test)]
mod tests {
    use ::lab::{HostCounters, HostStatus, LatenessSummary, PortCounters};

    use super::*;

    #[test]
    fn a_lab_has_its_ports_hosts_and_lateness() {
        let host = HostStatus {
            name: "h0\u{202e}<b>".to_owned(),
            v4: "10.0.0.1".to_owned(),
            v6: "fd00::1".to_owned(),
            learned: Vec::new(),
            mac: "02:00:00:00:00:01".to_owned(),
            function: None,
            infiniband: None,
            devices: 2,
            counters: HostCounters {
                rdma_sent: 5,
                ..HostCounters::default()
            },
        };
        let status = Status {
            name: "web".to_owned(),
            title: "two \u{1b}[2J".to_owned(),
            process: 7,
            now_ns: 900,
            slowdown: 4,
            lateness: LatenessSummary {
                p999_ns: 300,
                ..LatenessSummary::default()
            },
            shortest_link_ns: 200,
            valid: false,
            dropped: 1,
            pauses: 2,
            marked: 3,
            hosts: vec![host],
            simulated: 1,
            captured: Vec::new(),
            dcbx: Vec::new(),
        };
        let port = PortCounters {
            port: "sw:1".to_owned(),
            to: "h0".to_owned(),
            rate_bps: 100_000_000_000,
            packets: 10,
            bytes: 4096,
            marked: 3,
            dropped: vec![("buffer-full".to_owned(), 1)],
            pauses_sent: 2,
            paused_us: 1.5,
        };
        let figures = figures(
            &status,
            &Ports {
                now_ns: 1000,
                total: 9,
                ports: vec![port],
            },
        );
        assert_eq!(
            (&figures["at_ns"], &figures["valid"]),
            (&json!(1000), &json!(false))
        );
        assert_eq!(
            (&figures["ports_total"], &figures["lateness"]["p999_ns"]),
            (&json!(9), &json!(300))
        );
        let port = &figures["ports"][0];
        assert_eq!(
            (&port["bytes"], &port["dropped"]),
            (&json!(4096), &json!([["buffer-full", 1]]))
        );
        assert_eq!(figures["hosts"][0]["counters"]["rdma_sent"], 5);
        // Marks of direction and escapes would change what the page shows beside them.
        assert_eq!(figures["hosts"][0]["name"], "h0\\u{202e}<b>");
        assert_eq!(figures["title"], "two \\u{1b}[2J");
    }
}
