//! Fields with a value that has no effect.

use fabric_file::{Document, Effect, Network, Origin, unused};

const BASE: &str = "topology = { kind = \"star\", hosts = 3 }\n";

/// The fields without an effect, and why, of a file with settings.
fn reasons(text: &str, sets: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let text = format!("{BASE}{text}");
    let mut document = Document::read("lab.toml", &text, &mut none).unwrap();
    for (path, value) in sets {
        document.set(path, value).unwrap();
    }
    let file = document.fields().unwrap();
    let network = Network::build(&document, &file, &mut none).unwrap();
    let all = unused(&document, &file, &network);
    all.into_iter()
        .map(|unused| (unused.keys.join("."), unused.problem.what))
        .collect()
}

/// Each a text, the field in it that has no effect, and a part of the reason.
const WITHOUT_EFFECT: &[(&str, &str, &str)] = &[
    (
        "[nic.x]\nmtu = 1024",
        "nic.x.mtu",
        "no host has nic = \"x\"",
    ),
    (
        "[nic.default]\nlink-layer = \"infiniband\"\n\
         [[workload]]\nfrom = [\"h1\"]\nto = [\"h2\"]\npriority = 4",
        "workload.0.priority",
        "packets of InfiniBand have the adapter's service-level",
    ),
    (
        "[[workload]]\nfrom = [\"h1\"]\nto = [\"h2\"]\nincast = 2",
        "workload.0.incast",
        "only a load has one",
    ),
    (
        "[qos.deep]\nbuffer = \"64MiB\"",
        "qos.deep.buffer",
        "no switch has qos = \"deep\"",
    ),
    (
        "[nic.default]\ncongestion = \"off\"\ndcqcn.g = \"1/16\"",
        "nic.default.dcqcn.g",
        "congestion is \"off\"",
    ),
    (
        "[nic.default.swift]\ntarget = \"9us\"",
        "nic.default.swift.target",
        "congestion is \"dcqcn\"",
    ),
    (
        "[nic.default.dcqcn]\nclamp-target = true",
        "nic.default.dcqcn.clamp-target",
        "no cut-interval",
    ),
    (
        "[nic.default]\nreorder-window = 5",
        "nic.default.reorder-window",
        "out-of-order is not true",
    ),
    (
        "[nic.default]\ncontrol-overhead = \"20B\"",
        "nic.default.control-overhead",
        "no data-overhead",
    ),
    (
        "[nic.default]\nprotocol = \"tcp\"",
        "nic.default.protocol",
        "only [[storage]]",
    ),
    (
        "[processor.default]\ncores = 3",
        "processor.default.cores",
        "only [[storage]]",
    ),
    (
        "[drive.default]\ncommands = 3",
        "drive.default.commands",
        "only [[storage]]",
    ),
    (
        "[drive.x]\ncommands = 3",
        "drive.x.commands",
        "no host has drive",
    ),
    (
        "[[host]]\nname = \"h0\"\ndrives = 2",
        "host.0.drives",
        "only [[storage]]",
    ),
    (
        "[qos.default]\ntrust = \"pcp\"\ndscp = { 30 = 2 }",
        "qos.default.dscp.30",
        "trust does not include DSCP",
    ),
    (
        "[qos.default]\ntrust = \"dscp\"\npcp = { 2 = 2 }",
        "qos.default.pcp.2",
        "trust does not include PCP",
    ),
    (
        "[qos.default.queue.3]\nburst = \"9kB\"",
        "qos.default.queue.3.burst",
        "the queue has no rate",
    ),
    (
        "[qos.default.pfc]\nclasses = []\nxoff = \"100kB\"",
        "qos.default.pfc.xoff",
        "no class is lossless",
    ),
    (
        "[qos.default.pfc]\nxon = \"9kB\"\nclass.3.xon = \"8kB\"",
        "qos.default.pfc.xon",
        "every lossless class has its own",
    ),
    (
        "[routing]\nflowlet-gap = \"9us\"",
        "routing.flowlet-gap",
        "spread is not \"flowlet\"",
    ),
    (
        "[routing]\nreaction = \"9us\"",
        "routing.reaction",
        "no link goes down",
    ),
    (
        "[[workload]]\nsizes = \"storage\"",
        "workload.0.sizes",
        "only a load has them",
    ),
    (
        "[[workload]]\nload = \"30%\"\ndepth = 7",
        "workload.0.depth",
        "a queue pair of its own",
    ),
    (
        "[[workload]]\nload = \"30%\"\nsizes = \"storage\"\nmessage = \"7kB\"",
        "workload.0.message",
        "sizes says",
    ),
    (
        "[[workload]]\nload = \"30%\"\nsizes-file = \"a.txt\"\nmessage = \"7kB\"",
        "workload.0.message",
        "sizes-file says",
    ),
    (
        "[[workload]]\nsizes-file = \"a.txt\"",
        "workload.0.sizes-file",
        "only a load has them",
    ),
    (
        "[[workload]]\nflows = \"a.csv\"\nqps = 2",
        "workload.0.qps",
        "the list of flows",
    ),
    (
        "[group.g]\nhosts = [\"h*\"]",
        "group.g.hosts",
        "no collective or model has group",
    ),
    (
        "[group.all.local]\nrate = \"1Tb/s\"\n[[collective]]\nname = \"it\"\nkind = \"barrier\"",
        "group.all.local.rate",
        "ranks-per-server is 1",
    ),
    (
        "[[collective]]\nname = \"it\"\nkind = \"barrier\"\nchunk = \"1KiB\"",
        "collective.0.chunk",
        "a barrier moves no data",
    ),
    (
        "[[workload]]\npattern = \"ring\"\nto = [\"h1\"]",
        "workload.0.to",
        "in a ring",
    ),
    ("[[workload]]\ngaps = false", "workload.0.gaps", "no replay"),
];

#[test]
fn a_field_without_effect_is_named_with_the_reason() {
    for (text, field, reason) in WITHOUT_EFFECT {
        let reasons = reasons(text, &[]);
        assert_eq!(reasons.len(), 1, "{text}\n{reasons:?}");
        assert_eq!(reasons[0].0, *field, "{text}");
        assert!(reasons[0].1.contains(reason), "{text}\n{reasons:?}");
    }
}

#[test]
fn sizes_of_another_kind_of_topology_have_no_effect() {
    let text = "topology.spines = 2\n";
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let text = format!("topology.kind = \"star\"\ntopology.hosts = 3\n{text}");
    let document = Document::read("lab.toml", &text, &mut none).unwrap();
    let file = document.fields().unwrap();
    let network = Network::build(&document, &file, &mut none).unwrap();
    let all = unused(&document, &file, &network);
    assert_eq!(all.len(), 1);
    assert!(
        all[0].to_string().starts_with(
            "lab.toml:3: topology.spines has no effect: kind = \"star\" has no spines"
        )
    );
}

#[test]
fn fields_with_effect_are_not_named() {
    let text = "[nic.default]\nmtu = 1024\ndcqcn.g = \"1/16\"\n[qos.default]\nbuffer = \"9MiB\"\n\
                [qos.default.queue.3]\nrate = \"9Gb/s\"\nburst = \"9kB\"\n\
                [[workload]]\nfrom = [\"h1\"]\nto = [\"h2\"]\ndepth = 4\n";
    assert_eq!(reasons(text, &[("seed", "4")]), []);
}

/// `workload.*.depth` sets the field of every workload: it has an effect in the first one.
#[test]
fn a_setting_of_several_entries_has_an_effect_in_one_of_them() {
    let text = "[[workload]]\nfrom = [\"h1\"]\nto = [\"h2\"]\n[[workload]]\nload = \"3%\"\n";
    assert_eq!(reasons(text, &[("workload.*.depth", "4")]), []);
    assert_eq!(reasons(text, &[("workload.1.depth", "4")]).len(), 1);
}

#[test]
fn settings_of_labs_are_told_from_those_without_any_effect() {
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let mut document = Document::read("lab.toml", BASE, &mut none).unwrap();
    document.set("nic.default.willing", "true").unwrap();
    document.vary("nic.default.swift.hop", "2us").unwrap();
    document.set("qos.default.willing", "true").unwrap();
    let file = document.fields().unwrap();
    let network = Network::build(&document, &file, &mut none).unwrap();
    let found: Vec<_> = unused(&document, &file, &network)
        .into_iter()
        .map(|unused| (unused.keys[2].clone(), unused.origin, unused.effect))
        .collect();
    assert_eq!(
        found,
        [
            ("swift".to_owned(), Origin::Sweep, Effect::None),
            ("willing".to_owned(), Origin::Set(0), Effect::Lab),
            ("willing".to_owned(), Origin::Set(2), Effect::Lab),
        ]
    );
}
