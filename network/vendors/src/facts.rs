//! Facts of a host, each with the line that it comes from. A fact that was not observed is `None`.

use core::fmt;
use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};

use crate::counted_faults::CountedFault;
use crate::intent::Intent;
use crate::outcome::NotUnderstood;
pub use crate::port_drop::{Interfaces, PortDrop};

/// A line of an output or file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A terminal gets escapes in place of control characters.
        let text = self.text.replace('\t', " ");
        write!(f, "{}:{}: {text}", self.file, self.line)
    }
}

/// A value, and the line that it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact<T> {
    /// The value itself.
    pub value: T,
    /// The line that shows it.
    pub seen: Evidence,
}

/// An entry of a GID table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The index in the table of the port.
    pub index: u32,
    /// The GID: an IPv6 address, or an IPv4 address in one.
    pub address: IpAddr,
    /// Whether it is of RoCEv2.
    pub v2: Option<bool>,
}

impl GidEntry {
    /// Whether packets with this address are routed: it is not link-local.
    pub fn is_routable(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => {
                address.segments()[0] & 0xffc0 != 0xfe80 && !address.is_unspecified()
            }
        }
    }
}

/// Speed and width of a PCIe link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcieLink {
    /// The generation: 1 is 2.5 GT/s, 5 is 32 GT/s.
    pub generation: u8,
    /// The number of lanes.
    pub width: u8,
}

impl PcieLink {
    /// Bits per second after line coding, before packet headers, in units of 1 Gb/s.
    pub fn gbps(self) -> f64 {
        let lane = match self.generation {
            1 => 2.0,
            2 => 4.0,
            generation => f64::from(1_u32 << (generation - 3)) * 8.0 * 128.0 / 130.0,
        };
        lane * f64::from(self.width)
    }
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PCIe {}.0 x{} ({:.0} Gb/s)",
            self.generation,
            self.width,
            self.gbps()
        )
    }
}

/// A PCIe device of a host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PcieFacts {
    /// The speed and width that the card supports (`LnkCap`).
    pub capable: Option<Fact<PcieLink>>,
    /// The speed and width that the link trained to (`LnkSta`).
    pub trained: Option<Fact<PcieLink>>,
    /// The largest read request in bytes.
    pub max_read_request: Option<Fact<u32>>,
    /// Whether relaxed ordering is allowed.
    pub relaxed_ordering: Option<Fact<bool>>,
}

/// Bridges between a card and the processor at most: PCI has 256 buses, and no path has all of them.
const DEPTH_MAX: usize = 32;

/// A PCI bridge: a port of the processor, of its chipset, or of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Whether it is a port of the chipset, and not of the processor.
    pub is_chipset: bool,
    /// The bus behind it.
    pub secondary: Option<u8>,
    /// Whether it forwards Alternative Routing-IDs, which more than seven functions behind it need.
    pub ari: Option<Fact<bool>>,
}

/// The bridges of a host, by their addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PciTree {
    pub(crate) bridges: BTreeMap<String, Fact<Bridge>>,
}

/// Domain, bus and the rest of `0000:b3:00.0`.
pub(crate) fn pci_parts(address: &str) -> Option<(&str, u8, &str)> {
    let (domain, rest) = address.split_once(':')?;
    let (bus, place) = rest.split_once(':')?;
    Some((domain, u8::from_str_radix(bus, 16).ok()?, place))
}

impl PciTree {
    /// The bridges from a card up to the processor, the nearest first; none where they were not shown.
    pub fn above(&self, card: &str) -> Vec<(&str, &Fact<Bridge>)> {
        let mut path: Vec<(&str, &Fact<Bridge>)> = Vec::new();
        let mut below = card;
        while path.len() < DEPTH_MAX {
            let Some((domain, bus, _)) = pci_parts(below) else {
                break;
            };
            let is_above = |(address, bridge): &(&String, &Fact<Bridge>)| {
                let own = pci_parts(address);
                let other_bus = own.is_some_and(|own| own.0 == domain && own.1 != bus);
                other_bus && bridge.value.secondary == Some(bus)
            };
            let Some((address, bridge)) = self.bridges.iter().find(is_above) else {
                break;
            };
            path.push((address, bridge));
            below = address;
        }
        path
    }

    /// The port of the chipset that a card is behind, if it is behind one.
    pub fn chipset_port(&self, card: &str) -> Option<(&str, &Fact<Bridge>)> {
        let mut path = self.above(card).into_iter();
        path.find(|(_, bridge)| bridge.value.is_chipset)
    }
}

/// The vendor of a card, whose tools differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CardVendor {
    /// NVIDIA, formerly Mellanox.
    Nvidia,
    /// Broadcom, whose drivers are bnxt_en and bnxt_re.
    Broadcom,
    /// Intel, whose RDMA driver is irdma.
    Intel,
    /// Chelsio, whose drivers are cxgb4 and iw_cxgb4.
    Chelsio,
}

/// Facts of an RDMA adapter's port.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Adapter {
    /// The RDMA device, or the name of the Windows adapter.
    pub device: String,
    /// The network interface.
    pub netdev: Option<Fact<String>>,
    /// The PCI address.
    pub pci: Option<String>,
    /// Whether the port is up.
    pub up: Option<Fact<bool>>,
    /// Speed of the link in Gb/s.
    pub gbps: Option<Fact<u32>>,
    /// The fastest link mode that the adapter has, in Gb/s.
    pub gbps_max: Option<Fact<u32>>,
    /// MTU of the interface.
    pub mtu: Option<Fact<u32>>,
    /// Addresses of the interface.
    pub addresses: Vec<Fact<IpAddr>>,
    /// The GID table; empty entries are left out.
    pub gids: Vec<Fact<GidEntry>>,
    /// The PCIe link.
    pub pcie: PcieFacts,
    /// The NUMA node; -1 where the firmware does not report it.
    pub numa_node: Option<Fact<i32>>,
    /// Whether DSCP is trusted, and PCP otherwise.
    pub trusts_dscp: Option<Fact<bool>>,
    /// Priority by DSCP.
    pub dscp: Option<Fact<[u8; 64]>>,
    /// Priorities with PFC, one bit each.
    pub pfc: Option<Fact<u8>>,
    /// Receive buffer by priority.
    pub buffer_of_priority: Option<Fact<[u8; 8]>>,
    /// Percent of bandwidth by traffic class; `None` for classes without a share.
    pub shares: BTreeMap<u8, Fact<Option<u8>>>,
    /// Traffic class by priority.
    pub class_of_priority: BTreeMap<u8, u8>,
    /// Whether the operating system sets DCB, and not the firmware or the switch.
    pub dcbx_by_host: Option<Fact<bool>>,
    /// 802.3x pause: received or sent.
    pub global_pause: Option<Fact<bool>>,
    /// The ToS byte of connections.
    pub tos: Option<Fact<u8>>,
    /// Whether connections use RoCEv2 by default.
    pub roce_v2: Option<Fact<bool>>,
    /// DSCP of notifications.
    pub cnp_dscp: Option<Fact<u8>>,
    /// Priority of notifications.
    pub cnp_priority: Option<Fact<u8>>,
    /// DCQCN as notification point, by priority.
    pub notifies: BTreeMap<u8, Fact<bool>>,
    /// DCQCN as reaction point, by priority.
    pub reacts: BTreeMap<u8, Fact<bool>>,
    /// Version and PSID of the firmware.
    pub psid: Option<Fact<String>>,
    /// The most virtual functions that the card offers (`sriov_totalvfs`).
    pub functions_max: Option<Fact<u32>>,
    /// Whether the port above the card forwards Alternative Routing-IDs (`ari_enabled`).
    pub ari: Option<Fact<bool>>,
    /// Other PCI devices in its IOMMU group, with their classes.
    pub group: Vec<Fact<(String, u32)>>,
    /// Virtual functions that are made (`sriov_numvfs`).
    pub functions: Option<Fact<u32>>,
    /// The type of the link: Ethernet or InfiniBand.
    pub ethernet: Option<Fact<bool>>,
    /// Whether the device speaks iWARP and not RoCE: its node type is RNIC.
    pub iwarp: Option<Fact<bool>>,
    /// The traffic class that sysfs forces on every queue pair; it wins over `tos`.
    pub forced_tos: Option<Fact<u8>>,
    /// The driver of the device.
    pub driver: Option<String>,
    /// Vendor and device of PCI.
    pub card: Option<Fact<(u16, u16)>>,
    /// Whether `mlnx_qos` has shown the adapter.
    pub has_mlnx_qos: bool,
    /// Whether counters are those since an earlier snapshot, and not since the driver was loaded.
    pub is_since_before: bool,
    /// Counters that are less than in an earlier snapshot: they wrapped, or were reset.
    pub counters_fell: Vec<String>,
    /// Counters of faults that are not zero, by name.
    pub counted: BTreeMap<String, (CountedFault, Fact<u64>)>,
    /// Bytes that it sent, by the counter that counts them.
    pub sent: BTreeMap<String, Fact<u64>>,
    /// Windows: whether QoS of the adapter is enabled.
    pub qos_enabled: Option<Fact<bool>>,
    /// Windows: whether RDMA of the adapter is enabled.
    pub rdma_enabled: Option<Fact<bool>>,
    /// Windows: whether RDMA that is enabled is in operation.
    pub rdma_operational: Option<Fact<bool>>,
    /// Windows: the value of `*NetworkDirectTechnology`: iWARP, InfiniBand, RoCEv1, RoCEv2 from 1 to 4.
    pub technology: Option<Fact<u32>>,
    /// Windows: whether the driver offers NetworkDirect (`*NetworkDirect`).
    pub offers_rdma: Option<Fact<bool>>,
    /// Windows: whether DCB of this adapter comes from the switch; it overrules the setting of the host.
    pub willing: Option<Fact<bool>>,
    /// Windows: priorities with PFC that the link partner offers by DCBX.
    pub remote_pfc: Option<Fact<u8>>,
    /// Windows: the priority of SMB Direct in operation; `None` inside where it has none.
    pub smb_class: Option<Fact<Option<u8>>>,
}

impl Adapter {
    /// What says that the device speaks iWARP: its node type, or the technology of NetworkDirect.
    pub fn iwarp_seen(&self) -> Option<&Evidence> {
        let by_type = self.iwarp.as_ref().filter(|iwarp| iwarp.value);
        let by_technology = self.technology.as_ref().filter(|own| own.value == 1);
        by_type
            .map(|iwarp| &iwarp.seen)
            .or(by_technology.map(|own| &own.seen))
    }

    /// Whether the link or the technology of NetworkDirect is InfiniBand.
    pub fn is_infiniband(&self) -> bool {
        let by_technology = self.technology.as_ref().map(|own| own.value == 2);
        let by_link = self.ethernet.as_ref().map(|ethernet| !ethernet.value);
        by_link.or(by_technology) == Some(true)
    }

    /// The name of the card, if its PCI identifiers are known.
    pub fn card_name(&self) -> Option<&'static str> {
        let (vendor, device) = self.card.as_ref()?.value;
        crate::card_names::name(vendor, device)
    }

    /// The vendor, by the driver or the name of the device, else by the PCI identifier.
    pub fn vendor(&self) -> Option<CardVendor> {
        let driver = self.driver.as_deref().unwrap_or(&self.device);
        let begins = |names: &[&str]| names.iter().any(|name| driver.starts_with(name));
        let pci = self.card.as_ref().map(|card| card.value.0);
        if self.is_nvidia() || pci == Some(0x15b3) {
            Some(CardVendor::Nvidia)
        } else if begins(&["bnxt"]) || pci == Some(0x14e4) {
            Some(CardVendor::Broadcom)
        } else if begins(&["irdma", "ice", "i40iw", "i40e"]) || pci == Some(0x8086) {
            Some(CardVendor::Intel)
        } else if begins(&["cxgb", "iw_cxgb"]) || pci == Some(0x1425) {
            Some(CardVendor::Chelsio)
        } else {
            None
        }
    }

    /// Whether it is one of NVIDIA's, so that their tools work with it.
    pub fn is_nvidia(&self) -> bool {
        let driver = self.driver.as_deref().unwrap_or(&self.device);
        self.has_mlnx_qos || driver.starts_with("mlx")
    }

    /// The fastest link mode that was shown, of this adapter.
    pub(crate) fn may_run_at(&mut self, gbps: Fact<u32>) {
        if self
            .gbps_max
            .as_ref()
            .is_none_or(|other| other.value < gbps.value)
        {
            self.gbps_max = Some(gbps);
        }
    }
}

/// A setting of a card's firmware.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirmwareSetting {
    /// The value now, where the tool shows it (`mlxconfig -e query`).
    pub current: Option<String>,
    /// The value after the next reset.
    pub next: String,
}

/// A card as tools of its firmware show it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CardFacts {
    /// The device of the tool: `mt4121_pciconf0`, a PCI address or an RDMA device.
    pub name: String,
    /// The PCI address.
    pub pci: Option<String>,
    /// Version of the firmware. Its first number is of the chip: 16 of ConnectX-5, 22 of ConnectX-6 Dx.
    pub version: Option<Fact<String>>,
    /// PSID of the firmware.
    pub psid: Option<Fact<String>>,
    /// Whether the card takes signed images of its own PSID only.
    pub secure: Option<Fact<bool>>,
    /// Settings of the firmware by their names.
    pub settings: BTreeMap<String, Fact<FirmwareSetting>>,
    /// Whether RoCE takes packets in any order (`adaptive_routing_forced_en` of the register ROCE_ACCL).
    pub out_of_order: Option<Fact<bool>>,
    /// What the tool recommends for a link that does not work.
    pub trouble: Option<Fact<String>>,
}

/// What a driver wrote into the kernel's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvent {
    /// A cable was taken out, or was not there.
    Unplugged,
    /// A cable was put in.
    Plugged,
    /// The slot gives the card less power than it needs.
    Power,
    /// The firmware of the card has stopped.
    Health,
    /// Virtual functions have no room in the memory window of the port above the card.
    NoMemorySpace,
    /// Virtual functions have no bus number.
    NoBusNumber,
}

/// The link of an adapter of Windows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowsLink {
    /// Whether the link is up.
    pub up: Option<Fact<bool>>,
    /// Speed of the link in Gb/s.
    pub gbps: Option<Fact<u32>>,
}

/// Facts of SMB and DCB on Windows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowsFacts {
    /// The edition: `Microsoft Windows Server 2022 Standard`.
    pub edition: Option<Fact<String>>,
    /// Whether DCB comes from the switch.
    pub willing: Option<Fact<bool>>,
    /// Priority of the policy for SMB Direct; `None` inside where there is no such policy.
    pub smb_policy: Option<Fact<Option<u8>>>,
    /// Priorities with PFC by the host's own settings, one bit each, which count where it is not willing.
    pub own_pfc: Option<Fact<u8>>,
    /// Traffic classes by the host's own settings.
    pub classes: Vec<Fact<WindowsClass>>,
    /// Interfaces as SMB sees them: the name, and whether it is capable of RDMA.
    pub interfaces: Vec<Fact<(String, bool)>>,
    /// Connections of SMB: the server, and whether the client's end is capable of RDMA.
    pub connections: Vec<Fact<(String, bool)>>,
    /// Whether multichannel is on.
    pub multichannel: Option<Fact<bool>>,
    /// Whether SMB encrypts all data.
    pub encrypts: Option<Fact<bool>>,
    /// Whether SMB signs all data.
    pub signs: Option<Fact<bool>>,
    /// The feature SMB Direct.
    pub smb_direct: Option<Fact<Feature>>,
    /// Whether NetworkDirect is on, for all adapters.
    pub network_direct: Option<Fact<bool>>,
    /// Whether RDMA may pass between subnets.
    pub across_subnets: Option<Fact<bool>>,
    /// Interfaces that the SMB server offers: the index or name, and whether it is capable of RDMA.
    pub server_interfaces: Vec<Fact<(String, bool)>>,
    /// The newest dialect of SMB that the client takes, as the protocol's revision.
    pub dialect_max: Option<Fact<u16>>,
    /// Listeners and connections of NetworkDirect; empty where a list of them has none.
    pub endpoints: Option<Fact<Vec<Endpoint>>>,
    /// Events of SMB's logs that tell of RDMA: how often, and the first line of each.
    pub events: BTreeMap<SmbEvent, (u32, Fact<()>)>,
    /// Prefixes of the host's own addresses.
    pub prefixes: Vec<Fact<(IpAddr, u8)>>,
    /// Addresses of both ends of SMB's connections.
    pub ends: Vec<Fact<(IpAddr, IpAddr)>>,
}

/// A traffic class of Windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowsClass {
    /// The name: `[Default]` is that of the priorities that no other one has.
    pub name: String,
    /// Its share of the link in percent; none where it is strict.
    pub percent: Option<u8>,
    /// Its priorities, one bit each.
    pub priorities: u8,
}

/// The state of a feature of Windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// It is on.
    Enabled,
    /// It is off.
    Disabled,
    /// It is on after the next start.
    Pending,
}

/// A listener or a connection of NetworkDirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether the endpoint waits for connections.
    pub listens: bool,
    /// The port of SMB Direct (445, or 5445 with iWARP) is at this end or at the other.
    pub is_smb: bool,
}

/// An event of SMB by the number that its provider gives it; texts are in the system's language.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SmbEvent {
    /// Of the provider Microsoft-Windows-SMBClient.
    Client(u32),
    /// Of the provider Microsoft-Windows-SMBDirect.
    Direct(u32),
}

/// Facts of virtual functions on FreeBSD.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FreeBsdFacts {
    /// Whether `pciconf` was seen.
    pub has_devices: bool,
    /// PCI devices as `pciconf -l` lists them.
    pub devices: Vec<Fact<BsdDevice>>,
    /// Modules of the kernel that are loaded, where the list was seen.
    pub modules: Option<Fact<Vec<String>>>,
    /// Adapters, and whether each offers functions (`iovctl -S`, `SR-IOV ready`).
    pub offers: Vec<Fact<(String, bool)>>,
    /// Functions that a file of `iovctl` makes, by adapter.
    pub wanted: Vec<Fact<(String, u16)>>,
    /// Devices that guests are given: bus, slot and function.
    pub passed: Vec<Fact<[u8; 3]>>,
}

/// A PCI device as FreeBSD lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BsdDevice {
    /// Driver and unit: `ixl0`, or `none6` where there is no driver.
    pub name: String,
    /// Bus, slot and function.
    pub place: [u8; 3],
    /// The vendor of PCI.
    pub vendor: u16,
    /// Whether it is a network card.
    pub is_network: bool,
}

/// Facts of RDMA on ESXi.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EsxiFacts {
    /// RDMA devices, and whether each is active.
    pub devices: Vec<Fact<(String, bool)>>,
    /// Devices, and whether each has RoCEv2.
    pub protocols: Vec<Fact<(String, bool)>>,
    /// Devices that a vmkernel port is bound to, where the list was seen.
    pub bound: Option<Fact<Vec<String>>>,
    /// DCB of network adapters.
    pub dcb: Vec<Fact<EsxiDcb>>,
}

/// DCB of a network adapter on ESXi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EsxiDcb {
    /// The network adapter: `vmnic3`.
    pub nic: String,
    /// Priorities with PFC, one bit each.
    pub pfc: u8,
}

/// The plan of a fabric file for a host and its adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedHost {
    /// The name of the host.
    pub name: String,
    /// Speed of the adapter in Gb/s, where the file limits it.
    pub rate: Option<u32>,
    /// DSCP of data.
    pub dscp: u8,
    /// Priority code point of data, where frames are tagged.
    pub pcp: Option<u8>,
    /// Whether data takes part in ECN.
    pub ecn: bool,
    /// Whether queue pairs run DCQCN.
    pub dcqcn: bool,
    /// Priority of data within the adapter.
    pub priority: u8,
    /// Priorities with PFC, one bit each.
    pub pfc: u8,
    /// DSCP of notifications.
    pub cnp_dscp: u8,
    /// Priority of notifications.
    pub cnp_priority: u8,
    /// Path MTU of RoCE.
    pub mtu: u32,
    /// Whether packets are placed in whatever order they arrive.
    pub out_of_order: bool,
    /// How many virtual functions the adapter is to have.
    pub functions: u32,
    /// Percent of bandwidth by class: those of the switch at the other end.
    pub shares: [u8; 8],
    /// The planned settings of the first switch that the host is attached to.
    pub switch: Intent,
    /// Its links with switches.
    pub links: Vec<PlannedLink>,
}

impl PlannedHost {
    /// Speed of the slowest link, or of the adapter if that is less.
    pub fn gbps(&self) -> Option<u32> {
        let slowest = self.links.iter().map(|link| link.gbps).min();
        slowest.map(|gbps| self.rate.map_or(gbps, |rate| rate.min(gbps)).clamp(1, 800))
    }
}

/// A link of a host or switch with a switch, in a fabric file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedLink {
    /// The number of the own port.
    pub own_port: u16,
    /// The switch at the other end.
    pub switch: String,
    /// The number of its port.
    pub port: u16,
    /// Speed of the link in Gb/s.
    pub gbps: u32,
}

/// A share that is mounted by SMB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmbMount {
    /// The share: `//server/data`.
    pub share: String,
    /// Whether the mount is over RDMA.
    pub rdma: bool,
}

/// Facts of a host.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct HostFacts {
    /// The name of the snapshot, or `this host`.
    pub name: String,
    /// The RDMA adapters of the host.
    pub adapters: Vec<Adapter>,
    /// Windows: adapters without RDMA, beside others whose RDMA is on. No rule judges them.
    pub adapters_without_rdma: Vec<Adapter>,
    /// PCIe bandwidth in Gb/s to which the kernel found a device limited, from its log.
    pub pcie_limited: Vec<Fact<f64>>,
    /// Cards as tools of their firmware show them.
    pub cards: Vec<CardFacts>,
    /// Alarms of modules that are on: the interface, and the alarm.
    pub module_alarms: Vec<Fact<(String, String)>>,
    /// What drivers wrote into the kernel's log: the PCI address, and what it tells.
    pub kernel_events: Vec<Fact<(String, KernelEvent)>>,
    /// Modules of the kernel that were built for other RDMA modules than those that are loaded.
    pub odd_modules: Vec<Fact<String>>,
    /// Rules of the firewall that drop RoCEv2.
    pub dropped_4791: Vec<Fact<PortDrop>>,
    /// Whether a rule set of the firewall was seen.
    pub firewall_seen: bool,
    /// Whether the kernel was built with SMB Direct in its client.
    pub kernel_smb_direct: Option<Fact<bool>>,
    /// Shares that are mounted by SMB.
    pub smb_mounts: Vec<Fact<SmbMount>>,
    /// Software RDMA devices (rxe, siw), and the interfaces that they are on.
    pub software_devices: Vec<Fact<String>>,
    /// GPUs, with their NUMA nodes where known.
    pub gpus: Vec<Fact<Option<i32>>>,
    /// PCI bridges that redirect peer-to-peer requests (ACS).
    pub acs_redirects: Vec<Fact<()>>,
    /// PCI bridges, as `lspci -v` shows them.
    pub bridges: PciTree,
    /// How many groups of devices the IOMMU has; it is off where there are none.
    pub iommu_groups: Option<Fact<u32>>,
    /// Whether the IOMMU translates every access of devices.
    pub iommu_translates: Option<Fact<bool>>,
    /// `NCCL_IB_TC` and the like: variable and traffic class, which is DSCP and ECN as in a header.
    pub class_variables: Vec<Fact<(String, u8)>>,
    /// `NCCL_IB_GID_INDEX` and the like: variable and index.
    pub gid_variables: Vec<Fact<(String, u32)>>,
    /// Whether a service or script restores DCB after a reboot.
    pub persistent: Option<Fact<bool>>,
    /// Facts that only FreeBSD hosts have.
    pub freebsd: Option<FreeBsdFacts>,
    /// Facts that only ESXi hosts have.
    pub esxi: Option<EsxiFacts>,
    /// Facts that only Windows hosts have.
    pub windows: Option<WindowsFacts>,
    /// The name of the earlier snapshot that counters are compared with.
    pub before: Option<String>,
    /// The host's plan, where a fabric file has one.
    pub planned: Option<PlannedHost>,
    /// Lines that were not understood, and commands whose outputs are not read.
    pub left: Vec<NotUnderstood>,
    pub(crate) index: AdapterIndex,
    /// Windows: state and speed of the links of all adapters, until those of RDMA are known.
    pub(crate) links_of_windows: HashMap<String, WindowsLink>,
}

impl HostFacts {
    /// Takes counters from those of an earlier snapshot of the same host. Adapters that the earlier one does
    /// not have keep theirs.
    pub fn count_from(&mut self, before: &Self) {
        self.before = Some(before.name.clone());
        for adapter in &mut self.adapters {
            let old = before
                .adapters
                .iter()
                .find(|old| old.device == adapter.device);
            let Some(old) = old else { continue };
            adapter.is_since_before = true;
            for (name, (_, fact)) in &mut adapter.counted {
                let earlier = old.counted.get(name).map_or(0, |(_, fact)| fact.value);
                match fact.value.checked_sub(earlier) {
                    Some(grown) => fact.value = grown,
                    // mlx5 counts in 32 bits: the counter wrapped, or the driver was loaded again.
                    None => adapter.counters_fell.push(name.clone()),
                }
            }
            adapter.counted.retain(|_, (_, fact)| fact.value > 0);
            // What fell, or was not there, does not say how much was sent since.
            adapter.sent.retain(|name, fact| {
                let earlier = old.sent.get(name).map(|fact| fact.value);
                let grown = earlier.and_then(|earlier| fact.value.checked_sub(earlier));
                fact.value = grown.unwrap_or(0);
                grown.is_some()
            });
        }
    }

    /// The adapter of an RDMA device, made if it is new.
    pub(crate) fn device(&mut self, name: &str) -> &mut Adapter {
        let index = match self.index.devices.get(name) {
            Some(index) => *index,
            None => {
                self.index
                    .devices
                    .insert(name.to_owned(), self.adapters.len());
                self.adapters.push(Adapter {
                    device: name.to_owned(),
                    ..Adapter::default()
                });
                self.adapters.len() - 1
            }
        };
        &mut self.adapters[index]
    }

    /// Puts the interface and the PCI address of a device into the index. Of several devices with one of them
    /// the first counts.
    pub(crate) fn index_names(&mut self, device: &str) {
        let Some(number) = self.index.devices.get(device).copied() else {
            return;
        };
        let own = &self.adapters[number];
        if let Some(netdev) = &own.netdev {
            let entry = self.index.netdevs.entry(netdev.value.clone());
            entry.or_insert(number);
        }
        if let Some(pci) = &own.pci {
            self.index.pcis.entry(pci.clone()).or_insert(number);
        }
    }

    /// The adapter at a PCI address.
    pub(crate) fn adapter_at(&mut self, pci: &str) -> Option<&mut Adapter> {
        let number = *self.index.pcis.get(pci)?;
        self.adapters.get_mut(number)
    }

    /// The device of a port: that of the device for its first port, and one of its own for the others.
    pub(crate) fn port_name(device: &str, port: &str) -> String {
        match port {
            "1" => device.to_owned(),
            port => format!("{device}/{port}"),
        }
    }

    /// A name like this one among the interfaces of adapters: in other letters, without its VLAN, or with a
    /// slip in its letters. Another number is another interface.
    pub(crate) fn interface_like(&self, name: &str) -> Option<&str> {
        let known = || self.index.netdevs.keys().map(String::as_str);
        let digits = |name: &str| -> String { name.chars().filter(char::is_ascii_digit).collect() };
        let same = |own: &&str| {
            own.eq_ignore_ascii_case(name) || name.split(['.', ':', '@']).next() == Some(*own)
        };
        let near = || known().filter(|own| digits(own) == digits(name));
        known()
            .find(same)
            .or_else(|| crate::text::nearest(name, near()))
    }

    /// The adapter of an interface.
    pub(crate) fn adapter_of(&mut self, interface: &str) -> Option<&mut Adapter> {
        let number = *self.index.netdevs.get(interface)?;
        self.adapters.get_mut(number)
    }
}

/// Numbers of adapters by their names, so that a file with many of them is read in linear time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AdapterIndex {
    devices: HashMap<String, usize>,
    netdevs: HashMap<String, usize>,
    pcis: HashMap<String, usize>,
}
