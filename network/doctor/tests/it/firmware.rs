//! Outputs of tools of firmware and cards, and the kernel's log.

use doctor::{Finding, Marks, check, judged_host};
use vendors::facts::HostFacts;
use vendors::read_host;

const HEALTHY: &str = include_str!("../hosts/mlx5.txt");

/// Outputs in the layouts of published ones, of the card of the fixture.
const TOOLS: &str = "==> mst status <==
MST modules:
------------
    MST PCI module is not loaded
    MST PCI configuration module loaded

MST devices:
------------
/dev/mst/mt4125_pciconf0         - PCI configuration cycles access.
                                   domain:bus:dev.fn=0000:b3:00.0 addr.reg=88 data.reg=92 cr_bar.gw_offset=-1
                                   Chip revision is: 00
==> flint -d /dev/mst/mt4125_pciconf0 query <==
Image type:            FS4
FW Version:            22.38.1900
FW Release Date:       29.4.2022
Rom Info:              type=UEFI version=14.26.17 cpu=AMD64,AARCH64
                       type=PXE version=3.6.502 cpu=AMD64
Base MAC:              00005e005310            4
PSID:                  MT_0000000359
Security Attributes:   secure-fw
==> mlxconfig -d /dev/mst/mt4125_pciconf0 -e query <==

Device #1:
----------

Device type:        ConnectX6DX
Description:        ConnectX-6 Dx EN adapter card; 100GbE
Device:             /dev/mst/mt4125_pciconf0

Configurations:                              Default             Current             Next Boot
        NUM_OF_VFS                          0                   16                  16
        SRIOV_EN                            False(0)            True(1)             True(1)
        HOST_CHAINING_DESCRIPTORS           Array[0..7]         Array[0..7]         Array[0..7]
        LINK_TYPE_P1                        ETH(2)              ETH(2)              ETH(2)
The '*' shows parameters with next value different from default/current value.
==> devlink dev info pci/0000:b3:00.0 <==
pci/0000:b3:00.0:
  driver mlx5_core
  versions:
      fixed:
        fw.psid MT_0000000359
      running:
        fw.version 22.38.1900
==> devlink dev info pci/0000:a3:00.0 <==
kernel answers: Operation not supported
==> ethtool -i ens4f0 <==
driver: mlx5_core
version: 6.8.0
firmware-version: 22.38.1900 (MT_0000000359)
bus-info: 0000:b3:00.0
==> mlxlink -d mlx5_0 -c <==
Troubleshooting Info
--------------------
Status Opcode                   : 0
Group Opcode                    : N/A
Recommendation                  : No issue was observed

Physical Counters and BER Info
------------------------------
Effective Physical Errors       : 0
Effective Physical BER          : 15E-255
==> ethtool -m ens4f0 <==
	Identifier                                : 0x11 (QSFP28)
	Module temperature high alarm             : Off
==> lldptool -t -i ens4f0 -V PFC <==
IEEE 8021QAZ PFC TLV
	 Willing: yes
	 PFC capable traffic classes: 8
	 PFC enabled: 3
==> lspci -nn <==
b3:00.0 Ethernet controller [0200]: Mellanox Technologies MT2892 Family [ConnectX-6 Dx] [15b3:101d]
==> dmesg <==
[    3.0] mlx5_core 0000:b3:00.0: firmware version: 22.38.1900
[    3.1] mlx5_core 0000:b3:00.0: E-Switch: Total vports 18, per vport: max uc(128) max mc(2048)
[    3.2] mlx5_core 0000:b3:00.0: mlx5_pcie_event:304:(pid 331): PCIe slot advertised sufficient power (75W).
[    3.3] mlx5_core 0000:b3:00.0: Port module event: module 0, Cable unplugged
[    3.4] mlx5_core 0000:b3:00.0: Port module event: module 0, Cable plugged
";

fn text() -> String {
    format!("{HEALTHY}{TOOLS}")
}

fn host(text: &str) -> HostFacts {
    let host = read_host("server.txt", text).expect("a snapshot");
    assert_eq!(host.left, []);
    host
}

fn found(text: &str) -> Vec<Finding> {
    check(&[host(text)], &[], Marks::default())
}

/// The findings after replacements, each of which changes something.
fn with(replacements: &[(&str, &str)]) -> Vec<Finding> {
    let changed = replacements.iter().fold(text(), |text, (from, to)| {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        changed
    });
    found(&changed)
}

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

#[test]
fn tools_of_a_healthy_card_agree_and_name_it() {
    let facts = host(&text());
    let found = check(std::slice::from_ref(&facts), &[], Marks::default());
    assert!(found.is_empty(), "{found:#?}");
    let judged = &judged_host(&facts, Marks::default())[0].text;
    assert!(
        judged.ends_with(", ConnectX-6 Dx, firmware 22.38.1900"),
        "{judged}"
    );
    // All tools are about one card, by any of its names.
    assert_eq!(
        facts
            .cards
            .iter()
            .filter(|own| own.version.is_some())
            .count(),
        1
    );
}

/// A fault: its rule, what is replaced, and a part of its fix.
type Fault = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const FAULTS: &[Fault] = &[
    (
        "firmware-link-type",
        &[(
            "ETH(2)              ETH(2)\nThe",
            "ETH(2)              IB(1)\nThe",
        )],
        "mlxconfig -d mt4125_pciconf0 set LINK_TYPE_P1=2",
    ),
    (
        "firmware-pending",
        &[(
            "0                   16                  16",
            "0                   8                   16",
        )],
        "mlxfwreset -d mt4125_pciconf0 reset",
    ),
    (
        "firmware-functions",
        &[("device/sriov_numvfs: 0", "device/sriov_numvfs: 32")],
        "set SRIOV_EN=1 NUM_OF_VFS=32",
    ),
    (
        "counted-damage",
        &[(
            "Effective Physical Errors       : 0",
            "Effective Physical Errors       : 7",
        )],
        "",
    ),
    (
        "module-alarm",
        &[(
            "Module temperature high alarm             : Off",
            "Module temperature high alarm             : On",
        )],
        "",
    ),
    (
        "kernel-power",
        &[(
            "PCIe slot advertised sufficient power (75W)",
            "Detected insufficient power on the PCIe slot (25W)",
        )],
        "another slot",
    ),
    (
        "sriov-memory",
        &[(
            "E-Switch: Total vports 18",
            "not enough MMIO resources for SR-IOV",
        )],
        "Above 4G decoding",
    ),
    (
        "sriov-bus",
        &[(
            "E-Switch: Total vports 18",
            "SR-IOV: bus number out of range",
        )],
        "ARI",
    ),
];

#[test]
fn each_fault_of_firmware_module_and_log_is_found() {
    for (rule, replacements, fix) in FAULTS {
        let found = with(replacements);
        let own: Vec<&Finding> = found.iter().filter(|own| own.rule == *rule).collect();
        assert_eq!(own.len(), 1, "{rule}: {:?}", rules(&found));
        assert!(own[0].fix.contains(fix), "{rule}: {}", own[0].fix);
        assert!(
            own[0].place.contains("mlx5_0") || *rule == "module-alarm",
            "{}",
            own[0].place
        );
    }
}

#[test]
fn links_that_are_up_have_no_faults_of_cables() {
    let down: (&str, &str) = ("ports/1/state: 4: ACTIVE", "ports/1/state: 1: DOWN");
    // A pending change of the link's type is both.
    assert_eq!(
        rules(&with(FAULTS[0].1)),
        ["firmware-link-type", "firmware-pending"]
    );
    let unplugged = ("Cable plugged", "Cable unplugged");
    assert_eq!(rules(&with(&[unplugged])), [""; 0], "the port is up");
    assert!(rules(&with(&[unplugged, down])).contains(&"kernel-cable"));
    assert!(!rules(&with(&[down])).contains(&"kernel-cable"));
    let trouble = [
        (
            "Status Opcode                   : 0",
            "Status Opcode                   : 1024",
        ),
        ("No issue was observed", "Cable is unplugged"),
    ];
    assert_eq!(rules(&with(&trouble)), [""; 0], "the port is up");
    let found = with(&[trouble[0], trouble[1], down]);
    assert!(
        found
            .iter()
            .any(|own| own.rule == "link-trouble" && own.what.contains("unplugged"))
    );
}

#[test]
fn firmware_is_compared_within_one_chip() {
    let second = "==> sysfs <==
/sys/class/infiniband/mlx5_1/device: ../../../0000:01:00.0
/sys/class/infiniband/mlx5_1/board_id: MT_0000000013
==> ethtool -i ens5 <==
driver: mlx5_core
firmware-version: 16.35.4030 (mt_0000000013)
bus-info: 0000:01:00.0
";
    // ConnectX-5 beside ConnectX-6 Dx: the first numbers tell.
    let without_ids = text().replace("[15b3:101d]", "");
    assert_eq!(rules(&found(&format!("{without_ids}{second}"))), [""; 0]);
    let same = second.replace("16.35.4030", "22.35.4030");
    let found = found(&format!("{without_ids}{same}"));
    assert_eq!(rules(&found), ["firmware-psid"], "{found:#?}");
}

#[test]
fn an_idle_link_is_read_again_before_it_is_a_fault() {
    let idle = "Speed 2.5GT/s (downgraded), Width x16 (ok)";
    let replacement = ("Speed 16GT/s (ok), Width x16 (ok)", idle);
    assert_eq!(rules(&with(&[replacement])), [""; 0]);
    let text = text().replace(replacement.0, replacement.1);
    let judged = &judged_host(&host(&text), Marks::default())[0].text;
    assert!(
        judged.contains("while idle: read it again under load"),
        "{judged}"
    );
    // The riser of the lab trained to half of the lanes, too; and the kernel's log is no idle moment.
    let narrow = (
        replacement.0,
        "Speed 2.5GT/s (downgraded), Width x8 (downgraded)",
    );
    assert_eq!(rules(&with(&[narrow])), ["pcie-speed"]);
    let log = (
        "252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
        "32.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link at 0000:b2:00.0",
    );
    assert_eq!(rules(&with(&[replacement, log])), ["pcie-speed"]);
}

#[test]
fn rows_and_answers_that_are_odd_are_named() {
    for (command, line) in [
        (
            "mlxconfig -d mt4125_pciconf0 query",
            "SRIOV_EN True(1) False(0) x y",
        ),
        ("mlxlink -d mlx5_0", "Effective Physical Errors : many"),
        ("mstflint -d b3:00.0 q", "-E- Cannot open Device: b3:00.0"),
        ("lldptool -t -i ens4f0 -V PFC", "PFC enabled: some"),
        ("devlink dev info -j", "{ no JSON"),
    ] {
        let text = format!("==> {command} <==\n{line}\n");
        let left = read_host("f", &text).expect("a snapshot").left;
        assert_eq!(left.len(), 1, "{command}: {left:?}");
        assert_eq!(left[0].line, 2, "{command}");
    }
    let json = "==> devlink dev info -j <==
{\"info\":{\"pci/0000:b3:00.0\":{\"driver\":\"mlx5_core\",\"versions\":
{\"running\":{\"fw.version\":\"22.1.2\"}}}}}
";
    let facts = host(json);
    assert_eq!(
        facts.cards[0]
            .version
            .as_ref()
            .map(|own| own.value.as_str()),
        Some("22.1.2")
    );
}

#[test]
fn windows_names_of_the_tools_are_read() {
    let text = "==> mst status <==
MST devices:
------------
  mt4121_pciconf0
==> mlxconfig.exe -d mt4121_pciconf0 query <==
Device #1:
----------
Device type: ConnectX5
Name: MCX556A-EDA_Ax_Bx
Description: ConnectX-5 Ex VPI adapter card; dual-port QSFP28
Device: mt4121_pciconf0
Configurations: Next Boot
NUM_OF_VFS 16
SRIOV_EN True(1)
LINK_TYPE_P1 IB(1)
";
    let facts = host(text);
    assert_eq!(facts.cards.len(), 1);
    assert_eq!(facts.cards[0].settings.len(), 3);
    // Without a plan the port may be meant for InfiniBand.
    assert_eq!(rules(&check(&[facts], &[], Marks::default())), [""; 0]);
}

/// The register of RoCE's adaptive routing has no effect while the firmware has the feature off.
#[test]
fn packets_in_any_order_need_a_setting_of_the_firmware() {
    let register = |on: u32| {
        format!(
            "==> mlxreg -d b3:00.0 --reg_name ROCE_ACCL --get <==\n\
             adaptive_routing_forced_en | 0x0000000{on}\n"
        )
    };
    let row = |on: &str| {
        let before = "        SRIOV_EN        ";
        let own = format!("        ROCE_ADAPTIVE_ROUTING_EN   False(0)   {on}   {on}\n{before}");
        text().replace(before, &own)
    };
    let off = found(&(row("False(0)") + &register(1)));
    assert_eq!(rules(&off), ["firmware-order"]);
    assert!(
        off[0].fix.contains("set ROCE_ADAPTIVE_ROUTING_EN=1"),
        "{}",
        off[0]
    );
    assert_eq!(found(&(row("True(1)") + &register(1))), []);
    assert_eq!(
        found(&(row("False(0)") + &register(0))),
        [],
        "it is not asked for"
    );
    assert_eq!(
        found(&(text() + &register(1))),
        [],
        "the setting was not shown"
    );
}
