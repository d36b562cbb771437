//! Highest rates of queues and PFC watchdogs: what a plan writes, and what configurations of others say.

use doctor::switch_plan;
use fabric_file::{Document, Network};
use vendors::{Dialect, HighestRate, PauseWatchdog};

const FILE: &str = "[[host]]\nname = \"h\"\ncount = 2\n[[switch]]\nname = \"leaf\"\n[[link]]\n\
    between = [\"h*\", \"leaf\"]\nlength = \"5m\"\nrate = \"100Gb/s\"\n[qos.default]\n\
    queue.0.rate = \"2.5Gb/s\"\npfc.watchdog = { detect = \"300ms\", restore = \"2s\" }\n";

fn network() -> Network {
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let document = Document::read("lab.toml", FILE, &mut none).expect("TOML");
    let file = document.fields().expect("known fields");
    Network::build(&document, &file, &mut none).expect("a network")
}

/// Lines of each system's own language for a queue of 2.5 Gb/s and a watchdog of 300 ms and 2 s, and the
/// notes beside them.
const WRITTEN: &[(Dialect, &[&str], &[&str])] = &[
    (
        Dialect::RouterOs,
        &["set qsfp28-1-1 egress-rate-queue0=2500.0Mbps egress-rate-queue3=100.0Gbps"],
        &[
            "the PFC watchdog (detection 300 ms, restoration 2000 ms) is not written: configure it there",
        ],
    ),
    (
        Dialect::Sonic,
        &[
            "\"pir\": \"312500000\"",
            "\"detection_time\": \"300\"",
            "\"restoration_time\": \"2000\"",
            "\"action\": \"drop\"",
            "\"POLL_INTERVAL\": \"100\"",
            "\"pfcwd_sw_enable\": \"3\"",
        ],
        &[],
    ),
    (
        Dialect::Nvue,
        &[
            "nv set qos egress-shaper ROCKERY traffic-class 0 max-rate 2500000",
            "nv set interface swp1 qos egress-shaper profile ROCKERY",
            "nv set interface swp1 qos pfc-watchdog state enable",
            "nv set qos pfc-watchdog polling-interval 100",
            "nv set qos pfc-watchdog robustness 3",
        ],
        &[
            "the PFC watchdog (detection 300 ms, restoration 2000 ms) is written with detection 300 ms, \
             restoration left to the device",
        ],
    ),
    (
        Dialect::Eos,
        &[
            "      shape rate 2500000 kbps",
            "   priority-flow-control pause watchdog port timer timeout 0.300 polling-interval auto \
             recovery-time 2.000",
            "   priority-flow-control pause watchdog port action drop",
        ],
        &[],
    ),
    (
        Dialect::NxOs,
        &[
            "    shape min 0 kbps max 2500000 kbps",
            "  priority-flow-control watch-dog-interval on",
            "priority-flow-control watch-dog interval 100",
            "priority-flow-control watch-dog shutdown-multiplier 3",
            "priority-flow-control auto-restore multiplier 20",
        ],
        &[],
    ),
    (
        Dialect::Os10,
        &["  shape min kbps 0 max kbps 2500000"],
        &[
            "the PFC watchdog (detection 300 ms, restoration 2000 ms) is not written: configure it there",
        ],
    ),
    (
        Dialect::Junos,
        &[
            "set class-of-service schedulers ROCKERY-0 shaping-rate 2500000000",
            "set class-of-service congestion-notification-profile ROCKERY pfc-watchdog",
        ],
        &[
            "the PFC watchdog (detection 300 ms, restoration 2000 ms) is written with detection 200 ms, \
             restoration 200 ms",
        ],
    ),
];

#[test]
fn rates_and_watchdogs_are_written_in_the_words_of_each_system() {
    let network = network();
    let switches = Dialect::ALL.into_iter().filter(|it| !it.is_host());
    assert_eq!(switches.count(), WRITTEN.len());
    for (dialect, lines, notes) in WRITTEN {
        let plan = switch_plan(&network, "leaf", *dialect).expect("a plan");
        let written = dialect.write_groups(&plan.groups, dialect.versions().1);
        let (written, _) = written.expect("one setting for all ports");
        for line in *lines {
            assert!(written.text.contains(line), "{line}\n{}", written.text);
        }
        let said: Vec<&str> = written.notes.iter().map(|note| note.0.as_str()).collect();
        let about = said
            .iter()
            .filter(|note| note.contains("watchdog") || note.contains("rate"));
        assert_eq!(
            about.copied().collect::<Vec<_>>(),
            *notes,
            "{}",
            dialect.name()
        );
    }
}

fn times(detect_ms: u32, restore_ms: u32) -> Option<PauseWatchdog> {
    Some(PauseWatchdog {
        detect_ms: Some(detect_ms),
        restore_ms: Some(restore_ms),
    })
}

/// The watchdog of a configuration's first port, and how many lines were not understood.
fn watchdog(dialect: Dialect, text: &str) -> (Option<PauseWatchdog>, usize) {
    let read = dialect
        .read_groups("f", text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let largest = read.largest().expect("a port");
    (largest.watchdog, read.outcomes.left().len())
}

#[test]
fn watchdogs_of_eos_are_of_the_switch_and_of_ports() {
    let base =
        "qos profile P\n   priority-flow-control on\n   priority-flow-control priority 3 no-drop\n";
    let port = "interface Ethernet1/1\n   service-profile P\n   qos trust dscp\n";
    let all = "priority-flow-control pause watchdog default timeout 0.05\n\
               priority-flow-control pause watchdog default recovery-time 1.22\n\
               priority-flow-control pause watchdog default polling-interval 0.02\n";
    let own = "   priority-flow-control pause watchdog port timer timeout 0.1 polling-interval auto \
               recovery-time 3 forced\n";
    for (before, in_profile, after, expected) in [
        ("", "", "", (None, 0)),
        (all, "", "", (times(50, 1220), 0)),
        (all, own, "", (times(100, 3000), 0)),
        (
            all,
            "",
            "   no priority-flow-control pause watchdog\n",
            (None, 0),
        ),
        (
            all,
            "",
            "   priority-flow-control pause watchdog port action notify-only\n",
            (None, 0),
        ),
        (
            "priority-flow-control pause watchdog action no-drop\n",
            "   priority-flow-control pause watchdog\n",
            "",
            (None, 0),
        ),
        (
            "",
            "   priority-flow-control pause watchdog\n",
            "",
            (Some(PauseWatchdog::default()), 0),
        ),
        (
            "priority-flow-control pause watchdog default timeout 99\n",
            "",
            "",
            (None, 1),
        ),
        (
            "priority-flow-control pause watchdog default frob 1\n",
            "",
            "",
            (None, 1),
        ),
        (
            all,
            "   priority-flow-control pause watchdog often\n",
            "",
            (times(50, 1220), 1),
        ),
        (
            all,
            "   priority-flow-control priority 3 drop\n",
            "",
            (None, 0),
        ),
    ] {
        let text = format!("{before}{base}{in_profile}{port}{after}");
        assert_eq!(watchdog(Dialect::Eos, &text), expected, "{text}");
    }
}

#[test]
fn watchdogs_of_nxos_are_on_for_the_switch_and_for_ports() {
    let base = "class-map type qos match-any R\n  match dscp 26\npolicy-map type qos IN\n  class R\n    \
                set qos-group 3\npolicy-map type network-qos N\n  class type network-qos c-8q-nq3\n    \
                mtu 9216\n    pause pfc-cos 3\nsystem qos\n  service-policy type network-qos N\n";
    let port = "interface Ethernet1/1\n  priority-flow-control mode on\n  service-policy type qos input IN\n";
    let on = "priority-flow-control watch-dog-interval on\n";
    for (all, own, expected) in [
        ("", "", (None, 0)),
        (on, "", (None, 0)),
        (
            "",
            "  priority-flow-control watch-dog-interval on\n",
            (None, 0),
        ),
        (
            on,
            "  priority-flow-control watch-dog-interval on\n",
            (times(100, 1000), 0),
        ),
        (
            on,
            "  no priority-flow-control watch-dog-interval on\n",
            (None, 0),
        ),
        (
            on,
            "  priority-flow-control watch-dog-interval on disable-action\n",
            (None, 0),
        ),
        (
            on,
            "  priority-flow-control watch-dog-interval 200\n",
            (None, 1),
        ),
        (
            "priority-flow-control watch-dog-interval on\npriority-flow-control watch-dog interval 200\n\
             priority-flow-control watch-dog shutdown-multiplier 2\n\
             priority-flow-control auto-restore multiplier 5\n",
            "  priority-flow-control watch-dog-interval on\n",
            (times(400, 1000), 0),
        ),
        (
            "priority-flow-control watch-dog-interval on\npriority-flow-control watch-dog interval 5\n",
            "  priority-flow-control watch-dog-interval on\n",
            (times(100, 1000), 1),
        ),
    ] {
        let text = format!("{base}{all}{port}{own}");
        assert_eq!(watchdog(Dialect::NxOs, &text), expected, "{text}");
    }
}

#[test]
fn watchdogs_of_nvue_look_in_intervals() {
    for (text, expected) in [
        (
            "nv set qos roce\nnv set interface swp1 link mtu 9216\n",
            (None, 0),
        ),
        (
            "nv set qos roce\nnv set interface swp1 qos pfc-watchdog\n",
            (
                Some(PauseWatchdog {
                    detect_ms: Some(300),
                    restore_ms: None,
                }),
                0,
            ),
        ),
        (
            "nv set qos roce\nnv set interface swp1-2 qos pfc-watchdog state enable\n\
             nv set qos pfc-watchdog polling-interval 200\nnv set qos pfc-watchdog robustness 5\n",
            (
                Some(PauseWatchdog {
                    detect_ms: Some(1000),
                    restore_ms: None,
                }),
                0,
            ),
        ),
        (
            "nv set qos roce\nnv set interface swp1 qos pfc-watchdog state disable\n\
             nv set qos pfc-watchdog recovery-interval 5\n",
            (None, 1),
        ),
    ] {
        assert_eq!(watchdog(Dialect::Nvue, text), expected, "{text}");
    }
}

/// Highest rates in the forms in which systems have them, with the bits per second of queue 3; a form that
/// is none is not understood.
const RATES: &[(Dialect, &str, Option<u64>)] = &[
    (Dialect::Eos, "shape rate 25000000", Some(25_000_000_000)),
    (
        Dialect::Eos,
        "shape rate 25000000 kbps",
        Some(25_000_000_000),
    ),
    (Dialect::Eos, "shape rate 25 gbps", Some(25_000_000_000)),
    (Dialect::Eos, "no shape rate", None),
    (
        Dialect::NxOs,
        "shape min 1 gbps max 25 gbps",
        Some(25_000_000_000),
    ),
    (
        Dialect::NxOs,
        "shape min 0 max 25000000000",
        Some(25_000_000_000),
    ),
    (
        Dialect::Os10,
        "shape min kbps 0 max mbps 25000",
        Some(25_000_000_000),
    ),
    (
        Dialect::Os10,
        "shape min mbps 5 10 max mbps 25000 30",
        Some(25_000_000_000),
    ),
    (Dialect::Nvue, "max-rate 25000000", Some(25_000_000_000)),
    (Dialect::Nvue, "min-rate 0", None),
];

/// Forms that are not compared: the result says so.
const ODD_RATES: &[(Dialect, &str)] = &[
    (Dialect::Eos, "shape rate 50 percent"),
    (Dialect::NxOs, "shape percent 50"),
    (Dialect::NxOs, "random-detect sometimes"),
    (Dialect::Os10, "shape min pps 0 max pps 25000"),
    (Dialect::Nvue, "min-rate 5"),
];

/// A configuration with this line in queue 3.
fn with_queue(dialect: Dialect, line: &str) -> String {
    match dialect {
        Dialect::Eos => format!(
            "qos profile P\n   tx-queue 3\n      {line}\ninterface Ethernet1/1\n   service-profile P\n   \
             qos trust dscp\n"
        ),
        Dialect::NxOs => format!(
            "policy-map type queuing Q\n  class type queuing c-out-8q-q3\n    {line}\nsystem qos\n  \
             service-policy type queuing output Q\ninterface Ethernet1/1\n  priority-flow-control mode on\n"
        ),
        Dialect::Os10 => format!(
            "class-map type queuing C\n match queue 3\npolicy-map type queuing Q\n class C\n  {line}\n\
             interface ethernet1/1/1\n service-policy output type queuing Q\n priority-flow-control mode on\n"
        ),
        _ => format!(
            "nv set qos egress-shaper S traffic-class 3 {line}\n\
             nv set interface swp1 qos egress-shaper profile S\n"
        ),
    }
}

#[test]
fn highest_rates_are_read_in_every_form() {
    for (dialect, line, bps) in RATES {
        let text = with_queue(*dialect, line);
        let read = dialect
            .read_groups("f", &text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.outcomes.left(), [], "{text}");
        let rate = bps.map(|bps| HighestRate { bps, burst: None });
        assert_eq!(
            read.largest().expect("a port").queues[3].rate,
            rate,
            "{text}"
        );
    }
    for (dialect, line) in ODD_RATES {
        let text = with_queue(*dialect, line);
        let read = dialect
            .read_groups("f", &text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let left = read.outcomes.left();
        assert_eq!(left.len(), 1, "{text}: {left:?}");
        assert!(!left[0].areas.is_empty(), "{left:?}");
    }
}
