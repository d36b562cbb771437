//! SONiC's tables.

use super::build_with;
use fabric::config::{ALPHA_ONE, Limit};
use fabric::{BufferCounters, Drop, GroupCounters, PortCounters, QueueCounters, Rate, Span, Tally};
use vendors::sonic::read;
use vendors::{CountedPort, CountedSwitch};

const CONFIG: &str = include_str!("../../../../examples/sonic/config_db.json");

const LAB: &str = r#"
[[host]]
name = "h"
count = 2
[[switch]]
name = "sw"
sonic = "config_db.json"
[[link]]
between = ["h0", "sw:Ethernet4"]
length = "5m"
[[link]]
between = ["h1", "sw:Ethernet12"]
length = "5m"
"#;

#[test]
fn its_default_maps_do_not_know_dscp_26() {
    let network = build_with(LAB, &[("config_db.json", CONFIG)]).unwrap();
    let switch = &network.switches[0];
    assert_eq!(switch.ports, ["Ethernet4", "Ethernet12"]);
    let profile = &switch.config.profiles[0];
    assert!(profile.map.trust_dscp && !profile.map.trust_pcp);
    assert_eq!(
        [3, 4, 26, 46, 48].map(|dscp| profile.map.dscp[dscp].class),
        [3, 4, 1, 5, 6]
    );
    assert_eq!((profile.pfc.send, profile.pfc.obey), (0b11000, 0b11000));
    assert_eq!(
        (profile.queues[0].weight, profile.queues[3].weight),
        (14, 15)
    );
    let red = profile.queues[4].red.unwrap();
    assert_eq!(
        (red.min_bytes, red.max_bytes, red.mark, red.drop),
        (1 << 20, 2 << 20, true, false)
    );
    assert_eq!(profile.groups[3].limit, Limit::Dynamic(ALPHA_ONE / 8));
    assert_eq!(
        (
            profile.groups[3].headroom_bytes,
            profile.groups[0].headroom_bytes
        ),
        (177_152, 0)
    );
    assert_eq!(profile.groups[0].limit, Limit::Dynamic(ALPHA_ONE * 8));
    assert_eq!(switch.config.buffer.total_bytes, 16_000_000);
    assert_eq!(switch.config.buffer.headroom_pool_bytes, Some(2_000_000));
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    for (from, to, expected) in [
        (
            "\"dscp_to_tc_map\": \"AZURE\"",
            "\"dscp_to_tc_map\": \"AZUR\"",
            "DSCP_TO_TC_MAP has no entry \"AZUR\"; did you mean",
        ),
        (
            "\"pfc_enable\": \"3,4\"",
            "\"pfc_enable\": \"3,9\"",
            "config_db.json:21: ",
        ),
        (
            "\"type\": \"DWRR\", \"weight\": \"14\"",
            "\"type\": \"DRR\"",
            "\"DRR\" is no type of scheduler",
        ),
        (
            "\"dynamic_th\": \"-3\"",
            "\"dynamic_th\": \"99\"",
            "dynamic_th \"99\" is no power",
        ),
        (
            "\"WRED_PROFILE\"",
            "\"WRED_PROFILES\"",
            "config_db.json:29: WRED_PROFILES: this QoS table is not understood",
        ),
        ("\"PORT_QOS_MAP\": {", "\"PORT_QOS_MAP\": [", "no JSON"),
        (
            "\"26\": \"1\"",
            "\"26\": \"one\"",
            "config_db.json:3: DSCP_TO_TC_MAP AZURE 26: \"one\" is no number",
        ),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let error = read("config_db.json", &CONFIG.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{to}\n{error}");
    }
}

/// As `sonic-utilities` prints them: right-aligned, columns two wider than their heads at least.
const PRINTED: &str = include_str!("sonic.txt");

#[test]
fn it_prints_counters_as_its_commands_do() {
    let mut counters = PortCounters::default();
    (counters.ingress.packets, counters.ingress.bytes) = (1_234, 2_000_000_000);
    counters.ingress.dropped[Drop::Ingress as usize] = 30;
    counters.link.damaged = 10;
    counters.queues[3] = QueueCounters {
        sent_packets: 602,
        sent_bytes: 204_800,
        marked_packets: 120,
        marked_bytes: 120_000,
        peak_bytes: 2_057_328,
        paused_ps: 0,
    };
    counters.groups[3] = GroupCounters {
        shared_peak_bytes: 200_400,
        headroom_peak_bytes: 1_234,
    };
    let incidents = counters.incidents.get_or_insert_default();
    (incidents.pfc_received[3], incidents.pfc_sent[4]) = (1_200, 201);
    incidents.refused[0] = Tally {
        packets: 30,
        bytes: 33_000,
    };
    incidents.dropped[3][Drop::Early as usize] = Tally {
        packets: 3,
        bytes: 3_300,
    };
    incidents.dropped[3][Drop::Storm as usize] = Tally {
        packets: 4,
        bytes: 4_400,
    };
    // Refused on arrival: no drop of the queue.
    incidents.dropped[3][Drop::Ingress as usize] = Tally {
        packets: 30,
        bytes: 33_000,
    };
    (incidents.storms_detected[3], incidents.storms_restored[3]) = (2, 2);
    incidents.storms_detected[4] = 1;
    let port = |name: &str, counters| CountedPort {
        name: name.to_owned(),
        rate: Rate::from_gbps(100),
        counters,
    };
    let switch = CountedSwitch {
        elapsed: Span::from_us(1_000_000),
        buffer: BufferCounters {
            shared_peak_bytes: 300_000,
            headroom_peak_bytes: 432_640,
            ..BufferCounters::default()
        },
        ports: vec![
            port("Ethernet0", counters),
            port("Ethernet4", PortCounters::default()),
        ],
    };
    let text = read("config_db.json", CONFIG).unwrap().print(&switch);
    assert!(text == PRINTED, "{text}");
}
