//! Each dialect reads its own configurations as the intent that was written, and both simulate alike.

use doctor::cost_simulation::Case;
use proptest::prelude::*;
use vendors::intent::{Ecn, HostSettings, Pause, Port, Queue, Schedule, Trust};
use vendors::{Dialect, HighestRate, Intent, PathSpread, PauseWatchdog};

const GIGABIT: u64 = 1_000_000_000;

fn queue() -> impl Strategy<Value = Queue> {
    let schedule = prop_oneof![
        Just(Schedule::Strict),
        (1..=255_u8).prop_map(Schedule::Weighted),
        (1..=100_u8).prop_map(Schedule::Background),
    ];
    let thresholds =
        (1..3_000_000_u32, 0..3_000_000_u32, 1..=100_u8).prop_map(|(min, more, percent)| {
            Ecn::Thresholds {
                min,
                max: min + more,
                percent,
            }
        });
    let ecn = prop_oneof![2 => Just(None), 1 => Just(Some(Ecn::Automatic)), 2 => thresholds.prop_map(Some)];
    let bps = prop_oneof![
        1_000_000..10_000_000_000_u64,
        (1..=800_u64).prop_map(|gbps| gbps * GIGABIT)
    ];
    let burst = proptest::option::of(1..1_000_000_u32);
    let rate = (bps, burst).prop_map(|(bps, burst)| HighestRate { bps, burst });
    let rate = proptest::option::weighted(0.3, rate);
    (schedule, ecn, rate).prop_map(|(schedule, ecn, rate)| Queue {
        schedule,
        ecn,
        rate,
    })
}

/// Times on both sides of what devices take.
fn watchdog() -> impl Strategy<Value = PauseWatchdog> {
    let time = || prop_oneof![0..100_u32, 100..6000_u32, 6000..100_000_u32].prop_map(Some);
    (time(), time()).prop_map(|(detect_ms, restore_ms)| PauseWatchdog {
        detect_ms,
        restore_ms,
    })
}

/// Breaks on both sides of what devices take.
fn spread() -> impl Strategy<Value = PathSpread> {
    let gap = proptest::option::of(prop_oneof![0..3000_u32, any::<u32>()]);
    prop_oneof![
        Just(PathSpread::Flows),
        Just(PathSpread::Packets),
        gap.prop_map(PathSpread::Flowlets),
    ]
}

fn host() -> impl Strategy<Value = HostSettings> {
    let marks = (0..64_u8, any::<bool>(), 0..64_u8, 0..8_u8, 0..8_u8);
    let own = (any::<bool>(), any::<bool>(), 0..=127_u16, 0..4_u8);
    (marks, own).prop_map(|(marks, own)| {
        let (willing, out_of_order, functions, device) = own;
        let (dscp, ecn, cnp_dscp, cnp_priority, smb_priority) = marks;
        let device = format!("mlx5_{device}");
        HostSettings {
            device,
            dscp,
            ecn,
            cnp_dscp,
            cnp_priority,
            smb_priority,
            willing,
            functions,
            out_of_order,
            ..HostSettings::default()
        }
    })
}

/// Which header field decides the class, the classes by DSCP and by PCP, and the one of all other packets.
fn classification() -> impl Strategy<Value = (Trust, [u8; 64], [u8; 8], u8)> {
    let trust = prop_oneof![
        Just(Trust::None),
        Just(Trust::Pcp),
        Just(Trust::Dscp),
        Just(Trust::Both)
    ];
    let dscp = proptest::collection::vec(0..8_u8, 64);
    (trust, dscp, any::<[u8; 8]>(), 0..8_u8).prop_map(|(trust, dscp, pcp, default_class)| {
        let dscp = dscp.try_into().expect("64 values");
        (trust, dscp, pcp.map(|class| class & 7), default_class)
    })
}

fn pause() -> impl Strategy<Value = Pause> {
    let xoff = proptest::option::of(2000..4_000_000_u32);
    let xon = proptest::option::of(0..2000_u32);
    let headroom = proptest::option::of(1..500_000_u32);
    (xoff, xon, headroom).prop_map(|(xoff, xon, headroom)| Pause {
        xoff,
        xon,
        headroom,
    })
}

/// Some ports, with the names that the dialect has for them.
fn ports(dialect: Dialect) -> impl Strategy<Value = Vec<Port>> {
    let speeds = [100_u32, 2_500, 25_000, 100_000, 400_000];
    let mbps = proptest::option::of(proptest::sample::select(speeds.to_vec()));
    (1..4_usize, mbps, 1..100_u32).prop_map(move |(count, mbps, metres)| {
        let port = |index| Port {
            name: dialect.port_name(index),
            mbps,
            metres: Some(metres),
        };
        (0..count).map(port).collect()
    })
}

/// Any intent, with the names of ports that the dialect has.
fn intent(dialect: Dialect) -> impl Strategy<Value = Intent> {
    let pfc = (any::<u8>(), any::<u8>(), pause());
    let remark = proptest::option::of((0..64_u8, 0..8_u8));
    let host = proptest::option::of(host());
    let watchdog = proptest::option::of(watchdog());
    let rest = (
        any::<bool>(),
        1500..=9600_u32,
        host,
        remark,
        watchdog,
        spread(),
    );
    (
        classification(),
        proptest::array::uniform8(queue()),
        pfc,
        ports(dialect),
        rest,
    )
        .prop_map(|(classification, queues, pfc, ports, rest)| {
            let (trust, dscp, pcp, default_class) = classification;
            let (pfc_send, pfc_obey, pause) = pfc;
            let (dcbx, mtu, host, remark, watchdog, spread) = rest;
            Intent {
                trust,
                dscp,
                pcp,
                default_class,
                remark,
                queues,
                pfc_send,
                pfc_obey,
                pause,
                watchdog,
                dcbx,
                mtu,
                ports,
                host,
                global_pause: false,
                spread,
                unknown: Vec::new(),
            }
        })
}

fn check(dialect: Dialect) {
    let config = ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (_, newest) = dialect.versions();
    let checked = runner.run(&intent(dialect), |intent| {
        let written = dialect.write(&intent, newest);
        let read = dialect
            .read("written", &written.text)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", written.text)))?;
        prop_assert_eq!(&read, &written.expressed, "{}", written.text);
        // No line of it is passed over.
        let left = dialect
            .read_groups("written", &written.text)
            .map(|read| read.outcomes.left());
        prop_assert_eq!(left.as_deref(), Ok(&[][..]), "{}", written.text);
        // The intent that was read is written again without any difference.
        let again = dialect.write(&read, newest);
        prop_assert_eq!(&again.text, &written.text);
        prop_assert!(
            again.notes.is_empty(),
            "{:?}\n{}",
            again.notes,
            written.text
        );
        prop_assert_eq!(
            Case::incast(&read, 100).fabric_file(),
            Case::incast(&written.expressed, 100).fabric_file()
        );
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{}: {error}", dialect.name()));
}

#[test]
fn routeros() {
    check(Dialect::RouterOs);
}

#[test]
fn sonic() {
    check(Dialect::Sonic);
}

#[test]
fn nvue() {
    check(Dialect::Nvue);
}

#[test]
fn eos() {
    check(Dialect::Eos);
}

#[test]
fn nxos() {
    check(Dialect::NxOs);
}

#[test]
fn os10() {
    check(Dialect::Os10);
}

#[test]
fn junos() {
    check(Dialect::Junos);
}

#[test]
fn linux() {
    check(Dialect::Linux);
}

#[test]
fn mlnx() {
    check(Dialect::Mlnx);
}

#[test]
fn windows() {
    check(Dialect::Windows);
}

#[test]
fn freebsd() {
    check(Dialect::FreeBsd);
}

#[test]
fn esxi() {
    check(Dialect::Esxi);
}

/// Every switch's dialect expresses the usual intent, and the goodput is the same with each.
#[test]
fn the_default_intent_simulates_alike_in_all_switches() {
    let intent = Intent {
        ports: vec![Port {
            name: String::new(),
            mbps: None,
            metres: None,
        }],
        ..Intent::default()
    };
    let expected = Case::incast(&intent, 100).run().expect("it runs");
    assert!(
        expected.gbps > 85.0 && expected.dropped == 0,
        "{expected:?}"
    );
    for dialect in Dialect::ALL
        .into_iter()
        .filter(|dialect| !dialect.is_host())
    {
        let mut own = intent.clone();
        own.ports[0].name = dialect.port_name(0);
        let (_, newest) = dialect.versions();
        let read = dialect
            .read("x", &dialect.write(&own, newest).text)
            .expect("it reads");
        let simulated = Case::incast(&read, 100).run().expect("it runs");
        // RouterOS chooses its own thresholds, and Junos has them in percents of a memory that is not known.
        if matches!(dialect, Dialect::RouterOs | Dialect::Junos) {
            assert!(
                simulated.dropped == 0 && simulated.gbps > 85.0,
                "{simulated:?}"
            );
        } else {
            assert_eq!(simulated, expected, "{}", dialect.name());
        }
    }
}

#[test]
fn versions_outside_the_known_range_are_refused() {
    assert!(Dialect::parse("routeros@7.17").is_ok());
    assert!(
        Dialect::parse("routeros@7.17.2").is_ok(),
        "a fix does not change configurations"
    );
    for (text, part) in [
        ("routeros@7.30", "versions 7.15 to 7.24 are"),
        ("routeros@6.49", "is not known"),
        ("routeros", "say the version, as in routeros@"),
        ("routeros@new", "is not known"),
        ("onyx@3.9", "is no dialect; there are: routeros"),
        ("nvue@5.15", "is not known"),
    ] {
        let error = Dialect::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
