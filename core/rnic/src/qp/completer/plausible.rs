//! Plausibility of responses: whether one can come from the peer, or must be forged.
//!
//! RoCEv2 has no authentication. An off-path attacker who knows the addresses and the queue pair number, and
//! forges the source address, has to guess values that only the two ends and the path between them know: a
//! PSN of an outstanding packet, and the MSN of the responder (IBTA 9.7.7.1), which each AETH carries. Where
//! a value is not plausible the packet is dropped.

use crate::qp::context::Context;
use crate::qp::requester::Requester;
use crate::qp::responder::notification_interval;
use crate::time::{Instant, Nanos};
use crate::work::Operation;
use wire::Tail;

/// Tolerance of the MSN beyond the number of outstanding messages: responders differ in whether a READ counts
/// when it is received or when it is answered (IBTA C9-148), and responses may overtake each other.
const MSN_SLACK: u32 = 16;

/// Longest time between the last packet that was sent and a CNP: longer than a round trip and the
/// notification point's interval.
const NOTIFICATION_DELAY_MAX: Nanos = Nanos::from_millis(1);

/// Number of CNPs that may arrive at once, where the network has delayed them.
const NOTIFICATIONS_TOGETHER: u64 = 4;

/// The responder's MSN, from its last answer.
#[derive(Debug, Default)]
pub(super) struct PeerMsn(Option<u32>);

impl PeerMsn {
    /// Whether an MSN is within so many messages of the last one, or its sender is known; then it is stored.
    /// The first one is accepted without a check.
    pub(super) fn accepts_msn(&mut self, msn: u32, messages: u32, is_known: bool) -> bool {
        let is_near = self.0.is_none_or(|last| {
            let ahead = msn.wrapping_sub(last) & 0xff_ffff;
            ahead.min(0x100_0000 - ahead) <= messages + MSN_SLACK
        });
        if is_known || is_near {
            self.0 = Some(msn);
        }
        is_known || is_near
    }

    /// Accepts the next MSN without a check. Called when the local ACK timer expires, so that a peer that
    /// numbers differently is not ignored for ever.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Rate limit of CNPs: an allowance that refills at the notification point's rate.
#[derive(Debug, Default)]
pub(super) struct NotificationLimit {
    /// When the allowance will be full again.
    full_at: Instant,
}

impl NotificationLimit {
    /// Whether sent packets can have been marked, and the allowance permits a CNP.
    pub(super) fn may_come(&mut self, cx: &Context<'_>, requester: &Requester) -> bool {
        let is_recent = requester.has_sent_within(NOTIFICATION_DELAY_MAX, cx.now);
        (requester.is_waiting() || is_recent) && self.take(notification_interval(cx), cx.now)
    }

    /// Takes one CNP from the allowance, if there is one.
    fn take(&mut self, interval: Nanos, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + interval;
        let fits = (full_at - now).0 <= interval.0.saturating_mul(NOTIFICATIONS_TOGETHER);
        if fits {
            self.full_at = full_at;
        }
        fits
    }
}

/// Whether a request can be refused with this NAK code (IBTA 9.7.5.2.3 to 9.7.5.2.6).
pub(super) fn can_be_refused(operation: &Operation, code: u8) -> bool {
    const REMOTE_ACCESS: u8 = 2;
    const REMOTE_OPERATIONAL: u8 = 3;
    let has_no_key = matches!(operation, Operation::Send(Tail::None | Tail::Immediate(_)));
    code <= REMOTE_OPERATIONAL && !(code == REMOTE_ACCESS && has_no_key)
}
