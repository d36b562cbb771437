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
