//! Hosts with one planted fault each, and healthy hosts. Each is derived from a fixture in `tests/hosts`,
//! which
//! names the published outputs that it is made of, by replacing text.

use std::fs;
use std::path::PathBuf;

use doctor::{Consequence, Marks, check};
use vendors::read_host;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/hosts")
        .join(name);
    fs::read_to_string(path).expect("the fixture is there")
}

/// A fixture with replacements; each must change something.
fn derived(name: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(fixture(name), |text, (from, to)| {
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "{name} has no {from:?}");
        changed
    })
}

/// The marks that the inputs have.
const MARKS: Marks = Marks {
    dscp: Some(26),
    cnp: Some(48),
};

type Host = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The rule that must find it, the fixture, and the replacements.
const FAULTS: &[Host] = &[
    (
        "pcie-width",
        "mlx5.txt",
        &[(
            "Speed 16GT/s (ok), Width x16 (ok)",
            "Speed 16GT/s (ok), Width x2 (downgraded)",
        )],
    ),
    (
        "pcie-speed",
        "mlx5.txt",
        &[(
            "Speed 16GT/s (ok), Width x16 (ok)",
            "Speed 2.5GT/s (downgraded), Width x8 (downgraded)",
        )],
    ),
    (
        "pcie-speed",
        "gpu.txt",
        &[("current_link_speed: 32.0", "current_link_speed: 8.0")],
    ),
    (
        "pcie-below-link",
        "mlx5.txt",
        &[
            (
                "Speed 16GT/s, Width x16, ASPM",
                "Speed 8GT/s, Width x8, ASPM",
            ),
            (
                "Speed 16GT/s (ok), Width x16 (ok)",
                "Speed 8GT/s (ok), Width x8 (ok)",
            ),
        ],
    ),
    (
        "pcie-kernel-log",
        "mlx5.txt",
        &[
            ("LnkCap:", "LnkCap is hidden:"),
            ("LnkSta:", "LnkSta is hidden:"),
            (
                "252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
                "16.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x8 link at 0000:b2:00.0 \
                    (capable of 252.048 Gb/s)",
            ),
        ],
    ),
    (
        "pcie-read-request",
        "mlx5.txt",
        &[("MaxReadReq 4096", "MaxReadReq 128")],
    ),
    (
        "pcie-relaxed-ordering",
        "mlx5.txt",
        &[("RlxdOrd+", "RlxdOrd-")],
    ),
    ("numa", "gpu.txt", &[("\tNUMA node: 0", "\tNUMA node: 1")]),
    (
        "acs",
        "gpu.txt",
        &[(
            "SrcValid- TransBlk- ReqRedir-",
            "SrcValid+ TransBlk- ReqRedir+",
        )],
    ),
    ("iommu", "gpu.txt", &[("iommu=pt ", "")]),
    (
        "firmware-psid",
        "gpu.txt",
        &[(
            "mlx5_1/board_id: MT_0000000838",
            "mlx5_1/board_id: DEL0000000041",
        )],
    ),
    (
        "link-down",
        "mlx5.txt",
        &[("state: 4: ACTIVE", "state: 1: DOWN")],
    ),
    (
        "link-speed",
        "mlx5.txt",
        &[
            ("rate: 100 Gb/sec (4X EDR)", "rate: 25 Gb/sec (1X EDR)"),
            ("Speed: 100000Mb/s", "Speed: 25000Mb/s"),
        ],
    ),
    (
        "gid-empty",
        "mlx5.txt",
        &[(
            "0000:0000:0000:0000:0000:ffff:c0a8:0684\t192.168.6.132  ",
            "0000:0000:0000:0000:0000:0000:0000:0000\t\t",
        )],
    ),
    (
        "gid-index",
        "mlx5.txt",
        &[("NCCL_IB_GID_INDEX=3", "NCCL_IB_GID_INDEX=2")],
    ),
    (
        "gid-index",
        "mlx5.txt",
        &[("NCCL_IB_GID_INDEX=3", "UCX_IB_GID_INDEX=7")],
    ),
    (
        "gid-address",
        "mlx5.txt",
        &[("inet 192.168.6.132/24", "inet 10.244.3.17/24")],
    ),
    (
        "mtu",
        "mlx5.txt",
        &[("ens4f0/mtu: 9000", "ens4f0/mtu: 1500")],
    ),
    (
        "roce-v1",
        "mlx5.txt",
        &[(
            "default_roce_mode: RoCE v2",
            "default_roce_mode: IB/RoCE v1",
        )],
    ),
    (
        "tos-zero",
        "mlx5.txt",
        &[("default_roce_tos: 106", "default_roce_tos: 0")],
    ),
    (
        "tos-no-ect",
        "mlx5.txt",
        &[("default_roce_tos: 106", "default_roce_tos: 104")],
    ),
    (
        "trust",
        "mlx5.txt",
        &[("Priority trust state: dscp", "Priority trust state: pcp")],
    ),
    (
        "pfc-off",
        "mlx5.txt",
        &[("enabled     0   0   0   1", "enabled     0   0   0   0")],
    ),
    (
        "pfc-all",
        "mlx5.txt",
        &[(
            "enabled     0   0   0   1   0   0   0   0",
            "enabled     1   1   1   1   1   1   1   1",
        )],
    ),
    (
        "pfc-priority",
        "mlx5.txt",
        &[(
            "enabled     0   0   0   1   0",
            "enabled     0   0   0   0   1",
        )],
    ),
    (
        "dscp-map",
        "mlx5.txt",
        &[
            ("28,27,26,25,24,", "28,27,25,24,"),
            ("02,01,00,", "02,01,00,26,"),
        ],
    ),
    (
        "receive-buffer",
        "mlx5.txt",
        &[("buffer      0   0   0   1", "buffer      0   0   0   0")],
    ),
    (
        "ets-share",
        "mlx5.txt",
        &[
            (
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 95%",
            ),
            (
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 5%",
            ),
        ],
    ),
    ("cnp-dscp", "mlx5.txt", &[("cnp_dscp: 48", "cnp_dscp: 4")]),
    (
        "cnp-priority",
        "mlx5.txt",
        &[("cnp_802p_prio: 6", "cnp_802p_prio: 3")],
    ),
    (
        "ecn-notification-point",
        "mlx5.txt",
        &[("roce_np/enable/3: 1", "roce_np/enable/3: 0")],
    ),
    (
        "ecn-reaction-point",
        "mlx5.txt",
        &[("roce_rp/enable/3: 1", "roce_rp/enable/3: 0")],
    ),
    ("global-pause", "mlx5.txt", &[("RX:\t\toff", "RX:\t\ton")]),
    (
        "runtime-only",
        "mlx5.txt",
        &[("/etc/systemd/system/rockery-roce.service\n", "")],
    ),
    (
        "firewall",
        "mlx5.txt",
        &[
            ("mlx5_0", "rxe0"),
            (
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -p udp -m udp --dport 4791 -j DROP",
            ),
        ],
    ),
    (
        "software-device",
        "mlx5.txt",
        &[(
            "link mlx5_0/1 state",
            "link rxe0/1 state ACTIVE physical_state LINK_UP netdev ens4f0\nlink mlx5_0/1 state",
        )],
    ),
    (
        "smb-kernel",
        "mlx5.txt",
        &[(
            "CONFIG_CIFS_SMB_DIRECT=y",
            "# CONFIG_CIFS_SMB_DIRECT is not set",
        )],
    ),
    (
        "smb-mount",
        "mlx5.txt",
        &[("vers=3.1.1,rdma,cache", "vers=3.1.1,cache")],
    ),
    (
        "willing",
        "windows.txt",
        &[
            ("Willing : False", "Willing : True"),
            ("Priority 3 Enabled", "All Priorities Disabled"),
        ],
    ),
    (
        "adapter-qos",
        "windows.txt",
        &[(
            "Enabled                    : True",
            "Enabled                    : False",
        )],
    ),
    (
        "windows-pfc",
        "windows.txt",
        &[("Priority 3 Enabled", "All Priorities Disabled")],
    ),
    (
        "smb-policy",
        "windows.txt",
        &[("NetDirectPort  : 445\n", "")],
    ),
    (
        "global-pause",
        "windows.txt",
        &[(
            "*FlowControl             : 0",
            "*FlowControl             : 3",
        )],
    ),
    (
        "smb-edition",
        "windows.txt",
        &[
            ("Windows Server 2022 Standard", "Windows 11 Pro"),
            ("RdmaCapable  : True", "RdmaCapable  : False"),
        ],
    ),
    (
        "rdma-disabled",
        "windows.txt",
        &[(
            "Enabled              : True",
            "Enabled              : False",
        )],
    ),
    (
        "rdma-technology",
        "windows.txt",
        &[(
            "*NetworkDirectTechnology : 4",
            "*NetworkDirectTechnology : 3",
        )],
    ),
    (
        "smb-interface",
        "windows.txt",
        &[("RdmaCapable  : True", "RdmaCapable  : False")],
    ),
    (
        "smb-multichannel",
        "windows.txt",
        &[("EnableMultiChannel : True", "EnableMultiChannel : False")],
    ),
    (
        "smb-encryption",
        "windows.txt",
        &[
            ("Windows Server 2022", "Windows Server 2019"),
            (
                "EncryptData              : False",
                "EncryptData              : True",
            ),
        ],
    ),
];

/// Hosts that differ from each other, and have no faults.
const HEALTHY: &[Host] = &[
    ("as it is", "mlx5.txt", &[]),
    ("as it is", "gpu.txt", &[]),
    ("as it is", "windows.txt", &[]),
    (
        "half the lanes are enough for the link",
        "mlx5.txt",
        &[("Width x16 (ok)", "Width x8 (downgraded)")],
    ),
    (
        "an older slot is enough for the link",
        "mlx5.txt",
        &[("Speed 16GT/s (ok)", "Speed 8GT/s (downgraded)")],
    ),
    (
        "25 Gb/s is all that the adapter has",
        "mlx5.txt",
        &[
            ("rate: 100 Gb/sec (4X EDR)", "rate: 25 Gb/sec (1X EDR)"),
            ("Speed: 100000Mb/s", "Speed: 25000Mb/s"),
            (
                "\n\t                        50000baseCR2/Full\n\t                        100000baseCR4/Full",
                "",
            ),
        ],
    ),
    (
        "requests of 512 bytes",
        "mlx5.txt",
        &[("MaxReadReq 4096", "MaxReadReq 512")],
    ),
    (
        "an MTU that is just enough",
        "mlx5.txt",
        &[("mtu: 9000", "mtu: 4200")],
    ),
    (
        "nothing is known of QoS",
        "mlx5.txt",
        &[("==> mlnx_qos -i ens4f0 <==", "==> unknown <==")],
    ),
    (
        "nothing is known of PCIe",
        "mlx5.txt",
        &[
            ("==> lspci -vvv <==", "==> unknown <=="),
            ("==> dmesg <==", "==> unknown <=="),
        ],
    ),
    (
        "no tool was installed",
        "mlx5.txt",
        &[
            ("==> show_gids <==", "==> unknown <=="),
            ("==> env <==", "==> unknown <=="),
        ],
    ),
    (
        "GID index by name",
        "mlx5.txt",
        &[("NCCL_IB_GID_INDEX=3", "UCX_IB_GID_INDEX=auto")],
    ),
    (
        "packets of a RoCE adapter do not pass netfilter",
        "mlx5.txt",
        &[(
            "-A INPUT -i lo -j ACCEPT",
            "-A INPUT -p udp -m udp --dport 4791 -j DROP",
        )],
    ),
    (
        "a firewall rule for another interface",
        "mlx5.txt",
        &[
            ("mlx5_0", "rxe0"),
            (
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -i br-lab -p udp -m udp --dport 4791 -j DROP",
            ),
        ],
    ),
    (
        "an open firewall by nftables",
        "mlx5.txt",
        &[
            ("==> iptables-save <==", "==> nft list ruleset <=="),
            ("-A INPUT -i lo -j ACCEPT", "udp dport 4791 accept"),
        ],
    ),
    (
        "software RDMA on another interface",
        "mlx5.txt",
        &[(
            "link mlx5_0/1 state",
            "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eno1\nlink mlx5_0/1 state",
        )],
    ),
    (
        "no share is mounted",
        "mlx5.txt",
        &[
            (
                "//server/data /mnt cifs rw,relatime,vers=3.1.1,rdma,cache=strict 0 0\n",
                "",
            ),
            (
                "CONFIG_CIFS_SMB_DIRECT=y",
                "# CONFIG_CIFS_SMB_DIRECT is not set",
            ),
        ],
    ),
    (
        "a second port is down",
        "gpu.txt",
        &[(
            "mlx5_1/ports/1/rate: 40 Gb/sec (4X QDR)",
            "mlx5_1/ports/1/rate: 10 Gb/sec (1X QDR)",
        )],
    ),
    (
        "another port is InfiniBand",
        "gpu.txt",
        &[
            (
                "mlx5_1/ports/1/link_layer: Ethernet",
                "mlx5_1/ports/1/link_layer: InfiniBand",
            ),
            ("1: DOWN", "4: ACTIVE"),
        ],
    ),
    (
        "no GPU, and the IOMMU translates",
        "gpu.txt",
        &[
            (
                "3D controller: NVIDIA",
                "Non-Volatile memory controller: NVIDIA",
            ),
            ("iommu=pt ", ""),
        ],
    ),
    (
        "Pro for Workstations has SMB Direct",
        "windows.txt",
        &[(
            "Windows Server 2022 Standard",
            "Windows 11 Pro for Workstations",
        )],
    ),
    (
        "the switch sends what SMB Direct needs",
        "windows.txt",
        &[("Willing : False", "Willing : True")],
    ),
    (
        "the adapter places encrypted data",
        "windows.txt",
        &[(
            "EncryptData              : False",
            "EncryptData              : True",
        )],
    ),
    (
        "sources disagree about Pro, and RDMA works",
        "windows.txt",
        &[("Windows Server 2022 Standard", "Windows 11 Pro")],
    ),
    (
        "SMB has priority 4",
        "windows.txt",
        &[
            ("PriorityValue  : 3", "PriorityValue  : 4"),
            ("Priority 3 Enabled", "Priority 4 Enabled"),
        ],
    ),
    (
        "a driver that does not count the header",
        "windows.txt",
        &[("9014", "9000")],
    ),
    (
        "no fix of the marks is known",
        "mlx5.txt",
        &[("/sys/kernel/config/rdma_cm/", "/unknown/")],
    ),
];

/// Rules for faults that the simulator has no mechanism for; their findings say so.
const UNSIMULATED: &[&str] = &[
    "pcie-relaxed-ordering",
    "acs",
    "iommu",
    "firmware-psid",
    "pfc-all",
    "receive-buffer",
    "smb-encryption",
];

/// Names in a snapshot may be a stranger's: in a fix, which is copied to a shell, they are quoted.
#[test]
fn names_in_fixes_are_quoted_for_their_shell() {
    let mut quoted = 0;
    for (rule, name, replacements) in FAULTS {
        let mut host = read_host(name, &derived(name, replacements)).expect("it is read");
        let hostile = |name: &mut String| name.push_str("$(reboot)");
        for adapter in &mut host.adapters {
            hostile(&mut adapter.device);
            adapter
                .netdev
                .iter_mut()
                .for_each(|it| hostile(&mut it.value));
            adapter.pci.iter_mut().for_each(hostile);
        }
        host.smb_mounts
            .iter_mut()
            .for_each(|mount| hostile(&mut mount.value.share));
        for finding in check(&[host], &[], MARKS) {
            for line in finding.fix.lines() {
                let parts: Vec<&str> = line.split("$(reboot)").collect();
                for end in 1..parts.len() {
                    let before = parts[..end].concat();
                    let is_quoted = before.matches('\'').count() % 2 == 1;
                    assert!(is_quoted, "{rule}: {line}");
                    quoted += 1;
                }
            }
        }
    }
    assert!(quoted >= 20, "{quoted} names were in fixes");
}

#[test]
fn a_planted_fault_is_found_and_nothing_else() {
    assert!(FAULTS.len() >= 40);
    for (rule, name, replacements) in FAULTS {
        let text = derived(name, replacements);
        let host = read_host(name, &text).expect("it is read");
        let found = check(&[host], &[], MARKS);
        let rules: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [*rule], "{name} {replacements:?}: {found:#?}");
        let finding = &found[0];
        assert!(
            !finding.fix.is_empty() && !finding.evidence.is_empty(),
            "{finding:?}"
        );
        for evidence in &finding.evidence {
            let line = text
                .lines()
                .nth(evidence.line - 1)
                .unwrap_or_default()
                .trim();
            assert!(line.starts_with(&evidence.text), "{evidence}: {line}");
        }
        assert_eq!(finding.link, format!("docs/reference/rules.md#{rule}"));
        assert!(!finding.specification.is_empty(), "{rule}");
        assert!(
            !matches!(finding.consequence, Consequence::NotSimulated(_))
                || UNSIMULATED.contains(rule),
            "{finding}"
        );
        if let Consequence::Simulated(cost) = finding.consequence {
            assert!(cost.now.gbps > 0.0 && cost.fixed.gbps > 0.0, "{finding}");
        }
        println!("{finding}");
    }
}

#[test]
fn healthy_hosts_have_no_findings() {
    assert!(HEALTHY.len() >= 20);
    for (why, name, replacements) in HEALTHY {
        let host = read_host(name, &derived(name, replacements)).expect("it is read");
        let found = check(&[host], &[], MARKS);
        assert!(
            found.is_empty(),
            "{why}, {name} {replacements:?}: {found:#?}"
        );
    }
}

#[test]
fn a_slot_at_half_speed_costs_what_the_slot_does_not_carry() {
    let (_, name, replacements) = FAULTS
        .iter()
        .find(|(rule, ..)| *rule == "pcie-speed")
        .expect("it is there");
    let host = read_host(name, &derived(name, replacements)).expect("it is read");
    let Consequence::Simulated(cost) = check(&[host], &[], MARKS)[0].consequence else {
        panic!("it is simulated")
    };
    // PCIe 1.1 x8 is 16 Gb/s before packet headers.
    assert!(cost.now.gbps < 16.0 && cost.fixed.gbps > 80.0, "{cost}");
}

#[test]
fn garbled_outputs_name_their_line() {
    for (from, to, part, is_refused) in [
        (
            "Priority trust state: dscp",
            "Priority trust state: d\u{1}cp",
            "no character of a configuration",
            true,
        ),
        (
            "Priority trust state: dscp",
            "Priority trust state: dssp",
            "dscp or pcp was expected",
            false,
        ),
        (
            "Width x16, ASPM",
            "Width y16, ASPM",
            "Speed and Width were expected",
            false,
        ),
        ("==> sysfs <==", "sysfs", "a snapshot begins with", true),
        (
            "rate: 100 Gb",
            "rate: lots Gb",
            "a number was expected",
            false,
        ),
    ] {
        let text = derived("mlx5.txt", &[(from, to)]);
        let line = text
            .lines()
            .position(|line| line.contains(to))
            .expect("it is there")
            + 1;
        match read_host("snapshot", &text) {
            // A text that is no snapshot.
            Err(error) => {
                let start = format!("cannot read line {line} of snapshot: ");
                assert!(is_refused, "{error}");
                assert!(error.to_string().starts_with(&start), "{error}");
                assert!(error.what.contains(part), "{error}");
            }
            // The rest is read, and the line is named.
            Ok(host) => {
                assert!(!is_refused, "{to}");
                let odd: Vec<usize> = host.left.iter().map(|line| line.line).collect();
                assert_eq!(odd, [line], "{:?}", host.left);
                assert!(host.left[0].why.contains(part), "{:?}", host.left);
                assert_eq!(host.adapters.len(), 1);
            }
        }
    }
}
