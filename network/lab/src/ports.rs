//! The counters of the ports of a lab, in an answer that is short enough to be requested every second.

use serde::{Deserialize, Serialize};
use sim::experiment::Experiment;
use sim::report::{PortReport, port_reports};
use sim::world::Results;
use std::cmp::Reverse;

/// Ports in one answer at most: those that have sent the most bytes. The engine sends the answer between the
/// packets of the lab, so a longer one would make these late.
pub(crate) const PORTS_MAX: usize = 256;

/// The ports of a lab at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ports {
    /// Nanoseconds of the lab's clock since it began.
    pub now_ns: u64,
    /// The number of ports that have sent or lost anything.
    pub total: usize,
    /// Those that have sent the most bytes, in the order of the network.
    pub ports: Vec<PortCounters>,
}

/// The counters of a port that sends into a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortCounters {
    /// The name of the port.
    pub port: String,
    /// The name of the port at the other end of the link.
    pub to: String,
    /// The rate of the link in bits per second.
    pub rate_bps: u64,
    /// Packets that left here.
    pub packets: u64,
    /// Bytes that left here, headers included.
    pub bytes: u64,
    /// Packets that were marked here (ECN).
    pub marked: u64,
    /// Packets that arrived here and were lost, by reason; reasons without a packet are left out.
    pub dropped: Vec<(String, u64)>,
    /// Pause frames sent from here.
    pub pauses_sent: u64,
    /// Microseconds during which the other end had it paused, over all queues.
    pub paused_us: f64,
}

impl Ports {
    /// The counters of an experiment's ports.
    pub(crate) fn of(experiment: &Experiment, results: &Results, now_ns: u64) -> Self {
        let all = port_reports(experiment, results)
            .into_iter()
            .map(PortCounters::from)
            .collect();
        Self::most_bytes(all, now_ns)
    }

    fn most_bytes(all: Vec<PortCounters>, now_ns: u64) -> Self {
        let total = all.len();
        let mut ports: Vec<(usize, PortCounters)> = all.into_iter().enumerate().collect();
        ports.sort_by_key(|(_, port)| Reverse(port.bytes));
        ports.truncate(PORTS_MAX);
        ports.sort_by_key(|(place, _)| *place);
        Self {
            now_ns,
            total,
            ports: ports.into_iter().map(|(_, port)| port).collect(),
        }
    }
}

impl From<PortReport> for PortCounters {
    fn from(port: PortReport) -> Self {
        let dropped = port
            .losses()
            .map(|(why, count)| (why.to_owned(), count))
            .collect();
        let PortReport {
            port,
            to,
            rate_bps,
            packets,
            bytes,
            marked,
            pauses_sent,
            paused_us,
            ..
        } = port;
        Self {
            port,
            to,
            rate_bps,
            packets,
            bytes,
            marked,
            dropped,
            pauses_sent,
            paused_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::PIECE_BYTES;

    fn counted(number: u64) -> PortCounters {
        PortCounters {
            port: format!("switch-of-the-second-row-{number}:qsfp28-1-1"),
            to: format!("switch-of-the-first-row-{number}:qsfp28-1-1"),
            rate_bps: u64::MAX,
            packets: u64::MAX,
            bytes: number % 300,
            marked: u64::MAX,
            dropped: vec![
                ("buffer-full".to_owned(), u64::MAX),
                ("link-down".to_owned(), u64::MAX),
            ],
            pauses_sent: u64::MAX,
            paused_us: 1e12 / 7.0,
        }
    }

    #[test]
    fn of_many_ports_those_with_the_most_bytes_are_reported() {
        let ports = Ports::most_bytes((0..1000).map(counted).collect(), 7);
        assert_eq!((ports.total, ports.ports.len()), (1000, PORTS_MAX));
        // Of the numbers 0 to 999, three or four have each remainder of 300.
        assert!(
            ports
                .ports
                .iter()
                .all(|port| port.bytes >= 300 - PORTS_MAX as u64 / 3 - 1)
        );
        let text = serde_json::to_string(&ports).unwrap();
        assert!(text.len() < 4 * PIECE_BYTES, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Ports>(&text).unwrap(), ports);
    }

    #[test]
    fn few_ports_are_all_reported_in_their_order() {
        let all: Vec<PortCounters> = [5, 9, 1].map(counted).to_vec();
        assert_eq!(
            Ports::most_bytes(all.clone(), 7),
            Ports {
                now_ns: 7,
                total: 3,
                ports: all
            }
        );
    }
}
