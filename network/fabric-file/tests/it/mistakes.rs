//! Messages: each names line and field, and a correction.

use super::{build, build_with, document};
use fabric_file::{Document, FileError};

fn message(result: Result<impl Sized, FileError>) -> String {
    result.err().expect("a mistake").to_string()
}

#[test]
fn unknown_fields_are_all_named_at_once_with_what_was_meant() {
    let text = "[nic.default]\nmtu = 4096\nout_of_order = true\n\n[[switch]]\nname = \"a\"\nqoss = \"b\"\n";
    assert_eq!(
        message(document(text)),
        "lab.toml:3:1: nic.default.out_of_order: there is no field \"out_of_order\" here\n  \
         3 | out_of_order = true\n    | ^^^^^^^^^^^^\n  did you mean \"out-of-order\"?\n\
         lab.toml:7:1: switch[0].qoss: there is no field \"qoss\" here\n  \
         7 | qoss = \"b\"\n    | ^^^^\n  did you mean \"qos\"?"
    );
}

#[test]
fn values_say_what_to_write() {
    for (text, expected) in [
        (
            "duration = 5",
            "lab.toml:1:12: duration: 5 is not a time; write \"600ns\", \"5us\"",
        ),
        (
            "duration = \"5\"",
            "lab.toml:1:12: duration: \"5\" is not a time; write",
        ),
        (
            "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100KB\"",
            "lab.toml:3:8: link[0].rate: \"100KB\" is not a rate",
        ),
        (
            "seed = \"x\"",
            "lab.toml:1:8: seed: invalid type: string \"x\", expected u64",
        ),
        (
            "[routing]\nspread = \"addaptive\"",
            "did you mean \"adaptive\"?",
        ),
        (
            "[[link]]\nrate = \"1Gb/s\"",
            "link[0]: missing field `between`",
        ),
        ("x = ", "lab.toml:1:"),
        (
            "topology = { kind = \"fat-tree\", k = 5 }",
            "topology: this kind needs k",
        ),
    ] {
        let message = message(build(text));
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

/// The configuration of a switch in place of a fabric file: the message says what reads it.
#[test]
fn a_switch_configuration_is_told_from_a_mistake_in_toml() {
    for (text, expected) in [
        (
            "# 2026-03-01 by RouterOS 7.20\n/interface ethernet\nset 0 mtu=9000\n",
            "a RouterOS script: rockery doctor --switch",
        ),
        ("{\"PORT\": {}}\n", "config_db.json of SONiC"),
    ] {
        let message = message(document(text));
        assert!(message.contains(expected), "{message}");
    }
    assert!(!message(document("duration == 5")).contains("doctor"));
}

const STAR: &str = "topology = { kind = \"star\", hosts = 2 }\n";

/// Entries with a name or a value that is wrong, beside [`STAR`], and what the error says.
const WRONG_ENTRIES: &[(&str, &str)] = &[
    (
        "[[switch]]\nname = \"s0\"\nqos = \"dep\"\n[qos.deep]\n",
        "did you mean \"deep\"?",
    ),
    (
        "[[host]]\nname = \"h0\"\nnic = \"cx6\"\n",
        "there is no table [nic.cx6]",
    ),
    (
        "[[link]]\nbetween = [\"h9\", \"s0\"]\n",
        "link[0].between[0]: no host and no switch is called \"h9\"",
    ),
    ("[[host]]\nname = \"x*\"\n", "no host is called \"x*\""),
    ("[[host]]\nname = \"lonely\"\n", "host lonely has no link"),
    (
        "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\n",
        "link: a and b are linked with each other, and reach no other host",
    ),
    (
        "[[link]]\nbetween = [\"h0\", \"s0\"]\n",
        "host h0 has a link already",
    ),
    (
        "[[link]]\nbetween = [\"s0\", \"h*\"]\n",
        "\"h*\" stands for 2 ends",
    ),
    (
        "[[host]]\nname = \"s0\"\n",
        "a host and a switch have this name",
    ),
    (
        "[qos.default.queue.9]\nweight = 1\n",
        "qos.default.queue.9: \"9\" is no class",
    ),
    (
        "[qos.default.pfc.class.4]\n",
        "qos.default.pfc.class.4: \"4\" is none of `classes`",
    ),
    (
        "[qos.default.pfc.class.3]\nxoff = \"0B\"\n",
        "pfc.class.3.xoff: nothing may ever be buffered",
    ),
    (
        "[nic.default]\nwindow = \"8GiB\"\n",
        "nic.default.window: 8589934592 bytes are more than 4294967295",
    ),
    (
        "[nic.default]\ndata-overhead = \"64KiB\"\n",
        "nic.default.data-overhead: 65536 bytes are more than 65535",
    ),
    (
        "[nic.default.dcqcn]\ng = \"1/250\"\n",
        "nic.default.dcqcn.g: it is no power of two below 1",
    ),
    (
        "[nic.default.dcqcn]\ng = 1.0\n",
        "nic.default.dcqcn.g: it is no power of two below 1",
    ),
    (
        "[nic.default.dcqcn]\ng = 0.0\n",
        "nic.default.dcqcn.g: it is no power of two below 1",
    ),
    (
        "[nic.default.pcie]\ngeneration = 7\n",
        "nic.default.pcie.generation: 7 is no generation",
    ),
    (
        "[nic.default.pcie]\nwidth = 3\n",
        "nic.default.pcie.width: PCI Express has no links of 3 lanes",
    ),
    (
        "[nic.default.pcie]\npayload = 0\n",
        "nic.default.pcie.payload: PCI Express has no packets of 0 bytes",
    ),
    (
        "[nic.default]\noutstanding = 0\n",
        "nic.default.outstanding: nothing may ever leave",
    ),
    (
        "[qos.default]\ndscp = { 64 = 3 }\n",
        "qos.default.dscp.64: \"64\" is no value or range from 0 to 63",
    ),
    (
        "[qos.default]\nbuffer = \"10KiB\"\n",
        "headroom and reserves of 2 ports need",
    ),
    (
        "[nic.default]\nmtu = 1500\n",
        "nic.default.mtu: 1500 is no path MTU",
    ),
    (
        "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nextra-law = \"measured\"\n",
        "link[0].extra-samples: two or more are needed",
    ),
    (
        "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nextra-law = \"pareto\"\n\
         extra-spread = \"1us\"\nextra-shape = 0.5\n",
        "link[0].extra-shape: a shape of 0.5 is not from 1 to 1000",
    ),
    (
        "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nopcodes = [\"wite-only\"]\n",
        "link[0].opcodes[0]: no opcode is called \"wite-only\"",
    ),
    (
        "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nopcodes = [\"read-*\", \"3\"]\n",
        "link[0].opcodes[1]: no opcode is called \"3\"",
    ),
    (
        "[[host]]\nname = \"x\"\n[[link]]\nbetween = [\"x\", \"s0\"]\nopcodes = [\"write-only\"]\n",
        "link[0].opcodes: a host has one link, which all of its packets take",
    ),
];

#[test]
fn names_that_nothing_has_are_found_with_the_nearest() {
    for (text, expected) in WRONG_ENTRIES {
        let message = message(build(&format!("{STAR}{text}")));
        assert!(message.contains(expected), "{text}\n{message}");
        assert!(message.starts_with("lab.toml:"), "{message}");
    }
}

#[test]
fn includes_and_settings_are_named_where_they_stand() {
    let mut files = |name: &str| match name {
        "bad.toml" => Ok("[nic.default]\nmtuu = 3\n".to_owned()),
        "twice.toml" => Ok("include = [\"bad.toml\", \"./bad.toml\"]\n".to_owned()),
        _ => Err("there is no such file".to_owned()),
    };
    let wrong = Document::read(
        "lab.toml",
        "seed = 1\ninclude = [\"gone.toml\"]",
        &mut files,
    );
    assert!(
        message(wrong).starts_with("lab.toml:2:12: include[0]: gone.toml: there is no such file")
    );
    let document = Document::read("lab.toml", "include = [\"twice.toml\"]", &mut files).unwrap();
    assert!(message(document.fields()).starts_with("bad.toml:2:1: nic.default.mtuu"));
    let mut document = Document::read("lab.toml", "seed = 1", &mut files).unwrap();
    assert!(message(document.set("link.0.rate", "1Gb/s")).contains("there is no link to set"));
    let mut document =
        Document::read("lab.toml", "[[link]]\nbetween = [\"a\", \"b\"]", &mut files).unwrap();
    assert!(
        message(document.set("link.4.rate", "1Gb/s"))
            .contains("there is no link \"4\"; there are 1")
    );
    let mut document = Document::read("lab.toml", "", &mut files).unwrap();
    document.set("nic.default.dcqcn.g", "5 apples").unwrap();
    assert!(
        message(document.fields())
            .starts_with("--set:1:23: nic.default.dcqcn.g: \"5 apples\" is not a part")
    );
}

#[test]
fn a_vendors_file_that_is_not_understood_is_named_with_its_line() {
    let text = "[[host]]\nname = \"a\"\n[[switch]]\nname = \"sw\"\nrouteros = [\"x.rsc\"]\n[[link]]\n\
         between = [\"a\", \"sw:1\"]\n";
    // A line that is not understood is named, and the rest is read.
    let odd =
        "/interface ethernet switch qos port\nset qsfp28-1-1 pcf=x\nset qsfp28-1-1 trust-l3=keep\n";
    let right = text.replace("sw:1", "sw:qsfp28-1-1");
    let network = build_with(&right, &[("x.rsc", odd)]).unwrap();
    let switch = &network.switches[0];
    let left = switch.imported.as_ref().unwrap().left();
    assert_eq!(
        left.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "x.rsc:2: \"set qsfp28-1-1 pcf=x\": there is no property \"pcf\" here; did you mean \"pfc\"?"
        ]
    );
    // What changes the meaning of the whole is refused.
    let open = "/interface ethernet switch qos port\n:foreach p in={1;2} do={\nset 0 pfc=x\n";
    assert!(
        message(build_with(text, &[("x.rsc", open)]))
            .starts_with("lab.toml:5:12: switch[0].routeros: x.rsc:2: a block {")
    );
    let good = "/interface ethernet switch qos port\nset qsfp28-1-1 trust-l3=keep\n";
    assert!(message(build_with(text, &[("x.rsc", good)])).contains("the switch has no port \"1\""));
    assert!(message(build_with(text, &[])).contains("x.rsc: there is no such file"));
}

#[test]
fn a_circle_of_includes_is_named_and_a_file_included_twice_is_merged_once() {
    let mut files = |name: &str| match name {
        "a.toml" => Ok("include = [\"b.toml\"]\n".to_owned()),
        "b.toml" => Ok("seed = 1\ninclude = [\"./a.toml\"]\n".to_owned()),
        "left.toml" | "right.toml" => Ok("include = [\"hosts.toml\"]\n".to_owned()),
        "hosts.toml" => Ok("[[host]]\nname = \"h\"\n".to_owned()),
        "self.toml" => Ok("include = [\"self.toml\"]\n".to_owned()),
        _ => Err("there is no such file".to_owned()),
    };
    let wrong = message(Document::read(
        "lab.toml",
        "include = [\"a.toml\"]",
        &mut files,
    ));
    assert!(wrong.starts_with("b.toml:2:12: include[0]: "), "{wrong}");
    assert!(
        wrong.contains("lab.toml → a.toml → b.toml → a.toml include each other in a circle"),
        "{wrong}"
    );
    let wrong = message(Document::read(
        "lab.toml",
        "include = [\"self.toml\"]",
        &mut files,
    ));
    assert!(
        wrong.contains("self.toml → self.toml include each other"),
        "{wrong}"
    );
    let both = "include = [\"left.toml\", \"right.toml\"]";
    let document = Document::read("lab.toml", both, &mut files).unwrap();
    assert_eq!(document.fields().unwrap().host.len(), 1);
}

#[test]
fn paths_with_too_many_levels_are_refused() {
    let mut document = Document::read("lab.toml", STAR, &mut |_| Err(String::new())).unwrap();
    let path = ["nic"; 50_000].join(".");
    let wrong = message(document.set(&path, "1"));
    assert!(
        wrong.contains("the path has 50000 levels, and 16 are the most"),
        "{wrong}"
    );
    assert!(wrong.len() < 2_000, "a message of {} bytes", wrong.len());
    document.set("seed", "4").unwrap();
    assert_eq!(document.fields().unwrap().seed, 4);
    let nested = format!("{path} = 1");
    assert!(
        message(super::document(&nested)).starts_with("lab.toml:1:1: "),
        "nested too deep to be read"
    );
}

#[test]
fn names_and_titles_have_a_length() {
    let long = "x".repeat(5_000_000);
    for (text, expected) in [
        (
            format!("[[host]]\nname = \"{long}\"\n"),
            "host[0].name: the name has 5000000 bytes, and 255 are",
        ),
        (
            format!("title = \"{long}\"\n"),
            "title: the text has 5000000 bytes, and 1024 are",
        ),
        (
            format!("[[workload]]\nname = \"{long}\"\nfrom = []\nto = []\n"),
            "workload[0].name: the text has 5000000 bytes, and 255 are",
        ),
        (
            format!("[[link]]\nbetween = [\"{long}\", \"s0\"]\n"),
            "no host and no switch is called \"xxx",
        ),
        (
            format!("[sweep]\nseed = [\"{long}\"]\n"),
            "sweep: the text has 5000000 bytes, and 1024 are",
        ),
        (
            "[[host]]\nname = \"a\\u001b[2J\"\n".to_owned(),
            "\"a\\u{1b}[2J\": a name has no colon and no space",
        ),
    ] {
        let message = message(build(&format!("{STAR}{text}")));
        assert!(message.contains(expected), "{message}");
        assert!(
            message.len() < 2_000,
            "a message of {} bytes",
            message.len()
        );
    }
}

/// Each of these is a line of text that requires millions or billions of names.
#[test]
fn sizes_are_checked_before_anything_is_allocated() {
    for (text, expected) in [
        (
            "topology = { kind = \"leaf-spine\", leaves = 65535, spines = 1, hosts = 65535 }",
            "it would have 4294836225 hosts and 65536 switches: 131072 and 32768 are the most",
        ),
        (
            "topology = { kind = \"dragonfly\", groups = 65535, routers = 65535, hosts = 65535 }",
            "it would have 281462092005375 hosts and 4294836225 switches",
        ),
        (
            "topology = { kind = \"rail\", servers = 65535, rails = 65535, spines = 65535 }",
            "it would have 4294836225 hosts and 131070 switches",
        ),
        (
            "topology = { kind = \"star\", hosts = 65535 }",
            "a switch would have 65535 ports: 1024 at most",
        ),
        (
            "[[host]]\nname = \"a\"\ncount = 4294967295\n",
            "4294967295 are too many: 131072 at most",
        ),
        (
            "[[host]]\nname = \"a\"\ncount = 100000\n[[host]]\nname = \"b\"\ncount = 100000\n",
            "host[1].name: 200000 are too many: 131072 at most",
        ),
        (
            "[processor.default]\ncores = 4294967295\n",
            "processor.default.cores: 4294967295 is not from 1 to 4096",
        ),
        (
            "[[host]]\nname = \"a\"\ndrives = 4294967295\n",
            "host[0].drives: 4294967295 is more than 1024",
        ),
        (
            "[[host]]\nname = \"a\"\ndrives = 2\nparity = true\n",
            "host[0].parity: parity takes 3 drives, and the host has 2",
        ),
    ] {
        let message = message(build(text));
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn the_first_hundred_mistakes_are_named() {
    let text = "[[link]]\nbetween = [\"a\", \"b\"]\n".repeat(2_000);
    let FileError(problems) = build(&text).unwrap_err();
    assert_eq!(problems.len(), 100);
}

#[test]
fn functions_that_cannot_be_are_named() {
    let with = |functions: &str, pcie: &str| {
        format!("{STAR}[nic.default]\n{pcie}\n[nic.default.functions]\n{functions}")
    };
    let slot = "pcie = { generation = 3, width = 8 }";
    for (functions, pcie, expected) in [
        (
            "count = 4",
            "",
            "nic.default.functions: functions share the PCIe slot of their adapter",
        ),
        (
            "count = 0",
            slot,
            "nic.default.functions.count: 0 is not from 1 to 256",
        ),
        (
            "count = 4\nvf.4.vlan = 1",
            slot,
            "\"4\" is no function or range of functions from 0 to 3",
        ),
        (
            "count = 4\nvf.3.vlan = 4095",
            slot,
            "nic.default.functions.vf.3.vlan: 4095 is more than 4094",
        ),
        (
            "count = 4\nvf.3.mac = \"01:00:00:00:00:01\"",
            slot,
            "is no unicast MAC address",
        ),
        (
            "count = 4\nvf.\"0-1\".mac = \"02:00:00:00:00:01\"",
            slot,
            "several functions cannot have one MAC",
        ),
        (
            "count = 4\nvf.3.mac = \"02:00:00:00:00:01\"",
            slot,
            "h0v3 and h1v3 have one MAC address",
        ),
        (
            "count = 4\nvf.3.qos = 3",
            slot,
            "function 3: qos is of the VLAN tag, and there is no vlan",
        ),
        (
            "count = 4\nvf.3 = { min-rate = \"2Gb/s\", max-rate = \"1Gb/s\" }",
            slot,
            "function 3: min-rate is above max-rate",
        ),
        (
            "count = 4\nvf.\"0-3\".min-rate = \"30Gb/s\"",
            slot,
            "h0 is 120.000 Gb/s, and its link has 100.000",
        ),
    ] {
        let message = message(build(&with(functions, pcie)));
        assert!(message.contains(expected), "{functions}\n{message}");
    }
    let taken =
        format!("{STAR}[nic.default]\n{slot}\nfunctions.count = 1\n[[switch]]\nname = \"h0v0\"\n");
    assert!(message(build(&taken)).contains("other names for hosts and switches"));
}

#[test]
fn names_of_files_are_relative_to_the_file_that_has_them() {
    let texts = [
        (
            "../common/sites.toml",
            "include = [\"parts/a.toml\", \"../other/b.toml\"]\n",
        ),
        (
            "../common/parts/a.toml",
            "[[switch]]\nname = \"a\"\nrouteros = [\"a.rsc\", \"sub/a2.rsc\"]\n\
             [[switch]]\nname = \"c\"\nsonic = \"../c.json\"\n\
             [[workload]]\nreplay = \"calls.txt\"\n",
        ),
        (
            "../common/../other/b.toml",
            "[[switch]]\nname = \"b\"\nsonic = [\"qos.json\", \"/etc/b.json\"]\n",
        ),
    ];
    let mut files = |name: &str| {
        let found = texts.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| format!("there is no {name}"))
    };
    let lab =
        "include = [\"../common/sites.toml\"]\n[[switch]]\nname = \"s\"\nrouteros = [\"s.rsc\"]\n";
    let document = Document::read("labs/lab.toml", lab, &mut files).unwrap();
    let file = document.fields().unwrap();
    let routeros = |index: usize| file.switch[index].routeros.clone().unwrap();
    let sonic = |index: usize| file.switch[index].sonic.clone().unwrap().all();
    assert_eq!(
        routeros(0),
        ["../common/parts/a.rsc", "../common/parts/sub/a2.rsc"]
    );
    assert_eq!(sonic(1), ["../common/parts/../c.json"]);
    assert_eq!(sonic(2), ["../common/../other/qos.json", "/etc/b.json"]);
    assert_eq!(routeros(3), ["s.rsc"]);
    assert_eq!(
        file.workload[0].replay.as_deref(),
        Some("../common/parts/calls.txt")
    );
}

#[test]
fn a_circle_through_folders_is_found() {
    let mut files = |name: &str| match name {
        "x/a.toml" => Ok("include = [\"../y/b.toml\"]\n".to_owned()),
        "x/../y/b.toml" => Ok("include = [\"./../x/a.toml\"]\n".to_owned()),
        name => Err(format!("there is no {name}")),
    };
    let wrong = message(Document::read(
        "lab.toml",
        "include = [\"x/a.toml\"]",
        &mut files,
    ));
    assert!(
        wrong.contains("x/a.toml → y/b.toml → x/a.toml include each other"),
        "{wrong}"
    );
}
