//! The sending half of a port: queues, the scheduler among them, pausing and being paused.

use crate::config::{CLASSES, PfcConfig, Profile, QueueConfig, Red, RedAt};
use crate::counters::{Incidents, QueueCounters};
use crate::ingress::PfcSignal;
use crate::lanes::{CreditUpdate, DELIMITER_BYTES, Lanes};
use crate::packet::{ECN_CE, FRAME_OVERHEAD_BYTES, Packet, PacketId, Packets};
use crate::queue::Queue;
use crate::random::Pcg32;
use crate::schedule::{Levels, RoundRobin};
use crate::telemetry::Hop;
use crate::time::{Rate, Span, Time};
use crate::watchdog::Watchdog;
use alloc::boxed::Box;

/// A pause frame is of the shortest length that Ethernet has (802.3 annex 31B.2).
pub const PAUSE_FRAME_BYTES: u32 = 64;

/// Bytes before the end of a frame at which a port commits to the next frame, when nothing else waits, as the
/// transmit FIFO of a MAC does. Frames of slightly different lengths then follow each other without a queue.
pub(crate) const COMMITMENT_BYTES: u32 = 64;

/// One quantum of pause time is 512 bits of the link (802.3 annex 31B.2).
const QUANTUM_BYTES: u32 = 64;

/// A frame of priority flow control (802.1Q clause 36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PauseFrame {
    /// The priorities that the frame names.
    pub priorities: u8,
    /// Those of them that are to pause (Xoff); the others may send again (Xon).
    pub stopped: u8,
    /// How long they are to pause, in quanta of 512 bit times.
    pub quanta: u16,
}

/// A frame that leaves a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A packet, by its number.
    Packet(PacketId),
    /// A pause frame.
    Pause(PauseFrame),
    /// InfiniBand: a flow control packet.
    Credits(CreditUpdate),
}

/// The next action of a port: send a packet, send a pause frame, wait, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This packet leaves now; its last bit at `end`.
    Packet {
        /// The packet's number.
        id: PacketId,
        /// When the port is free again.
        end: Time,
    },
    /// A pause frame leaves now.
    Pause {
        /// The frame's content.
        frame: PauseFrame,
        /// When the port is free again.
        end: Time,
    },
    /// This flow control packet leaves now.
    Credits {
        /// The lane, and the limit that the peer is told.
        update: CreditUpdate,
        /// When the port is free again.
        end: Time,
    },
    /// InfiniBand: the packet was at the head of its lane for too long, and is dropped.
    Expired {
        /// The packet's number.
        id: PacketId,
    },
    /// Nothing may leave before this moment.
    Wait(Time),
    /// No queue holds a packet.
    Idle,
}

/// The sending half of a port. Fields are in memory order: the first cache line holds all that is read for a
/// packet that finds the port free, or that waits; the second one how the next packet is chosen.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Egress {
    pub(crate) busy_until: Time,
    /// The time of the requested wake; `NEVER` when none is requested.
    wake_at: Time,
    /// Queues that hold packets, queues that the peer stopped, queues with a shaper: one bit each.
    pub(crate) occupied: u8,
    pub(crate) paused: u8,
    pub(crate) shaped: u8,
    /// Priorities for which the last signal to the peer is Xoff, and those that the next pause frame names.
    xoff_sent: u8,
    pub(crate) announce: u8,
    /// Queues that the watchdog has found in a storm.
    storming: u8,
    /// Queues are the lanes of an InfiniBand port; all of them count as having shapers.
    pub(crate) has_lanes: bool,
    /// Queues get their next packet when the one before has left.
    is_fed: bool,
    pub(crate) rate: Rate,
    /// How long before the port is free the next frame is committed to it.
    commitment: Span,
    refresh_at: Time,
    queued_bytes: u32,
    levels: Levels,
    round: RoundRobin,
    deficits: [i32; CLASSES],
    pub(crate) queues: [Queue; CLASSES],
    paused_until: [Time; CLASSES],
    paused_since: [Time; CLASSES],
    resumed_at: [Time; CLASSES],
    paused_ps: [u64; CLASSES],
    incidents: Option<Box<Incidents>>,
    pub(crate) lanes: Option<Box<Lanes>>,
}

const _: () = assert!(
    core::mem::offset_of!(Egress, queued_bytes) + size_of::<u32>() <= 64
        && core::mem::offset_of!(Egress, queues) <= 128,
    "what a waiting packet needs is in the first cache line, and how the next one is chosen in the second"
);

impl Egress {
    /// A port of this rate, all queues empty.
    pub fn new(rate: Rate, profile: &Profile) -> Self {
        let shapers = (0..CLASSES).filter(|class| profile.queues[*class].shaper.is_some());
        Self {
            busy_until: Time(0),
            wake_at: Time::NEVER,
            occupied: 0,
            paused: 0,
            shaped: shapers.fold(0, |mask, class| mask | 1 << class),
            xoff_sent: 0,
            announce: 0,
            storming: 0,
            has_lanes: false,
            is_fed: false,
            rate,
            commitment: rate.time_of(COMMITMENT_BYTES),
            refresh_at: Time::NEVER,
            queued_bytes: 0,
            levels: Levels::of(&profile.queues),
            round: RoundRobin::default(),
            deficits: [0; CLASSES],
            queues: [Queue::default(); CLASSES],
            paused_until: [Time(0); CLASSES],
            paused_since: [Time(0); CLASSES],
            resumed_at: [Time(0); CLASSES],
            paused_ps: [0; CLASSES],
            incidents: None,
            lanes: None,
        }
    }

    /// The speed of the port.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Sets the speed of the port. A frame that is leaving leaves as fast as it began to.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.commitment = rate.time_of(COMMITMENT_BYTES);
    }

    /// Limits queues to one packet at a time from now on: a queue gets its next packet when the one before
    /// has left. An empty queue then does not count as idle, and keeps its deficit for this round.
    pub const fn set_fed(&mut self) {
        self.is_fed = true;
    }

    /// Applies the scheduling and PFC of another profile from now on; the shapers stay as they are.
    pub fn follow(&mut self, now: Time, profile: &Profile) {
        self.levels = Levels::of(&profile.queues);
        self.obey_only(now, &profile.pfc);
    }

    /// Ends the pauses of queues that no priority stops any more.
    pub(crate) fn obey_only(&mut self, now: Time, pfc: &PfcConfig) {
        let obeyed = (0..CLASSES).filter(|priority| pfc.obey >> priority & 1 == 1);
        let stopped = obeyed.fold(0, |mask, priority| mask | pfc.queues_of_priority[priority]);
        (0..CLASSES)
            .filter(|class| stopped >> class & 1 == 0)
            .for_each(|class| self.resume_queue(class, now));
    }

    /// Runs the PFC watchdog at `now`. Returns the queues in a storm, one bit each.
    pub(crate) fn watch(&mut self, now: Time, watchdog: &Watchdog) -> u8 {
        self.end_pauses(now);
        for class in 0..CLASSES {
            let bit = 1 << class;
            if self.paused & bit != 0 {
                let long = now - self.paused_since[class] >= watchdog.detect;
                if long && self.occupied & !self.storming & bit != 0 {
                    self.storming |= bit;
                    self.incidents_mut().storms_detected[class] += 1;
                }
            } else if self.storming & bit != 0 && now - self.resumed_at[class] >= watchdog.restore {
                self.storming &= !bit;
                self.incidents_mut().storms_restored[class] += 1;
            }
        }
        self.storming
    }

    /// Counters of rare events, if this port has had any.
    pub fn incidents(&self) -> Option<&Incidents> {
        self.incidents.as_deref()
    }

    pub(crate) fn incidents_mut(&mut self) -> &mut Incidents {
        self.incidents.get_or_insert_default()
    }

    /// Whether the watchdog has this queue dropped.
    pub(crate) const fn is_storming(&self, class: usize) -> bool {
        self.storming >> class & 1 == 1
    }

    /// Takes the oldest packet out of a queue, to send it or to drop it.
    #[inline]
    pub(crate) fn take(&mut self, class: usize, packets: &mut Packets) -> Option<PacketId> {
        let queue = &mut self.queues[class];
        let id = queue.head()?;
        let length = u32::from(packets[id].length);
        queue.pop(length, packets);
        self.queued_bytes -= length;
        if queue.packets == 0 {
            self.occupied &= !(1 << class);
            if !self.is_fed {
                self.deficits[class] = 0;
            }
        }
        Some(id)
    }

    /// The cache lines that a packet of this class needs.
    #[inline]
    pub fn lines(&self, class: usize, load: impl Fn(*const u8)) {
        load(core::ptr::from_ref(self).cast());
        load(core::ptr::from_ref(&self.queues[class]).cast());
    }

    /// The cache line of how the next packet is chosen.
    #[inline]
    pub fn choice_line(&self) -> *const u8 {
        core::ptr::from_ref(&self.deficits).cast()
    }

    /// The packets that wait in the queue of a class, the oldest first.
    #[inline]
    pub fn waiting<'a>(
        &self,
        class: usize,
        packets: &'a Packets,
    ) -> impl Iterator<Item = &'a Packet> + use<'a> {
        self.queues[class].iter(packets)
    }

    /// When the frame that is leaving has left.
    pub const fn free_at(&self) -> Time {
        self.busy_until
    }

    /// Until when the peer has paused a queue, if it has.
    pub const fn paused_until(&self, class: usize) -> Option<Time> {
        if self.paused >> class & 1 == 1 {
            Some(self.paused_until[class])
        } else {
            None
        }
    }

    /// Bytes that wait, over all queues.
    #[inline]
    pub const fn queued_bytes(&self) -> u32 {
        self.queued_bytes
    }

    /// Bytes that wait in one queue.
    #[inline]
    pub const fn queue_bytes(&self, class: usize) -> u32 {
        self.queues[class].bytes
    }

    /// Queues that the peer has paused, one bit each.
    pub const fn paused(&self) -> u8 {
        self.paused
    }

    /// Queues that hold packets, one bit each.
    #[inline]
    pub const fn occupied(&self) -> u8 {
        self.occupied
    }

    /// Counters of a queue.
    pub fn counters(&self, class: usize, now: Time) -> QueueCounters {
        let queue = &self.queues[class];
        let paused_now = self.paused >> class & 1 == 1;
        let since = self.paused_since[class];
        let open = if paused_now {
            now.min(self.paused_until[class]) - since
        } else {
            Span::ZERO
        };
        QueueCounters {
            sent_packets: queue.sent_packets,
            sent_bytes: queue.sent_bytes,
            marked_packets: queue.marked_packets,
            marked_bytes: queue.marked_bytes,
            peak_bytes: queue.peak_bytes,
            paused_ps: self.paused_ps[class] + open.0,
        }
    }

    /// The telemetry record of the port at the time at which a frame begins to leave.
    pub(crate) fn hop(&self, port: u32) -> Hop {
        let bytes =
            |queue: &Queue| queue.sent_bytes + queue.sent_packets * u64::from(FRAME_OVERHEAD_BYTES);
        Hop {
            port,
            at: self.busy_until,
            sent_bytes: self.queues.iter().map(bytes).sum(),
            queued_bytes: self.queued_bytes,
            rate: self.rate,
        }
    }

    /// Whether a packet of this class could leave at once, with nothing before it.
    #[inline]
    pub fn is_clear(&self, class: u8, now: Time) -> bool {
        self.busy_until <= now + self.commitment
            && self.occupied | self.announce == 0
            && (self.paused | self.shaped) >> class & 1 == 0
    }

    /// Whether a packet of one of these classes, one bit each, could leave at once, with nothing before it
    /// but what is paused.
    #[inline]
    pub fn is_open(&self, classes: u8, now: Time) -> bool {
        let stopped = self.paused | self.shaped;
        self.busy_until <= now + self.commitment
            && self.announce | (self.occupied & !stopped) == 0
            && classes & !stopped != 0
    }

    /// Puts a packet into a class, and appends it to that queue.
    pub fn enqueue(&mut self, id: PacketId, class: u8, packets: &mut Packets) {
        packets[id].put_into_class(class);
        self.push(id, packets);
    }

    /// Appends a packet to the queue of its class.
    #[inline]
    pub fn push(&mut self, id: PacketId, packets: &mut Packets) {
        let Packet { class, length, .. } = packets[id];
        self.queues[usize::from(class)].push(id, u32::from(length), packets);
        self.queued_bytes += u32::from(length);
        self.occupied |= 1 << class;
    }

    /// Sends a packet for which [`Self::is_clear`], past the queue; returns when the port is free again.
    #[inline]
    pub fn send_at_once(&mut self, packet: &Packet, now: Time) -> Time {
        let queue = &mut self.queues[usize::from(packet.class)];
        queue.sent_packets += 1;
        queue.sent_bytes += u64::from(packet.length);
        let start = self.busy_until.max(now);
        self.busy_until = start
            + self
                .rate
                .time_of(u32::from(packet.length) + FRAME_OVERHEAD_BYTES);
        self.busy_until
    }

    /// Chooses the frame that leaves now. After a frame, it has to be called again when the frame has ended.
    #[inline(always)]
    pub fn next(
        &mut self,
        now: Time,
        profile: &Profile,
        packets: &mut Packets,
        random: &mut Pcg32,
    ) -> Next {
        if now < self.busy_until {
            return Next::Wait(self.busy_until);
        }
        if self.xoff_sent != 0 && now >= self.refresh_at {
            self.announce |= self.xoff_sent;
        }
        if self.announce != 0 {
            return if self.has_lanes {
                self.send_credits(now)
            } else {
                self.send_pause(now, &profile.pfc)
            };
        }
        self.end_pauses(now);
        let mut eligible = self.occupied & !self.paused;
        if eligible & self.shaped != 0 {
            if self.has_lanes {
                if let Some(id) = self.take_expired(eligible, now, packets) {
                    return Next::Expired { id };
                }
                eligible &= !self.block_lanes(eligible, now, packets);
            } else {
                eligible &= !self.shaped_back(eligible, now);
            }
        }
        if eligible == 0 {
            return self.wait();
        }
        let class = self.choose(eligible, profile, packets);
        self.send(class, now, &profile.queues[class], packets, random)
    }

    /// Whether [`Self::next`] has to be called again when the port is free.
    #[inline]
    pub const fn has_more(&self) -> bool {
        self.occupied | self.announce | self.xoff_sent != 0
    }

    /// When a pause frame is to leave, whatever packets wait; never, if there is none to send or repeat.
    #[inline]
    pub const fn pause_due(&self) -> Time {
        if self.announce != 0 {
            return Time(0);
        }
        if self.xoff_sent != 0 {
            self.refresh_at
        } else {
            Time::NEVER
        }
    }

    /// Records that a wake at `at` is wanted; returns false if an earlier one is already requested.
    #[inline]
    pub fn wants_wake(&mut self, at: Time) -> bool {
        let earlier = at < self.wake_at;
        if earlier {
            self.wake_at = at;
        }
        earlier
    }

    /// Whether the port is busy, no queue is paused, and a wake is requested for when the port is free: then
    /// no packet can leave before.
    #[inline]
    pub fn is_awaited(&self, now: Time) -> bool {
        self.busy_until > now + self.commitment
            && self.wake_at == self.busy_until
            && self.paused == 0
    }

    /// Records that a wake came; returns false if an earlier wake has replaced it.
    #[inline]
    pub fn take_wake(&mut self, now: Time) -> bool {
        let wanted = self.wake_at == now;
        if wanted {
            self.wake_at = Time::NEVER;
        }
        wanted
    }

    /// Applies a received pause frame, which pauses queues or lets them send again (802.1Q clause 36.1.3.3).
    /// Returns whether any queue may send again.
    pub fn handle_pause(&mut self, frame: PauseFrame, now: Time, pfc: &PfcConfig) -> bool {
        // A pause that has run out by itself must not count until now, nor run on as if it never ended.
        self.end_pauses(now);
        count_priorities(&mut self.incidents_mut().pfc_received, frame.priorities);
        let mut freed = false;
        for priority in 0..CLASSES {
            if frame.priorities & pfc.obey & 1 << priority == 0 {
                continue;
            }
            let queues = pfc.queues_of_priority[priority];
            let stops = frame.stopped >> priority & 1 == 1 && frame.quanta > 0;
            for class in (0..CLASSES).filter(|class| queues >> class & 1 == 1) {
                if stops {
                    self.pause_queue(class, now, now + self.quanta(frame.quanta));
                } else {
                    freed |= self.paused >> class & 1 == 1;
                    self.resume_queue(class, now);
                }
            }
        }
        freed
    }

    /// Sends Xoff or Xon for a priority with the next pause frame. Xoff is repeated until Xon is sent.
    pub fn signal(&mut self, priority: u8, signal: PfcSignal) {
        let bit = 1 << priority;
        match signal {
            PfcSignal::None => return,
            PfcSignal::Xoff => self.xoff_sent |= bit,
            PfcSignal::Xon => self.xoff_sent &= !bit,
        }
        self.announce |= bit;
    }

    fn quanta(&self, quanta: u16) -> Span {
        self.rate.time_of(QUANTUM_BYTES).times(u64::from(quanta))
    }

    pub(crate) fn pause_queue(&mut self, class: usize, now: Time, until: Time) {
        if self.paused >> class & 1 == 0 {
            self.paused |= 1 << class;
            self.paused_since[class] = now;
        }
        self.paused_until[class] = until;
    }

    pub(crate) fn resume_queue(&mut self, class: usize, now: Time) {
        if self.paused >> class & 1 == 1 {
            self.paused &= !(1 << class);
            self.paused_ps[class] += (now - self.paused_since[class]).0;
            self.resumed_at[class] = now;
        }
    }

    /// Ends pauses whose time is over because the peer did not repeat Xoff. [`Self::next`] calls it.
    #[inline(always)]
    pub fn end_pauses(&mut self, now: Time) {
        if self.paused == 0 {
            return;
        }
        for class in 0..CLASSES {
            if self.paused >> class & 1 == 1 && self.paused_until[class] <= now {
                self.resume_queue(class, self.paused_until[class]);
            }
        }
    }

    fn send_pause(&mut self, now: Time, pfc: &PfcConfig) -> Next {
        // The frame repeats Xoff of all priorities, because `refresh_at` is one moment for all of them.
        self.announce |= self.xoff_sent;
        let frame = PauseFrame {
            priorities: self.announce,
            stopped: self.xoff_sent & self.announce,
            quanta: pfc.quanta,
        };
        self.announce = 0;
        count_priorities(&mut self.incidents_mut().pfc_sent, frame.priorities);
        self.busy_until = now + self.rate.time_of(PAUSE_FRAME_BYTES + FRAME_OVERHEAD_BYTES);
        // Xoff is repeated at half time, so that one lost or late frame does not end a pause.
        self.refresh_at = now + Span(self.quanta(pfc.quanta).0 / 2);
        Next::Pause {
            frame,
            end: self.busy_until,
        }
    }

    /// Queues of `eligible` whose shaper has no tokens yet.
    fn shaped_back(&self, eligible: u8, now: Time) -> u8 {
        let shaped = (0..CLASSES).filter(|class| (eligible & self.shaped) >> class & 1 == 1);
        shaped
            .filter(|class| self.queues[*class].eligible_at > now)
            .fold(0, |mask, class| mask | 1 << class)
    }

    /// The time at which the next packet may leave or Xoff has to be repeated: a pause ends or a shaper has
    /// tokens.
    fn wait(&self) -> Next {
        let mut at = if self.xoff_sent != 0 {
            self.refresh_at
        } else {
            Time::NEVER
        };
        for class in (0..CLASSES).filter(|class| self.occupied >> class & 1 == 1) {
            let pause = if self.paused >> class & 1 == 1 {
                self.paused_until[class]
            } else {
                Time(0)
            };
            let shaper = if self.shaped >> class & 1 == 1 {
                self.queues[class].eligible_at
            } else {
                Time(0)
            };
            at = at.min(pause.max(shaper));
        }
        if at == Time::NEVER {
            Next::Idle
        } else {
            Next::Wait(at)
        }
    }

    #[inline]
    fn choose(&mut self, eligible: u8, profile: &Profile, packets: &Packets) -> usize {
        if eligible.is_power_of_two() {
            return eligible.trailing_zeros() as usize;
        }
        let candidates = self.levels.highest(eligible);
        if candidates.classes.is_power_of_two() {
            return candidates.classes.trailing_zeros() as usize;
        }
        let heads = |class: usize| {
            self.queues[class]
                .head()
                .map_or(0, |id| u32::from(packets[id].length))
        };
        if self.has_lanes
            && let Some(lanes) = &mut self.lanes
        {
            let length = |lane: u8| heads(usize::from(lane));
            let lowest = eligible.trailing_zeros() as u8;
            return usize::from(lanes.choose(eligible, length).unwrap_or(lowest));
        }
        self.round.choose(
            candidates,
            &profile.queues,
            profile.weigh,
            &mut self.deficits,
            heads,
        )
    }

    fn send(
        &mut self,
        class: usize,
        now: Time,
        config: &QueueConfig,
        packets: &mut Packets,
        random: &mut Pcg32,
    ) -> Next {
        let Some(id) = self.take(class, packets) else {
            return Next::Idle;
        };
        let length = u32::from(packets[id].length);
        let queue = &mut self.queues[class];
        queue.sent_packets += 1;
        queue.sent_bytes += u64::from(length);
        if let Some(red) = config
            .red
            .as_ref()
            .filter(|red| red.mark && red.at == RedAt::Dequeue)
            && red.hits(queue.bytes, random)
            && packets[id].is_ecn_capable()
        {
            packets[id].tos |= ECN_CE;
            queue.count_mark(packets[id].length);
        }
        let mut wire_bytes = length + FRAME_OVERHEAD_BYTES;
        if let Some(shaper) = &config.shaper {
            // A bucket that is full holds `burst`: the next packet is due by its rate, less what was saved.
            let burst = shaper.rate.time_of(shaper.burst_bytes);
            let floor = Time(now.0.saturating_sub(burst.0));
            queue.eligible_at = queue.eligible_at.max(floor) + shaper.rate.time_of(wire_bytes);
        } else if self.has_lanes
            && let Some(lanes) = &mut self.lanes
        {
            lanes.send(class, packets[id].length);
            wire_bytes = length + DELIMITER_BYTES;
        }
        self.busy_until = now + self.rate.time_of(wire_bytes);
        Next::Packet {
            id,
            end: self.busy_until,
        }
    }

    /// Random early detection on arrival: whether the packet is marked, and counted so.
    pub(crate) fn mark_on_arrival(&mut self, class: usize, packet: &mut Packet) {
        packet.tos |= ECN_CE;
        self.queues[class].count_mark(packet.length);
    }
}

/// Counts a frame once for each priority that it names.
fn count_priorities(counters: &mut [u64; CLASSES], priorities: u8) {
    for (priority, counter) in counters.iter_mut().enumerate() {
        *counter += u64::from(priorities >> priority & 1);
    }
}

impl Red {
    /// Whether a packet is chosen while so many bytes wait.
    #[inline]
    pub(crate) fn hits(&self, bytes: u32, random: &mut Pcg32) -> bool {
        if bytes <= self.min_bytes {
            return false;
        }
        if bytes >= self.max_bytes {
            return true;
        }
        let span = u64::from(self.max_bytes - self.min_bytes);
        let chance = u64::from(self.probability) * u64::from(bytes - self.min_bytes) / span;
        u64::from(random.next_u32()) < chance
    }
}
