//! Configurations and outputs of Junos: both spellings, queues and priorities that are free of each other,
//! and the usual faults of configurations.

use doctor::{Finding, Marks, SwitchFacts, check, read_switch};
use vendors::intent::{Ecn, Intent, Schedule};
use vendors::{Area, Dialect, PathSpread};

const LEAF: &str = include_str!("../switches/junos-roce.conf");
const TRAPS: &str = include_str!("../switches/junos-traps.conf");

const MARKS: Marks = Marks {
    dscp: Some(26),
    cnp: Some(48),
};

fn read(text: &str) -> SwitchFacts {
    read_switch("leaf.conf", text).expect("it reads")
}

/// The leaf for RoCE, with replacements; each must change something.
fn derived(replacements: &[(&str, &str)]) -> String {
    replacements
        .iter()
        .fold(LEAF.to_owned(), |text, (from, to)| {
            let changed = text.replace(from, to);
            assert_ne!(text, changed, "there is no {from:?}");
            changed
        })
}

fn rules(switch: SwitchFacts) -> Vec<&'static str> {
    let found = check(&[], &[switch], MARKS);
    found.iter().map(|finding: &Finding| finding.rule).collect()
}

#[test]
fn a_leaf_for_roce_is_read_whole_and_has_no_fault() {
    let switch = read(LEAF);
    assert_eq!(switch.left, []);
    assert_eq!(switch.dialect, Dialect::Junos);
    let [group] = switch.groups.as_slice() else {
        panic!("{:?}", switch.groups);
    };
    let names: Vec<&str> = group.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(
        names,
        ["et-0/0/0", "et-0/0/1"],
        "the pattern et-* is both ports"
    );
    // ROCE-DATA is queue 4 and priority 3, and CNP is queue 3.
    assert_eq!(
        (
            group.class_of_dscp(26),
            group.class_of_dscp(48),
            group.class_of_dscp(0)
        ),
        (3, 4, 0)
    );
    assert_eq!((group.pfc_send, group.pfc_obey), (1 << 3, 1 << 3));
    assert_eq!(group.queues[3].ecn, Some(Ecn::Automatic));
    assert_eq!(group.queues[4].schedule, Schedule::Strict);
    assert_eq!(group.spread, PathSpread::Flowlets(Some(200)));
    let watchdog = group.watchdog.expect("a watchdog");
    assert_eq!(
        (watchdog.detect_ms, watchdog.restore_ms),
        (Some(200), Some(200))
    );
    assert_eq!(group.mtu, 9202);
    assert_eq!(group.unknown, []);
    assert_eq!(rules(switch), [""; 0]);
}

const BLOCKS: &str = "class-of-service {
    forwarding-classes {
        class data queue-num 3 no-loss pfc-priority 3;
        inactive: class old queue-num 5;
    }
    /* a comment
       of two lines */
    classifiers {
        dscp c {
            forwarding-class data {
                loss-priority low code-points [ 011010 af32 ];
            }
        }
    }
    congestion-notification-profile p {
        input { dscp { code-point 011010 { pfc; } } }
    }
    interfaces {
        et-0/0/1 {
            congestion-notification-profile p;
            unit 0 { classifiers { dscp c; } }    # a comment
        }
    }
}
";

const COMMANDS: &str = "set class-of-service forwarding-classes class data queue-num 3
set class-of-service forwarding-classes class data no-loss
set class-of-service forwarding-classes class data pfc-priority 3
set class-of-service forwarding-classes class old queue-num 5
deactivate class-of-service forwarding-classes class old
set class-of-service classifiers dscp c forwarding-class data loss-priority low code-points 011010
set class-of-service classifiers dscp c forwarding-class data loss-priority low code-points af32
set class-of-service congestion-notification-profile p input dscp code-point 011010 pfc
set class-of-service interfaces et-0/0/1 congestion-notification-profile p
set class-of-service interfaces et-0/0/1 unit 0 classifiers dscp c
";

#[test]
fn both_spellings_say_the_same() {
    let groups = format!(
        "{}set apply-groups global\nset groups other system host-name x\n",
        COMMANDS.replace(" class-of-service", " groups global class-of-service")
    );
    let [blocks, commands, groups] = [BLOCKS, COMMANDS, &groups].map(|text| {
        let switch = read(text);
        assert_eq!(switch.left, [], "{text}");
        switch.groups
    });
    assert_eq!(blocks, commands);
    assert_eq!(groups, commands);
    assert_eq!(
        (commands[0].class_of_dscp(28), commands[0].pfc_send),
        (3, 1 << 3)
    );
}

#[test]
fn planted_faults_of_the_leaf_are_found() {
    let off = [("congestion-notification-profile pauses;\n", "\n")];
    assert_eq!(
        rules(read(&derived(&off))),
        ["switch-pfc-off"],
        "no profile at the ports"
    );
    let obeys = [("input { dscp { code-point 011010 { pfc; } } }", "")];
    assert_eq!(
        rules(read(&derived(&obeys))),
        ["switch-pfc-off"],
        "it obeys pauses, and sends none"
    );
    let lossy = [(" no-loss pfc-priority 3", "")];
    let found = rules(read(&derived(&lossy)));
    assert!(
        found.contains(&"switch-pfc-off"),
        "the class is lossy whatever PFC says: {found:?}"
    );
    let drops = [("explicit-congestion-notification;", "")];
    assert_eq!(
        rules(read(&derived(&drops))),
        ["switch-ecn-off"],
        "the profile drops"
    );
    let other = [
        (
            "forwarding-class ROCE-DATA { loss-priority low code-points 011010; }",
            "forwarding-class ROCE-DATA { loss-priority low code-points 011000; }",
        ),
        ("code-point 011010 { pfc; }", "code-point 011000 { pfc; }"),
    ];
    assert_eq!(
        rules(read(&derived(&other))),
        ["switch-dscp-map"],
        "26 is in best effort"
    );
    let nothing = [(
        "lossless-headroom { percent 25; }",
        "lossless-headroom { percent 0; }",
    )];
    assert_eq!(
        rules(read(&derived(&nothing))),
        ["switch-headroom"],
        "no buffer for what arrives after a pause"
    );
}

#[test]
fn a_queue_of_another_priority_is_named_and_no_rule_judges_pfc() {
    let switch = read(&derived(&[(
        "flow-control-queue 4",
        "flow-control-queue 3",
    )]));
    let left: Vec<&str> = switch.left.iter().map(|line| line.why.as_str()).collect();
    assert_eq!(
        left,
        ["pauses of priority 3 stop queue 3, whose class has another pfc-priority"]
    );
    assert!(switch.groups[0].unknown(Area::Pfc).is_some());
    assert_eq!(rules(switch), [""; 0]);
}

#[test]
fn a_configuration_that_is_not_for_roce_is_understood_but_for_its_marks() {
    let switch = read(TRAPS);
    let port = |name: &str| -> Intent {
        let has = |group: &&Intent| group.ports.iter().any(|port| port.name == name);
        switch.groups.iter().find(has).cloned().expect("the port")
    };
    let (one, two) = (port("et-0/0/1"), port("et-0/0/2"));
    // Port 1 has no profile; that of port 2 has an output part alone, and no class is lossless. Pauses of
    // priority 3 stop queue 5, so that its class is 3.
    assert_eq!((one.pfc_send, one.pfc_obey), (0, 0));
    assert_eq!((two.pfc_send, two.pfc_obey), (0, 1 << 3));
    assert_eq!((two.class_of_dscp(26), two.class_of_dscp(48)), (3, 7));
    assert_eq!(two.queues[3].ecn, None, "the drop profile drops");
    let whys: Vec<&str> = switch.left.iter().map(|line| line.why.as_str()).collect();
    let part = "packets of class \"STORAGE\" leave with DSCP 8";
    assert_eq!(whys.len(), 2, "{whys:?}");
    assert!(whys.iter().all(|why| why.contains(part)), "{whys:?}");
}

#[test]
fn statements_that_are_not_known_are_named_and_others_are_passed_over() {
    let others = "system { host-name leaf1; login { user a { class super-user; } } }
protocols { bgp { group x { type internal; } } }
firewall { family inet { filter f { term t { then { accept; } } } } }
";
    let text = format!("{LEAF}{others}");
    assert_eq!(read(&text).left, []);
    for (line, part) in [
        (
            "class-of-service { schedulers { s1 { delay-buffer 3; } } }",
            "this statement of a scheduler is not known",
        ),
        (
            "class-of-service { traffic-control-profiles { t { guaranteed-rate 5g; } } }",
            "is not known",
        ),
        ("frobnicate on;", "this statement is not known"),
        (
            "firewall { family inet { filter f { term t { then { forwarding-class ROCE-DATA; } } } } }",
            "a filter that classifies packets is not read",
        ),
        (
            "interfaces { et-0/0/3 { apply-groups x; } }",
            "applied to a part",
        ),
        (
            "replace: interfaces { et-0/0/3 { mtu 1500; } }",
            "a change of another configuration",
        ),
        (
            "class-of-service { interfaces { et-0/0/9 { unit 0 { classifiers { dscp none; } } } } }",
            "there is no classifier",
        ),
        (
            "class-of-service { code-point-aliases { dscp roce 0110; } }",
            "is no code point of 6 bits",
        ),
    ] {
        let switch = read(&format!("{LEAF}{line}\n"));
        let whys: Vec<&str> = switch.left.iter().map(|line| line.why.as_str()).collect();
        assert!(
            whys.iter().any(|why| why.contains(part)),
            "{line}: {whys:?}"
        );
    }
    for (text, part) in [
        ("class-of-service {\n", "this { has no }"),
        ("class-of-service { }\n}\n", "there is no { before this }"),
    ] {
        let error = read_switch("leaf.conf", text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn selective_balancing_is_unknown_and_spraying_is_known() {
    let begin = LEAF.find("flowlet {").expect("flowlets");
    let end = LEAF
        .find("            ether-type")
        .expect("types of frames");
    let per_packet = &LEAF[begin..end];
    let sprays = derived(&[(per_packet, "per-packet;\n")]);
    assert_eq!(read(&sprays).groups[0].spread, PathSpread::Packets);
    let selective = sprays.replace("ether-type { ipv4; ipv6; }", "ether-type { none; }");
    assert_ne!(selective, sprays);
    assert!(read(&selective).groups[0].unknown(Area::Paths).is_some());
    // In spite of its name the policy hashes flows.
    assert!(LEAF.contains("load-balance per-packet"));
}

const SHOWN: &str = "==> show class-of-service congestion-notification <==
Type: Input, Name: cnp, Index: 60305
Priority     PFC
  000          Disabled
  011          Enabled
  100          Disabled
==> show interfaces queue et-0/0/1 <==
Physical interface: et-0/0/1, up, Physical link is Up
Queue: 4, Forwarding classes: ROCE-DATA
  Queued:
    Packets              :                900000                     0 pps
  Transmitted:
    Tail-dropped packets :                    10                     0 pps
    RED-dropped packets  :                     2                     0 pps
    ECN-CE packets       :                  1200                     0 pps
Queue: 8, Forwarding classes: mcast
    Tail-dropped packets :                     7                     0 pps
";

#[test]
fn outputs_are_read_and_queues_are_those_of_classes() {
    let alone = read(SHOWN);
    assert_eq!(
        (alone.dialect, alone.left.as_slice()),
        (Dialect::Junos, &[][..])
    );
    let whole = format!("{SHOWN}==> show configuration | no-more <==\n{LEAF}");
    let switch = read(&whole);
    assert_eq!(switch.left, []);
    let port = switch
        .shown
        .ports
        .iter()
        .find(|port| port.name == "et-0/0/1")
        .expect("the port");
    let counted = |counters: &std::collections::BTreeMap<u8, vendors::facts::Fact<u64>>| {
        counters
            .iter()
            .map(|(class, fact)| (*class, fact.value))
            .collect::<Vec<_>>()
    };
    // Queue 4 is class 3, whose pauses have priority 3.
    assert_eq!(
        (counted(&port.drops), counted(&port.marked)),
        (vec![(3, 12)], vec![(3, 1200)])
    );
    assert_eq!(port.up.as_ref().map(|up| up.value), Some(true));
    assert_eq!(rules(switch), ["shown-drops"]);
    let off = whole.replace("011          Enabled", "011          Disabled");
    assert_ne!(off, whole);
    assert!(rules(read(&off)).contains(&"shown-pfc"));
}
