//! Outputs of ESXi's `esxcli`, in the layouts of Cisco's guide.

use doctor::{Finding, Marks, check};
use vendors::read_host;

const HEALTHY: &str = "==> esxcli rdma device list <==
Name    Driver State  MTU  Speed   Paired Uplink Description
-----   ------ -----  ---  -----   ------------- -----
vmrdma0 nenic  Active 4096 50 Gbps vmnic1        Cisco UCS VIC 15XXX (A0)
==> esxcli rdma device vmknic list <==
Device  Vmknic NetStack
------- ------ --------
vmrdma0 vmk1   defaultTcpipStack
==> esxcli rdma device protocol list <==
Device  RoCE v1 RoCE v2 iWARP
-----   ------- ------- -----
vmrdma0 false   true    false
==> esxcli network nic dcb status get -n vmnic1 <==
   Mode: IEEE Mode
   PFC Enabled: true
   PFC Configuration: 0 0 0 1 0 0 0 0
";

/// The rules that are broken with a change, which must change something.
fn rules(from: &str, to: &str) -> Vec<&'static str> {
    let text = HEALTHY.replace(from, to);
    assert!(from == to || text != HEALTHY, "there is no {from:?}");
    let host = read_host("esxi.txt", &text).expect("it reads");
    assert_eq!(host.left, []);
    let found = check(&[host], &[], Marks::default());
    found.iter().map(|finding: &Finding| finding.rule).collect()
}

#[test]
fn each_fault_of_an_esxi_host_is_found_and_a_healthy_one_has_none() {
    assert_eq!(rules("", ""), [""; 0]);
    assert_eq!(rules("Active 4096", "Down   4096"), ["esxi-device"]);
    assert_eq!(
        rules("vmrdma0 vmk1   defaultTcpipStack\n", ""),
        ["esxi-vmknic"]
    );
    assert_eq!(
        rules(
            "vmrdma0 false   true    false",
            "vmrdma0 true    false   false"
        ),
        ["esxi-protocol"]
    );
    assert_eq!(
        rules("PFC Enabled: true", "PFC Enabled: false"),
        ["esxi-pfc"]
    );
    assert_eq!(rules("0 0 0 1 0 0 0 0", "0 0 0 0 0 1 0 0"), ["esxi-pfc"]);
    assert_eq!(rules("0 0 0 1 0 0 0 0", "0 0 0 0 1 0 0 0"), [""; 0]);
}

#[test]
fn rows_that_are_odd_are_named() {
    let text = HEALTHY.replace("vmrdma0 false   true    false", "vmrdma0 maybe");
    let left = read_host("esxi.txt", &text).expect("it reads").left;
    assert_eq!(left.len(), 1);
    assert!(
        left[0].why.contains("three times true or false"),
        "{left:?}"
    );
}
