//! Counters of ports, as real switches have them.

use crate::config::CLASSES;
use alloc::boxed::Box;

/// Why a switch dropped a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Drop {
    /// The priority group had no room: lossy, or its headroom was too small.
    Ingress,
    /// The queue was at its limit.
    Egress,
    /// Random early detection, of a packet whose sender does not take part in ECN.
    Early,
    /// The PFC watchdog found the queue in a storm.
    Storm,
    /// The packet's hop limit reached 0: routes have a loop.
    HopLimit,
    /// The switch has no next hop for the destination.
    NoRoute,
    /// InfiniBand: the packet had no credits for its lifetime at the head of a lane.
    Lifetime,
}

impl Drop {
    /// How many reasons there are.
    pub const COUNT: usize = 7;

    /// All reasons, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ingress,
        Self::Egress,
        Self::Early,
        Self::Storm,
        Self::HopLimit,
        Self::NoRoute,
        Self::Lifetime,
    ];

    /// The name of the reason in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "no-buffer",
            Self::Egress => "queue-full",
            Self::Early => "early",
            Self::Storm => "watchdog",
            Self::HopLimit => "hop-limit",
            Self::NoRoute => "no-route",
            Self::Lifetime => "lifetime",
        }
    }

    /// Whether the queue had no room; switches count this where packets leave, and the other reasons where
    /// packets arrive.
    pub const fn is_of_queue(self) -> bool {
        matches!(
            self,
            Self::Egress | Self::Early | Self::Storm | Self::Lifetime
        )
    }
}

/// Packets and their bytes, frame check sequences included.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// How many packets were counted.
    pub packets: u64,
    /// Bytes of these packets, frame check sequences included.
    pub bytes: u64,
}

impl Tally {
    /// Counts a packet.
    pub fn count(&mut self, bytes: u16) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// Adds packets and bytes.
impl core::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// Counters of one queue of one port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueCounters {
    /// Packets that left this queue.
    pub sent_packets: u64,
    /// Bytes sent, frame check sequences included.
    pub sent_bytes: u64,
    /// Packets that left with the congestion mark that this queue gave them.
    pub marked_packets: u64,
    /// Bytes of these.
    pub marked_bytes: u64,
    /// Most bytes that ever waited.
    pub peak_bytes: u32,
    /// Picoseconds during which the peer had this queue paused.
    pub paused_ps: u64,
}

/// Counters of packets that arrive at one port. Fields are in memory order: those that each packet counts
/// come first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct IngressCounters {
    /// How many packets were counted.
    pub packets: u64,
    /// Bytes of these packets, frame check sequences included.
    pub bytes: u64,
    /// Packets dropped, by [`Drop`].
    pub dropped: [u64; Drop::COUNT],
    /// Pause frames received.
    pub pauses_received: u64,
    /// Frames sent that pause a priority (Xoff).
    pub pauses_sent: u64,
    /// Frames sent that let a priority send again (Xon).
    pub resumes_sent: u64,
    /// Most bytes of headroom in use at once, over all groups.
    pub headroom_peak_bytes: u32,
}

/// Counters of one priority group of one port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GroupCounters {
    /// Most bytes of the shared buffer in use at once.
    pub shared_peak_bytes: u32,
    /// Most bytes of headroom in use at once.
    pub headroom_peak_bytes: u32,
}

/// Counters of rare events; a port has them once one of these events has happened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Incidents {
    /// Sent PFC frames that name each priority, Xoff or Xon.
    pub pfc_sent: [u64; CLASSES],
    /// Received PFC frames that name each priority, Xoff or Xon.
    pub pfc_received: [u64; CLASSES],
    /// How often the watchdog found each queue in a storm.
    pub storms_detected: [u32; CLASSES],
    /// How often the watchdog found that the storm was over.
    pub storms_restored: [u32; CLASSES],
    /// Packets that were cut to their headers because this queue was full, with the bytes that they had.
    pub trimmed: [Tally; CLASSES],
    /// Packets dropped on arrival at this port for lack of room in their priority group, by group.
    pub refused: [Tally; CLASSES],
    /// Packets dropped before or in each queue, by class and [`Drop`].
    pub dropped: [[Tally; Drop::COUNT]; CLASSES],
}

/// Counters of the links that end at a port, which the driver of the links fills in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkCounters {
    /// Frames that arrived damaged, pause frames included: their check sequence was wrong, and they go no
    /// further (802.3 clause 30.3.1.1.6, `aFrameCheckSequenceErrors`).
    pub damaged: u64,
    /// Frames that did not arrive because the link was down.
    pub lost: u64,
}

/// All counters of a switch port.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct PortCounters {
    /// Packets that arrived at the port, and drops.
    pub ingress: IngressCounters,
    /// Counters of the port's queues, by class.
    pub queues: [QueueCounters; CLASSES],
    /// Counters of the port's priority groups.
    pub groups: [GroupCounters; CLASSES],
    /// Counters of rare events, if any has happened.
    pub incidents: Option<Box<Incidents>>,
    /// Losses on the link to this port; zero unless the driver fills them in.
    pub link: LinkCounters,
}

impl PortCounters {
    /// Packets dropped before or in a queue for the selected reasons.
    pub fn dropped(&self, class: usize, reasons: impl Fn(Drop) -> bool) -> Tally {
        let all = self
            .incidents
            .iter()
            .flat_map(|incidents| Drop::ALL.iter().zip(incidents.dropped[class]));
        all.filter(|(why, _)| reasons(**why))
            .map(|(_, tally)| tally)
            .sum()
    }
}

/// Use of a switch's packet memory, now and at most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BufferCounters {
    /// Bytes in use now.
    pub bytes: u32,
    /// Most bytes in use at once.
    pub peak_bytes: u32,
    /// Most bytes of the shared part in use at once.
    pub shared_peak_bytes: u32,
    /// Most bytes of headroom in use at once.
    pub headroom_peak_bytes: u32,
}
