//! Outputs of InfiniBand tools: each fault is found, with its line, and nothing is found where nothing is
//! wrong.

use doctor::{Finding, check_subnet};
use proptest::prelude::*;
use vendors::infiniband::{SubnetFacts, facts};

/// A fat tree of three switches with hosts and two above, as iblinkinfo prints it.
fn iblinkinfo() -> String {
    let mut text = String::new();
    let link = |text: &mut String, lid: u32, port: u32, other: u32, peer: &str| {
        *text += &format!(
            "      {lid:6} {port:4}[  ] ==( 4X       25.78125 Gbps Active/  LinkUp)==>  {lid:6} \
            {other:4}[  ] \"{peer}\" ( )\n"
        );
    };
    for leaf in 1..4 {
        text += &format!("Switch: 0x00000000000010{leaf:02} leaf{leaf}:\n");
        link(&mut text, leaf, 1, 1, &format!("h{leaf} mlx5_0"));
        link(&mut text, leaf, 2, leaf, "spine1");
        link(&mut text, leaf, 3, leaf, "spine2");
        text += &format!(
            "      {leaf:6}    4[  ] ==(                Down/ Polling)==>             [  ] \"\" ( )\n"
        );
    }
    for spine in 1..3 {
        text += &format!("Switch: 0x00000000000020{spine:02} spine{spine}:\n");
        for leaf in 1..4 {
            link(
                &mut text,
                10 + spine,
                leaf,
                1 + spine,
                &format!("leaf{leaf}"),
            );
        }
    }
    for host in 1..4 {
        text += &format!("CA: h{host} mlx5_0:\n      0x00000000000030{host:02} ");
        let mut line = String::new();
        link(&mut line, 20 + host, 1, 1, &format!("leaf{host}"));
        text += line.trim_start();
    }
    text
}

const IBNETDISCOVER: &str = "switchguid=0x1001(1001)\nSwitch\t36 \"S-0000000000001001\"\t\t# \"leaf1\" \
    base port 0 lid 4 lmc 0\n\
    [1]\t\"H-0000000000003001\"[1](3002) \t\t# \"h1 mlx4_0\" lid 1 4xQDR\n\
    [2]\t\"H-0000000000003101\"[1](3102) \t\t# \"h2 mlx4_0\" lid 2 4xQDR\n\
    [3]\t\"H-0000000000003201\"[1](3202) \t\t# \"h3 mlx4_0\" lid 3 4xQDR\n\n\
    caguid=0x3001\nCa\t1 \"H-0000000000003001\"\t\t# \"h1 mlx4_0\"\n\
    [1](3002) \t\"S-0000000000001001\"[1]\t\t# lid 1 lmc 0 \"leaf1\" lid 4 4xQDR\n\n\
    caguid=0x3101\nCa\t1 \"H-0000000000003101\"\t\t# \"h2 mlx4_0\"\n\
    [1](3102) \t\"S-0000000000001001\"[2]\t\t# lid 2 lmc 0 \"leaf1\" lid 4 4xQDR\n\n\
    caguid=0x3201\nCa\t1 \"H-0000000000003201\"\t\t# \"h3 mlx4_0\"\n\
    [1](3202) \t\"S-0000000000001001\"[3]\t\t# lid 3 lmc 0 \"leaf1\" lid 4 4xQDR\n";

const IBQUERYERRORS: &str = "Errors for 0x1001 \"leaf1\"\n   GUID 0x1001 port ALL: [SymbolErrorCounter == \
    0]\n\
    \x20  GUID 0x1001 port 3: [PortXmitWait == 7] [PortXmitData == 70000 (68.359KB)]\n\
    \x20      Link info:      4   3[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>  \
    0x0000000000003202      3    1[  ] \"h3 mlx4_0\" ( )\n\
    Errors for \"h3 mlx4_0\"\n   GUID 0x3202 port 1: [SymbolErrorCounter == 0]\n\n\
    ## Summary: 4 nodes checked, 2 bad nodes found\n##          6 ports checked, 2 ports have errors \
    beyond threshold\n## Suppressed:\n";

const PERFQUERY: &str = "# Port counters: Lid 4 port 3 (CapMask: 0x1200)\n\
    PortSelect:......................3\n\
    CounterSelect:...................0x0000\nSymbolErrorCounter:..............0\n\
    LinkErrorRecoveryCounter:........0\n\
    LinkDownedCounter:...............0\nPortRcvErrors:...................0\n\
    PortXmitDiscards:................0\n\
    CounterSelect2:..................0x00\nVL15Dropped:.....................0\n\
    PortXmitData:....................17136\n\
    PortXmitWait:....................0\n";

const IBSTAT: &str = "CA 'mlx4_0'\n\tCA type: MT26428\n\tNumber of ports: 2\n\tFirmware version: 2.9.1000\n\
    \tHardware version: b0\n\tNode GUID: 0x0002c903000a1b20\n\tSystem image GUID: 0x0002c903000a1b23\n\
    \tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 40\n\t\tBase lid: 1\n\t\tLMC: 0\n\
    \t\tSM lid: 1\n\t\tCapability mask: 0x02510868\n\t\tPort GUID: 0x0002c903000a1b21\n\t\tLink layer: \
    InfiniBand\n\
    \tPort 2:\n\t\tState: Initializing\n\t\tPhysical state: LinkUp\n\t\tRate: 10\n\t\tBase lid: \
    0\n\t\tLMC: 0\n\
    \t\tSM lid: 0\n\t\tCapability mask: 0x02510868\n\t\tPort GUID: 0x0002c903000a1b22\n\t\tLink layer: \
    Ethernet\n";

const DB_CSV: &str = "START_NODES\nNodeDesc,NumPorts,NodeType,ClassVersion,BaseVersion,SystemImageGUID,Nod\
    eGUID,PortGUID\n\
    \"leaf1\",36,2,1,1,0x1001,0x1001,0x1001\n\"h1, mlx5_0\",1,1,1,1,0x3001,0x3001,0x3001\nEND_NODES\n\n\
    START_PORTS\nNodeGuid,PortGuid,PortNum,MSMLID,LID,LinkWidthActv,LinkSpeedActv,PortPhyState,PortState\n\
    0x1001,0x1001,0,1,4,2,512,5,4\n0x1001,0x1001,1,0,0,2,512,5,4\n0x3001,0x3001,1,1,1,2,512,5,4\n\
    END_PORTS\n\n\
    START_LINKS\nNodeGuid1,PortNum1,NodeGuid2,PortNum2\n0x1001,1,0x3001,1\nEND_LINKS\n\n\
    START_PM_INFO\nNodeGUID,PortGUID,PortNumber,LinkDownedCounter,SymbolErrorCounter,PortXmitWait\n\
    0x1001,0x1001,1,0,0,0\nEND_PM_INFO\n";

fn read(text: &str) -> SubnetFacts {
    let found = facts("out.txt", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(found.left, [], "{text}");
    found
}

fn found(text: &str) -> Vec<Finding> {
    check_subnet(&read(text))
}

fn outputs() -> [(&'static str, String); 6] {
    [
        ("iblinkinfo", iblinkinfo()),
        ("ibnetdiscover", IBNETDISCOVER.to_owned()),
        ("ibqueryerrors", IBQUERYERRORS.to_owned()),
        ("perfquery", PERFQUERY.to_owned()),
        ("ibstat", IBSTAT.to_owned()),
        ("ibdiagnet", DB_CSV.to_owned()),
    ]
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for (tool, text) in outputs() {
        let facts = read(&text);
        assert_eq!(facts.tools, [tool]);
        assert!(!facts.ports.is_empty(), "{tool}");
        assert_eq!(check_subnet(&facts), [], "{tool}");
    }
}

#[test]
fn a_speed_of_a_table_that_is_not_known_is_named() {
    for odd in ["1,1,1,2,513,5,4", "1,1,1,7,512,5,4"] {
        let text = DB_CSV.replacen("1,1,1,2,512,5,4", odd, 1);
        let facts = facts("out.txt", &text).expect("it is read");
        let left: Vec<usize> = facts.left.iter().map(|left| left.line).collect();
        assert_eq!(left, [11], "{:?}", facts.left);
        let known = facts.ports.iter().filter(|port| port.speed.is_some());
        assert_eq!(known.count(), 1);
        assert!(facts.ports.iter().all(|port| port.state.is_some()));
    }
}

/// The tool, a text of its output, what stands in its place, the rule, and words of what is found.
const FAULTS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "iblinkinfo",
        "25.78125 Gbps Active/  LinkUp)==>       1    1[  ] \"h1 mlx5_0\" ( )",
        "14.0625 Gbps Active/  LinkUp)==>       1    1[  ] \"h1 mlx5_0\" (Could be 25.78125 Gbps)",
        "ib-speed",
        "leaf1 port 1: the link runs at 4x FDR, and both ends can do 25.78125 Gbps",
    ),
    (
        "iblinkinfo",
        "4X       25.78125 Gbps Active/  LinkUp)==>       1    1[  ] \"spine1\" ( )",
        "1X       25.78125 Gbps Active/  LinkUp)==>       1    1[  ] \"spine1\" (Could be 4X )",
        "ib-width",
        "leaf1 port 2: the link runs at 1x EDR, and both ends can do 4X",
    ),
    (
        "iblinkinfo",
        "Active/  LinkUp)==>       3    1[  ] \"h3 mlx5_0\"",
        "Initialize/  LinkUp)==>       3    1[  ] \"h3 mlx5_0\"",
        "ib-init",
        "leaf3 port 1: stays in state Init",
    ),
    (
        "iblinkinfo",
        "Active/",
        "Initialize/",
        "ib-no-manager",
        "no port is active, and 18 wait",
    ),
    (
        "ibnetdiscover",
        "lid 1 lmc 0 \"leaf1\" lid 4 4xQDR",
        "lid 1 lmc 0 \"leaf1\" lid 4 4xSDR",
        "ib-speed",
        "the link runs at 4x SDR, and most links of hosts at 4x QDR",
    ),
    (
        "ibnetdiscover",
        "\"h1 mlx4_0\" lid 1 4xQDR",
        "\"h1 mlx4_0\" lid 1 1xQDR",
        "ib-width",
        "the link runs at 1x QDR, and most links of hosts at 4x QDR",
    ),
    (
        "ibnetdiscover",
        "lid [123] lmc",
        "lid 0 lmc",
        "ib-no-manager",
        "no port has a LID",
    ),
    (
        "ibqueryerrors",
        "port 1: [SymbolErrorCounter == 0]",
        "port 1: [SymbolErrorCounter == 65535] [VL15Dropped == 2]",
        "ib-errors",
        "h3 mlx4_0 port 1: SymbolErrorCounter is 65535: bits arrive wrong",
    ),
    (
        "ibqueryerrors",
        "[PortXmitWait == 7]",
        "[PortXmitWait == 70001 (68.360K)]",
        "ib-congestion",
        "leaf1 port 3: PortXmitWait is 70001 and PortXmitData 70000",
    ),
    (
        "perfquery",
        "LinkDownedCounter:...............0",
        "LinkDownedCounter:...............3",
        "ib-errors",
        "Lid 4 port 3: LinkDownedCounter is 3: the link went down",
    ),
    (
        "ibstat",
        "State: Active",
        "State: Initializing",
        "ib-no-manager",
        "and 1 wait for a subnet manager",
    ),
    (
        "ibdiagnet",
        "0x1001,0x1001,1,0,0,0",
        "0x1001,0x1001,1,5,0,0",
        "ib-errors",
        "leaf1 port 1: LinkDownedCounter is 5",
    ),
    (
        "ibdiagnet",
        "0x3001,0x3001,1,1,1,2,512,5,4",
        "0x3001,0x3001,1,1,1,2,512,5,2",
        "ib-init",
        "h1, mlx5_0 port 1: stays in state Init",
    ),
];

#[test]
fn each_fault_is_found_with_its_line() {
    for (tool, from, to, rule, expected) in FAULTS {
        let (_, whole) = outputs()
            .into_iter()
            .find(|(name, _)| name == tool)
            .expect("a tool");
        let text = match *from {
            "Active/" => whole.replace(from, to),
            "lid [123] lmc" => ["lid 1 lmc", "lid 2 lmc", "lid 3 lmc"]
                .iter()
                .fold(whole, |text, from| text.replace(from, to)),
            _ => {
                assert!(whole.contains(from), "{tool}: {from}\n{whole}");
                whole.replacen(from, to, 1)
            }
        };
        // Ends that disagree are named besides.
        let facts = facts("out.txt", &text).unwrap_or_else(|error| panic!("{error}"));
        let found = check_subnet(&facts);
        let one = found.iter().find(|finding| finding.rule == *rule);
        let one = one.unwrap_or_else(|| panic!("{tool}: {to}\n{found:#?}"));
        let said = format!("{}: {}", one.place, one.what);
        assert!(said.contains(expected), "{said}");
        assert!(
            one.evidence.iter().all(|seen| text.contains(&seen.text)),
            "{one:?}"
        );
        assert!(!one.evidence.is_empty(), "{one:?}");
        let others = found.iter().filter(|finding| finding.rule != *rule);
        assert_eq!(others.count(), 0, "{to}\n{found:#?}");
    }
}

#[test]
fn a_switch_with_fewer_links_upwards_than_the_others_is_found() {
    let text: Vec<String> = iblinkinfo()
        .lines()
        .filter(|line| !line.contains("3    3[  ] ==") || !line.contains("spine2"))
        .map(str::to_owned)
        .collect();
    let found = found(&text.join("\n"));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (found[0].rule, found[0].place.as_str()),
        ("ib-unbalanced", "leaf3")
    );
    assert!(
        found[0]
            .what
            .contains("links to other switches: 1, of 100 Gb/s together"),
        "{}",
        found[0].what
    );
}

#[test]
fn several_outputs_in_one_file_are_read_each_by_its_tool() {
    let joined = |tools: &[&str]| -> String {
        let outputs = outputs();
        let of_tools = outputs.iter().filter(|(tool, _)| tools.contains(tool));
        of_tools
            .map(|(tool, text)| format!("==> {tool} <==\n{text}\n"))
            .collect()
    };
    let tools = [
        "iblinkinfo",
        "ibnetdiscover",
        "ibqueryerrors",
        "perfquery",
        "ibstat",
        "ibdiagnet",
    ];
    assert_eq!(read(&joined(&tools)).tools, tools);
    // Those of one subnet: the counters belong to the ports that have links.
    let facts = read(&joined(&["ibnetdiscover", "ibqueryerrors"]));
    assert_eq!(check_subnet(&facts), []);
    let port = facts
        .ports
        .iter()
        .find(|port| port.title() == "leaf1 port 3");
    let port = port.expect("a port of both outputs");
    assert!(
        port.speed.is_some() && port.counters["PortXmitWait"].value == 7,
        "{port:?}"
    );
}

#[test]
fn lines_that_no_tool_prints_are_named_and_other_files_are_refused() {
    for (tool, text) in outputs() {
        if tool == "ibdiagnet" {
            // Tables besides the known ones are not read.
            continue;
        }
        let garbled = format!("{text}a line of another tool\n");
        let facts = facts("out.txt", &garbled).expect(tool);
        let last = garbled.lines().count();
        assert!(
            facts.left.iter().any(|left| left.line == last),
            "{tool}: {:?}",
            facts.left
        );
    }
    for text in ["", "hello\n", "topology = 3\n", "\u{1}\n"] {
        assert!(facts("out.txt", text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn garbled_outputs_never_panic(
        which in 0_usize..6,
        at in 0_usize..3000,
        length in 0_usize..60,
        with in "[ -~\n\t]{0,20}",
    ) {
        let [.., (_, text)] = &outputs()[..=which] else { return Ok(()) };
        let at = at.min(text.len());
        let end = (at + length).min(text.len());
        let garbled = format!("{}{with}{}", &text[..at], &text[end..]);
        if let Ok(facts) = facts("garbled", &garbled) {
            for finding in check_subnet(&facts) {
                prop_assert!(finding.to_string().contains(finding.rule));
            }
        }
    }
}

/// An options file as `opensm -c` writes it, with comments and other options, and beside it a tool's output.
#[test]
fn routing_engines_that_no_opensm_has_are_named() {
    let options = |engines: &str| {
        format!(
            "# Routing engine\n# Supported engines: minhop, updn, dnup\nrouting_engine {engines}\n\n\
             avoid_throttled_links FALSE\nmax_wire_smps 4\n"
        )
    };
    let found = |text: &str| {
        let facts = facts("opensm.conf", text).expect("it reads");
        assert_eq!(facts.left, []);
        check_subnet(&facts)
    };
    for known in [
        "(null)",
        "ftree,updn",
        "ar_ftree,ar_updn",
        "torus-2QoS,no_fallback",
    ] {
        assert_eq!(found(&options(known)), [], "{known}");
    }
    let odd = found(&options("adaptive,updn"));
    let rules: Vec<&str> = odd.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["ib-routing-engine"]);
    assert!(odd[0].what.contains("\"adaptive\""), "{}", odd[0]);
    assert_eq!(found(&options("ar_updnn"))[0].fix, "routing_engine ar_updn");
    let beside = format!(
        "==> iblinkinfo <==\n{}==> cat opensm.conf <==\n{}",
        iblinkinfo(),
        options("x")
    );
    assert_eq!(found(&beside).len(), 1);
    // What is written for a fabric file is known.
    for spread in [vendors::PathSpread::Flows, vendors::PathSpread::Packets] {
        let written = vendors::infiniband::opensm(spread);
        assert_eq!(found(&written), [], "{written}");
    }
}
