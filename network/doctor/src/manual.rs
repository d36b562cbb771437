//! References of each rule: its section in the manual, and the specification of the setting.

/// A rule, and its references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name of the rule.
    pub rule: &'static str,
    /// Address of the rule's section in the manual.
    pub link: &'static str,
    /// The specification of the setting that it examines.
    pub specification: &'static str,
}

macro_rules! entries {
    ($($rule:literal: $specification:expr,)*) => {
        /// All rules, in the order of the manual.
        pub const RULES: &[Entry] = &[$(Entry {
            rule: $rule,
            link: concat!("docs/reference/rules.md#", $rule),
            specification: $specification,
        },)*];
    };
}

const PFC: &str = "IEEE 802.1Q-2018, clause 36 (priority-based flow control)";
const ETS: &str = "IEEE 802.1Q-2018, clause 37 (enhanced transmission selection)";
const DCBX: &str = "IEEE 802.1Q-2018, clause 38 and annex D.2 (DCBX)";
const DSCP: &str = "RFC 2474 (the DS field)";
const ECN: &str = "RFC 3168, section 5 (ECN in IP)";
const GIDS: &str = "InfiniBand Architecture Specification, A17.4.1.1 (GIDs of RoCEv2)";
const ORDER: &str = "InfiniBand Architecture Specification, 9.7.1 (packet sequence numbers)";
const FRAME: &str = "IEEE 802.3-2018, 3.2.7 (MAC client data)";
const CNP: &str =
    "InfiniBand Architecture Specification, A17.9.3 (congestion notification packets)";
const DCQCN: &str =
    "Zhu et al., \"Congestion Control for Large-Scale RDMA Deployments\" (DCQCN), SIGCOMM 2015";
const SMB_DIRECT: &str = "[MS-SMBD] (SMB Direct)";
const MULTICHANNEL: &str = "[MS-SMB2], 2.2.32.5 (network interfaces of a server)";
const LINK_STATUS: &str = "PCI Express Base Specification 5.0, 7.5.3.8 (link status)";
const NEGOTIATION: &str = "IEEE 802.3-2018, clause 73 (auto-negotiation)";
const PORT: &str = "InfiniBand Architecture Specification, A17.3 (UDP port 4791)";
const HEADROOM: &str = "IEEE 802.1Q-2018, annex N (buffer requirements of PFC)";
const TRUST: &str = "IEEE 802.1Q-2018, 6.9 (priority of a frame)";
const PORTS: &str = "InfiniBand Architecture Specification, 14.2.5.6 (PortInfo)";
const COUNTERS: &str = "InfiniBand Architecture Specification, 16.1.3.5 (PortCounters)";
const SR_IOV: &str =
    "PCI Express Base Specification 5.0, chapter 9 (single root I/O virtualization)";
const MLX5_EVENTS: &str = "Linux, drivers/net/ethernet/mellanox/mlx5/core/events.c";
const ATS: &str = "PCI Express Base Specification 5.0, chapter 10 (address translation services)";

entries! {
    "pcie-speed": LINK_STATUS,
    "pcie-width": LINK_STATUS,
    "pcie-below-link": "PCI Express Base Specification 5.0, 7.5.3.6 (link capabilities)",
    "pcie-kernel-log": LINK_STATUS,
    "pcie-read-request": "PCI Express Base Specification 5.0, 7.5.3.4 (device control)",
    "pcie-relaxed-ordering": "PCI Express Base Specification 5.0, 2.4.1 (transaction ordering rules)",
    "numa": "ACPI 6.5, 5.2.16 (system resource affinity table)",
    "acs": "PCI Express Base Specification 5.0, 6.12 (access control services)",
    "iommu": ATS,
    "firmware-psid": "mstflint(1): query",
    "firmware-link-type": "NVIDIA Firmware Tools (MFT): mlxconfig, LINK_TYPE",
    "firmware-pending": "NVIDIA Firmware Tools (MFT): mlxconfig, settings of the next boot",
    "firmware-functions": SR_IOV,
    "firmware-order": "NVIDIA ConnectX-6 firmware release notes 20.35.2000, known issue 3209624",
    "link-trouble": "NVIDIA Firmware Tools (MFT): mlxlink, troubleshooting",
    "module-alarm": "SFF-8636 (alarms of modules)",
    "kernel-cable": MLX5_EVENTS,
    "kernel-power": MLX5_EVENTS,
    "kernel-health": "Linux, drivers/net/ethernet/mellanox/mlx5/core/health.c",
    "kernel-modules": "Linux, Documentation/kbuild/modules.rst (module versioning)",
    "sriov-memory": SR_IOV,
    "sriov-bus": SR_IOV,
    "sriov-iommu": SR_IOV,
    "sriov-offer": SR_IOV,
    "sriov-group": "PCI Express Base Specification 5.0, 6.12 (access control services)",
    "sriov-slot": SR_IOV,
    "sriov-ari": "PCI Express Base Specification 5.0, 6.13 (alternative routing-ID interpretation)",
    "link-down": NEGOTIATION,
    "link-speed": NEGOTIATION,
    "gid-empty": GIDS,
    "gid-index": GIDS,
    "gid-address": GIDS,
    "counted-losses": "InfiniBand Architecture Specification, 9.7.5.1 (acknowledgements)",
    "counted-discards": PFC,
    "counted-damage": FRAME,
    "counted-retries": "InfiniBand Architecture Specification, 11.6.2 (completion status)",
    "counted-oversize": FRAME,
    "counted-ignored": DCQCN,
    "counted-storm": PFC,
    "uneven-ports": "RFC 2992 (analysis of an equal-cost multi-path algorithm)",
    "mtu": FRAME,
    "roce-v1": "InfiniBand Architecture Specification, annex A16 (RoCE)",
    "firewall": PORT,
    "software-device": "rdma-link(8)",
    "tos-zero": DSCP,
    "tos-no-ect": ECN,
    "trust": TRUST,
    "dscp-map": DSCP,
    "pfc-off": PFC,
    "pfc-priority": PFC,
    "pfc-all": PFC,
    "receive-buffer": PFC,
    "global-pause": "IEEE 802.3-2018, annex 31B (PAUSE)",
    "runtime-only": "dcb(8)",
    "cnp-dscp": CNP,
    "cnp-priority": CNP,
    "ecn-notification-point": DCQCN,
    "ecn-reaction-point": DCQCN,
    "ets-share": ETS,
    "smb-kernel": SMB_DIRECT,
    "smb-mount": SMB_DIRECT,
    "willing": DCBX,
    "adapter-qos": "IEEE 802.1Q-2018, clauses 36 to 38",
    "windows-pfc": PFC,
    "smb-policy": ETS,
    "smb-class": ETS,
    "smb-edition": SMB_DIRECT,
    "rdma-disabled": SMB_DIRECT,
    "rdma-global": SMB_DIRECT,
    "rdma-subnets": SMB_DIRECT,
    "rdma-technology": GIDS,
    "smb-feature": SMB_DIRECT,
    "smb-interface": MULTICHANNEL,
    "smb-connection": MULTICHANNEL,
    "smb-listener": SMB_DIRECT,
    "smb-event": SMB_DIRECT,
    "smb-dialect": "[MS-SMB2], 2.2.3 (dialects)",
    "smb-speeds": "Microsoft, SMB Multichannel: which adapters are used",
    "smb-multichannel": MULTICHANNEL,
    "smb-encryption": "[MS-SMB2], 3.1.4 (signing and encryption)",
    "esxi-device": NEGOTIATION,
    "esxi-vmknic": PORT,
    "esxi-protocol": GIDS,
    "esxi-pfc": PFC,
    "bsd-module": "FreeBSD, loader.conf(5)",
    "bsd-driver": SR_IOV,
    "bsd-functions": "FreeBSD, iovctl(8)",
    "bsd-passthru": "FreeBSD, bhyve(8): PCI passthrough",
    "switch-dscp-map": DSCP,
    "switch-trust": TRUST,
    "switch-pfc-off": PFC,
    "switch-pfc-receive": PFC,
    "switch-ecn-off": ECN,
    "switch-cnp-class": CNP,
    "switch-global-pause": "IEEE 802.3-2018, annex 31B (PAUSE)",
    "switch-mtu": FRAME,
    "switch-headroom": HEADROOM,
    "switch-memory": "SONiC, sonic-yang-models: sonic-buffer-pool",
    "switch-routing": "MikroTik, \"L3 Hardware Offloading\"",
    "switch-version": "MikroTik, RouterOS changelog: what is new in 7.15",
    "switch-lanes": "MikroTik, \"Quality of Service\": QSFP ports",
    "shown-pfc": PFC,
    "shown-dscp": DSCP,
    "shown-ecn": ECN,
    "shown-drops": PFC,
    "shown-storm": PFC,
    "shown-mtu": FRAME,
    "shown-paths": ORDER,
    "pair-pfc": PFC,
    "pair-map": PFC,
    "pair-mtu": FRAME,
    "spray-order": ORDER,
    "link-pfc": PFC,
    "fabric-map": DSCP,
    "fabric-pfc": PFC,
    "fabric-ecn": ECN,
    "fabric-queues": ETS,
    "fabric-buffers": HEADROOM,
    "fabric-dcbx": DCBX,
    "fabric-mtu": FRAME,
    "fabric-paths": ORDER,
    "host-rate": NEGOTIATION,
    "host-mtu": FRAME,
    "host-dscp": DSCP,
    "host-map": DSCP,
    "host-pfc": PFC,
    "host-ecn": ECN,
    "host-cnp": CNP,
    "host-shares": ETS,
    "host-functions": SR_IOV,
    "host-order": ORDER,
    "probe-host-down": "RFC 792 (ICMP)",
    "probe-port-blocked": PORT,
    "probe-no-stack": PORT,
    "probe-mtu": FRAME,
    "probe-ecn-bleached": ECN,
    "probe-dscp-rewritten": DSCP,
    "probe-lossy-class": PFC,
    "probe-pfc-one-end": PFC,
    "probe-share": ETS,
    "probe-slow-host": LINK_STATUS,
    "ib-no-manager": "InfiniBand Architecture Specification, 14.4 (subnet manager)",
    "ib-init": "InfiniBand Architecture Specification, 7.2.7 (states of a link)",
    "ib-speed": PORTS,
    "ib-width": PORTS,
    "ib-errors": COUNTERS,
    "ib-congestion": COUNTERS,
    "ib-unbalanced": "Leiserson, \"Fat-Trees\", IEEE Transactions on Computers 1985",
    "ib-routing-engine": "opensm(8), --routing_engine",
}

fn entry(rule: &str) -> Option<&'static Entry> {
    RULES.iter().find(|entry| entry.rule == rule)
}

/// The section of a rule in the manual.
pub(crate) fn link(rule: &str) -> &'static str {
    entry(rule).map_or("docs/reference/rules.md", |entry| entry.link)
}

/// The specification of a rule; empty for a rule that is not in the manual.
pub(crate) fn specification(rule: &str) -> &'static str {
    entry(rule).map_or("", |entry| entry.specification)
}
