//! How much headroom a lossless priority needs: what can still arrive after a pause was decided on (802.1Q
//! annex N, which this follows term by term).

use crate::egress::{COMMITMENT_BYTES, PAUSE_FRAME_BYTES};
use crate::packet::FRAME_OVERHEAD_BYTES;
use crate::time::{Rate, Span};

/// The longest frame that headroom is computed for, in bytes: the l2mtu that switches offer.
pub const FRAME_MAX_BYTES: u32 = 9216;

/// The inputs of the sum of 802.1Q annex N.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headroom {
    /// Speed of the link.
    pub rate: Rate,
    /// Propagation delay of the link in one direction.
    pub delay: Span,
    /// The longest frame that we may be sending when the pause is decided on, from the destination address
    /// to the check sequence.
    pub our_frame_max_bytes: u32,
    /// The longest frame that the peer may have begun when it stops.
    pub peer_frame_max_bytes: u32,
    /// Time from the pause's arrival until the peer stops (802.3 annex 31B.3.7 sets the longest).
    pub response: Span,
    /// Bytes per cell of the buffer.
    pub cell_bytes: u32,
    /// The shortest frame, which may fill cells badly.
    pub frame_min_bytes: u32,
}

impl Headroom {
    /// The headroom in bytes.
    ///
    /// In order of time: our pause frame waits for the frame that we are sending, travels to the peer, which
    /// takes its response time and finishes its own frame; what it sent in all that time is on its way here.
    pub fn bytes(&self) -> u32 {
        let wait = self
            .rate
            .time_of(self.our_frame_max_bytes + FRAME_OVERHEAD_BYTES);
        let pause = self.rate.time_of(PAUSE_FRAME_BYTES + FRAME_OVERHEAD_BYTES);
        let time = wait + pause + self.delay.times(2) + self.response;
        // Both sides may have committed themselves to a frame that has not begun.
        let begun = self.peer_frame_max_bytes + FRAME_OVERHEAD_BYTES + 2 * COMMITMENT_BYTES;
        let sent = self.rate.bytes_in(time) + u64::from(begun);
        // The frame whose arrival caused the pause may itself not fit below the threshold.
        let arrived = sent + u64::from(self.peer_frame_max_bytes);
        let shortest = self.frame_min_bytes.max(1);
        let cells = shortest.next_multiple_of(self.cell_bytes.max(1));
        let filled = arrived * u64::from(cells) / u64::from(shortest) + u64::from(self.cell_bytes);
        filled.min(u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_cable_needs_two_bytes_per_byte_on_it() {
        let short = Headroom {
            rate: Rate::from_gbps(100),
            delay: Span::from_ns(50),
            our_frame_max_bytes: 9216,
            peer_frame_max_bytes: 9216,
            response: Span::from_ns(600),
            cell_bytes: 1,
            frame_min_bytes: 64,
        };
        // 100 Gb/s: 12.5 bytes per ns. 1250 on the way, 7500 response, 9236 + 84 of ours, 9236 +
        // 128 + 9216 + 1.
        assert_eq!(
            short.bytes(),
            1250 + 7500 + 9236 + 84 + 9236 + 128 + 9216 + 1
        );
        let long = Headroom {
            delay: Span::from_us(5),
            ..short
        };
        assert_eq!(long.bytes() - short.bytes(), 2 * 4950 * 25 / 2);
    }
}
