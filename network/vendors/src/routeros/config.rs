//! The QoS of RouterOS switches (MikroTik, chips with WRED, ECN and PFC; RouterOS 7.17).
//!
//! The meaning of each property is from MikroTik's manual, "Quality of Service" for Marvell Prestera chips.
//! Where the manual leaves something open, comments here and `docs/reference/fabric-file.md` say how it was
//! decided.

use std::collections::BTreeMap;

use crate::outcome::NotUnderstood;

/// All settings of a script, with the defaults of a new switch.
#[derive(Clone, PartialEq, Debug)]
pub struct RouterOsConfig {
    /// `qos-hw-offloading`: without it the chip applies no QoS.
    pub offloaded: bool,
    /// Newer chips (CRS8xx) apply QoS whatever `qos-hw-offloading` is.
    pub(super) always_offloaded: bool,
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
    /// Settings of `interface ethernet`, by the port's name.
    pub links: BTreeMap<String, EthernetLink>,
    /// The version that the header of an export names.
    pub version: Option<RouterOsVersion>,
    /// Entries of `qos map ip` and `qos map vlan` in order, from which `dscp` and `pcp` are made.
    pub(super) map_ip: Vec<MapEntry>,
    pub(super) map_vlan: Vec<MapEntry>,
    /// Whether the ports are those of a CRS504, because no script has named others.
    pub(super) assumes_ports: bool,
    /// Lines that were not understood: what they set is unknown.
    pub left: Vec<NotUnderstood>,
    /// Settings that are understood and not simulated, each with the reason.
    pub not_simulated: Vec<NotUnderstood>,
}

/// The first two numbers of a version of RouterOS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RouterOsVersion(pub u32, pub u32);

/// The first version that maps DSCPs and priority code points by the profiles that name them (MikroTik,
/// "QoS Changes in RouterOS v7.23").
pub(crate) const MAPS_BY_PROFILE: RouterOsVersion = RouterOsVersion(7, 23);

impl RouterOsVersion {
    /// The version at the beginning of a text: `7.23.1`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = text.find(|letter| !is_number(letter)).unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(str::parse::<u32>);
        let major = numbers.next()?.ok()?;
        Some(Self(major, numbers.next().map_or(Some(0), Result::ok)?))
    }
}

/// Settings of a port in `interface ethernet`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EthernetLink {
    /// The name of the port on a new switch.
    pub default_name: String,
    /// The property `l2mtu` in bytes.
    pub l2mtu: Option<u32>,
    /// The property `mtu` in bytes, which `l2mtu` is never below.
    pub mtu: Option<u32>,
    /// Whether pauses of the whole link (802.3x) are sent or obeyed.
    pub pause: bool,
    /// The line that has disabled the interface.
    pub disabled: Option<usize>,
}

/// An entry of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MapEntry {
    pub(super) values: Vec<u8>,
    pub(super) profile: String,
    /// The flag X.
    pub(super) disabled: bool,
    /// Whether only frames with the drop eligible indicator are mapped.
    pub(super) dei_only: bool,
}

/// A threshold of a PFC profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// A size in bytes.
    Bytes(u32),
    /// A part of the shared pool.
    Percent(u8),
}

impl Threshold {
    /// The threshold in bytes, for a shared pool of so many.
    pub fn bytes(self, shared: u32) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u64::from(shared) * u64::from(percent) / 100) as u32,
        }
    }
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
    /// Whether the DSCP or the priority code point is set by the configuration; from 7.23 on such values are
    /// mapped to the profile.
    pub(super) names: (bool, bool),
    /// `automap`: whether they are mapped.
    pub(super) automap: bool,
    /// A disabled profile is applied to nothing.
    pub disabled: bool,
}

impl QosProfile {
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pcp: 0,
            dscp: 0,
            traffic_class: 0,
            names: (false, false),
            automap: true,
            disabled: false,
        }
    }
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
    /// Weight of the queue in packets; strict queues have none.
    pub weight: u8,
    /// `queue-buffers` in bytes, or automatic.
    pub buffers: Option<u32>,
    /// Whether the queue may use the shared pool.
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
    /// Use at which the peer is paused, or automatic.
    pub pause_threshold: Option<Threshold>,
    /// Use at which Xon is sent, or automatic.
    pub resume_threshold: Option<Threshold>,
    /// A disabled profile pauses nothing.
    pub disabled: bool,
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
    /// `egress-rate-queueN` in bits per second; 0 is set, and no limit.
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

/// Whether a name is of a port of a CRS504.
pub(super) fn is_of_crs504(name: &str) -> bool {
    let digits = |text: &str, most| {
        text.parse::<u8>()
            .is_ok_and(|own| (1..=most).contains(&own))
    };
    let rest = name
        .strip_prefix("qsfp28-")
        .and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(port, lane)| digits(port, PORTS) && digits(lane, LANES))
}

/// Whether a name is of a switch's port as MikroTik names them: `sfp-sfpplus1`, `sfp28-1`, `qsfp56-dd-1-1`,
/// `qsfpplus1-1`. Ports of copper (`ether1`) manage the switch, or are no ports for RDMA.
pub(super) fn is_port_name(name: &str) -> bool {
    let is_kind = ["sfp", "qsfp", "combo", "osfp"]
        .iter()
        .any(|kind| name.starts_with(kind));
    let known = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    is_kind && ends_with_place(name) && name.chars().all(known)
}

/// Whether a name ends with the number of a port, and of a lane where ports of its kind have lanes: a part of
/// a name, such as `sfp28` or `qsfp28-2`, does not.
fn ends_with_place(name: &str) -> bool {
    let mut parts = name.rsplit('-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|own| own.is_ascii_digit());
    let ends_with_digit = |text: &str| text.ends_with(|letter: char| letter.is_ascii_digit());
    let last = parts.next().unwrap_or_default();
    match parts.next() {
        // `qsfp28-1-1`, `qsfp56-dd-1-1`, `qsfpplus1-1`.
        Some(before) if name.starts_with(['q', 'o']) => {
            is_number(last)
                && (is_number(before) || before.strip_prefix("qsfpplus").is_some_and(is_number))
        }
        // `sfp28-1`, `sfp-sfpplus1`.
        Some(_) => ends_with_digit(last),
        None => {
            let rates = ["sfp28", "sfp56", "sfp112"];
            ends_with_digit(last) && !rates.contains(&last) && !name.starts_with(['q', 'o'])
        }
    }
}

/// Whether a port is of a chip that always applies QoS: of the models with QSFP56 and SFP56 (MikroTik, "QoS
/// Enhancements in new generation Marvell Prestera Switch Chips").
pub(super) fn is_of_newer_chip(port: &str) -> bool {
    ["qsfp56-", "sfp56-"]
        .iter()
        .any(|kind| port.starts_with(kind))
}

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
            always_offloaded: false,
            dcbx: false,
            profiles: vec![QosProfile {
                traffic_class: 1,
                ..QosProfile::named("default")
            }],
            dscp: BTreeMap::new(),
            pcp: BTreeMap::new(),
            tx_managers: vec![manager("default"), manager("offline")],
            pfc: vec![PfcProfile::named("disabled")],
            ports: ports.collect(),
            settings: Settings::default(),
            links: BTreeMap::new(),
            version: None,
            map_ip: Vec::new(),
            map_vlan: Vec::new(),
            assumes_ports: true,
            left: Vec::new(),
            not_simulated: Vec::new(),
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
            disabled: false,
        }
    }
}
