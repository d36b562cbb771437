//! The sending half of an InfiniBand port: its queues are virtual lanes, which wait for credits.

use crate::config::CLASSES;
use crate::egress::{Egress, Next};
use crate::lanes::{CREDIT_PACKET_BYTES, CreditUpdate, Lanes, LinkNews, PortLanes};
use crate::packet::{PacketId, Packets};
use crate::time::Time;
use alloc::boxed::Box;

impl Egress {
    /// Makes the queues virtual lanes.
    pub fn set_lanes(&mut self, lanes: PortLanes) {
        self.lanes = Some(Box::new(Lanes::new(lanes)));
        // Every packet takes its queue, and has its credits looked at.
        (self.has_lanes, self.shaped) = (true, u8::MAX);
    }

    /// Whether the port's queues are virtual lanes.
    #[inline]
    pub const fn has_lanes(&self) -> bool {
        self.has_lanes
    }

    /// Blocks of 64 bytes that the peer has room for in a lane; none where queues are no lanes.
    pub fn credits(&self, lane: usize) -> Option<u16> {
        Some(self.lanes.as_ref()?.credits(lane))
    }

    /// A flow control packet has arrived, or shows that a packet was lost. Returns whether the port may have
    /// something to send now.
    pub fn handle_news(&mut self, news: LinkNews, now: Time) -> bool {
        match news {
            LinkNews::Credits(update) => self.handle_credits(update, now),
            LinkNews::Lost { lane, length } => {
                self.skip_on_lane(lane, length);
                true
            }
        }
    }

    /// A flow control packet has arrived. Returns whether a lane may send again.
    fn handle_credits(&mut self, update: CreditUpdate, now: Time) -> bool {
        let Some(lanes) = &mut self.lanes else {
            return false;
        };
        lanes.set_limit(update);
        let lane = usize::from(update.lane) % CLASSES;
        let was_paused = self.paused >> lane & 1 == 1;
        self.resume_queue(lane, now);
        was_paused
    }

    /// A packet of so many bytes has arrived in a lane of this port.
    pub fn receive_on_lane(&mut self, lane: u8, length: u16) {
        if let Some(lanes) = &mut self.lanes {
            lanes.receive(usize::from(lane) % CLASSES, length);
        }
    }

    /// A packet that had arrived in a lane of this port has left its buffer: the peer is told with the next
    /// flow control packet.
    pub fn release_on_lane(&mut self, lane: u8, length: u16) {
        let lane = usize::from(lane) % CLASSES;
        if let Some(lanes) = &mut self.lanes {
            lanes.release(lane, length);
            self.announce |= 1 << lane;
        }
    }

    /// A packet for a lane of this port was lost on the link.
    fn skip_on_lane(&mut self, lane: u8, length: u16) {
        let lane = usize::from(lane) % CLASSES;
        if let Some(lanes) = &mut self.lanes {
            lanes.skip(lane, length);
            self.announce |= 1 << lane;
        }
    }

    /// Sends the flow control packet of the first lane with news. Such a packet is about one lane, and goes
    /// before packets of data.
    pub(crate) fn send_credits(&mut self, now: Time) -> Next {
        let Some(lanes) = &self.lanes else {
            return Next::Idle;
        };
        let lane = self.announce.trailing_zeros() as usize % CLASSES;
        self.announce &= !(1 << lane);
        let update = lanes.update(lane);
        self.busy_until = now + self.rate.time_of(CREDIT_PACKET_BYTES);
        Next::Credits {
            update,
            end: self.busy_until,
        }
    }

    /// Removes a packet that has been at the head of its lane for longer than its lifetime.
    pub(crate) fn take_expired(
        &mut self,
        eligible: u8,
        now: Time,
        packets: &mut Packets,
    ) -> Option<PacketId> {
        let lanes = self.lanes.as_mut()?;
        let mut all = (0..CLASSES).filter(|lane| eligible >> lane & 1 == 1);
        let lane = all.find(|lane| {
            let head = self.queues[*lane].head();
            head.is_some_and(|id| !lanes.allows(*lane, packets[id].length))
                && lanes.is_expired(*lane, now)
        })?;
        lanes.expire(lane, now);
        self.take(lane, packets)
    }

    /// Pauses the lanes whose next packet has no credits. Returns these lanes, one bit each.
    pub(crate) fn block_lanes(&mut self, eligible: u8, now: Time, packets: &Packets) -> u8 {
        let mut blocked = 0;
        for lane in (0..CLASSES).filter(|lane| eligible >> lane & 1 == 1) {
            let Some(lanes) = &mut self.lanes else {
                break;
            };
            let Some(id) = self.queues[lane].head() else {
                continue;
            };
            if !lanes.allows(lane, packets[id].length) {
                let until = lanes.block(lane, now);
                self.pause_queue(lane, now, until);
                blocked |= 1 << lane;
            }
        }
        blocked
    }
}
