//! What a host needs for virtual functions.

use doctor::{Finding, Marks, check};
use vendors::read_host;

const HEALTHY: &str = include_str!("../hosts/mlx5.txt");

/// Findings about functions, of a host whose card has made so many.
fn found(made: u32, sysfs: &[(&str, &str)], groups: Option<&str>) -> Vec<Finding> {
    let device = "/sys/bus/pci/devices/0000:b3:00.0";
    let mut text = format!("{HEALTHY}\n==> sysfs <==\n{device}/sriov_numvfs: {made}\n");
    for (file, value) in sysfs {
        text += &format!("{device}/{file}: {value}\n");
    }
    if let Some(groups) = groups {
        text += &format!("==> ls /sys/kernel/iommu_groups <==\n{groups}");
    }
    let host = read_host("server.txt", &text).expect("it reads");
    assert_eq!(host.left, []);
    let all = check(&[host], &[], Marks::default());
    all.into_iter()
        .filter(|finding| finding.rule.starts_with("sriov-"))
        .collect()
}

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

#[test]
fn functions_need_an_iommu_and_a_card_that_offers_them() {
    let offers = [("sriov_totalvfs", "16")];
    assert_eq!(found(4, &offers, Some("0\n1\n2\n")), []);
    assert_eq!(rules(&found(4, &offers, Some(""))), ["sriov-iommu"]);
    assert_eq!(found(0, &offers, Some("")), [], "no function is wanted");
    assert_eq!(found(4, &offers, None), [], "the groups were not seen");
    assert_eq!(
        rules(&found(4, &[("sriov_totalvfs", "0")], None)),
        ["sriov-offer"]
    );
}

#[test]
fn modules_that_do_not_fit_the_rdma_modules_are_named_once() {
    let log = "==> dmesg <==
[   12.1] cifs: disagrees about version of symbol ib_alloc_mr
[   12.1] cifs: Unknown symbol ib_alloc_mr (err -22)
[   12.2] cifs: disagrees about version of symbol rdma_create_qp
[   13.0] zfs: disagrees about version of symbol vmalloc
";
    let host = read_host("server.txt", &format!("{HEALTHY}\n{log}")).expect("it reads");
    let all = check(&[host], &[], Marks::default());
    let own: Vec<&Finding> = all
        .iter()
        .filter(|finding| finding.rule == "kernel-modules")
        .collect();
    assert_eq!(own.len(), 1, "{own:?}");
    assert!(
        own[0]
            .what
            .starts_with("cifs was built for other RDMA modules"),
        "{}",
        own[0]
    );
}

#[test]
fn devices_of_others_in_the_group_are_named() {
    let disk = ("iommu_group/devices/0000:00:17.0/class", "0x010601");
    let bridge = ("iommu_group/devices/0000:00:1c.0/class", "0x060400");
    let own = ("iommu_group/devices/0000:b3:00.1/class", "0x020000");
    assert_eq!(
        found(4, &[bridge, own], None),
        [],
        "bridges and the card itself do not count"
    );
    let all = found(4, &[bridge, own, disk], None);
    assert_eq!(rules(&all), ["sriov-group"]);
    assert!(
        all[0].what.contains("0000:00:17.0 (storage)"),
        "{}",
        all[0].what
    );
    assert_eq!(found(0, &[disk], None), []);
}

/// Bridges as `lspci -vvv` prints them, with the card behind a port of the processor or of a chipset.
fn bridges(ports: &[(&str, &str, u8)]) -> String {
    let mut text = "==> lspci -vvv <==\n".to_owned();
    for (address, name, secondary) in ports {
        let bus = address.split(':').next().unwrap_or_default();
        text += &format!(
            "{address} PCI bridge: {name} (rev f0)\n\tBus: primary={bus}, secondary={secondary:02x}, \
             subordinate={secondary:02x}, sec-latency=0\n\t\tDevCtl2: Completion Timeout: 50us to 50ms, \
             TimeoutDis- ARIFwd-\n"
        );
    }
    text
}

const NO_ROOM: &str =
    "==> dmesg <==\n[ 3.1] mlx5_core 0000:b3:00.0: not enough MMIO resources for SR-IOV\n";

#[test]
fn a_slot_of_the_chipset_is_a_finding_where_functions_fail_and_else_a_fact() {
    let intel = (
        "00:1c.4",
        "Intel Corporation 200 Series PCH PCI Express Root Port #5",
        0xb3,
    );
    let amd = [
        (
            "00:01.2",
            "Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge",
            0x02,
        ),
        (
            "02:00.0",
            "Advanced Micro Devices, Inc. [AMD] Matisse Switch Upstream",
            0x03,
        ),
        (
            "03:04.0",
            "Advanced Micro Devices, Inc. [AMD] Matisse PCIe GPP Bridge",
            0xb3,
        ),
    ];
    let processor = (
        "00:01.0",
        "Intel Corporation Xeon E3-1200 PCI Express Root Port",
        0xb3,
    );
    for (ports, port) in [
        (&[intel][..], Some("0000:00:1c.4")),
        (&amd[..], Some("0000:02:00.0")),
        (&[processor][..], None),
    ] {
        let text = format!("{HEALTHY}\n{}", bridges(ports));
        let host = read_host("server.txt", &text).expect("it reads");
        assert_eq!(host.left, []);
        let shown = host.bridges.chipset_port("0000:b3:00.0");
        assert_eq!(shown.map(|(address, _)| address), port);
        let judged = doctor::judged_host(&host, Marks::default());
        let line = judged[0].text.contains("in a slot of the chipset");
        assert_eq!(line, port.is_some(), "{judged:?}");
        assert_eq!(
            check(&[host], &[], Marks::default()),
            [],
            "the slot alone is no fault"
        );
        let failed = read_host("server.txt", &format!("{text}{NO_ROOM}")).expect("it reads");
        let all = check(&[failed], &[], Marks::default());
        let expected: &[&str] = match port {
            Some(_) => &["sriov-memory", "sriov-slot"],
            None => &["sriov-memory"],
        };
        let mut rules = rules(&all);
        rules.sort_unstable();
        assert_eq!(rules, expected);
    }
}

/// The port of the card shows whether it forwards Alternative Routing-IDs; a plan of more functions needs it.
#[test]
fn more_than_seven_functions_need_alternative_routing_ids() {
    let port = bridges(&[(
        "b2:00.0",
        "Intel Corporation Sky Lake-E PCI Express Root Port A",
        0xb3,
    )]);
    let found = |planned: u32, more: &str| {
        let text = format!("{HEALTHY}\n{more}");
        let mut host = read_host("server.txt", &text).expect("it reads");
        let text = format!(
            "title = \"t\"\ntopology = {{ kind = \"star\", hosts = 2, rate = \"100Gb/s\" }}\n[nic.default]\n\
             pcie = {{ width = 16 }}\nfunctions = {{ count = {planned} }}\n[[host]]\nname = \"h1\"\n\
             nic = \"plain\"\n[nic.plain]\n"
        );
        let mut none = |_: &str| Err("no files".to_owned());
        let document = fabric_file::Document::read("t.toml", &text, &mut none).expect("it reads");
        let file = document.fields().expect("fields");
        let network = fabric_file::Network::build(&document, &file, &mut none).expect("a network");
        assert!(doctor::attach_host(&network, &mut host, Some("h0")));
        let all = check(&[host], &[], Marks::default());
        all.iter().any(|finding| finding.rule == "sriov-ari")
    };
    let sysfs =
        |on: u32| format!("==> sysfs <==\n/sys/bus/pci/devices/0000:b3:00.0/ari_enabled: {on}\n");
    assert!(found(8, &port) && found(8, &sysfs(0)));
    assert!(!found(7, &port) && !found(8, &sysfs(1)) && !found(8, ""));
    assert!(!found(8, &port.replace("ARIFwd-", "ARIFwd+")));
}
