//! The PCIe link of an adapter: two directions that do not delay each other, a receive buffer for packets
//! that arrive faster than they can be stored, and the time that doorbells, reads and completions take.

use super::scenario::PcieConfig;
use fabric::{PacketId, PfcSignal, Rate, Time};
use std::collections::VecDeque;

/// Xoff is sent when half of the buffer is in use, and Xon when a quarter is: packets that are in flight when
/// Xoff is sent need the rest.
const XOFF_PART: u32 = 2;
const XON_PART: u32 = 4;

/// The two directions of a PCIe link. Functions of one adapter share them.
#[derive(Debug)]
pub(super) struct Slot {
    rate: Rate,
    answer_rate: Rate,
    /// Until when reads of memory, and writes, are under way.
    read_until: Time,
    write_until: Time,
    read_busy_ps: u64,
    write_busy_ps: u64,
}

impl Slot {
    pub(super) fn new(config: &PcieConfig) -> Self {
        Self {
            rate: config.rate,
            answer_rate: config.answer_rate,
            read_until: Time(0),
            write_until: Time(0),
            read_busy_ps: 0,
            write_busy_ps: 0,
        }
    }

    /// When data of another packet can be requested.
    pub(super) fn read_until(&self) -> Time {
        self.read_until
    }

    /// Data of a packet is read: of one that answers a READ, or of another.
    pub(super) fn read(&mut self, now: Time, bytes: u32, is_answer: bool) {
        let rate = if is_answer {
            self.answer_rate
        } else {
            self.rate
        };
        let span = rate.time_of(bytes);
        self.read_until = self.read_until.max(now) + span;
        self.read_busy_ps += span.0;
    }

    /// Data of a packet is written; when that is done.
    fn write(&mut self, now: Time, bytes: u32) -> Time {
        let span = self.rate.time_of(bytes);
        self.write_until = self.write_until.max(now) + span;
        self.write_busy_ps += span.0;
        self.write_until
    }

    /// How long its busier direction was busy.
    pub(super) fn busy_ps(&self) -> u64 {
        self.read_busy_ps.max(self.write_busy_ps)
    }
}

/// The state of a PCIe link.
#[derive(Debug)]
pub(super) struct PcieLink {
    config: PcieConfig,
    /// Of a function the adapter has it.
    slot: Slot,
    /// Packets that arrived and are being stored, with the time when they are, and bytes.
    arriving: VecDeque<(Time, PacketId, u32)>,
    waiting_bytes: u32,
    pub(super) peak_bytes: u32,
    pub(super) dropped: u64,
    pub(super) xoff_sent: bool,
    pub(super) pauses_sent: u64,
    /// Flows whose next message the adapter has at that time.
    posts: VecDeque<(Time, u32)>,
    /// When the program sees completions.
    looks: VecDeque<Time>,
}

impl PcieLink {
    pub(super) fn new(config: PcieConfig) -> Self {
        Self {
            config,
            slot: Slot::new(&config),
            arriving: VecDeque::new(),
            waiting_bytes: 0,
            peak_bytes: 0,
            dropped: 0,
            xoff_sent: false,
            pauses_sent: 0,
            posts: VecDeque::new(),
            looks: VecDeque::new(),
        }
    }

    /// When data of another packet can be requested.
    pub(super) fn readable_at(&self) -> Time {
        self.slot.read_until()
    }

    /// Data of a packet is read.
    pub(super) fn read(&mut self, now: Time, bytes: u32, is_answer: bool) {
        self.slot.read(now, bytes, is_answer);
    }

    /// A packet with payload arrived; `None` if there is no room for it. `shared` is the slot, if that is not
    /// this link's own.
    pub(super) fn admit(
        &mut self,
        now: Time,
        id: PacketId,
        bytes: u32,
        shared: Option<&mut Slot>,
    ) -> Option<PfcSignal> {
        if self.waiting_bytes + bytes > self.config.receive_buffer_bytes.max(bytes) {
            self.dropped += 1;
            return None;
        }
        let stored_at = shared.unwrap_or(&mut self.slot).write(now, bytes);
        self.arriving.push_back((stored_at, id, bytes));
        self.waiting_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.waiting_bytes);
        let full = self.waiting_bytes > self.config.receive_buffer_bytes / XOFF_PART;
        if full && !self.xoff_sent {
            self.xoff_sent = true;
            return Some(PfcSignal::Xoff);
        }
        Some(PfcSignal::None)
    }

    /// A packet that is stored by now.
    pub(super) fn stored(&mut self, now: Time) -> Option<(PacketId, PfcSignal)> {
        let (_, id, bytes) = take_due(&mut self.arriving, |(at, ..)| *at <= now)?;
        self.waiting_bytes -= bytes;
        let low = self.waiting_bytes <= self.config.receive_buffer_bytes / XON_PART;
        if low && self.xoff_sent {
            self.xoff_sent = false;
            return Some((id, PfcSignal::Xon));
        }
        Some((id, PfcSignal::None))
    }

    /// The program posts a message of a flow: the adapter has the request, and its first data, later. False
    /// if that takes no time.
    pub(super) fn post(&mut self, now: Time, poster: u32) -> bool {
        let delay = self.config.doorbell + self.config.read_latency;
        if delay.0 > 0 {
            self.posts.push_back((now + delay, poster));
        }
        delay.0 > 0
    }

    /// The next flow whose message the adapter has fetched by now.
    pub(super) fn posted(&mut self, now: Time) -> Option<u32> {
        take_due(&mut self.posts, |(at, _)| *at <= now).map(|(_, poster)| poster)
    }

    /// There are completions: whether the program sees them at once. If not, it does later.
    pub(super) fn sees(&mut self, now: Time) -> bool {
        let latency = self.config.write_latency;
        if latency.0 > 0 && self.looks.is_empty() {
            self.looks.push_back(now + latency);
        }
        latency.0 == 0
    }

    /// Whether the program looks for completions now.
    pub(super) fn looks(&mut self, now: Time) -> bool {
        take_due(&mut self.looks, |at| *at <= now).is_some()
    }

    /// When something happens here next.
    pub(super) fn next_at(&self) -> Time {
        let arriving = self.arriving.front().map_or(Time::NEVER, |(at, ..)| *at);
        let posts = self.posts.front().map_or(Time::NEVER, |(at, _)| *at);
        let looks = self.looks.front().copied().unwrap_or(Time::NEVER);
        arriving.min(posts).min(looks)
    }

    /// How long its busier direction was busy.
    pub(super) fn busy_ps(&self) -> u64 {
        self.slot.busy_ps()
    }
}

/// The first of a queue, if it is due.
fn take_due<T>(queue: &mut VecDeque<T>, is_due: impl Fn(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(is_due) {
        queue.pop_front()
    } else {
        None
    }
}
