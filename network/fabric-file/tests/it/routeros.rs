//! The script of the CRS504 lab, and the output of the switch after it.

use super::build_with;
use fabric::config::{Limit, Weigh};
use fabric::{Drop, PortCounters, Rate, Tally};
use vendors::routeros::{RouterOsConfig, TrustMode};
use vendors::{CountedPort, CountedSwitch, Imported};

const SCRIPT: &str = include_str!("../../../../examples/crs504/roce.rsc");
const PRINTED: &str = include_str!("../../../../examples/crs504/printed.txt");

const LAB: &str = r#"
[[host]]
name = "h"
count = 4
[[switch]]
name = "crs504"
routeros = ["roce.rsc", "more.rsc"]
[[link]]
between = ["h0", "crs504:qsfp28-1-1"]
[[link]]
between = ["h1", "crs504:qsfp28-2-1"]
[[link]]
between = ["h2", "crs504:qsfp28-3-1"]
[[link]]
between = ["h3", "crs504:qsfp28-4-1"]
"#;

fn config() -> RouterOsConfig {
    let mut config = RouterOsConfig::default();
    config.run("roce.rsc", SCRIPT).unwrap();
    config
}

#[test]
fn the_script_becomes_the_configuration() {
    let config = config();
    assert!(config.offloaded && config.dcbx && config.tx_managers[0].ecn);
    assert_eq!(config.ports.len(), 16);
    for port in config.ports.values() {
        assert_eq!(
            (port.profile.as_str(), port.pfc.as_str()),
            ("roce-profile", "roce-pfc")
        );
        assert_eq!(
            (port.trust_l3, port.egress_rates[3]),
            (TrustMode::Keep, Some(100_000_000_000))
        );
    }
}

/// Cells of a printed table's rows, without their blanks.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with(heading))
        .skip(1);
    let rows = lines.take_while(|line| !line.trim().is_empty() && !line.starts_with('['));
    let numbered = rows.filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    numbered
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[test]
fn it_prints_what_the_switch_printed() {
    let ours = config().print(&CountedSwitch::default());
    for heading in [
        "[tx-manager print]",
        "[tx-manager queue print]",
        "[profile print]",
        "[priority-flow-control",
    ] {
        assert_eq!(
            rows(&ours, heading),
            rows(PRINTED, heading),
            "{heading}\n{ours}"
        );
        assert!(!rows(&ours, heading).is_empty());
    }
}

/// The example of the manual's page about `/interface/ethernet/switch/qos/port`.
const STATS: &str = "[port print stats]
                  name:     ether2
             tx-packet:      2 887
               tx-byte:  3 938 897
           drop-packet:      1 799
             drop-byte:  2 526 144
      tx-queue0-packet:         50
      tx-queue1-packet:      1 871
      tx-queue3-packet:        774
      tx-queue5-packet:        192
        tx-queue0-byte:      3 924
        tx-queue1-byte:  2 468 585
        tx-queue3-byte:  1 174 932
        tx-queue5-byte:    291 456
    drop-queue1-packet:      1 799
      drop-queue1-byte:  2 526 144
";

#[test]
fn it_prints_the_statistics_of_ports_as_the_manual_does() {
    let mut counters = PortCounters::default();
    for (queue, packets, bytes) in [
        (0, 50, 3_924),
        (1, 1_871, 2_468_585),
        (3, 774, 1_174_932),
        (5, 192, 291_456),
    ] {
        (
            counters.queues[queue].sent_packets,
            counters.queues[queue].sent_bytes,
        ) = (packets, bytes);
    }
    counters.queues[3].peak_bytes = 14_080;
    counters.link.damaged = 17;
    let incidents = counters.incidents.get_or_insert_default();
    incidents.dropped[1][Drop::Ingress as usize] = Tally {
        packets: 1_700,
        bytes: 2_426_144,
    };
    incidents.dropped[1][Drop::Egress as usize] = Tally {
        packets: 99,
        bytes: 100_000,
    };
    let port = CountedPort {
        name: "ether2".to_owned(),
        rate: Rate::from_gbps(1),
        counters,
    };
    let ours = config().print(&CountedSwitch {
        ports: vec![port],
        ..CountedSwitch::default()
    });
    assert!(ours.contains(STATS), "{ours}");
    assert!(ours.contains("queue3-byte-max:  14 080\n"), "{ours}");
    assert!(ours.contains("       rx-fcs-error:         17\n"), "{ours}");
}

#[test]
fn it_monitors_what_the_switch_monitored() {
    let ours = config().print(&CountedSwitch::default());
    let monitor = PRINTED
        .lines()
        .skip_while(|line| *line != "[monitor]")
        .skip(1);
    let text: String = monitor.collect::<Vec<_>>().join("  ");
    let mut words = text.split_whitespace().peekable();
    let mut seen = 0;
    while let Some(name) = words.next() {
        let mut value = String::new();
        while let Some(word) = words.next_if(|word| !word.ends_with(':')) {
            value = format!("{value} {word}");
        }
        assert!(
            ours.contains(&format!("  {name}{value}\n")),
            "{name}{value}\n{ours}"
        );
        seen += 1;
    }
    assert_eq!(seen, 16);
}

#[test]
fn trust_without_a_map_puts_everything_into_the_profile_default() {
    let lab = |more: &str| build_with(LAB, &[("roce.rsc", SCRIPT), ("more.rsc", more)]).unwrap();
    let class = |more: &str| lab(more).switches[0].config.profiles[0].map.dscp[26].class;
    // The manual: a value without an entry gets the profile "default", not the port's.
    assert_eq!(class("# nothing"), 1);
    assert_eq!(
        class("/interface ethernet switch qos map ip\nadd dscp=26 profile=roce-profile"),
        3
    );
    let ignored = lab("/interface/ethernet/switch/qos/port\nset [find] trust-l3=ignore");
    let map = &ignored.switches[0].config.profiles[0].map;
    assert_eq!((map.trust_dscp, map.default.class), (false, 3));
}

#[test]
fn queues_groups_and_pauses() {
    let network = build_with(LAB, &[("roce.rsc", SCRIPT), ("more.rsc", "")]).unwrap();
    let switch = &network.switches[0];
    assert_eq!(
        switch.ports,
        ["qsfp28-1-1", "qsfp28-2-1", "qsfp28-3-1", "qsfp28-4-1"]
    );
    assert!(matches!(switch.imported, Some(Imported::RouterOs(_))));
    let profile = &switch.config.profiles[0];
    assert_eq!(
        (switch.config.profiles.len(), profile.weigh),
        (1, Weigh::Packets)
    );
    assert_eq!(
        profile.queues.map(|queue| queue.level),
        [0, 0, 0, 1, 1, 1, 8, 9]
    );
    assert_eq!((profile.pfc.send, profile.pfc.obey), (0b1000, 0b1000));
    // A lossless queue has its own buffers and the whole shared pool, and no more.
    let limit = Limit::Static(616_064 + (2_560 << 10));
    assert_eq!(profile.queues[3].limit, limit);
    assert!(profile.queues[3].red.unwrap().mark);
    assert!(profile.groups[3].headroom_bytes > 0 && profile.groups[1].headroom_bytes == 0);
    // Without its rate, a queue cannot compute pause times and does not obey.
    let more = "/interface ethernet switch qos port\nset [find] egress-rate-queue3=\"\"";
    let unrated = build_with(LAB, &[("roce.rsc", SCRIPT), ("more.rsc", more)]).unwrap();
    assert_eq!(unrated.switches[0].config.profiles[0].pfc.obey, 0);
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    let message = |text: &str| {
        let mut config = RouterOsConfig::default();
        config.run("x.rsc", text).expect("the rest is read");
        config
            .left
            .first()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let qos = "/interface ethernet switch qos";
    for (text, expected) in [
        (
            format!("{qos} portt\nset 0 pfc=x"),
            "the menu \"qos portt\" is not known; did you mean \"port\"?",
        ),
        (
            format!("{qos} priority-flow-control\nset 9 rx=yes"),
            "there is no entry \"9\"; there are ",
        ),
        (
            format!("{qos} port set qsfp28-1-1 pfc=roce"),
            "there is no pfc \"roce\"",
        ),
        (
            format!("{qos} port\nset 0 egress-rate-queue3=fast"),
            "\"fast\" is not understood; write a rate",
        ),
        (
            format!("{qos} tx-manager queue\nset 3 schedule=high"),
            "write strict-priority, high-priority-group",
        ),
        (
            format!("{qos} profile\nadd traffic-class=3"),
            "x.rsc:2: \"add traffic-class=3\": add needs name=NAME",
        ),
        (
            format!("{qos} profile\nadd name=a traffic-class=8"),
            "write a number from 0 to 7",
        ),
        (
            format!("{qos} priority-flow-control\nset 0 rx=yes"),
            "the entry \"disabled\" cannot be changed",
        ),
        (
            format!("{qos} map ip\nadd dscp=26 profile=x"),
            "x.rsc:2: there is no profile \"x\"",
        ),
    ] {
        assert!(
            message(&text).contains(expected),
            "{text}\n{}",
            message(&text)
        );
    }
}
