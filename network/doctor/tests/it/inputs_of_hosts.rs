//! Snapshots of hosts as other people have them. Each has its right value, and no line is passed over.

use doctor::{Marks, check, judged_host};
use vendors::facts::HostFacts;
use vendors::read_host;

use super::inputs::{asked, rules, with};

fn host(text: &str) -> HostFacts {
    read_host("host", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const HOST: &str = "==> sysfs <==
/sys/class/infiniband/mlx5_0/device: ../../../0000:b3:00.0
/sys/class/infiniband/mlx5_0/ports/1/link_layer: Ethernet
/sys/class/infiniband/mlx5_0/ports/1/state: 4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/rate: 100 Gb/sec (4X EDR)
/sys/class/infiniband/mlx5_0/ports/1/gids/3: 0000:0000:0000:0000:0000:ffff:0a00:0001
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3: RoCE v2
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3: eth0
/sys/class/net/eth0/mtu: 9000
/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos: 106
==> dcb pfc show dev eth0 <==
pfc-cap 8 macsec-bypass off delay 0
prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off
==> dcb app show dev eth0 <==
dscp-prio AF31:3 48:6
==> dcb ets show dev eth0 <==
willing off ets-cap 8 cbs off
tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 7:0
tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict
prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7
";

#[test]
fn plain_output_of_dcb_is_read() {
    let host = host(HOST);
    assert!(host.left.is_empty(), "{:?}", host.left);
    let adapter = &host.adapters[0];
    assert_eq!(adapter.pfc.as_ref().map(|pfc| pfc.value), Some(1 << 3));
    let map = adapter.dscp.as_ref().expect("it is shown").value;
    assert_eq!((map[26], map[48], map[0]), (3, 6, 0));
    assert_eq!(
        (adapter.shares[&3].value, adapter.shares[&6].value),
        (Some(50), None)
    );
    assert!(check(&[host], &[], Marks::default()).is_empty());
    let off = self::host(&with(HOST, "3:on", "3:off"));
    assert_eq!(rules(&check(&[off], &[], Marks::default())), ["pfc-off"]);
}

#[test]
fn a_site_with_other_priorities_keeps_them() {
    let own = with(HOST, "default_roce_tos: 106", "default_roce_tos: 0");
    let own = with(
        &own,
        "==> dcb pfc",
        "/sys/class/infiniband/mlx5_0/tc/1/traffic_class: Global tclass=236\n==> dcb pfc",
    );
    let own = with(&own, "3:on 4:off 5:off", "3:off 4:off 5:on");
    let own = with(&own, "AF31:3", "59:5");
    let host = host(&own);
    let found = check(std::slice::from_ref(&host), &[], Marks::default());
    assert!(found.is_empty(), "{found:#?}");
    assert!(
        judged_host(&host, Marks::default())[0]
            .text
            .contains("DSCP 59 → priority 5, PFC on")
    );
    // Without a DSCP of data nothing says which one to set.
    let zero = with(
        &own,
        "/sys/class/infiniband/mlx5_0/tc/1/traffic_class: Global tclass=236\n",
        "",
    );
    let found = check(&[self::host(&zero)], &[], Marks::default());
    assert_eq!(rules(&found), ["tos-zero"]);
    assert!(
        found[0].fix.contains("59") && found[0].fix.contains("--dscp"),
        "{}",
        found[0].fix
    );
    let found = check(&[self::host(&zero)], &[], asked(59));
    assert_eq!(
        found[0].fix,
        "cma_roce_tos -d mlx5_0 -p 1 -t 238   # DSCP 59 and ECT(0)"
    );
}

#[test]
fn no_fix_takes_pfc_away() {
    let other = with(HOST, "3:on 4:off", "3:off 4:on");
    let found = check(&[host(&other)], &[], Marks::default());
    assert_eq!(rules(&found), ["pfc-priority"]);
    assert_eq!(found[0].fix, "mlnx_qos -i eth0 --pfc 0,0,0,1,1,0,0,0");
    // Another adapter has no tools of NVIDIA.
    let found = check(
        &[host(&other.replace("mlx5_0", "bnxt_re0"))],
        &[],
        Marks::default(),
    );
    assert!(
        found[0]
            .fix
            .starts_with("dcb pfc set dev eth0 prio-pfc 3:on 4:on"),
        "{}",
        found[0].fix
    );
}

#[test]
fn iwarp_is_no_fault_and_is_named() {
    let rnic = with(
        HOST,
        "/sys/class/infiniband/mlx5_0/device",
        "/sys/class/infiniband/mlx5_0/node_type: 4: RNIC\n/sys/class/infiniband/mlx5_0/device",
    );
    let rnic = host(&with(&rnic.replace("mlx5_0", "irdma0"), "3:on", "3:off"));
    assert!(check(std::slice::from_ref(&rnic), &[], Marks::default()).is_empty());
    let judged = judged_host(&rnic, Marks::default());
    assert!(
        judged[0].text.contains("iWARP") && judged[0].text.contains("enable_roce"),
        "{judged:?}"
    );
}

/// Windows with an adapter of this technology, with PFC in no priority and global pause.
fn of_technology(technology: u8, more: &[(&str, &str)]) -> HostFacts {
    let windows = include_str!("../hosts/windows.txt");
    let own = format!("*NetworkDirectTechnology : {technology}");
    let mut text = windows.replace("*NetworkDirectTechnology : 4", &own);
    text = with(&text, "Priority 3 Enabled", "All Priorities Disabled");
    text = with(&text, "*FlowControl             : 0", "*FlowControl : 3");
    for (from, to) in more {
        text = with(&text, from, to);
    }
    host(&text)
}

#[test]
fn iwarp_of_windows_needs_no_lossless_class_and_keeps_the_rules_of_smb() {
    let found = |technology, more: &[(&str, &str)]| {
        let host = of_technology(technology, more);
        let found = check(std::slice::from_ref(&host), &[], Marks::default());
        let rules: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
        (rules, judged_host(&host, Marks::default())[0].text.clone())
    };
    let (rules, judged) = found(4, &[]);
    assert_eq!(rules, ["windows-pfc", "global-pause"], "{judged}");
    assert!(judged.contains("RoCEv2"), "{judged}");
    let (rules, judged) = found(1, &[]);
    assert!(rules.is_empty(), "{rules:?}");
    let named = "RDMA on, iWARP (*NetworkDirectTechnology is 1)";
    assert!(judged.contains(named), "{judged}");
    let fix = "-RegistryKeyword \"*NetworkDirectTechnology\" -RegistryValue 4";
    assert!(judged.contains(fix), "{judged}");
    let off = [(
        "Enabled              : True",
        "Enabled              : False",
    )];
    assert_eq!(found(1, &off).0, ["rdma-disabled"]);
    let (rules, judged) = found(2, &[]);
    assert!(
        rules.is_empty() && judged.contains("InfiniBand"),
        "{judged}"
    );
    assert_eq!(found(2, &off).0, ["rdma-disabled"]);
}

#[test]
fn modes_of_the_partner_are_not_those_of_the_adapter() {
    let modes = |own: &str, partner: &str| {
        let text = format!(
            "{HOST}==> ethtool eth0 <==\nSettings for eth0:\n\tSupported link modes:   \
             25000baseCR/Full\n\t\t{own}\n\t\
             Advertised link modes:  800000baseCR8/Full\n\tLink partner advertised link modes:  \
              25000baseCR/Full\n\
             \t\t{partner}\n\tSpeed: 100000Mb/s\n"
        );
        rules(&check(&[host(&text)], &[], Marks::default()))
    };
    assert!(modes("100000baseCR4/Full", "400000baseCR8/Full").is_empty());
    assert!(
        modes("400000baseCR8/Full", "100000baseCR4/Full").is_empty(),
        "no common mode is faster"
    );
    assert_eq!(
        modes("400000baseCR8/Full", "400000baseCR8/Full"),
        ["link-speed"]
    );
}

#[test]
fn one_odd_line_of_a_host_leaves_the_rest() {
    let lspci = "==> lspci -vvv <==\nb3:00.0 Ethernet controller: ConnectX-7\n\tLnkCap:\tPort #0, Speed \
     unknown, Width \
                 x16\n\tLnkSta:\tSpeed unknown, Width x16\n\tNUMA node: 1\n";
    let unknown = host(&format!("{HOST}{lspci}"));
    assert!(unknown.left.is_empty(), "{:?}", unknown.left);
    let adapter = &unknown.adapters[0];
    assert!(adapter.pcie.trained.is_none());
    assert_eq!(adapter.numa_node.as_ref().map(|node| node.value), Some(1));
    let gids = host(
        "==> show_gids <==\nDEV PORT INDEX GID IPv4 VER DEV\nqedr0 1 1 \
         0000:0000:0000:0000:0000:ffff:c0a8:0a64 192.168.10.100\n",
    );
    assert!(gids.left.is_empty(), "{:?}", gids.left);
    assert_eq!(
        (
            gids.adapters[0].gids.len(),
            gids.adapters[0].gids[0].value.v2
        ),
        (1, None)
    );
    let unread = host(&format!(
        "{HOST}==> ethtool -x eth0 <==\n rx_discards_phy: 7\n==> mlxdump -d mlx5_0 <==\nx\n==> uname -a \
         <==\nLinux\n"
    ));
    let why: Vec<&str> = unread.left.iter().map(|line| line.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "\"ethtool -x eth0\": the output of this command is not read",
            "\"mlxdump -d mlx5_0\": the output of this command is not read"
        ]
    );
}

const WINDOWS: &str = "==> (Get-CimInstance Win32_OperatingSystem).Caption <==
Microsoft Windows Server 2022 Datacenter
==> Get-SmbClientNetworkInterface <==
FriendlyName : SLOT 2
RdmaCapable  : True

FriendlyName : Ethernet (management)
RdmaCapable  : False
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True

Name    : SLOT 3
Enabled : False
==> Get-NetAdapterQos <==
Name                   : SLOT 2
Enabled                : True
OperationalFlowControl : All Priorities Enabled
==> Get-NetQosPolicy <==
Name          : SMB
NetDirectPort : 445
PriorityValue : 3
";

#[test]
fn several_adapters_of_windows_are_several() {
    let healthy = host(WINDOWS);
    assert!(healthy.left.is_empty(), "{:?}", healthy.left);
    assert_eq!(
        healthy.adapters[0].pfc.as_ref().map(|pfc| pfc.value),
        Some(0xff)
    );
    let found = check(&[healthy], &[], Marks::default());
    assert!(found.is_empty(), "{found:#?}");
    let none = with(WINDOWS, "Enabled : True", "Enabled : False");
    assert_eq!(
        rules(&check(&[host(&none)], &[], Marks::default())),
        ["rdma-disabled"]
    );
    let hidden = with(WINDOWS, "RdmaCapable  : True", "RdmaCapable  : False");
    assert_eq!(
        rules(&check(&[host(&hidden)], &[], Marks::default())),
        ["smb-interface"]
    );
    let other = with(WINDOWS, "All Priorities Enabled", "Priority 4 Enabled");
    assert_eq!(
        rules(&check(&[host(&other)], &[], Marks::default())),
        ["windows-pfc"]
    );
}

#[test]
fn lists_and_tables_of_cmdlets_are_read() {
    let list = "==> Get-NetAdapterAdvancedProperty <==
Name            : SLOT 2
DisplayName     : Jumbo Packet
DisplayValue    : 1514
RegistryKeyword : *JumboPacket
RegistryValue   : {1514}

Name            : SLOT 2
DisplayName     : Flow Control
DisplayValue    : Rx & Tx Enabled
RegistryKeyword : *FlowControl
RegistryValue   : {3}
";
    let found = check(&[host(list)], &[], Marks::default());
    assert_eq!(rules(&found), ["mtu", "global-pause"], "{found:#?}");
    assert!(
        found
            .iter()
            .all(|finding| finding.fix.contains("-Name \"SLOT 2\"")),
        "{found:#?}"
    );
    let tables = "==> Get-NetAdapterRdma <==
Name                      InterfaceDescription                     Enabled     Operational PFC        ETS
----                      --------------------                     -------     ----------- ---        ---
SLOT 2                    Mellanox ConnectX-5 Adapter              False       False       NA         NA
";
    assert_eq!(
        rules(&check(&[host(tables)], &[], Marks::default())),
        ["rdma-disabled"]
    );
    let connection = "==> Get-SmbMultichannelConnection <==
Server Name   Selected Client IP     Server IP     Client RSS Capable Client RDMA Capable
-----------   -------- ---------     ---------     ------------------ -------------------
fs1           True     10.0.0.1      10.0.0.2      True               False
";
    let found = check(&[host(connection)], &[], Marks::default());
    assert_eq!(rules(&found), ["smb-connection"]);
    assert!(found[0].what.contains("fs1"));
}

#[test]
fn files_of_sys_are_read_as_grep_prints_them() {
    let path = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters";
    let counters =
        format!("==> grep . {path}/* <==\n{path}/out_of_sequence:0\n{path}/packet_seq_err:7\n");
    let read = host(&(HOST.to_owned() + &counters));
    assert!(read.left.is_empty(), "{:?}", read.left);
    assert_eq!(
        rules(&check(&[read], &[], Marks::default())),
        ["counted-losses"]
    );
    // What grep looked for elsewhere is not known.
    let read =
        host(&(HOST.to_owned() + "==> grep -r roce /etc/rdma <==\n/etc/rdma/modules.conf:roce\n"));
    assert_eq!(read.left.len(), 1, "{:?}", read.left);
}
