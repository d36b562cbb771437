//! SONiC's `config_db.json`: the QoS tables, by the names of its schema (sonic-net, `sonic-yang-models`).

use super::group::Group;
use crate::outcome::NotUnderstood;
use crate::path_spread::PathSpread;
use fabric::Span;
use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, Profile, QueueConfig,
    Treatment, Weigh,
};
use fabric::headroom::Headroom;
use fabric::topology::LinkConfig;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Cells of Broadcom's chips since Trident 3.
const CELL_BYTES: u32 = 254;

/// Propagation delay in a cable: picoseconds per metre, as in fabric files.
const PS_PER_METRE: u64 = 5000;

/// Burst of a shaper where `pbs` is missing.
pub(super) const BURST_BYTES: u32 = 2 * 9_216;

/// Time from a pause frame until a port stops; assumed, since chips do not publish it.
const RESPONSE: Span = Span::from_ns(670);

/// The tables, read.
#[derive(Clone, PartialEq, Debug)]
pub struct SonicConfig {
    /// Settings of each port, by name.
    pub ports: BTreeMap<String, SonicPort>,
    pub(super) total_bytes: u32,
    pub(super) headroom_pool_bytes: Option<u32>,
    /// The name of the pool that arriving packets are charged to.
    pub(crate) pool: String,
    /// The tables themselves.
    pub(super) tables: Map<String, Value>,
    /// Entries that were not understood: what they set is unknown.
    pub left: Vec<NotUnderstood>,
    /// Settings that are understood and not simulated, each with the reason.
    pub not_simulated: Vec<NotUnderstood>,
    /// Size and headroom of the pools that arriving packets are charged to, in bytes.
    pub pool_bytes: u64,
    /// The chip's memory in bytes, where the database of states is in the file.
    pub memory_bytes: Option<u64>,
}

/// The configuration of one port.
#[derive(Clone, PartialEq, Debug)]
pub struct SonicPort {
    pub(super) dscp: Option<[u8; 64]>,
    pub(super) pcp: Option<[u8; 8]>,
    /// By traffic class.
    pub(super) queue: [u8; CLASSES],
    /// By traffic class.
    pub(super) group: [u8; CLASSES],
    /// The priority group whose pauses have each priority.
    pub(super) pfc_groups: [u8; CLASSES],
    /// The queue that a pause of each priority stops.
    pub(super) pfc_queues: [u8; CLASSES],
    pub(super) pfc: u8,
    /// The queues by their numbers.
    pub(super) queues: [QueueConfig; CLASSES],
    /// By priority group; headroom is `None` where it is to be computed.
    pub(super) groups: [Option<Group>; CLASSES],
    pub(super) weigh: Weigh,
    /// `PFC_WD`: detection and restoration, where the watchdog runs and drops.
    pub watchdog: Option<(Span, Span)>,
    /// How packets that leave by the port are spread over paths of equal cost.
    pub(super) spread: PathSpread,
    /// Whether pauses of every priority are obeyed (`pfc_asym`).
    pub(super) pfc_asymmetric: bool,
    /// The length of the cable (`CABLE_LENGTH`).
    pub(super) metres: Option<u32>,
}

impl Default for SonicPort {
    fn default() -> Self {
        let identity = [0, 1, 2, 3, 4, 5, 6, 7];
        Self {
            dscp: None,
            pcp: None,
            queue: identity,
            group: [0; CLASSES],
            pfc_groups: identity,
            pfc_queues: identity,
            pfc: 0,
            queues: [QueueConfig::default(); CLASSES],
            groups: [None; CLASSES],
            weigh: Weigh::Bytes,
            watchdog: None,
            spread: PathSpread::Flows,
            pfc_asymmetric: false,
            metres: None,
        }
    }
}

impl SonicPort {
    /// Queues whose packets are paused on arrival, one bit each: those of the traffic classes whose
    /// priority group sends pauses of the same priority.
    pub(super) fn pfc_send(&self) -> u8 {
        self.classes(|class| {
            self.pfc >> class & 1 == 1 && self.pfc_groups[class] == self.group[class]
        })
    }

    /// Queues that a pause stops, one bit each: a neighbour pauses the priority of the traffic class.
    pub(super) fn pfc_obey(&self) -> u8 {
        let enabled = if self.pfc_asymmetric { 0xff } else { self.pfc };
        self.classes(|class| {
            enabled >> class & 1 == 1 && self.pfc_queues[class] == self.queue[class]
        })
    }

    /// The queues of some traffic classes.
    fn classes(&self, is_one: impl Fn(usize) -> bool) -> u8 {
        let own = (0..CLASSES).filter(|class| is_one(*class));
        own.fold(0, |mask, class| mask | 1 << (self.queue[class] & 7))
    }
}

impl SonicConfig {
    /// The packet memory.
    pub(crate) const fn buffer(&self) -> BufferConfig {
        let (total_bytes, headroom_pool_bytes) = (self.total_bytes, self.headroom_pool_bytes);
        BufferConfig {
            total_bytes,
            headroom_pool_bytes,
            cell_bytes: CELL_BYTES,
        }
    }

    /// How a port treats traffic.
    pub(crate) fn profile(&self, name: &str, link: &LinkConfig) -> Profile {
        let fallback = SonicPort::default();
        let port = self.ports.get(name).unwrap_or(&fallback);
        // Headroom that the switch computes is for the cable that it was told of.
        let cable = port.metres.filter(|metres| *metres > 0);
        let cable = cable.map(|metres| Span(u64::from(metres) * PS_PER_METRE));
        let needed = Headroom {
            rate: link.rate,
            delay: cable.unwrap_or(link.delay),
            our_frame_max_bytes: fabric::headroom::FRAME_MAX_BYTES,
            peer_frame_max_bytes: fabric::headroom::FRAME_MAX_BYTES,
            response: RESPONSE,
            cell_bytes: CELL_BYTES,
            frame_min_bytes: 64,
        };
        let groups = port.groups.map(|group| match group {
            None => GroupConfig {
                limit: Limit::Dynamic(fabric::config::ALPHA_ONE),
                ..GroupConfig::default()
            },
            Some(group) => GroupConfig {
                reserve_bytes: group.reserve,
                limit: group.limit,
                headroom_bytes: match group.lossless {
                    true => group.headroom.unwrap_or_else(|| needed.bytes()),
                    false => 0,
                },
                xon_offset_bytes: group.xon_offset,
            },
        });
        let treatment = |class: u8| Treatment {
            class: port.queue[usize::from(class & 7)],
            ..Treatment::default()
        };
        // A queue is what the engine calls a class: classes of one queue must share their priority group.
        let mut group_of_class = [0; CLASSES];
        for class in 0..CLASSES {
            group_of_class[usize::from(port.queue[class] & 7)] = port.group[class];
        }
        let mut priority_of_group = [0, 1, 2, 3, 4, 5, 6, 7];
        let (mut send, mut queues_of_priority) = (0, [0_u8; CLASSES]);
        for (priority, queues) in queues_of_priority.iter_mut().enumerate() {
            *queues = 1 << (port.pfc_queues[priority] & 7);
            let group = usize::from(port.pfc_groups[priority] & 7);
            if port.pfc >> priority & 1 == 1 {
                send |= 1 << group;
                priority_of_group[group] = priority as u8;
            }
        }
        Profile {
            map: ClassMap {
                trust_dscp: port.dscp.is_some(),
                trust_pcp: port.pcp.is_some(),
                dscp: port.dscp.unwrap_or([0; 64]).map(treatment),
                pcp: port.pcp.unwrap_or([0; 8]).map(treatment),
                default: treatment(0),
            },
            queues: port.queues,
            weigh: port.weigh,
            group_of_class,
            groups,
            pfc: PfcConfig {
                send,
                priority_of_group,
                obey: if port.pfc_asymmetric { 0xff } else { port.pfc },
                queues_of_priority,
                response: RESPONSE,
                ..PfcConfig::default()
            },
        }
    }
}
