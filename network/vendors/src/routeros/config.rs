//! The QoS of RouterOS switches (MikroTik, chips with WRED, ECN and PFC; RouterOS 7.17).
//!
//! The meaning of each property is from MikroTik's manual, "Quality of Service" for Marvell Prestera chips.
//! Where the manual leaves something open, comments here and `docs/fabric-file.md` say how it was decided.

use std::collections::BTreeMap;

/// All settings of a script, with the defaults of a new switch.
#[derive(Clone, PartialEq, Debug)]
pub struct RouterOsConfig {
    /// `qos-hw-offloading`: without it the chip applies no QoS.
    pub offloaded: bool,
    /// The property `lldp-dcbx`: whether DCBX is offered.
    pub dcbx: bool,
    /// `qos profile`, in order; the first is `default`.
    pub profiles: Vec<QosProfile>,
    /// `qos map ip` by DSCP: the profile's name.
    pub dscp: BTreeMap<u8, String>,
    /// `qos map vlan` by priority code point: the profile's name.
    pub pcp: BTreeMap<u8, String>,
    /// `qos tx-manager`; the first is `default`.
    pub tx_managers: Vec<TxManager>,
    /// `qos priority-flow-control`; the first is `disabled`.
    pub pfc: Vec<PfcProfile>,
    /// `qos port` by name.
    pub ports: BTreeMap<String, RouterOsPort>,
    /// Properties of the menu `qos settings`.
    pub settings: Settings,
    /// `l2mtu` of `interface ethernet` in bytes: the largest that the script sets.
    pub l2mtu: Option<u32>,
}

/// An entry of `qos profile`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QosProfile {
    /// The name that other menus refer to.
    pub name: String,
    /// Priority code point that packets leave with.
    pub pcp: u8,
    /// DSCP that packets leave with.
    pub dscp: u8,
    /// The traffic class of the profile.
    pub traffic_class: u8,
}

/// An entry of `qos tx-manager`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxManager {
    /// The name that other menus refer to.
    pub name: String,
    /// `ecn`: its queues mark, if they use shared buffers.
    pub ecn: bool,
    /// Its queues by traffic class.
    pub queues: [TxQueue; 8],
}

/// An entry of `qos tx-manager queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxQueue {
    /// The scheduling group of the queue.
    pub schedule: QueueSchedule,
    /// Its share in packets; strict queues have none.
    pub weight: u8,
    /// `queue-buffers` in bytes, or automatic.
    pub buffers: Option<u32>,
    /// Whether it may use the shared pool.
    pub shared: bool,
    /// `wred`: packets that do not take part in ECN are dropped early.
    pub wred: bool,
    /// `ecn` of the queue itself.
    pub ecn: bool,
}

/// The group of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueSchedule {
    /// Served before all groups, the higher class first.
    Strict,
    /// Served before the low group.
    High,
    /// Served after the high group.
    Low,
}

/// An entry of `qos priority-flow-control`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PfcProfile {
    /// The name that other menus refer to.
    pub name: String,
    /// The paused traffic classes, one bit each.
    pub traffic_classes: u8,
    /// Whether pause frames are obeyed.
    pub rx: bool,
    /// Whether pause frames are sent.
    pub tx: bool,
    /// Bytes at which the peer is paused, or automatic.
    pub pause_threshold: Option<u32>,
    /// Bytes at which Xon is sent, or automatic.
    pub resume_threshold: Option<u32>,
}

/// An entry of `qos port`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterOsPort {
    /// The QoS profile of packets without a trusted header.
    pub profile: String,
    /// Whether the priority code point is trusted, and rewritten.
    pub trust_l2: TrustMode,
    /// Whether the DSCP is trusted, and rewritten.
    pub trust_l3: TrustMode,
    /// The transmit manager of the port.
    pub tx_manager: String,
    /// The name of the port's PFC profile.
    pub pfc: String,
    /// `egress-rate-queueN` in bits per second.
    pub egress_rates: [Option<u64>; 8],
}

/// Whether a header field determines the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrustMode {
    /// The field is ignored.
    Ignore,
    /// The field determines the class, and is rewritten from the profile.
    Trust,
    /// The field determines the class, and keeps its value.
    Keep,
}

impl TrustMode {
    /// The value in RouterOS.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Trust => "trust",
            Self::Keep => "keep",
        }
    }
}

/// `qos settings`, in bytes of the packet memory; automatic where `None`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// The property `multicast-buffers`.
    pub multicast_bytes: Option<u32>,
    /// The property `shared-buffers`.
    pub shared_bytes: Option<u32>,
    /// The property `wred-threshold`.
    pub wred: WredThreshold,
}

/// Values of the property `wred-threshold`: how early marking begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WredThreshold {
    /// Marking begins early.
    Low,
    /// Medium, the default of a new switch.
    #[default]
    Medium,
    /// Marking begins late.
    High,
}

/// The interfaces of a CRS504-4XQ-IN: each 100G port has four, one per lane.
const PORTS: u8 = 4;
const LANES: u8 = 4;

impl Default for RouterOsPort {
    fn default() -> Self {
        Self {
            profile: "default".to_owned(),
            trust_l2: TrustMode::Ignore,
            trust_l3: TrustMode::Ignore,
            tx_manager: "default".to_owned(),
            pfc: "disabled".to_owned(),
            egress_rates: [None; 8],
        }
    }
}

impl Default for RouterOsConfig {
    /// A new CRS504, as it prints itself.
    fn default() -> Self {
        let low = |weight| TxQueue::new(QueueSchedule::Low, weight);
        let high = |weight| TxQueue::new(QueueSchedule::High, weight);
        let strict = TxQueue::new(QueueSchedule::Strict, 0);
        let queues = [
            low(1),
            low(2),
            low(3),
            high(3),
            high(4),
            high(5),
            strict,
            strict,
        ];
        let manager = |name: &str| TxManager {
            name: name.to_owned(),
            ecn: false,
            queues,
        };
        let lanes = (1..=PORTS).flat_map(|port| (1..=LANES).map(move |lane| (port, lane)));
        let ports =
            lanes.map(|(port, lane)| (format!("qsfp28-{port}-{lane}"), RouterOsPort::default()));
        Self {
            offloaded: false,
            dcbx: false,
            profiles: vec![QosProfile {
                name: "default".to_owned(),
                pcp: 0,
                dscp: 0,
                traffic_class: 1,
            }],
            dscp: BTreeMap::new(),
            pcp: BTreeMap::new(),
            tx_managers: vec![manager("default"), manager("offline")],
            pfc: vec![PfcProfile::named("disabled")],
            ports: ports.collect(),
            settings: Settings::default(),
            l2mtu: None,
        }
    }
}

impl TxQueue {
    pub(crate) const fn new(schedule: QueueSchedule, weight: u8) -> Self {
        Self {
            schedule,
            weight,
            buffers: None,
            shared: true,
            wred: false,
            ecn: false,
        }
    }
}

impl PfcProfile {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            traffic_classes: 0,
            rx: false,
            tx: false,
            pause_threshold: None,
            resume_threshold: None,
        }
    }
}
