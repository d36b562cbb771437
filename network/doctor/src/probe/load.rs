//! Load: the times at which packets are due, and the results of streams.

use std::time::Duration;

use super::message::{LoadEnd, LoadOrder};

/// Packets that may be sent late in one burst: a short pause by the scheduler is made up for, a longer one is
/// not.
const BURST: u64 = 64;

/// The next action of a sender of load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Send the packet with this number.
    Send(u32),
    /// Wait for so long.
    Wait(Duration),
    /// The time of the stream is over.
    Over,
}

/// Sends packets at a rate. Packets that were due while the interface took none are not sent later.
#[derive(Clone, Debug)]
pub struct Pacer {
    interval: Duration,
    total: u64,
    /// The packet that is next, of all that are due in the time of the stream.
    slot: u64,
    blocked: bool,
    end: LoadEnd,
}

impl Pacer {
    /// The pacer of an order; its clock starts at zero.
    pub fn new(order: &LoadOrder) -> Self {
        let bits = u64::from(order.bytes) * 8;
        let nanos = bits.saturating_mul(1_000_000) / u64::from(order.kbps.max(1));
        let interval = Duration::from_nanos(nanos.max(1));
        let total = u64::from(order.millis) * 1_000_000 / nanos.max(1);
        let end = LoadEnd {
            stream: order.stream,
            ..LoadEnd::default()
        };
        Self {
            interval,
            total,
            slot: 0,
            blocked: false,
            end,
        }
    }

    /// The action that is due at this time after the start.
    pub fn due(&mut self, now: Duration) -> Due {
        let current = (now.as_nanos() / self.interval.as_nanos()) as u64;
        let late_by = current.min(self.total).saturating_sub(self.slot);
        let missed = if current >= self.total {
            late_by
        } else {
            late_by.saturating_sub(BURST)
        };
        self.slot += missed;
        let of = if self.blocked {
            &mut self.end.held_back
        } else {
            &mut self.end.behind
        };
        *of = of.saturating_add(missed as u32);
        if self.slot >= self.total {
            return Due::Over;
        }
        match self.slot > current {
            true => Due::Wait(self.interval * (self.slot as u32) - now),
            false => Due::Send(self.end.sent),
        }
    }

    /// The packet that was due was sent.
    pub fn sent(&mut self) {
        (self.slot, self.end.sent, self.blocked) = (self.slot + 1, self.end.sent + 1, false);
    }

    /// Records that the interface took no packet.
    pub fn blocked(&mut self) {
        self.blocked = true;
    }

    /// The sender's counters of the stream.
    pub fn end(&self) -> LoadEnd {
        self.end
    }
}

/// Arrivals are counted in parts of the time of this length.
pub(super) const SLOT: Duration = Duration::from_millis(10);

/// Packets of a stream that arrived.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    arrived: Vec<bool>,
    /// Packets in each 10 ms since the streams were ordered.
    pub slots: Vec<u32>,
    /// Packets with the mark of a congested switch.
    pub marked: u32,
    /// The sender's report at the end of the stream.
    pub end: Option<LoadEnd>,
    /// The highest rate that the sender allows, when it refused.
    pub refused: Option<u32>,
}

/// Most packets of a stream: 100 Gb/s of 4096 bytes for ten seconds.
const STREAM_MAX: usize = 1 << 25;

/// Slots are counted up to a minute after the order; later arrivals are counted in the last slot.
const SLOTS_MAX: usize = 6000;

impl Tally {
    /// Records a packet that arrived so long after the streams were ordered.
    pub fn arrived(&mut self, index: u32, traffic_class: u8, since: Duration) {
        let index = index as usize;
        if index >= STREAM_MAX {
            return;
        }
        if self.arrived.len() <= index {
            self.arrived.resize(index + 1, false);
        }
        // A packet that the network has duplicated counts once.
        if !std::mem::replace(&mut self.arrived[index], true) {
            self.marked += u32::from(traffic_class & 3 == 3);
            let slot = ((since.as_millis() / SLOT.as_millis()) as usize).min(SLOTS_MAX);
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, 0);
            }
            self.slots[slot] += 1;
        }
    }

    /// Whether a packet or the end has arrived.
    pub fn has_begun(&self) -> bool {
        !self.arrived.is_empty() || self.end.is_some() || self.refused.is_some()
    }

    /// Packets that arrived.
    pub fn count(&self) -> u32 {
        self.arrived.iter().filter(|arrived| **arrived).count() as u32
    }
}

/// The result of a stream, seen from both ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamOutcome {
    /// The host that sent it.
    pub host: String,
    /// The requested load.
    pub order: LoadOrder,
    /// The sender's report; `None` when it sent none.
    pub end: Option<LoadEnd>,
    /// The highest rate that the sender allows, when it refused.
    pub refused: Option<u32>,
    /// Packets that arrived here.
    pub arrived: u32,
    /// Packets of these with the mark of a congested switch.
    pub marked: u32,
    /// Packets in each 10 ms since the streams were ordered.
    pub slots: Vec<u32>,
    /// Packets that this machine's own kernel dropped, of all streams at once: its program was too slow.
    pub overrun: u32,
}

impl StreamOutcome {
    /// Packets that were due.
    pub fn offered(&self) -> u32 {
        self.end.map_or(0, |end| {
            end.sent
                .saturating_add(end.held_back)
                .saturating_add(end.behind)
        })
    }

    /// Packets that were sent and did not arrive.
    pub fn lost(&self) -> u32 {
        self.end
            .map_or(0, |end| end.sent.saturating_sub(self.arrived))
    }

    /// Whether both programs kept up, so that missing packets were lost in the network.
    pub fn is_of_the_network(&self) -> bool {
        let behind = self.end.map_or(u32::MAX, |end| end.behind);
        self.offered() > 0
            && u64::from(behind) * 10 <= u64::from(self.offered())
            && self.overrun == 0
    }

    /// Whether a packet in 1000 was lost, and more than stray ones.
    pub fn loses(&self) -> bool {
        let sent = self.end.map_or(0, |end| end.sent);
        self.lost() >= 3 && u64::from(self.lost()) * 1000 >= u64::from(sent)
    }

    /// Whether a packet in 50 waited for the interface.
    pub fn is_held_back(&self) -> bool {
        let held_back = self.end.map_or(0, |end| end.held_back);
        u64::from(held_back) * 50 >= u64::from(self.offered()) && held_back > 0
    }

    /// The part of the rate that arrived.
    pub fn carried(&self) -> f64 {
        f64::from(self.arrived) / f64::from(self.offered().max(1))
    }

    /// The stream in words, for the log.
    pub fn line(&self) -> String {
        let order = &self.order;
        let rate = f64::from(order.kbps) / 1000.0;
        let asked = format!(
            "{} sends {rate} Mb/s with DSCP {} for {} ms",
            self.host,
            order.traffic_class >> 2,
            order.millis
        );
        match (self.end, self.refused) {
            (Some(end), _) => format!(
                "{asked}: {} packets due, {} sent, {} held back, {} late, {} arrived, {} lost, {} marked, {} \
                 dropped by this machine",
                self.offered(),
                end.sent,
                end.held_back,
                end.behind,
                self.arrived,
                self.lost(),
                self.marked,
                self.overrun
            ),
            (None, Some(0)) => {
                format!("{asked}: refused; it needs --load RATE --from THIS-HOST there")
            }
            (None, Some(allowed)) => {
                format!(
                    "{asked}: refused; its --load allows {} Mb/s",
                    f64::from(allowed) / 1000.0
                )
            }
            (None, None) => format!("{asked}: no answer; {} packets arrived", self.arrived),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 bytes at 8 Mb/s: a packet each millisecond.
    fn order() -> LoadOrder {
        LoadOrder {
            stream: 1,
            bytes: 1000,
            kbps: 8000,
            millis: 1000,
            ..LoadOrder::default()
        }
    }

    #[test]
    fn packets_are_due_at_the_rate() {
        let mut pacer = Pacer::new(&order());
        assert_eq!(pacer.due(Duration::ZERO), Due::Send(0));
        pacer.sent();
        assert_eq!(
            pacer.due(Duration::from_micros(400)),
            Due::Wait(Duration::from_micros(600))
        );
        assert_eq!(pacer.due(Duration::from_millis(1)), Due::Send(1));
    }

    #[test]
    fn an_interface_that_takes_half_holds_half_back() {
        let (mut pacer, mut now) = (Pacer::new(&order()), Duration::ZERO);
        loop {
            match pacer.due(now) {
                Due::Over => break,
                Due::Wait(time) => now += time,
                Due::Send(_) => {
                    pacer.blocked();
                    now += Duration::from_millis(2);
                    if let Due::Send(_) = pacer.due(now) {
                        pacer.sent();
                    }
                }
            }
        }
        let end = pacer.end();
        assert_eq!(end.behind, 0, "{end:?}");
        assert!(
            (490..=510).contains(&end.sent) && end.sent + end.held_back >= 990,
            "{end:?}"
        );
    }

    #[test]
    fn a_sender_without_time_is_not_taken_for_a_slow_interface() {
        let mut pacer = Pacer::new(&order());
        assert_eq!(pacer.due(Duration::from_millis(500)), Due::Send(0));
        pacer.sent();
        assert_eq!(pacer.due(Duration::from_secs(2)), Due::Over);
        let end = pacer.end();
        assert_eq!((end.sent, end.held_back, end.behind), (1, 0, 999));
    }

    #[test]
    fn duplicates_count_once() {
        let mut tally = Tally::default();
        for (index, class) in [(0, 3), (0, 3), (5, 2)] {
            tally.arrived(index, class, Duration::from_millis(25));
        }
        assert_eq!((tally.count(), tally.marked), (2, 1));
        assert_eq!(tally.slots, [0, 0, 2]);
    }
}
