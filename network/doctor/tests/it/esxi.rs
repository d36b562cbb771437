//! Outputs of ESXi's `esxcli`, in the layouts of Cisco's guide, and the parameters that are written.

use doctor::{Finding, Marks, check};
use vendors::{Dialect, read_host};

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

/// What is written of ESXi is what is published: bits of priorities, and a number of functions for the port.
#[test]
fn esxi_has_the_parameters_of_its_driver() {
    let intent = vendors::Intent::default();
    let written = Dialect::Esxi.write(&intent, Dialect::Esxi.versions().1);
    for part in [
        "-m nmlx5_core -p \"pfctx=0x08 pfcrx=0x08 trust_state=2 max_vfs=0\"",
        "-m nmlx5_rdma -p \"dscp_force=26\"",
        "pauseParams set -n vmnic0 -t 0 -r 0",
    ] {
        assert!(written.text.contains(part), "no {part}: {}", written.text);
    }
    assert!(
        written.notes.iter().any(|note| note.0.contains("MTU")),
        "{:?}",
        written.notes
    );
    let by_hand = "esxcli system module parameters set --module=nmlx5_core \
                   --parameter-string='pfctx=8 pfcrx=0x08 max_vfs=8,8 DRSS=4'\n\
                   esxcli network vswitch standard set -v vSwitch0 -m 9000\nreboot\n";
    let read = Dialect::Esxi
        .read_groups("host", by_hand)
        .expect("it reads");
    assert_eq!(read.outcomes.left(), []);
    let own = &read.groups[0];
    assert_eq!((own.pfc_send, own.pfc_obey), (8, 8));
    assert_eq!(own.host.as_ref().map(|host| host.functions), Some(8));
    for odd in [
        "pfctx=300",
        "max_vfs=many",
        "dscp_force=64",
        "trust",
        "pcp_force=3",
    ] {
        let text = format!("esxcli system module parameters set -m nmlx5_core -p {odd}\n");
        let left = Dialect::Esxi
            .read_groups("host", &text)
            .expect("it reads")
            .outcomes
            .left();
        assert_eq!(left.len(), 1, "{odd}: {left:?}");
    }
}
