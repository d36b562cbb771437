//! The treatment of traffic classes in a network, independent of any vendor's terms.

use crate::highest_rate::HighestRate;
use crate::outcome::Area;
use crate::path_spread::PathSpread;
use crate::text::classes;
use crate::watchdog::PauseWatchdog;

/// Default ECN thresholds, at which marking begins and becomes certain: those of NVIDIA's switches in RoCE
/// mode (Cumulus Linux, "RDMA over Converged Ethernet").
pub const ECN_DEFAULT: Ecn = Ecn::Thresholds {
    min: 150_000,
    max: 1_500_000,
    percent: 100,
};

/// The default MTU of switch ports.
pub const MTU_DEFAULT: u32 = 9216;

/// The planned or configured QoS of one switch or host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Intent {
    /// The header that decides about a packet's class.
    pub trust: Trust,
    /// Traffic class by DSCP.
    pub dscp: [u8; 64],
    /// Traffic class by 802.1Q priority code point.
    pub pcp: [u8; 8],
    /// Class of packets without a trusted header.
    pub default_class: u8,
    /// DSCP and priority code point that packets without a trusted header leave with; unchanged where `None`.
    pub remark: Option<(u8, u8)>,
    /// Queues by traffic class. A class is a priority of PFC as well.
    pub queues: [Queue; 8],
    /// Priorities at which pause frames are sent, one bit each.
    pub pfc_send: u8,
    /// Priorities at which received pause frames are obeyed, one bit each.
    pub pfc_obey: u8,
    /// Buffers of lossless classes.
    pub pause: Pause,
    /// The PFC watchdog of the lossless classes, if one runs.
    pub watchdog: Option<PauseWatchdog>,
    /// Whether DCBX TLVs are sent.
    pub dcbx: bool,
    /// The largest payload of an Ethernet frame in bytes.
    pub mtu: u32,
    /// Ports that the configuration applies to.
    pub ports: Vec<Port>,
    /// Settings that only hosts have.
    pub host: Option<HostSettings>,
    /// Whether pauses of the whole link (802.3x) are sent or obeyed.
    pub global_pause: bool,
    /// How packets of a flow are spread over paths of equal cost.
    pub spread: PathSpread,
    /// Areas whose settings are not known, each with the reason.
    pub unknown: Vec<Unknown>,
}

/// An area whose settings are not known: a line of it was not understood, or packets are classified by
/// something else than their headers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Unknown {
    /// The part of the configuration.
    pub area: Area,
    /// Why it is unknown.
    pub why: String,
}

/// The header that decides about a packet's class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trust {
    /// No header: every packet has the default class.
    None,
    /// The priority code point of tagged packets.
    Pcp,
    /// The DSCP of IP packets.
    Dscp,
    /// The DSCP of IP packets, and the priority code point of other tagged packets.
    Both,
}

impl Trust {
    /// Whether the DSCP decides.
    pub const fn dscp(self) -> bool {
        matches!(self, Self::Dscp | Self::Both)
    }

    /// Whether the priority code point decides.
    pub const fn pcp(self) -> bool {
        matches!(self, Self::Pcp | Self::Both)
    }

    /// The mode that trusts these headers.
    pub const fn of(dscp: bool, pcp: bool) -> Self {
        match (dscp, pcp) {
            (true, true) => Self::Both,
            (true, false) => Self::Dscp,
            (false, true) => Self::Pcp,
            (false, false) => Self::None,
        }
    }
}

/// One queue of every port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Queue {
    /// When the queue is served.
    pub schedule: Schedule,
    /// ECN marking; none where `None`.
    pub ecn: Option<Ecn>,
    /// The highest rate, if the queue has one.
    pub rate: Option<HighestRate>,
}

impl Queue {
    /// A weighted queue without ECN marking.
    pub const WEIGHTED: Self = Self {
        schedule: Schedule::Weighted(1),
        ecn: None,
        rate: None,
    };
}

/// When a queue is served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Schedule {
    /// Before all weighted queues; of several, the higher class first.
    Strict,
    /// By weight, among the weighted queues.
    Weighted(u8),
    /// By weight, while no queue of the other kinds has packets (RouterOS's low-priority group).
    Background(u8),
}

/// When packets are marked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ecn {
    /// The device chooses the thresholds.
    Automatic,
    /// Between `min` and `max` bytes in the queue the chance of a mark grows to `percent`.
    Thresholds {
        /// Bytes at which marking begins.
        min: u32,
        /// Bytes above which every packet is marked.
        max: u32,
        /// Chance of a mark at `max`, in percent.
        percent: u8,
    },
}

/// Buffers of lossless classes in bytes; the device chooses where `None`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Pause {
    /// Use at which the sender is paused.
    pub xoff: Option<u32>,
    /// Use at which the sender may go on.
    pub xon: Option<u32>,
    /// Buffer for packets that arrive after the pause (802.1Q annex N).
    pub headroom: Option<u32>,
}

/// A port that the configuration applies to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Port {
    /// The name of the port in its system.
    pub name: String,
    /// Speed of the link in Mb/s, where the configuration has it.
    pub mbps: Option<u32>,
    /// Length of the cable in metres, where the configuration has it.
    pub metres: Option<u32>,
}

impl Port {
    /// Speed of the link in whole Gb/s, at least 1.
    pub fn gbps(&self) -> Option<u32> {
        self.mbps.map(|mbps| (mbps / 1000).max(1))
    }
}

/// Settings that only hosts have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostSettings {
    /// The RDMA device: `mlx5_0`.
    pub device: String,
    /// DSCP of RDMA data.
    pub dscp: u8,
    /// Whether RDMA data takes part in ECN.
    pub ecn: bool,
    /// DSCP of congestion notification packets.
    pub cnp_dscp: u8,
    /// Priority of congestion notification packets.
    pub cnp_priority: u8,
    /// Priority of SMB Direct on Windows.
    pub smb_priority: u8,
    /// Whether the host takes its DCB settings from the switch.
    pub willing: bool,
    /// SR-IOV functions; SR-IOV is off where 0.
    pub functions: u16,
    /// Whether the adapter places packets in whatever order they arrive.
    pub out_of_order: bool,
    /// Settings that only Windows has.
    pub windows: WindowsSettings,
}

/// What Windows needs for SMB Direct besides DCB. The default is what a host with SMB Direct has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowsSettings {
    /// Whether the feature SMB Direct is on.
    pub smb_direct: bool,
    /// Whether SMB uses several channels, and with them RDMA.
    pub multichannel: bool,
    /// Whether NetworkDirect is on, for all adapters.
    pub network_direct: bool,
    /// Whether RDMA may pass between subnets.
    pub across_subnets: bool,
    /// Whether the adapter offers NetworkDirect.
    pub offered: bool,
    /// `*NetworkDirectTechnology` of the adapter: 4 is RoCEv2.
    pub technology: u8,
    /// The oldest and the newest dialect of SMB; Windows' own where `None`.
    pub dialects: (Option<u16>, Option<u16>),
    /// RDMA connections of SMB for each interface; Windows' own, 2, where `None`.
    pub connections: Option<u8>,
}

impl Default for WindowsSettings {
    fn default() -> Self {
        Self {
            smb_direct: true,
            multichannel: true,
            network_direct: true,
            across_subnets: true,
            offered: true,
            technology: 4,
            dialects: (None, None),
            connections: None,
        }
    }
}

/// One difference between an intent and what a dialect can express.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Note(pub String);

impl Intent {
    /// The same intent with settings that have no effect, maps of untrusted headers, set to one value.
    #[must_use]
    pub fn normal(mut self) -> Self {
        if !self.trust.dscp() {
            self.dscp = [self.default_class; 64];
        }
        if !self.trust.pcp() {
            self.pcp = [self.default_class; 8];
        }
        if self.pfc_send | self.pfc_obey == 0 {
            self.pause = Pause::default();
            self.watchdog = None;
        }
        self.ports.sort();
        self
    }

    /// The class of a packet with this DSCP, without a tag.
    pub fn class_of_dscp(&self, dscp: u8) -> u8 {
        if self.trust.dscp() {
            self.dscp[usize::from(dscp & 63)]
        } else {
            self.default_class
        }
    }

    /// Why the settings of an area are not known, if they are not.
    pub fn unknown(&self, area: Area) -> Option<&str> {
        let found = self.unknown.iter().find(|unknown| unknown.area == area);
        found.map(|unknown| unknown.why.as_str())
    }

    /// Says that the settings of an area are not known. The first reason counts.
    pub fn forget(&mut self, area: Area, why: impl Into<String>) {
        if self.unknown(area).is_none() {
            let why = why.into();
            self.unknown.push(Unknown { area, why });
            self.unknown.sort();
        }
    }

    /// Whether a class is paused at this device's ingress.
    pub const fn lossless(&self, class: u8) -> bool {
        self.pfc_send >> (class & 7) & 1 == 1
    }

    /// The weights of weighted queues as percents that add up to 100, each at least 1.
    pub fn percents(&self) -> [u8; 8] {
        let weight = |queue: &Queue| match queue.schedule {
            Schedule::Strict => 0,
            Schedule::Weighted(weight) | Schedule::Background(weight) => u32::from(weight.max(1)),
        };
        let weights = self.queues.each_ref().map(weight);
        let sum: u32 = weights.iter().sum();
        if sum == 0 {
            return [0; 8];
        }
        let mut percents = weights.map(|weight| {
            if weight == 0 {
                0
            } else {
                (weight * 100 / sum).max(1)
            }
        });
        while percents.iter().sum::<u32>() > 100 {
            let largest = (0..8).max_by_key(|index| percents[*index]).unwrap_or(0);
            percents[largest] -= 1;
        }
        // The largest share gets the remainder of rounding.
        let largest = (0..8).max_by_key(|index| percents[*index]).unwrap_or(0);
        percents[largest] += 100 - percents.iter().sum::<u32>();
        percents.map(|percent| percent as u8)
    }

    /// Values of DSCP that are in a class.
    pub fn dscp_of(&self, class: u8) -> impl Iterator<Item = u8> {
        (0..64_u8).filter(move |value| self.dscp[usize::from(*value)] == class)
    }

    /// Priority code points that are in a class.
    pub fn pcp_of(&self, class: u8) -> impl Iterator<Item = u8> {
        (0..8_u8).filter(move |value| self.pcp[usize::from(*value)] == class)
    }

    /// Classes that any packet can get into.
    pub fn used(&self) -> u8 {
        let of = |values: &[u8]| {
            values
                .iter()
                .fold(0_u8, |mask, class| mask | 1 << (class & 7))
        };
        let dscp = if self.trust.dscp() { of(&self.dscp) } else { 0 };
        let pcp = if self.trust.pcp() { of(&self.pcp) } else { 0 };
        dscp | pcp | 1 << (self.default_class & 7)
    }
}

impl Default for Intent {
    /// RoCE data with DSCP 26 in the lossless class 3, notifications with DSCP 48 in class 6, everything else
    /// in class 0, with equal shares of data and the rest.
    fn default() -> Self {
        let mut dscp = [0; 64];
        (dscp[26], dscp[48]) = (3, 6);
        let mut queues = [Queue::WEIGHTED; 8];
        queues[0].schedule = Schedule::Weighted(47);
        queues[3] = Queue {
            schedule: Schedule::Weighted(48),
            ecn: Some(ECN_DEFAULT),
            rate: None,
        };
        queues[6].schedule = Schedule::Strict;
        Self {
            trust: Trust::Dscp,
            dscp,
            pcp: [0; 8],
            default_class: 0,
            remark: None,
            queues,
            pfc_send: 1 << 3,
            pfc_obey: 1 << 3,
            pause: Pause::default(),
            watchdog: None,
            dcbx: true,
            mtu: MTU_DEFAULT,
            ports: Vec::new(),
            host: None,
            global_pause: false,
            spread: PathSpread::Flows,
            unknown: Vec::new(),
        }
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            device: "mlx5_0".to_owned(),
            dscp: 26,
            ecn: true,
            cnp_dscp: 48,
            cnp_priority: 6,
            smb_priority: 3,
            willing: false,
            functions: 0,
            out_of_order: false,
            windows: WindowsSettings::default(),
        }
    }
}

impl HostSettings {
    /// The IPv4 ToS byte of RDMA data: the DSCP, and ECT(0) where data takes part in ECN (RFC 3168).
    pub const fn tos(&self) -> u8 {
        self.dscp << 2 | if self.ecn { 2 } else { 0 }
    }
}

/// Collects the settings that a dialect cannot express while an intent is made to fit.
#[derive(Default, Debug)]
pub struct Fit {
    notes: Vec<Note>,
}

impl Fit {
    /// The differences, in order.
    pub fn notes(self) -> Vec<Note> {
        self.notes
    }

    /// Records a difference.
    pub fn add_note(&mut self, text: impl Into<String>) {
        let note = Note(text.into());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Weights become percents, and the group below the weighted one becomes weighted.
    pub(crate) fn percents(&mut self, intent: &mut Intent) {
        let percents = intent.percents();
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            let (weight, background) = match queue.schedule {
                Schedule::Strict => continue,
                Schedule::Weighted(weight) => (weight, false),
                Schedule::Background(weight) => (weight, true),
            };
            if background {
                self.add_note(format!(
                    "queue {class}: there is no group below the weighted queues; it is weighted"
                ));
            }
            if weight != percents[class] {
                self.add_note("weights are written as percents of all weighted queues");
            }
            queue.schedule = Schedule::Weighted(percents[class]);
        }
    }

    /// The group below the weighted one becomes weighted; weights stay.
    pub(crate) fn one_group(&mut self, intent: &mut Intent, max: u8) {
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            let weight = match queue.schedule {
                Schedule::Strict => continue,
                Schedule::Weighted(weight) => weight,
                Schedule::Background(weight) => {
                    self.add_note(format!(
                        "queue {class}: there is no group below the weighted queues; it is weighted"
                    ));
                    weight
                }
            };
            if weight.clamp(1, max) != weight {
                self.add_note(format!("queue {class}: weights are from 1 to {max}"));
            }
            queue.schedule = Schedule::Weighted(weight.clamp(1, max));
        }
    }

    /// Writes thresholds out, in steps of so many bytes.
    pub(crate) fn thresholds(&mut self, intent: &mut Intent, step: u32) {
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            let (min, max, percent) = match queue.ecn {
                None => continue,
                Some(Ecn::Automatic) => {
                    self.add_note(format!(
                        "queue {class}: ECN thresholds cannot be left to the device: 150 kB to 1.5 MB"
                    ));
                    queue.ecn = Some(ECN_DEFAULT);
                    continue;
                }
                Some(Ecn::Thresholds { min, max, percent }) => (min, max, percent),
            };
            let round = |bytes: u32| (bytes / step).max(1) * step;
            let fitted = Ecn::Thresholds {
                min: round(min),
                max: round(max),
                percent: percent.clamp(1, 100),
            };
            if Some(fitted) != queue.ecn {
                self.add_note(format!(
                    "queue {class}: ECN thresholds are in steps of {step} bytes"
                ));
            }
            queue.ecn = Some(fitted);
        }
    }

    /// The device computes the buffers of lossless classes.
    pub(crate) fn no_buffers(&mut self, intent: &mut Intent) {
        if intent.pause != Pause::default() {
            self.add_note("buffers of lossless classes are left to the device");
        }
        intent.pause = Pause::default();
    }

    /// PFC is sent and obeyed for the same priorities.
    pub(crate) fn symmetric_pfc(&mut self, intent: &mut Intent) {
        if intent.pfc_obey != intent.pfc_send {
            let list: Vec<String> = classes(intent.pfc_send)
                .map(|class| class.to_string())
                .collect();
            self.add_note(format!(
                "PFC is sent and obeyed for the same priorities: {}",
                list.join(", ")
            ));
        }
        intent.pfc_obey = intent.pfc_send;
    }

    /// The largest MTU of SONiC, NX-OS and NVUE.
    pub(crate) fn mtu(&mut self, intent: &mut Intent) {
        if intent.mtu > MTU_DEFAULT {
            self.add_note(format!("an MTU is at most {MTU_DEFAULT} bytes"));
            intent.mtu = MTU_DEFAULT;
        }
    }

    /// Headers are not rewritten.
    pub(crate) fn no_remark(&mut self, intent: &mut Intent) {
        if intent.remark.is_some() {
            self.add_note("DSCP and PCP of packets without a trusted header are not rewritten");
        }
        intent.remark = None;
    }

    /// Ports are named only: speeds and lengths of cables are found by the device.
    pub(crate) fn bare_ports(&mut self, intent: &mut Intent) {
        intent
            .ports
            .iter_mut()
            .for_each(|port| (port.mbps, port.metres) = (None, None));
    }

    /// The system has no setting for packets that arrive in another order.
    pub(crate) fn in_order(&mut self, intent: &mut Intent) {
        if let Some(host) = intent.host.as_mut().filter(|host| host.out_of_order) {
            self.add_note("packets in any order: no command of this system for it is known");
            host.out_of_order = false;
        }
    }

    /// Adapters trust one of the headers.
    pub(crate) fn one_trust(&mut self, intent: &mut Intent) {
        match intent.trust {
            Trust::None => {
                self.add_note(
                    "an adapter trusts PCP or DSCP: it trusts PCP, which untagged packets do not have",
                );
                intent.trust = Trust::Pcp;
            }
            Trust::Both => {
                self.add_note("an adapter trusts PCP or DSCP: it trusts DSCP");
                intent.trust = Trust::Dscp;
            }
            Trust::Pcp | Trust::Dscp => {}
        }
    }

    /// Switches have no settings of hosts.
    pub(crate) fn no_host(&mut self, intent: &mut Intent) {
        if intent.host.is_some() {
            self.add_note("settings of hosts are not written for switches");
        }
        intent.host = None;
    }
}

impl Intent {
    /// The same settings for each of these ports, of which only the names are known.
    pub(crate) fn for_ports(&self, names: &[String]) -> Vec<Self> {
        let named = |name: &String| Self {
            ports: vec![Port {
                name: name.clone(),
                mbps: None,
                metres: None,
            }],
            ..self.clone()
        };
        names.iter().map(named).collect()
    }

    /// The settings of an unconfigured device: one class, and neither PFC nor ECN.
    pub(crate) fn nothing() -> Self {
        Self {
            trust: Trust::None,
            dscp: [0; 64],
            pcp: [0; 8],
            default_class: 0,
            remark: None,
            queues: [Queue::WEIGHTED; 8],
            pfc_send: 0,
            pfc_obey: 0,
            pause: Pause::default(),
            watchdog: None,
            dcbx: false,
            mtu: 1500,
            ports: Vec::new(),
            host: None,
            global_pause: false,
            spread: PathSpread::Flows,
            unknown: Vec::new(),
        }
    }
}

impl Fit {
    /// Applies the properties that all hosts have in common: the priority code point is the priority, packets
    /// without a mark have priority 0, switches do the marking, and the adapter sizes its buffers.
    pub(crate) fn host(&mut self, intent: &mut Intent) {
        if intent.default_class != 0 {
            self.add_note("packets without a mark have priority 0");
        }
        intent.default_class = 0;
        if intent.trust.pcp() && intent.pcp != [0, 1, 2, 3, 4, 5, 6, 7] {
            self.add_note("the priority of a tagged packet is its priority code point");
        }
        intent.pcp = [0, 1, 2, 3, 4, 5, 6, 7];
        intent.queues.iter_mut().for_each(|queue| queue.ecn = None);
        self.no_remark(intent);
        self.symmetric_pfc(intent);
        self.no_buffers(intent);
        self.no_watchdog(intent);
        self.bare_ports(intent);
        // Paths are those of switches.
        intent.spread = PathSpread::Flows;
        if intent.ports.len() > 1 {
            self.add_note("one adapter is configured: the first");
            intent.ports.truncate(1);
        }
        if intent.dcbx {
            self.add_note("DCBX TLVs are sent by an LLDP agent (lldpad, lldpd) or the firmware");
            intent.dcbx = false;
        }
        intent.host.get_or_insert_default();
    }
}
