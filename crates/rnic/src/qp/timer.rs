//! A queue pair's timers: one deadline each, one handler for all.

use super::Qp;
use super::attr::State;
use crate::resources::Resources;
use crate::time::{Instant, Nanos};

/// RNR timer codes 0 to 31 in units of 10 us (IBTA 9.7.5.2.8, table 46).
const RNR_WAIT_10_MICROS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048,
    3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// How long an RNR NAK asks to wait.
pub(super) fn rnr_wait(code: u8) -> Nanos {
    Nanos::from_micros(u64::from(RNR_WAIT_10_MICROS[usize::from(code & 31)]) * 10)
}

/// Local ACK timeout of a code: 4.096 us × 2^code; 0 is never (IBTA 9.7.6.1.3).
fn ack_timeout(code: u8) -> Option<Nanos> {
    (code != 0).then(|| Nanos(4_096 << (code & 31)))
}

/// The earlier of two moments, if there is any. (Written out: this runs for each packet.)
#[inline]
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
        (one, None) => one,
        (None, other) => other,
    }
}

impl Qp {
    /// The earliest of:
    /// - when to give up waiting for an acknowledgement,
    /// - when to end an RNR NAK's wait,
    /// - when to send the next paced packet,
    /// - when the congestion control wants its clock.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let requester = &self.requester;
        let pace = if requester.waits_for_pace { Some(requester.pace_at) } else { None };
        let own = earlier(requester.retransmit_at, requester.resume_at);
        earlier(earlier(own, pace), self.congestion.deadline())
    }

    /// Starts the ACK timer unless it runs.
    pub(super) fn arm_retransmit(&mut self, now: Instant) {
        if self.requester.retransmit_at.is_none() {
            self.restart_retransmit(now);
        }
    }

    /// Starts the ACK timer anew, or stops it when nothing is waited for.
    pub(super) fn restart_retransmit(&mut self, now: Instant) {
        let timeout = ack_timeout(self.attr.timeout).filter(|_| self.requester.is_waiting());
        self.requester.retransmit_at = timeout.map(|timeout| now + timeout);
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, resources: &mut Resources, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.requester.resume_at) {
            self.requester.resume_at = None;
        }
        if self.requester.pace_at <= now {
            self.requester.waits_for_pace = false;
        }
        if due(self.congestion.deadline()) {
            self.congestion.handle_timeout(now);
        }
        if due(self.requester.retransmit_at) {
            self.requester.retransmit_at = None;
            if matches!(self.state, State::ReadyToSend | State::SendQueueDrained) {
                self.acknowledgement_overdue(resources, now);
            }
        }
    }

    fn acknowledgement_overdue(&mut self, resources: &mut Resources, now: Instant) {
        if !self.requester.is_waiting() {
            return;
        }
        resources.counters.local_ack_timeout_err += 1;
        self.counters.local_ack_timeout_err += 1;
        self.congestion.timed_out(now);
        self.retry(resources, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_codes_are_those_of_the_specification() {
        assert_eq!(rnr_wait(0), Nanos(655_360_000));
        assert_eq!(rnr_wait(1), Nanos(10_000));
        assert_eq!(rnr_wait(24), Nanos(40_960_000));
        assert_eq!(rnr_wait(31), Nanos(491_520_000));
        assert_eq!(ack_timeout(14), Some(Nanos(67_108_864)));
        assert_eq!(ack_timeout(0), None);
    }
}
