//! The configuration of a switch, in the form that the switch uses while it runs. Ports that are configured
//! alike share a [`Profile`].

use crate::time::{Rate, Span};
use alloc::vec::Vec;

/// Traffic classes, queues per port, and priorities (802.1Q clauses 8.6.6 and 6.9.3).
pub const CLASSES: usize = 8;

/// Ports of one switch at most.
pub const PORTS_MAX: usize = 1024;

/// Profiles of one switch at most.
pub const PROFILES_MAX: usize = 256;

/// The configuration of a whole switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// The ports, in the order of their numbers.
    pub ports: Vec<PortConfig>,
    /// Profiles, to which ports refer by index.
    pub profiles: Vec<Profile>,
    /// The packet memory.
    pub buffer: BufferConfig,
}

impl SwitchConfig {
    /// The bytes that reserves and headroom take, when that is more than there is.
    pub fn overcommitted(&self) -> Option<u64> {
        let groups = |port: &PortConfig| {
            self.profiles
                .get(usize::from(port.profile))
                .map(|own| &own.groups)
        };
        let (mut reserve, mut headroom) = (0_u64, 0_u64);
        for group in self.ports.iter().filter_map(groups).flatten() {
            reserve += u64::from(group.reserve_bytes);
            headroom += u64::from(group.headroom_bytes);
        }
        let need = reserve + self.buffer.headroom_pool_bytes.map_or(headroom, u64::from);
        (need >= u64::from(self.buffer.total_bytes)).then_some(need)
    }
}

/// The configuration of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The bit rate of the port.
    pub rate: Rate,
    /// Index of its profile.
    pub profile: u8,
}

/// How ports treat traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Trusted headers, and the traffic class of each of their values.
    pub map: ClassMap,
    /// Queues by traffic class.
    pub queues: [QueueConfig; CLASSES],
    /// The unit in which weights of [`QueueConfig`] count.
    pub weigh: Weigh,
    /// Priority group by traffic class: arriving packets of a class are charged to `group_of_class[class]`.
    pub group_of_class: [u8; CLASSES],
    /// Ingress limits by priority group.
    pub groups: [GroupConfig; CLASSES],
    /// Priority flow control.
    pub pfc: PfcConfig,
}

/// Classification: how headers determine the traffic class of an arriving packet, and whether it is
/// rewritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassMap {
    /// Whether IP packets are classified by their DSCP.
    pub trust_dscp: bool,
    /// Whether tagged packets are classified by their priority code point, unless the DSCP is trusted.
    pub trust_pcp: bool,
    /// How packets are treated by their DSCP.
    pub dscp: [Treatment; 64],
    /// How packets are treated by their priority code point.
    pub pcp: [Treatment; 8],
    /// How packets without a trusted header are treated.
    pub default: Treatment,
}

/// Treatment of a packet on arrival: its class, and rewritten header fields.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Treatment {
    /// Traffic class of the priority group's packets.
    pub class: u8,
    /// The DSCP that it leaves with, if it is to be rewritten.
    pub dscp: Option<u8>,
    /// The priority code point that it leaves with, if it is to be rewritten. Untagged packets stay so.
    pub pcp: Option<u8>,
}

/// The unit in which weights count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Weigh {
    /// Bytes: deficit round robin, for enhanced transmission selection (802.1Qaz).
    #[default]
    Bytes,
    /// Packets, whatever their size, as some switch chips do.
    Packets,
}

/// One queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Strict level: a queue of a higher level is always served first; queues of one level share by weight.
    pub level: u8,
    /// Share within the level, at least 1.
    pub weight: u16,
    /// The shaper that limits the rate, if any.
    pub shaper: Option<Shaper>,
    /// Random early marking, or dropping where the sender does not take part in ECN.
    pub red: Option<Red>,
    /// How many bytes may wait.
    pub limit: Limit,
    /// Whether packets that find the queue full are cut to their headers.
    pub trim: Option<Trim>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            level: 0,
            weight: 1,
            shaper: None,
            red: None,
            limit: Limit::None,
            trim: None,
        }
    }
}

/// Packet trimming (Ultra Ethernet 1.0, section 4.1): a packet that finds its queue full is cut to its
/// headers, gets another DSCP, and goes on in another queue, so that its receiver knows what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// A packet with which more bytes than this would wait is cut.
    pub at_bytes: u32,
    /// The length to which it is cut. Packets that are no longer than this are not cut.
    pub to_bytes: u16,
    /// The class in which what is left goes on.
    pub class: u8,
    /// The DSCP that it gets.
    pub dscp: u8,
}

/// A token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shaper {
    /// Long-term rate, of whole frames with preamble and gap.
    pub rate: Rate,
    /// Bucket size: bytes that may leave at once after the queue was idle.
    pub burst_bytes: u32,
}

/// Random early detection (Floyd and Jacobson, 1993), on the instantaneous length of the queue as switch
/// chips have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Red {
    /// Queue length below which no packet is chosen.
    pub min_bytes: u32,
    /// Queue length above which every packet is chosen.
    pub max_bytes: u32,
    /// Probability at `max_bytes`, in units of 2^-32.
    pub probability: u32,
    /// Whether chosen ECN-capable packets are marked (RFC 3168).
    pub mark: bool,
    /// Whether other chosen packets are dropped.
    pub drop: bool,
    /// When the length of the queue is compared with the thresholds.
    pub at: RedAt,
}

/// The moment at which random early detection examines the queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RedAt {
    /// When a packet leaves: the mark reflects the queue behind the packet, and reaches the sender earlier.
    #[default]
    Dequeue,
    /// When a packet arrives.
    Enqueue,
}

/// A limit on how much of the shared buffer something may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// No limit but the size of the shared buffer.
    None,
    /// A fixed number of bytes.
    Static(u32),
    /// Dynamic threshold (Choudhury and Hahne, 1998): this factor times the free part of the shared buffer,
    /// in units of 2^-16.
    Dynamic(u32),
}

/// [`Limit::Dynamic`] for an alpha of 1.
pub const ALPHA_ONE: u32 = 1 << 16;

/// One priority group of an ingress port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// Bytes that no other group may use.
    pub reserve_bytes: u32,
    /// Use above which the peer is paused, if the group is lossless, or packets are dropped, if it is not.
    pub limit: Limit,
    /// Bytes that may still arrive after the pause; 0 makes the group lossy.
    pub headroom_bytes: u32,
    /// Xon is sent when the use is this far below the limit.
    pub xon_offset_bytes: u32,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            reserve_bytes: 0,
            limit: Limit::None,
            headroom_bytes: 0,
            xon_offset_bytes: 0,
        }
    }
}

/// Priority flow control of a port (802.1Q clause 36).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcConfig {
    /// Priority groups that pause the peer, one bit each.
    pub send: u8,
    /// The priority that is named in the pause frames of each group.
    pub priority_of_group: [u8; CLASSES],
    /// Priorities at whose pause frames the port stops, one bit each.
    pub obey: u8,
    /// The queues that each priority stops, one bit each.
    pub queues_of_priority: [u8; CLASSES],
    /// Pause time that is requested, in quanta of 512 bit times.
    pub quanta: u16,
    /// Time from the last bit of a pause frame until the port stops, at the end of the frame that it is
    /// sending then (802.3 annex 31B.3.7 sets the longest).
    pub response: Span,
}

impl Default for PfcConfig {
    fn default() -> Self {
        let identity = [0, 1, 2, 3, 4, 5, 6, 7];
        Self {
            send: 0,
            priority_of_group: identity,
            obey: 0,
            queues_of_priority: identity.map(|priority| 1 << priority),
            quanta: 0xffff,
            response: Span::ZERO,
        }
    }
}

/// The packet memory of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferConfig {
    /// Total size. Memory that is neither reserve nor headroom is shared.
    pub total_bytes: u32,
    /// Headroom is taken from a common pool of this size, instead of being set aside for each group: smaller
    /// than the sum when not all ports are paused at once.
    pub headroom_pool_bytes: Option<u32>,
    /// Packets occupy whole cells of so many bytes.
    pub cell_bytes: u32,
}
