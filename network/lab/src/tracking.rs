//! Counters of the flows of a live run, taken where packets enter and leave the network, as the simulator
//! counts its own.

use serde::{Deserialize, Serialize};
use sim::world::{Flow, FlowResult, Latency, Receiving};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Message, Packet};

/// Packets that a device may hold ahead of a hole.
const AHEAD_MAX: usize = 8192;

/// The flows of a run, by the queue pairs that receive something of them.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    /// By host and number of the queue pair that receives the data, and of the one that sends it.
    receivers: BTreeMap<(u32, u32), usize>,
    senders: BTreeMap<(u32, u32), usize>,
    pub(crate) flows: Vec<TrackedFlow>,
}

/// A flow of a run.
#[derive(Debug)]
pub(crate) struct TrackedFlow {
    /// Number of the workload in the file.
    pub(crate) number: u32,
    /// Whether the receiving device places packets in whatever order they arrive.
    out_of_order: bool,
    arrivals: Receiving,
    /// The packet that is next in order, and later ones that are there; nothing before the first packet.
    next: Option<u32>,
    ahead: BTreeSet<u32>,
    delivered_bytes: u64,
    /// The last PSN that was sent for the first time.
    highest_sent: Option<u32>,
    sent_again: u64,
    notifications: u64,
}

impl Tracking {
    /// Adds a flow between two queue pairs.
    pub(crate) fn add(&mut self, flow: &Flow, numbers: Numbers, out_of_order: bool) {
        let at = self.flows.len();
        self.receivers.insert((flow.to, numbers.receiver), at);
        self.senders.insert((flow.from, numbers.sender), at);
        self.flows.push(TrackedFlow {
            number: numbers.flow,
            out_of_order,
            arrivals: Receiving::default(),
            next: None,
            ahead: BTreeSet::new(),
            delivered_bytes: 0,
            highest_sent: None,
            sent_again: 0,
            notifications: 0,
        });
    }

    /// A packet enters the network.
    pub(crate) fn sent(&mut self, to: u32, packet: &Packet) {
        if let Some(at) = self
            .receivers
            .get(&(to, packet.dest.value()))
            .filter(|_| is_data(packet))
        {
            self.flows[*at].sent(packet.psn.value());
        }
    }

    /// A packet leaves the network.
    pub(crate) fn delivered(&mut self, to: u32, packet: &Packet, payload: usize) {
        let queue_pair = (to, packet.dest.value());
        if matches!(packet.message, Message::Congestion) {
            let sender = self.senders.get(&queue_pair);
            sender
                .into_iter()
                .for_each(|at| self.flows[*at].notifications += 1);
        } else if let Some(at) = self.receivers.get(&queue_pair).filter(|_| is_data(packet)) {
            self.flows[*at].arrived(packet, payload as u64);
        }
    }
}

/// Whether a packet carries data, or could.
fn is_data(packet: &Packet) -> bool {
    matches!(
        packet.message,
        Message::Write { .. } | Message::Send { .. } | Message::ReadResponse { .. }
    )
}

/// From one PSN to another, in 24 bits.
fn distance(psn: u32, from: u32) -> i32 {
    (psn.wrapping_sub(from) << 8) as i32 >> 8
}

impl TrackedFlow {
    fn sent(&mut self, psn: u32) {
        match self.highest_sent {
            Some(highest) if distance(psn, highest) <= 0 => self.sent_again += 1,
            _ => self.highest_sent = Some(psn),
        }
    }

    /// Counts payload once: that of the packet which is next in order, or of a later one where the device
    /// keeps those.
    fn arrived(&mut self, packet: &Packet, payload: u64) {
        self.arrivals.note_packet(packet);
        let psn = packet.psn.value();
        let next = *self.next.get_or_insert(psn);
        match distance(psn, next) {
            0 => {
                self.delivered_bytes += payload;
                let mut next = (psn + 1) & 0xff_ffff;
                while self.ahead.remove(&next) {
                    next = (next + 1) & 0xff_ffff;
                }
                self.next = Some(next);
            }
            1.. if self.keeps(psn) => self.delivered_bytes += payload,
            _ => {}
        }
    }

    /// Whether the device keeps a packet ahead of a hole, and has not got it before.
    fn keeps(&mut self, psn: u32) -> bool {
        self.out_of_order && self.ahead.len() < AHEAD_MAX && self.ahead.insert(psn)
    }

    /// The counters of the network; those of the poster are missing.
    pub(crate) fn result(&self) -> FlowResult {
        let mut result = FlowResult::of_nothing();
        result.delivered_bytes = self.delivered_bytes;
        result.order = self.arrivals.order.clone();
        result.sender.retransmitted_packets = self.sent_again;
        result.sender.rp_cnp_handled = self.notifications;
        result
    }
}

/// The queue pairs of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// Number of the flow in the file.
    pub flow: u32,
    /// The queue pair that sends the data.
    pub sender: u32,
    /// The queue pair that receives it.
    pub receiver: u32,
}

/// The counters of a queue pair's poster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of the flow in the file.
    pub flow: u32,
    /// When its first message was posted, in nanoseconds since the run began.
    pub started_ns: Option<u64>,
    /// When the first one completed, and the last one so far.
    pub completed_ns: Option<[u64; 2]>,
    /// Messages that completed.
    pub messages: u64,
    /// Whether all messages have completed.
    pub is_done: bool,
    /// The queue pair failed.
    pub failed: bool,
    /// ACK timeouts of its device's queue pair.
    #[serde(default)]
    pub timeouts: u64,
    /// Latencies: count, sum, the longest, and the histogram's buckets.
    pub latency: (u64, u64, u64, Vec<u64>),
}

impl Outcome {
    /// Adds the poster's counters to those of the network.
    pub(crate) fn complete(&self, flow: &Flow, result: &mut FlowResult) {
        let at = |ns: u64| fabric::Time(ns.saturating_mul(1000));
        result.started = self.started_ns.map_or(fabric::Time::NEVER, at);
        result.messages = self.messages;
        result.bytes = self.messages * u64::from(flow.message_bytes);
        if let Some([first, last]) = self.completed_ns {
            (result.first_completion, result.last_completion) = (at(first), at(last));
        }
        result.finished = if self.is_done {
            result.last_completion
        } else {
            fabric::Time::NEVER
        };
        result.failed = self.failed;
        result.sender.local_ack_timeout_err = self.timeouts;
        let (count, sum_ns, max_ns, buckets) = self.latency.clone();
        result.latency = Latency {
            count,
            sum_ns,
            max_ns,
            buckets,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Psn, Qpn, Service};

    fn packet(psn: u32, message: Message) -> Packet {
        Packet::new(Service::Rc, Qpn::new(7), Psn::new(psn), message)
    }

    fn tracking(out_of_order: bool) -> Tracking {
        let mut tracking = Tracking::default();
        tracking.add(
            &Flow::write(0, 1, 4096),
            Numbers {
                flow: 0,
                sender: 5,
                receiver: 7,
            },
            out_of_order,
        );
        tracking
    }

    fn data(psn: u32) -> Packet {
        // SEND Middle has no headers beyond the BTH.
        let bytes = [
            1,
            0,
            0xff,
            0xff,
            0,
            0,
            0,
            7,
            0,
            (psn >> 16) as u8,
            (psn >> 8) as u8,
            psn as u8,
        ];
        Packet::parse(&bytes).expect("a SEND").0
    }

    #[test]
    fn payload_counts_once() {
        // In order, 5 is dropped, and is not sent again here.
        for (out_of_order, expected) in [(false, 6), (true, 7)] {
            let mut tracking = tracking(out_of_order);
            // 3 is lost, and 4 and 5 arrive before it is sent again.
            for psn in [0xff_ffff, 0, 1, 2, 4, 5, 3, 4] {
                tracking.sent(1, &data(psn));
                tracking.delivered(1, &data(psn), 100);
            }
            let result = tracking.flows[0].result();
            assert_eq!(result.delivered_bytes, expected * 100);
            assert_eq!(result.sender.retransmitted_packets, 2);
            assert_eq!(result.order.packets, 8);
        }
    }

    #[test]
    fn notifications_are_for_the_sender() {
        let mut tracking = tracking(false);
        let mut notification = packet(0, Message::Congestion);
        tracking.delivered(1, &notification, 0);
        notification.dest = Qpn::new(5);
        tracking.delivered(0, &notification, 0);
        assert_eq!(tracking.flows[0].result().sender.rp_cnp_handled, 1);
    }
}
