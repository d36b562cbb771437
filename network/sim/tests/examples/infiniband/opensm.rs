//! Tables that OpenSM 3.3.23 (Debian 12) has written for two of these networks, run in labs: the dumps are in
//! `tests/reference/opensm`. They are read and simulated, and ours are compared with them.

use super::super::{Ran, ran_of};
use fabric_file::Document;
use infiniband::subnet::End;
use sim::experiment::ManagedSubnet;
use std::collections::BTreeMap;

const FAT_TREE: &str = "duration = \"100us\"\n[nic.default]\nlink-layer = \"infiniband\"\n\
    [topology]\nkind = \"fat-tree\"\nk = 4\ninfiniband = \"4x EDR\"\ndelay = \"150ns\"\n\
    [[workload]]\npattern = \"shift\"\nshift = 4\nmessage = \"64KiB\"\ndepth = 4\n";

/// Five switches in a circle with two hosts each, all of which send to the second next switch.
fn ring() -> String {
    let mut text = "duration = \"2ms\"\n[nic.default]\nlink-layer = \"infiniband\"\ntimeout = 0\n\
                    [[switch]]\nname = \"s\"\ncount = 5\n[[host]]\nname = \"h\"\ncount = 10\n\
                    [[workload]]\npattern = \"shift\"\nshift = 4\ndepth = 4\n"
        .to_owned();
    let hosts = (0..10).map(|host| (format!("h{host}"), host / 2));
    let around = (0..5).map(|switch| (format!("s{switch}"), (switch + 1) % 5));
    for (from, to) in hosts.chain(around) {
        text += &format!("[[link]]\nbetween = [\"{from}\", \"s{to}\"]\n");
    }
    text
}

fn run(text: &str, routing: &str) -> Ran {
    let mut files = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/opensm");
        std::fs::read_to_string(format!("{folder}/{name}")).map_err(|error| error.to_string())
    };
    let text = format!("{text}[sm]\n{routing}\n");
    let document = Document::read("test.toml", &text, &mut files).unwrap();
    ran_of(&document, &mut files, |_| {})
}

/// How many pairs of hosts there are by the switches on their path.
fn hops(subnet: &ManagedSubnet) -> BTreeMap<usize, usize> {
    let (cabling, tables) = (&subnet.cabling, &subnet.tables);
    let hosts = cabling.hosts();
    let mut found = BTreeMap::new();
    for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
        let first = End {
            node: from,
            port: 1,
        };
        let mut at = cabling.neighbour(first).unwrap().node;
        let mut crossed = 0;
        while at != to && crossed < 9 {
            let port = tables.linear[at - hosts][usize::from(tables.lids[to])];
            at = cabling.neighbour(End { node: at, port }).unwrap().node;
            crossed += 1;
        }
        if from != to {
            *found.entry(crossed).or_default() += 1;
        }
    }
    found
}

/// Pairs of hosts by link, in ascending order: which link has how many may differ.
fn pairs(subnet: &ManagedSubnet) -> Vec<u64> {
    let mut pairs: Vec<u64> = subnet.shares.iter().map(|share| share.pairs).collect();
    pairs.sort_unstable();
    pairs
}

#[test]
fn tables_of_opensm_have_the_hops_and_the_balance_of_ours() {
    for engine in ["minhop", "updn", "ftree"] {
        let theirs = run(
            FAT_TREE,
            &format!("routing = \"file\"\nlfts = \"fat-tree-{engine}.dump\""),
        );
        let ours = run(FAT_TREE, &format!("routing = \"{engine}\""));
        let [one, other] = [&theirs, &ours].map(|ran| ran.experiment.subnet.as_ref().unwrap());
        assert_eq!(hops(one), hops(other), "{engine}");
        assert_eq!(hops(one), BTreeMap::from([(1, 16), (3, 32), (5, 192)]));
        assert_eq!(pairs(one), pairs(other), "{engine}");
        assert_eq!((&one.credit_loop, &other.credit_loop), (&None, &None));
        let [theirs, ours] = [theirs, ours].map(|ran| {
            assert_eq!((ran.dropped(), ran.results.deadlocks.len()), (0, 0));
            ran.report.workloads[0].goodput_bps / 16e9
        });
        assert!(
            (theirs / ours - 1.0).abs() < 0.02,
            "{engine}: {theirs} and {ours}"
        );
        assert_eq!(theirs > 94.0, engine == "ftree", "{engine}: {theirs}");
    }
}

#[test]
fn tables_of_opensm_for_a_ring_stand_still_as_ours_do() {
    let theirs = run(&ring(), "routing = \"file\"\nlfts = \"ring-minhop.dump\"");
    let ours = run(&ring(), "routing = \"minhop\"");
    let [one, other] = [&theirs, &ours].map(|ran| ran.experiment.subnet.as_ref().unwrap());
    assert_eq!((hops(one), pairs(one)), (hops(other), pairs(other)));
    for ran in [&theirs, &ours] {
        let finding = ran.finding("loop of credits");
        assert!(finding.seen.contains("credit deadlock"), "{finding:#?}");
        assert_eq!(ran.results.deadlocks[0].circle.len(), 5);
    }
    let routed = run(&ring(), "routing = \"updn\"");
    assert!(routed.results.deadlocks.is_empty());
}

#[test]
fn tables_of_another_subnet_are_refused() {
    let mut files = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/opensm");
        std::fs::read_to_string(format!("{folder}/{name}")).map_err(|error| error.to_string())
    };
    for (text, expected) in [
        (
            FAT_TREE.replace("k = 4", "k = 2"),
            "switch 0x02524b0200000500 ('edge5') is not in this file",
        ),
        (FAT_TREE.replace("k = 4", "k = 6"), "there is no table of"),
    ] {
        let text = text.replace("shift = 4", "shift = 1");
        let text = format!("{text}[sm]\nrouting = \"file\"\nlfts = \"fat-tree-ftree.dump\"\n");
        let document = Document::read("test.toml", &text, &mut files).unwrap();
        let refused = sim::experiment::Experiment::new(&document, &mut files);
        let message = refused.expect_err("another subnet").to_string();
        assert!(message.contains(expected), "{message}");
    }
}
