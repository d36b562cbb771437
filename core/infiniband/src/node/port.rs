//! A port: what PortInfo tells about it, its tables, and its counters.

use crate::node::{Capabilities, Counters, PartitionTable};
use crate::{LinkSpeed, Speed, Width};

/// Virtual lanes of data that tables have room for.
pub const LANES: usize = 16;
/// Entries of a virtual lane arbitration table.
pub const ARBITRATION_ENTRIES: usize = 64;

/// The state of a port's link (IBTA 7.2.7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortState {
    /// The port has no link.
    Down = 1,
    /// Subnet management packets pass alone.
    Initialize = 2,
    /// Data is received, and not sent.
    Armed = 3,
    /// Data passes in both directions.
    Active = 4,
}

impl PortState {
    /// The name as Linux has it in sysfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::Initialize => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
        }
    }
}

/// The state of a port's physical layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PhysicalState {
    /// The port waits for another one.
    Polling = 2,
    /// The port was disabled by a manager.
    Disabled = 3,
    /// Lanes are up.
    LinkUp = 5,
}

impl PhysicalState {
    /// The name as Linux has it in sysfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Polling => "Polling",
            Self::Disabled => "Disabled",
            Self::LinkUp => "LinkUp",
        }
    }
}

/// What can be enabled of a width or a speed: bits of what a manager allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enabled {
    /// Bits of widths.
    pub width: u8,
    /// Bits of speeds up to QDR.
    pub speed: u8,
    /// Bits of speeds from FDR on.
    pub extended: u8,
}

/// Key of the subnet's manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ManagerKey {
    /// The key; 0 is none.
    pub key: u64,
    /// How far the key protects: bits of PortInfo.
    pub protect: u8,
    /// Seconds after a violation until the key protects no more; 0 is never.
    pub lease: u16,
}

/// A port of a node.
#[derive(Clone, Debug)]
pub struct Port {
    /// The GUID; that of the node for ports of switches.
    pub guid: u64,
    /// The first half of the GIDs.
    pub gid_prefix: u64,
    /// The base LID; 0 before a manager has assigned one.
    pub lid: u16,
    /// How many low bits of a LID are for paths.
    pub lmc: u8,
    /// The LID of the manager.
    pub sm_lid: u16,
    /// The service level towards the manager.
    pub sm_sl: u8,
    /// What the port can.
    pub capabilities: Capabilities,
    /// The key of the manager.
    pub m_key: ManagerKey,
    /// Widths and speeds that the port can.
    pub supported: LinkSpeed,
    /// Widths and speeds that the manager allows.
    pub enabled: Enabled,
    /// Width and speed of the link.
    pub active: LinkSpeed,
    /// The state of the link.
    pub state: PortState,
    /// The state of the physical layer.
    pub physical: PhysicalState,
    /// Where the link goes when it goes down: 1 sleep, 2 polling.
    pub down_default: u8,
    /// The largest packet that the neighbour takes, as a code.
    pub neighbor_mtu: u8,
    /// The largest packet that the port takes, as a code.
    pub mtu_cap: u8,
    /// Virtual lanes of the port, as a code.
    pub vl_cap: u8,
    /// Virtual lanes in use, as a code.
    pub operational_vls: u8,
    /// Credits of high priority before one of low.
    pub vl_high_limit: u8,
    /// Lifetime at the head of a queue, as a power of two of 4.096 us.
    pub hoq_life: u8,
    /// VLStallCount: after so many packets dropped at the head of a queue in a row, the lane stalls.
    pub vl_stall: u8,
    /// Partition and raw enforcement of a switch's port: four bits.
    pub enforcement: u8,
    /// Thresholds of local errors and overruns.
    pub error_thresholds: u8,
    /// Rate of traps, as a power of two of 4.096 us.
    pub subnet_timeout: u8,
    /// Response time, as a power of two of 4.096 us.
    pub response_time: u8,
    /// Violations of the M_Key, P_Keys and Q_Keys.
    pub violations: [u16; 3],
    /// When the key stops to protect, after a violation.
    pub lease_ends: Option<fabric::Time>,
    /// The keys of the partitions that the port is in.
    pub partitions: PartitionTable,
    /// Lanes of service levels, by the port of arrival; one entry for channel adapters.
    pub lanes: alloc::vec::Vec<[u8; LANES]>,
    /// Arbitration, low and then high: pairs of lane and weight.
    pub arbitration: [[[u8; 2]; ARBITRATION_ENTRIES]; 2],
    /// Counters of performance management.
    pub counters: Counters,
}

/// The prefix of a subnet that has no other (IBTA 4.1.3).
pub const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;
/// The code of an MTU of 4096 bytes.
const MTU_4096: u8 = 5;
/// The code of eight virtual lanes.
const EIGHT_LANES: u8 = 4;

impl Port {
    /// A port without a link, as it is when its node begins.
    pub fn new(guid: u64, supported: LinkSpeed, capabilities: Capabilities, inputs: usize) -> Self {
        let mut port = Self {
            guid,
            gid_prefix: DEFAULT_PREFIX,
            lid: 0,
            lmc: 0,
            sm_lid: 0,
            sm_sl: 0,
            capabilities,
            m_key: ManagerKey::default(),
            supported,
            enabled: Enabled {
                width: 0,
                speed: 0,
                extended: 0,
            },
            active: LinkSpeed {
                width: Width::X4,
                speed: Speed::Sdr,
            },
            state: PortState::Down,
            physical: PhysicalState::Polling,
            down_default: 2,
            neighbor_mtu: MTU_4096,
            mtu_cap: MTU_4096,
            vl_cap: EIGHT_LANES,
            operational_vls: EIGHT_LANES,
            vl_high_limit: 0,
            hoq_life: 0,
            vl_stall: 0,
            enforcement: 0,
            error_thresholds: 0x88,
            subnet_timeout: 18,
            response_time: 16,
            violations: [0; 3],
            lease_ends: None,
            partitions: PartitionTable::default(),
            lanes: alloc::vec![core::array::from_fn(|level| level as u8 % 8); inputs],
            arbitration: [[[0; 2]; ARBITRATION_ENTRIES]; 2],
            counters: Counters::default(),
        };
        port.enabled = port.all_enabled();
        port
    }

    /// Everything that the port supports.
    pub fn all_enabled(&self) -> Enabled {
        Enabled {
            width: self.supported_widths(),
            speed: self.supported_speeds(),
            extended: self.supported_extended(),
        }
    }

    /// Bits of the widths up to the widest.
    pub fn supported_widths(&self) -> u8 {
        let widths = Width::ALL
            .into_iter()
            .filter(|width| *width <= self.supported.width);
        // Ports of two lanes came with HDR; older ones have one or four.
        let old = self.supported.speed < Speed::Hdr;
        widths
            .filter(|width| !(old && *width == Width::X2))
            .fold(0, |bits, width| bits | width.code())
    }

    /// Bits of the speeds up to QDR.
    pub fn supported_speeds(&self) -> u8 {
        self.speeds().fold(0, |bits, speed| {
            bits | if speed.extended_code() | speed.extended_code_2() == 0 {
                speed.code()
            } else {
                0
            }
        })
    }

    /// Bits of the speeds from FDR on.
    pub fn supported_extended(&self) -> u8 {
        self.speeds()
            .fold(0, |bits, speed| bits | speed.extended_code())
    }

    fn speeds(&self) -> impl Iterator<Item = Speed> {
        let fastest = self.supported.speed;
        Speed::ALL.into_iter().filter(move |speed| {
            *speed <= fastest && (*speed != Speed::Fdr10 || fastest == Speed::Fdr10)
        })
    }

    /// Whether a width may be used.
    fn allows_width(&self, width: Width) -> bool {
        self.enabled.width & self.supported_widths() & width.code() != 0
    }

    /// Whether a speed may be used.
    fn allows_speed(&self, speed: Speed) -> bool {
        let named = self.speeds().any(|other| other == speed);
        named
            && match speed {
                Speed::Sdr | Speed::Ddr | Speed::Qdr => self.enabled.speed & speed.code() != 0,
                Speed::Fdr10 => self.enabled.speed & Speed::Qdr.code() != 0,
                // The bits of XDR are elsewhere, and no manager of today writes them.
                Speed::Xdr => true,
                _ => self.enabled.extended & speed.extended_code() != 0,
            }
    }

    /// Width and speed of the link between two ports: the most that both allow. The lowest is what is left
    /// where managers have allowed nothing in common.
    pub fn negotiate(&self, other: &Self) -> LinkSpeed {
        let widths = Width::ALL.into_iter().rev();
        let speeds = Speed::ALL.into_iter().rev();
        LinkSpeed {
            width: widths
                .into_iter()
                .find(|width| self.allows_width(*width) && other.allows_width(*width))
                .unwrap_or(Width::X1),
            speed: speeds
                .into_iter()
                .find(|speed| self.allows_speed(*speed) && other.allows_speed(*speed))
                .unwrap_or(Speed::Sdr),
        }
    }

    /// Whether a LID is one of the port's.
    pub fn has_lid(&self, lid: u16) -> bool {
        self.lid != 0 && lid >> self.lmc == self.lid >> self.lmc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(text: &str) -> Port {
        Port::new(1, LinkSpeed::parse(text).unwrap(), Capabilities::ADAPTER, 1)
    }

    #[test]
    fn a_link_is_as_wide_and_fast_as_both_ends_allow() {
        let speed = |one: &Port, other: &Port| one.negotiate(other).to_string();
        let (qdr, edr, hdr) = (port("4x QDR"), port("4x EDR"), port("4x HDR"));
        assert_eq!(speed(&qdr, &edr), "4x QDR");
        assert_eq!(speed(&edr, &hdr), "4x EDR");
        assert_eq!(speed(&hdr, &hdr), "4x HDR");
        let mut narrow = edr.clone();
        narrow.enabled.width = Width::X1.code();
        narrow.enabled.extended = Speed::Fdr.extended_code();
        assert_eq!(speed(&narrow, &hdr), "1x FDR");
        narrow.enabled.width = 0;
        narrow.enabled.extended = 0;
        narrow.enabled.speed = 0;
        assert_eq!(speed(&narrow, &hdr), "1x SDR");
        let (fdr10, fdr) = (port("4x FDR10"), port("4x FDR"));
        assert_eq!(speed(&fdr10, &fdr10), "4x FDR10");
        assert_eq!(speed(&fdr10, &fdr), "4x QDR");
    }

    use alloc::string::ToString;

    #[test]
    fn lids_of_a_port_are_those_of_its_paths() {
        let mut port = port("4x QDR");
        assert!(!port.has_lid(0));
        port.lid = 8;
        port.lmc = 2;
        assert!(port.has_lid(8) && port.has_lid(11) && !port.has_lid(12) && !port.has_lid(7));
    }
}
