//! Switches as most lossless networks have them, for programs and tests that need no fabric file.

use fabric::config::{
    ALPHA_ONE, BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, PortConfig, Profile,
    QueueConfig, Red, SwitchConfig, Treatment, Weigh,
};
use fabric::headroom::Headroom;
use fabric::topology::{Link, Node, Topology};
use fabric::{Rate, Span};

/// The settings that switches have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Lossless {
    /// The packet memory of each.
    pub buffer_bytes: u32,
    /// The class that loses nothing; `None` makes all lossy.
    pub class: Option<u8>,
    /// Limit of the priority group at each ingress (xoff).
    pub xoff: Limit,
    /// Marking of that class.
    pub red: Option<Red>,
    /// The longest frame.
    pub frame_bytes_max: u32,
    /// Headroom of the class at each port; the sum of [`Headroom`] if not given.
    pub headroom_bytes: Option<u32>,
    /// Class by DSCP, for those that are not in class 0.
    pub dscp: Vec<(u8, u8)>,
    /// Queues by class.
    pub queues: [QueueConfig; CLASSES],
}

impl Default for Lossless {
    /// 32 MB, class 3 (DSCP 26) lossless with a dynamic threshold of 1/8, class 6 (DSCP 48) before all
    /// others.
    fn default() -> Self {
        let level = |class: usize| QueueConfig {
            level: u8::from(class == 6),
            ..QueueConfig::default()
        };
        Self {
            buffer_bytes: 32 << 20,
            class: Some(3),
            xoff: Limit::Dynamic(ALPHA_ONE / 8),
            red: None,
            frame_bytes_max: 4_200,
            headroom_bytes: None,
            dscp: vec![(26, 3), (48, 6)],
            queues: std::array::from_fn(level),
        }
    }
}

/// Response to a pause frame (802.3 annex 31B.3.7 allows this much at 100 Gb/s).
const RESPONSE: Span = Span::from_ns(600);

/// Configures every switch of a topology alike, each port's headroom by its own link.
pub fn lossless_switches(topology: &Topology, common: &Lossless) -> Vec<SwitchConfig> {
    let mut links: Vec<Vec<Option<&Link>>> = (0..topology.switches())
        .map(|switch| vec![None; usize::from(topology.ports(switch))])
        .collect();
    for link in topology.links() {
        for end in link.ends {
            if let Node::Switch(switch) = end.node {
                links[switch as usize][usize::from(end.port)] = Some(link);
            }
        }
    }
    links.iter().map(|ports| switch(ports, common)).collect()
}

fn switch(ports: &[Option<&Link>], common: &Lossless) -> SwitchConfig {
    let mut profiles: Vec<Profile> = Vec::new();
    let mut configs = Vec::new();
    for link in ports {
        let (rate, delay) = link.map_or((Rate::from_gbps(1), Span::ZERO), |link| {
            (link.config.rate, link.config.delay)
        });
        let profile = profile(rate, delay, common);
        let found = profiles.iter().position(|known| *known == profile);
        let index = found.unwrap_or_else(|| {
            profiles.push(profile);
            profiles.len() - 1
        });
        configs.push(PortConfig {
            rate,
            profile: index as u8,
        });
    }
    SwitchConfig {
        ports: configs,
        profiles,
        buffer: BufferConfig {
            total_bytes: common.buffer_bytes,
            headroom_pool_bytes: None,
            cell_bytes: 1,
        },
    }
}

fn profile(rate: Rate, delay: Span, common: &Lossless) -> Profile {
    let headroom = Headroom {
        rate,
        delay,
        our_frame_max_bytes: common.frame_bytes_max,
        peer_frame_max_bytes: common.frame_bytes_max,
        response: RESPONSE,
        cell_bytes: 1,
        frame_min_bytes: 64,
    };
    let treat = |class: u8| Treatment {
        class,
        dscp: None,
        pcp: None,
    };
    let mut dscp = [treat(0); 64];
    for (value, class) in &common.dscp {
        dscp[usize::from(*value & 63)] = treat(*class);
    }
    let mut queues = common.queues;
    let mut groups = [GroupConfig {
        limit: Limit::Dynamic(ALPHA_ONE),
        ..GroupConfig::default()
    }; CLASSES];
    let mut pfc = PfcConfig {
        response: RESPONSE,
        ..PfcConfig::default()
    };
    if let Some(class) = common.class {
        queues[usize::from(class)].red = common.red;
        groups[usize::from(class)] = GroupConfig {
            reserve_bytes: 0,
            limit: common.xoff,
            headroom_bytes: common.headroom_bytes.unwrap_or_else(|| headroom.bytes()),
            xon_offset_bytes: 2 * common.frame_bytes_max,
        };
        (pfc.send, pfc.obey) = (1 << class, 1 << class);
    }
    Profile {
        map: ClassMap {
            trust_dscp: true,
            trust_pcp: false,
            dscp,
            pcp: std::array::from_fn(|pcp| treat(pcp as u8)),
            default: treat(0),
        },
        queues,
        weigh: Weigh::Bytes,
        group_of_class: std::array::from_fn(|class| class as u8),
        groups,
        pfc,
    }
}
