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
            "config_db.json:29: WRED_PROFILES: this table is not known; did you mean WRED_PROFILE?",
        ),
        ("\"PORT_QOS_MAP\": {", "\"PORT_QOS_MAP\": [", "no JSON"),
        (
            "\"26\": \"1\"",
            "\"26\": \"one\"",
            "config_db.json:3: DSCP_TO_TC_MAP AZURE 26: \"one\" is no number",
        ),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let message = match read("config_db.json", &CONFIG.replacen(from, to, 1)) {
            // A text that is no JSON is refused; of others the rest is read.
            Err(error) => error.to_string(),
            Ok(config) => {
                let left = config.left.iter().map(ToString::to_string);
                left.collect::<Vec<_>>().join("\n")
            }
        };
        assert!(message.contains(expected), "{to}\n{message}");
    }
}

#[test]
fn qos_and_buffers_may_be_in_files_of_their_own() {
    let whole: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(CONFIG).expect("JSON");
    let (buffers, qos): (serde_json::Map<_, _>, serde_json::Map<_, _>) = whole
        .into_iter()
        .partition(|(table, _)| table.starts_with("BUFFER") || table == "PORT");
    let text = |tables| serde_json::Value::Object(tables).to_string();
    let (qos, buffers) = (text(qos), text(buffers));
    let lab = LAB.replace("\"config_db.json\"", "[\"qos.json\", \"buffers.json\"]");
    let parts = build_with(&lab, &[("qos.json", &qos), ("buffers.json", &buffers)]).unwrap();
    let one = build_with(LAB, &[("config_db.json", CONFIG)]).unwrap();
    assert_eq!(parts.switches[0].config, one.switches[0].config);
    // Either alone names its ports.
    assert!(read("qos.json", &qos).is_ok() && read("buffers.json", &buffers).is_ok());
}

/// A switch of the traditional buffer model: lossless buffers are made of speed and cable.
const TRADITIONAL: &str = r#"{
    "PORT": { "Ethernet0": { "speed": "100000" }, "Ethernet4": { "speed": "100000" } },
    "CABLE_LENGTH": { "AZURE": { "Ethernet0": "300m", "Ethernet4": "5m" } },
    "TC_TO_PRIORITY_GROUP_MAP": { "M": { "3": "3" } },
    "PORT_QOS_MAP": { "Ethernet0,Ethernet4": { "tc_to_pg_map": "M", "pfc_enable": "3" } },
    "BUFFER_POOL": { "pool": { "type": "both", "size": "14000000", "xoff": "2000000" } },
    "PFC_WD": {
        "Ethernet0": { "detection_time": "200", "restoration_time": "200", "action": "alert" },
        "Ethernet4": { "detection_time": "200", "action": "drop" }
    }
}"#;

#[test]
fn lossless_buffers_are_made_of_speed_and_cable() {
    let lab = LAB
        .replace("Ethernet4", "Ethernet0")
        .replace("Ethernet12", "Ethernet4");
    let headroom = |lab: &str, files: &[(&str, &str)]| {
        let network = build_with(lab, files).unwrap();
        let config = &network.switches[0].config;
        let of = |port: usize| {
            let profile = &config.profiles[usize::from(config.ports[port].profile)];
            profile.groups[3].headroom_bytes
        };
        // A pool of both directions is all of the memory.
        assert_eq!(config.buffer.total_bytes, 16_000_000);
        (of(0), of(1))
    };
    let (long, short) = headroom(&lab, &[("config_db.json", TRADITIONAL)]);
    assert!(short > 100_000 && long > short + 100_000, "{long} {short}");
    let lab = lab.replace(
        "\"config_db.json\"",
        "[\"config_db.json\", \"pg_profile_lookup.ini\"]",
    );
    let lookup = "# PG lossless profiles.\n# speed cable size xon xoff threshold xon_offset\n\
                  100000 5m 19456 19456 160000 -3 2496\n";
    let files = [
        ("config_db.json", TRADITIONAL),
        ("pg_profile_lookup.ini", lookup),
    ];
    // 300 m are not in the table: the port has no lossless buffer, and that is said.
    assert_eq!(headroom(&lab, &files), (0, 160_000));
    let network = build_with(&lab, &files).unwrap();
    let imported = network.switches[0].imported.as_ref().unwrap();
    let left: Vec<String> = imported.left().iter().map(ToString::to_string).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(
        left[0].contains("no profile for speed 100000 and 300m"),
        "{left:?}"
    );
}

#[test]
fn watchdogs_that_do_not_drop_are_not_simulated_and_named() {
    let config = read("config_db.json", TRADITIONAL).unwrap();
    assert!(config.ports.values().all(|port| port.watchdog.is_none()));
    let said: Vec<String> = config
        .not_simulated
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("pg_profile_lookup.ini"), "{said:?}");
    let said = &said[1..];
    assert!(
        said[0].contains("alert reports a storm and drops nothing"),
        "{said:?}"
    );
    assert!(
        said[1].contains("without detection_time and restoration_time"),
        "{said:?}"
    );
}

#[test]
fn the_platforms_table_has_its_own_headroom_and_the_computed_one_is_named() {
    // Tomahawk 3 at 400 Gb/s, which assumes frames of 64 and of 1082 bytes in equal parts.
    let table = "400000 5m 19456 19456 178562 -3 2496\n400000 300m 19456 19456 373888 -3 2496\n";
    let config = TRADITIONAL.replace("100000", "400000");
    let lab = LAB
        .replace("Ethernet12", "Ethernet0")
        .replace("length = \"5m\"", "rate = \"400Gb/s\"");
    let headroom = |lab: &str, files: &[(&str, &str)]| {
        let network = build_with(lab, files).unwrap();
        let switch = &network.switches[0];
        let port = |name: &str| switch.ports.iter().position(|own| own == name).unwrap();
        let of = |name: &str| {
            let number = switch.config.ports[port(name)].profile;
            switch.config.profiles[usize::from(number)].groups[3].headroom_bytes
        };
        let said = switch.imported.as_ref().unwrap().not_simulated();
        let said = said
            .iter()
            .any(|own| own.why.contains("pg_profile_lookup.ini"));
        (of("Ethernet4"), of("Ethernet0"), said)
    };
    let (short, long, is_said) = headroom(&lab, &[("config_db.json", &config)]);
    // Packets that fill cells worst: no table of a platform may be exceeded.
    assert!(
        short >= 178_562 && long >= 373_888 && is_said,
        "{short} {long}"
    );
    let both = lab.replace(
        "\"config_db.json\"",
        "[\"config_db.json\", \"pg_profile_lookup.ini\"]",
    );
    let files = [
        ("config_db.json", config.as_str()),
        ("pg_profile_lookup.ini", table),
    ];
    assert_eq!(headroom(&both, &files), (178_562, 373_888, false));
}

#[test]
fn pools_that_are_larger_than_the_memory_are_named() {
    let with = |memory: u64| {
        let state =
            format!("{{ \"BUFFER_MAX_PARAM_TABLE|global\": {{ \"mmu_size\": \"{memory}\" }} }}");
        let files = [("config_db.json", TRADITIONAL), ("state.json", &state)];
        let config = vendors::sonic::read_files(&files).unwrap();
        assert_eq!(config.pool_bytes, 16_000_000);
        assert_eq!(config.memory_bytes, Some(memory));
        let mut said = config.not_simulated.iter();
        said.any(|own| own.why.contains("the chip has"))
    };
    assert!(with(15_999_999) && !with(16_000_000));
    let config = read("config_db.json", TRADITIONAL).unwrap();
    assert_eq!(config.memory_bytes, None);
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
