//! RCCC: the receiver's port is shared out as credits, at a little less than its rate (Ultra Ethernet 1.0,
//! section 3.6.14; the design is that of EQDS, Olteanu et al., NSDI 2022).

use fabric::{Rate, Span, Time};
use std::collections::VecDeque;

/// Packets of a grant.
const PACKETS: u64 = 4;

/// The part of the port's rate that is granted, in percent: data must not queue in front of it.
const RATE_PERCENT: u64 = 99;

/// Grants of one port.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// The rate of the port, and how many bytes one grant has at most.
    rate: Rate,
    quantum: u64,
    /// Flows that want credit, in turn.
    turns: VecDeque<u32>,
    /// When the next grant is due.
    next_at: Time,
}

impl Pacer {
    pub(super) fn new(line_bps: u64, packet: u32) -> Self {
        Self {
            rate: Rate::from_bps(line_bps / 100 * RATE_PERCENT),
            quantum: PACKETS * u64::from(packet),
            turns: VecDeque::new(),
            next_at: Time(0),
        }
    }

    /// A flow wants credit that did not before.
    pub(super) fn join(&mut self, flow: u32) {
        self.turns.push_back(flow);
    }

    /// When the next grant is due, if any flow wants one.
    pub(super) fn next_at(&self) -> Option<Time> {
        (!self.turns.is_empty()).then_some(self.next_at)
    }

    /// The flow whose turn it is, if a grant is due.
    pub(super) fn turn(&mut self, now: Time) -> Option<u32> {
        (self.next_at <= now).then(|| self.turns.pop_front())?
    }

    /// The size of a grant to a flow that wants so many bytes more. If it wants more than that, it has
    /// another turn.
    pub(super) fn grant(&mut self, now: Time, flow: u32, wanted: u64) -> u64 {
        let bytes = wanted.min(self.quantum);
        if wanted > bytes {
            self.turns.push_back(flow);
        }
        let span: Span = self.rate.time_of(bytes as u32);
        self.next_at = self.next_at.max(now) + span;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_at_99_percent_of_the_rate() {
        let mut pacer = Pacer::new(100_000_000_000, 1000);
        let mut wanted = [9_000_u64, 30_000, 30_000];
        (0..3).for_each(|flow| pacer.join(flow));
        let mut granted = Vec::new();
        while let Some(at) = pacer.next_at() {
            if at > Time(0) {
                assert_eq!(pacer.turn(Time(at.0 - 1)), None);
            }
            let flow = pacer.turn(at).unwrap();
            let bytes = pacer.grant(at, flow, wanted[flow as usize]);
            wanted[flow as usize] -= bytes;
            granted.push((flow, bytes));
        }
        assert_eq!(granted[..4], [(0, 4000), (1, 4000), (2, 4000), (0, 4000)]);
        assert_eq!(granted[6], (0, 1000));
        assert_eq!(wanted, [0; 3]);
        // 69,000 bytes at 99 Gb/s.
        assert_eq!(pacer.next_at.0 / 1000, 69_000 * 8 / 99);
    }
}
