//! Outputs of FreeBSD about virtual functions, in the layouts of the FreeBSD Journal (X710) and of the
//! published experiment (T520, whose `pciconf` is that of FreeBSD 12).

use doctor::{Finding, Marks, check};
use vendors::read_host;

const X710: &str = r#"==> dmesg | grep ixl0 <==
ixl0: <Intel(R) Ethernet Controller X710 for 10GbE SFP+ - 2.3.3-k> irq 16 on pci1
ixl0: PF-ID[0]: VFs 64, MSI-X 129, VF MSI-X 5, QPs 768, I2C
ixl0: PCI Express Bus: Speed 2.5GT/s Width x8
ixl0: SR-IOV ready
==> iovctl -S -d ixl0 <==
The following configuration parameters may be configured on the PF:
	num_vfs : uint16_t (required)
	device : string (required)
==> cat /etc/iov/ixl0.conf <==
PF {
        device : "ixl0";
        num_vfs : 2;
}
VF-1 {
        passthrough : true;
}
==> pciconf -l <==
ixl0@pci0:1:0:0:	class=0x020000 rev=0x01 hdr=0x00 vendor=0x8086 device=0x1572
iavf0@pci0:1:0:16:	class=0x020000 rev=0x01 hdr=0x00 vendor=0x8086 device=0x154c
ppt0@pci0:1:0:17:	class=0x020000 rev=0x01 hdr=0x00 vendor=0x8086 device=0x154c
==> kldstat <==
Id Refs Address                Size Name
 1   41 0xffffffff80200000  1f3e0b8 kernel
 2    1 0xffffffff82140000     6a58 vmm.ko
==> cat debian-test.conf <==
loader="grub"
cpu=1
passthru0="1/0/17"
"#;

const T520: &str = r#"==> pciconf -lv <==
t5iov0@pci0:4:0:0:	class=0x020000 card=0x00001425 chip=0x50011425 rev=0x00 hdr=0x00
    vendor     = 'Chelsio Communications Inc'
    device     = 'T520-CR Unified Wire Ethernet Controller'
t5nex0@pci0:4:0:4:	class=0x020000 card=0x00001425 chip=0x54011425 rev=0x00 hdr=0x00
none6@pci0:4:0:5:	class=0x010000 card=0x00001425 chip=0x55011425 rev=0x00 hdr=0x00
ppt2@pci0:4:0:8:	class=0x020000 card=0x00001425 chip=0x58011425 rev=0x00 hdr=0x00
==> cat /etc/cxl0.conf <==
PF {
        device : cxl0
        num_vfs : 1
}
==> cat guest.conf <==
passthru0="4/0/8"
"#;

fn found(text: &str) -> Vec<Finding> {
    let host = read_host("bsd.txt", text).expect("it reads");
    assert_eq!(host.left, []);
    check(&[host], &[], Marks::default())
}

fn rules(text: &str, from: &str, to: &str) -> Vec<&'static str> {
    let changed = text.replace(from, to);
    assert!(from == to || changed != text, "there is no {from:?}");
    found(&changed).iter().map(|finding| finding.rule).collect()
}

#[test]
fn functions_that_work_have_no_finding() {
    assert_eq!(rules(X710, "", ""), [""; 0]);
    assert_eq!(rules(T520, "", ""), [""; 0]);
}

#[test]
fn functions_that_are_missing_or_kept_by_the_host_are_findings() {
    assert_eq!(
        rules(X710, "num_vfs : 2;", "num_vfs : 4;"),
        ["bsd-functions"]
    );
    assert_eq!(rules(X710, "ppt0@", "iavf1@"), ["bsd-passthru"]);
    let kept = found(&X710.replace("1/0/17", "1/0/16"));
    assert!(kept[0].what.contains("iavf0 of the host"), "{}", kept[0]);
    assert_eq!(rules(X710, "1/0/17", "1/0/18"), ["bsd-passthru"]);
    assert_eq!(rules(T520, "num_vfs : 1", "num_vfs : 2"), ["bsd-functions"]);
}

#[test]
fn drivers_without_functions_and_modules_that_are_not_loaded_are_named() {
    let bare = "t5iov0@pci0:4:0:0:";
    let without = T520
        .replace(bare, "none1@pci0:4:0:0:")
        .replace("t5nex0@", "none2@");
    assert_eq!(
        rules(&without, "num_vfs : 1", "num_vfs : 0"),
        ["bsd-module"]
    );
    assert_eq!(
        rules(X710, "device : \"ixl0\"", "device : \"igb0\""),
        ["bsd-driver"]
    );
    let refused = "\tnum_vfs : uint16_t (required)\n";
    let text = X710
        .replace(refused, "")
        .replace("ixl0: SR-IOV ready\n", "");
    assert_eq!(rules(&text, "", ""), ["bsd-driver"]);
}

#[test]
fn odd_rows_are_named() {
    for (from, to) in [
        ("ixl0@pci0:1:0:0:", "ixl0 pci0"),
        ("\"1/0/17\"", "\"1/0\""),
        ("num_vfs : 2", "num_vfs : x"),
    ] {
        let host = read_host("bsd.txt", &X710.replace(from, to)).expect("it reads");
        assert_eq!(host.left.len(), 1, "{to}: {:?}", host.left);
    }
}
