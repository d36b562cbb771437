//! Limits on what may be sent now: room in the channel or the driver, the window, and pacing.

use super::Requester;
use crate::address::Path;
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::expected::Expected;
use crate::qp::identity::Common;
use crate::qp::send_queue::SendEntry;
use crate::qp::timer::Timer;
use crate::sink::{ChannelRings, PacketKind, Sink};
use crate::time::Instant;
use crate::work::Operation;

/// READs are requested in pieces of at most this many packets, so that the window also paces the responses.
const READ_PACKETS_MAX: u32 = 64;

impl Requester {
    /// Number of packets of the entry that may be sent as one unit; 0 while the channel is full.
    pub(super) fn room(&self, cx: &mut Context<'_>, index: usize, sink: &mut impl Sink) -> u32 {
        if cx.qp.kind != QpType::Ud {
            return cx.qp.room(PacketKind::Data, sink);
        }
        match self.aim(cx, index) {
            Some((path, qpn)) => {
                let channels = sink.channels();
                let channel = channels.map_or(0, |channels| {
                    channels.datagram_channel(&path, cx.qp.qpn, qpn)
                });
                cx.qp.set_path(Path { channel, ..path });
                let mtu = cx.resources.port.active_mtu.bytes();
                cx.qp
                    .transport
                    .room(&cx.qp.path, mtu, PacketKind::Data, sink)
                    .min(1)
            }
            // The error is reported when it is sent.
            None => 1,
        }
    }

    /// Number of packets that the next request may request or consist of, given that some may go together:
    /// `None` if the window is full.
    #[inline]
    pub(super) fn window_allows(
        &self,
        qp: &Common,
        expected: &Expected,
        entry: &SendEntry,
        together: u32,
    ) -> Option<u32> {
        let left = entry.packets - self.packet;
        if !qp.is_reliable() {
            return Some(left.min(together));
        }
        if entry.wants_response() && expected.responses() >= usize::from(qp.attr.max_rd_atomic) {
            return None;
        }
        let window = qp.window_packets();
        let room = window.saturating_sub(self.in_flight());
        if !matches!(entry.operation, Operation::Read { .. }) {
            return (room > 0).then_some(left.min(together).min(room));
        }
        let wanted = left
            .min(READ_PACKETS_MAX)
            .min(expected.packets_to_read_end(self.next));
        // A small remainder of the window does not justify a request of its own.
        let worth = wanted.min(window.div_ceil(4));
        (room >= worth).then(|| wanted.min(room))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.next.distance_from(self.unacknowledged).max(0) as u32
    }

    /// Whether the rate limit permits a packet now. If not, the queue pair has no turn before the pace timer
    /// expires.
    pub(super) fn pace(&self, cx: &mut Context<'_>) -> bool {
        let waits = cx.now < self.pace_at;
        if waits {
            cx.qp.timers.set(Timer::Pace, self.pace_at);
        } else {
            cx.qp.timers.stop(Timer::Pace);
        }
        !waits
    }

    /// Starts the pace timer when pacing delays the next request beyond `at`.
    pub(in crate::qp) fn rest_until(&self, qp: &mut Common, at: Instant) {
        let next = self
            .queue
            .entry(self.cursor)
            .filter(|entry| !entry.is_local());
        if next.is_some() && self.resend.is_empty() && at < self.pace_at {
            qp.timers.set(Timer::Pace, self.pace_at);
        }
    }
}
