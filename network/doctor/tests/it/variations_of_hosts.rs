//! Variations of snapshots of hosts: outputs in another order, of commands as people write them, of several
//! ports and adapters. What is shown is judged, or named as not understood.

use doctor::{Consequence, Finding, Marks, check, judged_host};
use vendors::facts::HostFacts;
use vendors::read_host;

use super::inputs::{asked, rules, with};

const LINUX: &str = "==> sysfs <==
/sys/class/infiniband/mlx5_0/device: ../../../0000:b3:00.0
/sys/class/infiniband/mlx5_0/ports/1/link_layer: Ethernet
/sys/class/infiniband/mlx5_0/ports/1/state: 4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/gids/3: 0000:0000:0000:0000:0000:ffff:0a00:0001
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3: RoCE v2
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3: ens1f0
/sys/class/net/ens1f0/mtu: 9000
==> mlnx_qos -i ens1f0 <==
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:3 dscp:31,30,29,28,27,26,25,24,
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
==> ethtool -a ens1f0 <==
Pause parameters for ens1f0:
Autonegotiate:\toff
RX:\t\toff
TX:\t\toff
==> ip -o addr <==
4: ens1f0    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens1f0
==> env <==
NCCL_IB_GID_INDEX=3
";

fn host(text: &str) -> HostFacts {
    read_host("host", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn found(text: &str) -> Vec<Finding> {
    check(&[host(text)], &[], asked(26))
}

/// The sections in reverse order.
fn reversed(text: &str) -> String {
    let text = text.trim_start_matches('\n');
    let mut sections: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("==> ") {
            sections.push(String::new());
        }
        if let Some(last) = sections.last_mut() {
            *last += &format!("{line}\n");
        }
    }
    sections.reverse();
    sections.concat()
}

#[test]
fn outputs_may_be_in_any_order() {
    let read = host(LINUX);
    assert!(read.left.is_empty(), "{:?}", read.left);
    assert_eq!(rules(&found(LINUX)), [""; 0]);
    let faulty = with(
        LINUX,
        "enabled     0   0   0   1",
        "enabled     0   0   0   0",
    );
    let faulty = with(&faulty, "RX:\t\toff", "RX:\t\ton");
    for text in [faulty.clone(), reversed(&faulty)] {
        assert_eq!(rules(&found(&text)), ["pfc-off", "global-pause"]);
    }
    // Files of an interface may come before those that name it.
    let mtu = "/sys/class/net/ens1f0/mtu: 9000\n";
    let first = with(
        &with(LINUX, mtu, ""),
        "==> sysfs <==\n",
        "==> sysfs <==\n/sys/class/net/ens1f0/mtu: 1500\n",
    );
    assert_eq!(rules(&found(&first)), ["mtu"]);
}

#[test]
fn commands_are_read_as_people_write_them() {
    let faulty = with(
        LINUX,
        "enabled     0   0   0   1",
        "enabled     0   0   0   0",
    );
    for command in [
        "sudo mlnx_qos -i ens1f0",
        "sudo -n /usr/bin/mlnx_qos -i ens1f0",
        "/usr/bin/mlnx_qos -i ens1f0",
        "mlnx_qos -iens1f0",
        "mlnx_qos --interface ens1f0",
        "mlnx_qos --interface=ens1f0",
    ] {
        let text = with(&faulty, "mlnx_qos -i ens1f0", command);
        assert_eq!(rules(&found(&text)), ["pfc-off"], "{command}");
    }
    for command in [
        "dcb -jp pfc show dev ens1f0",
        "dcb -j -p pfc show dev ens1f0",
        "dcb --json pfc show dev ens1f0",
    ] {
        let off = "[{\"prio_pfc\":[false,false,false,false,false,false,false,false]}]";
        let text = with(
            LINUX,
            "==> ethtool",
            &format!("==> {command} <==\n{off}\n==> ethtool"),
        );
        assert_eq!(rules(&found(&text)), ["pfc-off"], "{command}");
    }
    for prompt in ["root@h1:~# ", "[root@h1 ~]# ", "$ ", "user@h1:/srv$ sudo "] {
        let text = faulty.replace("==> ", prompt).replace(" <==", "");
        assert_eq!(rules(&found(&text)), ["pfc-off"], "{prompt}");
    }
    for variable in [
        "export NCCL_IB_GID_INDEX=7",
        "declare -x NCCL_IB_GID_INDEX=\"7\"",
        "NCCL_IB_GID_INDEX='7'",
    ] {
        let text = with(LINUX, "NCCL_IB_GID_INDEX=3", variable);
        assert_eq!(rules(&found(&text)), ["gid-index"], "{variable}");
    }
    let long = "==> ip addr show <==\n4: ens1f0: <BROADCAST,UP> mtu 9000 qdisc mq state UP\n    link/ether \
                94:40:c9:8c:a0:9c brd ff:ff:ff:ff:ff:ff\n    inet 10.0.0.9/24 scope global ens1f0\n";
    let text = with(LINUX, "==> env", &format!("{long}==> env"));
    assert_eq!(rules(&found(&text)), ["gid-address"]);
    // What grep prints has no blank behind the path.
    for (from, to, rule) in [
        ("mtu: 9000", "mtu:1500", "mtu"),
        ("state: 4: ACTIVE", "state:1: DOWN", "link-down"),
    ] {
        assert_eq!(rules(&found(&with(LINUX, from, to))), [rule], "{to}");
    }
}

#[test]
fn outputs_of_interfaces_that_no_device_has_are_named() {
    for name in ["ENS1F0", "esn1f0", "ens1f0.100"] {
        let text = with(LINUX, "mlnx_qos -i ens1f0", &format!("mlnx_qos -i {name}"));
        let read = host(&text);
        let named = read
            .left
            .iter()
            .any(|left| left.line == 9 && left.why.contains("ens1f0 is one"));
        assert!(named, "{name}: {:?}", read.left);
        assert!(read.adapters[0].pfc.is_none(), "{name}");
    }
    // An interface that is like none, or has another number, carries other traffic.
    for other in ["eno8", "ens1f1"] {
        let shown = format!("==> ethtool -a {other} <==\nRX:\ton\n==> env");
        let read = host(&with(LINUX, "==> env", &shown));
        assert!(read.left.is_empty(), "{:?}", read.left);
    }
    let without = LINUX[LINUX.find("==> mlnx_qos").expect("it has the output")..].to_owned();
    let read = host(&without);
    assert!(
        read.left
            .iter()
            .any(|left| left.line == 1 && left.why.contains("show_gids")),
        "{:?}",
        read.left
    );
}

#[test]
fn lines_of_mlnx_qos_that_are_odd_are_named() {
    for (from, to, line) in [
        (
            "\tenabled     0   0   0   1",
            "\tEnabled     0   0   0   1",
            17,
        ),
        (
            "\tenabled     0   0   0   1",
            "\tenabled     0   0   0   2",
            17,
        ),
        ("trust state: dscp", "trust state: DSCP", 11),
        ("PFC configuration:", "PFC configuratoin:", 15),
    ] {
        let read = host(&with(LINUX, from, to));
        let own = read.left.iter().find(|left| left.line == line);
        // The status of the command says so too.
        assert!(
            own.is_some_and(|own| !own.areas.is_empty()),
            "{to}: {:?}",
            read.left
        );
    }
}

#[test]
fn the_second_port_of_a_device_does_not_decide_for_the_first() {
    let port = "/sys/class/infiniband/mlx5_0/ports/2";
    let second = format!(
        "{port}/link_layer: Ethernet\n{port}/state: 1: DOWN\n{port}/rate: 10 Gb/sec (1X QDR)\n==> mlnx_qos -i"
    );
    let text = with(LINUX, "==> mlnx_qos -i", &second);
    assert_eq!(rules(&found(&text)), [""; 0]);
    let judged = judged_host(&host(&text), asked(26));
    assert!(
        judged
            .iter()
            .any(|own| own.text == "mlx5_0/2: down, and not judged"),
        "{judged:?}"
    );
    let up = with(&text, "1: DOWN", "4: ACTIVE");
    let up = with(
        &up,
        "==> mlnx_qos -i",
        &format!(
            "{port}/gid_attrs/ndevs/0: ens1f1\n/sys/class/net/ens1f1/mtu: 1500\n==> mlnx_qos -i"
        ),
    );
    let findings = found(&up);
    let mtu = findings
        .iter()
        .find(|finding| finding.rule == "mtu")
        .expect("its MTU is small");
    assert!(mtu.place.contains("ens1f1 (mlx5_0/2)"), "{}", mtu.place);
}

#[test]
fn the_traffic_class_of_programs_is_the_mark_of_data() {
    let of = |variables: &str| with(LINUX, "NCCL_IB_GID_INDEX=3", variables);
    // DSCP 26 has priority 3, and DSCP 2 the lossy priority 0.
    for variable in ["NCCL_IB_TC=106", "export UCX_IB_TRAFFIC_CLASS='106'"] {
        let text = of(variable);
        assert!(host(&text).left.is_empty(), "{:?}", host(&text).left);
        assert_eq!(
            rules(&check(&[host(&text)], &[], Marks::default())),
            [""; 0]
        );
        let judged = judged_host(&host(&text), Marks::default());
        assert!(
            judged[0].text.contains("DSCP 26 → priority 3, PFC on"),
            "{judged:?}"
        );
    }
    let lossy = of("NCCL_IB_TC=8");
    assert_eq!(
        rules(&check(&[host(&lossy)], &[], Marks::default())),
        ["pfc-priority"]
    );
    // Programs that differ leave the mark unknown; a value that is none is named.
    let two = host(&of("NCCL_IB_TC=106\nUCX_IB_TRAFFIC_CLASS=8"));
    assert!(
        !judged_host(&two, Marks::default())[0]
            .text
            .contains("DSCP 26")
    );
    for odd in ["256", "x"] {
        assert_eq!(
            host(&of(&format!("NCCL_IB_TC={odd}"))).left.len(),
            1,
            "{odd}"
        );
    }
}

/// The finding about rules of a firewall that drop RoCEv2 of a software device.
fn of_firewall(command: &str, rules_of: &str) -> Option<Finding> {
    let software = LINUX
        .replace("mlx5_0", "rxe0")
        .replace("==> env <==\nNCCL_IB_GID_INDEX=3\n", "");
    let text = format!("{software}==> {command} <==\n{rules_of}\n");
    found(&text)
        .into_iter()
        .find(|finding| finding.rule == "firewall")
}

/// Whether there is a finding that nothing arrives.
fn firewalled(command: &str, rules_of: &str) -> bool {
    let finding = of_firewall(command, rules_of);
    finding.is_some_and(|finding| finding.consequence == Consequence::NothingArrives)
}

#[test]
fn a_firewall_drops_what_its_rules_match_in_order() {
    let drop = "-A INPUT -p udp -m udp --dport 4791 -j DROP";
    for (body, drops) in [
        (drop.to_owned(), true),
        ("-A INPUT -p udp -m udp ! --dport 4791 -j DROP".to_owned(), false),
        ("-A INPUT -p udp --dport 4000:5000 -j REJECT --reject-with x".to_owned(), true),
        ("-A INPUT -p udp -m multiport --dports 53,4791 -j DROP".to_owned(), true),
        ("-A INPUT -p udp -m multiport --dports 53,123 -j DROP".to_owned(), false),
        ("-A INPUT -p tcp -m comment --comment \"not udp 4791\" --dport 23 -j DROP".to_owned(), false),
        (format!("-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n{drop}"), false),
        (format!("{drop}\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT"), true),
        (format!("-A INPUT -i eno8 -j ACCEPT\n{drop}"), true),
        (format!("-A INPUT -i ens1f0 -j ACCEPT\n{drop}"), false),
        (format!("-A INPUT -i ens+ -j ACCEPT\n{drop}"), false),
        (format!("-A INPUT ! -i eno8 -j ACCEPT\n{drop}"), false),
        ("-A INPUT ! -i ens1f0 -p udp --dport 4791 -j DROP".to_owned(), false),
        ("-A INPUT ! -i eno8 -p udp --dport 4791 -j DROP".to_owned(), true),
        ("-A INPUT -i eno8 -j ACCEPT\n-A INPUT -j DROP".to_owned(), true),
        ("-A INPUT -m state --state NEW,ESTABLISHED -j ACCEPT\n-A INPUT -j DROP".to_owned(), false),
        ("-A INPUT -p udp --dport 4791 -m conntrack --ctstate NEW -j DROP".to_owned(), true),
        // Packets of other sources arrive.
        ("-A INPUT -s 10.9.0.0/16 -p udp --dport 4791 -j DROP".to_owned(), false),
        ("-A INPUT ! -s 10.0.0.0/24 -p udp --dport 4791 -j DROP".to_owned(), false),
        ("-A FORWARD -p udp -m udp --dport 4791 -j DROP".to_owned(), false),
        ("-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -j REJECT".to_owned(), true),
        (
            "-A INPUT -s 10.0.0.0/24 -j ACCEPT\n-A INPUT -m state --state INVALID -j DROP\n-A INPUT -j DROP"
                .to_owned(),
            false,
        ),
        (
            "-A INPUT -m state --state ESTABLISHED -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j DROP"
                .to_owned(),
            true,
        ),
    ] {
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{body}\nCOMMIT");
        assert_eq!(firewalled("iptables-save", &text), drops, "{body}");
    }
}

#[test]
fn a_firewall_drops_by_its_policy_and_by_rules_of_nft() {
    let policy = |rule: &str| format!("*filter\n:INPUT DROP [0:0]\n-A INPUT {rule}\nCOMMIT");
    for (rule, drops) in [
        ("-p tcp -m tcp --dport 22 -j ACCEPT", true),
        ("-p udp -m udp --dport 4791 -j ACCEPT", false),
        ("-j ufw-before-input", false),
    ] {
        assert_eq!(firewalled("iptables-save", &policy(rule)), drops, "{rule}");
    }
    let nft = |policy: &str, rule: &str| {
        format!(
            "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority filter; policy \
             {policy};\n\t\t{rule}\n\t}}\n}}"
        )
    };
    for (policy, rule, drops) in [
        ("accept", "udp dport 4791 drop", true),
        (
            "accept",
            "udp dport { 53, 4791 } counter packets 0 bytes 0 drop",
            true,
        ),
        (
            "accept",
            "udp dport 4000-5000 reject with icmp port-unreachable",
            true,
        ),
        ("accept", "udp dport != 4791 drop", false),
        ("accept", "iifname != \"ens1f0\" udp dport 4791 drop", false),
        ("accept", "iifname != \"eno8\" udp dport 4791 drop", true),
        (
            "accept",
            "iifname { \"eno8\", \"ens*\" } udp dport 4791 drop",
            true,
        ),
        (
            "accept",
            "iifname { \"eno8\", \"eno9\" } udp dport 4791 drop",
            false,
        ),
        ("accept", "ip saddr 10.9.0.0/16 udp dport 4791 drop", false),
        ("drop", "iifname \"ens1f0\" accept", false),
        ("drop", "iifname \"eno8\" accept", true),
        ("accept", "tcp dport 4791 drop", false),
        (
            "accept",
            "udp dport 53 drop comment \"not 4791 udp\"",
            false,
        ),
        ("drop", "ct state established,related accept", true),
        ("drop", "udp dport 4791 accept", false),
        ("drop", "iifname \"lo\" accept", true),
        ("drop", "ip saddr 10.0.0.0/24 accept", false),
    ] {
        assert_eq!(
            firewalled("nft list ruleset", &nft(policy, rule)),
            drops,
            "{policy}: {rule}"
        );
    }
    let forward = nft("drop", "").replace("hook input", "hook forward");
    assert!(!firewalled("nft list ruleset", &forward));
}

#[test]
fn a_rule_with_a_source_drops_a_part_of_the_packets() {
    let nft = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter;\n\t\t\
               ip saddr 10.9.0.0/16 udp dport 4791 drop\n\t}\n}";
    let iptables =
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.9.0.0/16 -p udp --dport 4791 -j DROP\nCOMMIT";
    for (command, rules_of) in [("nft list ruleset", nft), ("iptables-save", iptables)] {
        let finding = of_firewall(command, rules_of).expect(command);
        assert!(
            matches!(finding.consequence, Consequence::NotSimulated(_)),
            "{finding:?}"
        );
        assert!(finding.what.contains("the other conditions of the rule"));
    }
}

#[test]
fn iptables_lists_its_rules_as_it_saves_them() {
    for (rules_of, drops) in [
        (
            "-P INPUT ACCEPT\n-P FORWARD DROP\n-A INPUT -p udp -m udp --dport 4791 -j DROP",
            true,
        ),
        (
            "-P INPUT ACCEPT\n-P FORWARD DROP\n-A INPUT -p udp -m udp --dport 53 -j DROP",
            false,
        ),
        (
            "-P INPUT DROP\n-P OUTPUT ACCEPT\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT",
            true,
        ),
        (
            "-P INPUT DROP\n-N own\n-A INPUT -j own\n-A own -p udp --dport 4791 -j ACCEPT",
            false,
        ),
    ] {
        for command in ["iptables -S", "iptables -t filter --list-rules"] {
            assert_eq!(
                firewalled(command, rules_of),
                drops,
                "{command}: {rules_of}"
            );
        }
    }
}

const WINDOWS: &str = "==> Get-NetAdapterQos <==
Name                       : SLOT 2
Enabled                    : True
OperationalFlowControl     : Priority 3 Enabled
OperationalClassifications : Protocol  Port/Type Priority
                             --------  --------- --------
                             Default             0
                             NetDirect 445       3
==> Get-NetQosDcbxSetting <==
Willing : False
==> Get-NetQosPolicy <==
Name          : SMB
NetDirectPort : 445
PriorityValue : 3
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
==> Get-NetAdapterAdvancedProperty <==
*JumboPacket             : 9014
*FlowControl             : 0
*NetworkDirectTechnology : 4
";

fn of_windows(text: &str) -> Vec<&'static str> {
    rules(&check(&[host(text)], &[], Marks::default()))
}

#[test]
fn outputs_of_windows_may_be_in_any_order_and_case() {
    assert_eq!(of_windows(WINDOWS), [""; 0]);
    assert!(host(WINDOWS).left.is_empty(), "{:?}", host(WINDOWS).left);
    let small = with(
        WINDOWS,
        "*JumboPacket             : 9014",
        "*JumboPacket             : 1514",
    );
    assert_eq!(of_windows(&small), ["mtu"]);
    assert_eq!(of_windows(&reversed(&small)), ["mtu"]);
    let named = with(&small, "Name    : SLOT 2", "Name    : Slot 2");
    let read = host(&named);
    assert_eq!((read.adapters.len(), of_windows(&named)), (1, vec!["mtu"]));
    for prompt in [
        "PS C:\\Users\\a> ",
        "[node1]: PS C:\\Users\\a> ",
        "PS /srv> ",
    ] {
        let text = small.replace("==> ", prompt).replace(" <==", "");
        assert_eq!(of_windows(&text), ["mtu"], "{prompt}");
    }
}

#[test]
fn rdma_of_windows_that_is_enabled_may_not_be_in_operation() {
    let table = |operational: &str| {
        let rdma = "==> Get-NetAdapterRdma <==\nName    : SLOT 2\nEnabled : True\n";
        let row = format!(
            "==> Get-NetAdapterRdma <==\n\
             Name   InterfaceDescription         Enabled Operational PFC ETS\n\
             ----   --------------------         ------- ----------- --- ---\n\
             SLOT 2 Mellanox ConnectX-5 Adapter  True    {operational:<11} True True\n"
        );
        with(WINDOWS, rdma, &row)
    };
    assert_eq!(of_windows(&table("True")), [""; 0]);
    let idle = host(&table("False"));
    assert!(idle.left.is_empty(), "{:?}", idle.left);
    let findings = check(&[idle], &[], Marks::default());
    assert_eq!(rules(&findings), ["rdma-disabled"]);
    assert!(findings[0].what.contains("not in operation"));
    // The setting for all adapters explains it.
    let off = "==> Get-NetOffloadGlobalSetting <==\nNetworkDirect : Disabled\n";
    let text = format!("{}{off}", table("False"));
    assert_eq!(of_windows(&text), ["rdma-global"]);
}

#[test]
fn priorities_of_windows_are_lists_and_ranges() {
    for (text, pfc) in [
        ("Priorities 2-4 Enabled", Some(0b1_1100)),
        ("Priorities 1-2,4-6 Enabled", Some(0b111_0110)),
        ("Priorities 2,4 Enabled", Some(0b1_0100)),
        ("All Priorities Enabled", Some(0xff)),
        ("all priorities disabled", Some(0)),
        ("Priority 11 Enabled", None),
        ("None", None),
    ] {
        let read = host(&with(WINDOWS, "Priority 3 Enabled", text));
        let own = read.adapters[0].pfc.as_ref().map(|pfc| pfc.value);
        assert_eq!(own, pfc, "{text}");
        assert_eq!(
            read.left.is_empty(),
            pfc.is_some(),
            "{text}: {:?}",
            read.left
        );
    }
}

#[test]
fn the_interface_of_a_command_is_found_in_quotes_and_any_case() {
    for arguments in [
        "-InterfaceAlias \"SLOT 2\"",
        "-interfacealias 'slot 2' | fl",
        "-Interface \"SLOT 2\"",
        "\"SLOT 2\"",
    ] {
        let text = with(
            WINDOWS,
            "==> Get-NetQosDcbxSetting <==\nWilling : False",
            &format!("==> Get-NetQosDcbxSetting {arguments} <==\nWilling : True"),
        );
        let read = host(&text);
        assert_eq!(read.adapters.len(), 1, "{arguments}");
        let willing = read.adapters[0].willing.as_ref().map(|own| own.value);
        assert_eq!(willing, Some(true), "{arguments}");
        assert!(read.left.is_empty(), "{arguments}: {:?}", read.left);
    }
}

#[test]
fn outputs_of_windows_that_show_less_are_read_or_named() {
    let at = WINDOWS.find("*JumboPacket").expect("it has properties");
    let properties = &WINDOWS[at..];
    let shown = "Name   DisplayName  DisplayValue\n----   -----------  ------------\n\
                 SLOT 2 Jumbo Packet 1514\nSLOT 2 Flow Control Rx & Tx Enabled\n";
    assert_eq!(
        of_windows(&with(WINDOWS, properties, shown)),
        ["mtu", "global-pause"]
    );
    let cut = "Name   RegistryKeyword RegistryValue\n----   --------------- -------------\n\
               SLOT 2 *JumboPac...    {1514}\n";
    let qos = "Name                       : SLOT 2\nEnabled                    : True";
    for (from, to, why) in [
        (properties, cut, "cut the keyword"),
        (
            "Name    : SLOT 2\nEnabled : True",
            "Name    : SLOT 2\nAktiv   : Ja",
            "the field enabled",
        ),
        (
            qos,
            "Name                       : SLO...\nEnabled                    : False",
            "cut the name",
        ),
        (
            "PriorityValue : 3\n",
            "PriorityValue : 3\n\nName          : SMB 2\nNetDirectPort : 445\nPriorityValue : 4\n",
            "another priority",
        ),
    ] {
        let text = with(WINDOWS, from, to);
        let read = host(&text);
        let is_named = read.left.iter().any(|left| left.why.contains(why));
        // A name that was cut is that of the only adapter that begins with it.
        let is_unique = to.contains("SLO...") && of_windows(&text).contains(&"adapter-qos");
        assert!(is_named || is_unique, "{to}: {:?}", read.left);
    }
}
