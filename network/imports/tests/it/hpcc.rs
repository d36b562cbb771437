//! Files of HPCC's model.

use crate::files::{experiment, input, run};
use imports::hpcc::{HpccFiles, import};
use imports::{ImportError, Imported};

/// Four hosts at one switch, the last link slower.
const TOPOLOGY: &str = "\
5 1 4
4
0 4 100Gbps 0.001ms 0
1 4 100Gbps 1us 0

2 4 100Gbps 1000ns 0.0
3 4 25Gbps 0.001ms 0.000001
";

const FLOWS: &str = "3\n0 3 3 100 1000000 2.000001\n1 3 3 100 5000 2\n2 1 1 200 64 0\n0 1 behind\n";

const CONFIG: &str = "\
ENABLE_QCN 1 {0: disable, 1: enable}
USE_DYNAMIC_PFC_THRESHOLD 1
PACKET_PAYLOAD_SIZE 1000
TOPOLOGY_FILE mix/topology.txt
SIMULATOR_STOP_TIME 4.00

CC_MODE 3
EWMA_GAIN 0.00390625
RATE_AI 50Mb/s
L2_BACK_TO_ZERO 0
HAS_WIN 1
GLOBAL_T 1
U_TARGET 0.95
MI_THRESH 5
KMAX_MAP 2 25000000000 400 100000000000 1600
KMIN_MAP 2 25000000000 100 100000000000 400
PMAX_MAP 2 25000000000 0.2 100000000000 0.2
BUFFER_SIZE 32
FUTURE_KEY 7
";

fn imported(
    topology: &str,
    flows: Option<&str>,
    config: Option<&str>,
) -> Result<Imported, ImportError> {
    import(&HpccFiles {
        topology: input("topology.txt", topology),
        flows: flows.map(|text| input("flow.txt", text)),
        config: config.map(|text| input("config.txt", text)),
    })
}

#[test]
fn a_network_has_its_hosts_switches_links_and_flows() {
    let imported = imported(TOPOLOGY, Some(FLOWS), None).unwrap();
    let flow = "from,to,bytes,start_ns\nh0,h3,1000000,2000001000\nh1,h3,5000,2000000000\n";
    assert_eq!(imported.lists[1].text, flow);
    assert_eq!(
        imported.notes,
        [
            "flow.txt:5: 1 lines behind the 3 flows that the first line announces: the model does not \
             read them either"
        ]
    );
    let built = experiment(&imported);
    let rates: Vec<u64> = built
        .port_rates()
        .iter()
        .map(|rate| rate.bps() / 1_000_000_000)
        .collect();
    assert_eq!(
        rates.iter().filter(|rate| **rate == 25).count(),
        rates.len() / 4
    );
    let ran = run(&imported);
    assert_eq!(ran.results.flows.len(), 3);
    let bytes: u64 = ran
        .results
        .flows
        .iter()
        .map(|flow| flow.delivered_bytes)
        .sum();
    assert_eq!(bytes, 1_005_064);
}

#[test]
fn a_configuration_becomes_adapters_and_switches() {
    let imported = imported(TOPOLOGY, Some(FLOWS), Some(CONFIG)).unwrap();
    for line in [
        "duration = \"4s\"",
        "mtu = 1024",
        "congestion = \"hpcc\"",
        "utilisation = 0.95",
        "stages = 5",
        "ecn = { min = \"400kB\", max = \"1600kB\", probability = 0.2 }",
        "classes = [1, 3]",
        "dscp = { 10 = 1, 26 = 3 }",
        // Two links of 1 us, both ways, and a packet at each of both rates.
        "base-rtt = \"4400ns\"",
        "window = \"52kB\"",
    ] {
        assert!(
            imported.fabric.contains(line),
            "{line}\n{}",
            imported.fabric
        );
    }
    let notes = imported.notes.join("\n");
    assert!(
        notes.contains("config.txt:19: FUTURE_KEY is not understood"),
        "{notes}"
    );
    assert!(notes.contains("PACKET_PAYLOAD_SIZE 1000"), "{notes}");
    assert!(
        notes.contains("ports of 25Gb/s have thresholds of their own"),
        "{notes}"
    );
    assert_eq!(imported.notes.len(), 4, "{notes}");
    run(&imported);
}

#[test]
fn mistakes_of_a_topology_are_named_with_their_line() {
    let network = |text: &str| imported(text, None, None).unwrap_err().to_string();
    for (said, expected) in [
        (
            network(""),
            "topology.txt: the file ends before the numbers of nodes, switches and links",
        ),
        (
            network("9999999999 1 1"),
            "topology.txt:1: the number of nodes is 9999999999, and at most",
        ),
        (
            network("2 1 1\n7\n"),
            "topology.txt:2: switch 7: there are 2 nodes, from 0 on",
        ),
        (
            network("3 2 1\n1 1\n"),
            "topology.txt:2: switch 1 is listed twice",
        ),
        (
            network("2 1 2\n1\n0 1 1Gbps 1us 0\n"),
            "topology.txt: the file ends before link 2 of 2",
        ),
        (
            network("2 1 1\n1\n0 1 fast 1us 0\n"),
            "topology.txt:3: a rate such as 100Gbps is not \"fast\"",
        ),
        (
            network("2 1 1\n1\n0 0 1Gbps 1us 0\n"),
            "topology.txt:3: a link from a node to itself",
        ),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn mistakes_of_flows_and_configurations_are_named_with_their_line() {
    let flows = |text: &str| {
        let said = imported(TOPOLOGY, Some(text), None).unwrap_err();
        said.to_string()
    };
    let config = |text: &str| {
        let said = imported(TOPOLOGY, None, Some(text)).unwrap_err();
        said.to_string()
    };
    for (said, expected) in [
        (
            flows("1\n0 4 3 100 1 0\n"),
            "flow.txt:2: the receiver 4 is a switch",
        ),
        (
            flows("2\n0 1 3 100 1 0\n"),
            "flow.txt: the file ends before flow 2 of 2",
        ),
        (
            flows("1\n0 1 9 100 1 0\n"),
            "flow.txt:2: the class (pg) is 9, and at most 7",
        ),
        (
            flows("1\n0 1 3 100 1 -1\n"),
            "flow.txt:2: the start in seconds is a number, and not \"-1\"",
        ),
        (
            config("CC_MODE 7\n"),
            "config.txt:1: CC_MODE 7 is TIMELY, which is not imported",
        ),
        (
            config("\nLINK_DOWN 5 0 1\n"),
            "config.txt:2: there is no link between 0 and 1",
        ),
        (
            config("KMAX_MAP 2 1 2\n"),
            "config.txt:1: a rate in bits per second is missing: word 5",
        ),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}
