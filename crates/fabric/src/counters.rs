//! What ports count, as the counters of real switches have it.

/// Why a packet was dropped.
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
    /// It went in circles: its hop limit ran out.
    HopLimit,
    /// Nobody knows the way.
    NoRoute,
    /// Damaged on the link.
    Link,
}

impl Drop {
    /// How many reasons there are.
    pub const COUNT: usize = 7;

    /// All reasons, in order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Ingress, Self::Egress, Self::Early, Self::Storm, Self::HopLimit, Self::NoRoute, Self::Link];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "no-buffer",
            Self::Egress => "queue-full",
            Self::Early => "early",
            Self::Storm => "watchdog",
            Self::HopLimit => "hop-limit",
            Self::NoRoute => "no-route",
            Self::Link => "damaged",
        }
    }
}

/// Of one queue of one port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueCounters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, frame check sequences included.
    pub sent_bytes: u64,
    /// Packets that left with the congestion mark that this queue gave them.
    pub marked_packets: u64,
    /// Most bytes that ever waited.
    pub peak_bytes: u32,
    /// Picoseconds during which the peer had this queue paused.
    pub paused_ps: u64,
}

/// Of what arrives at one port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IngressCounters {
    /// Packets received.
    pub packets: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Packets dropped, by [`Drop`].
    pub dropped: [u64; Drop::COUNT],
    /// Pause frames received.
    pub pauses_received: u64,
    /// Frames sent that pause a priority.
    pub pauses_sent: u64,
    /// Frames sent that let a priority go on.
    pub resumes_sent: u64,
    /// Most bytes of headroom in use at once, over all groups.
    pub headroom_peak_bytes: u32,
}
