//! Messages: each names line and field, and what to write instead.

use super::{build, build_with, document};
use fabric::file::{Document, FileError};

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
        ("duration = 5", "lab.toml:1:12: duration: 5 is not a time; write \"600ns\", \"5us\""),
        ("duration = \"5\"", "lab.toml:1:12: duration: \"5\" is not a time; write"),
        (
            "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100KB\"",
            "lab.toml:3:8: link[0].rate: \"100KB\" is not a rate",
        ),
        ("seed = \"x\"", "lab.toml:1:8: seed: invalid type: string \"x\", expected u64"),
        ("[routing]\nspread = \"addaptive\"", "did you mean \"adaptive\"?"),
        ("[[link]]\nrate = \"1Gb/s\"", "link[0]: missing field `between`"),
        ("x = ", "lab.toml:1:"),
        ("topology = { kind = \"fat-tree\", k = 5 }", "topology: this kind needs k"),
    ] {
        let message = message(build(text));
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

const STAR: &str = "topology = { kind = \"star\", hosts = 2 }\n";

#[test]
fn names_that_nothing_has_are_found_with_the_nearest() {
    for (text, expected) in [
        ("[[switch]]\nname = \"s0\"\nqos = \"dep\"\n[qos.deep]\n", "did you mean \"deep\"?"),
        ("[[host]]\nname = \"h0\"\nnic = \"cx6\"\n", "there is no table [nic.cx6]"),
        (
            "[[link]]\nbetween = [\"h9\", \"s0\"]\n",
            "link[0].between[0]: no host and no switch is called \"h9\"",
        ),
        ("[[host]]\nname = \"x*\"\n", "no host is called \"x*\""),
        ("[[host]]\nname = \"lonely\"\n", "host lonely is attached to no switch"),
        ("[[link]]\nbetween = [\"h0\", \"s0\"]\n", "host h0 has a link already"),
        ("[[link]]\nbetween = [\"s0\", \"h*\"]\n", "\"h*\" stands for 2 ends"),
        ("[[host]]\nname = \"s0\"\n", "a host and a switch have this name"),
        ("[qos.default.queue.9]\nweight = 1\n", "qos.default.queue.9: \"9\" is no class"),
        ("[qos.default.pfc.class.4]\n", "qos.default.pfc.class.4: \"4\" is none of `classes`"),
        ("[qos.default.pfc.class.3]\nxoff = \"0B\"\n", "pfc.class.3.xoff: nothing may ever be buffered"),
        ("[nic.default]\noutstanding = 0\n", "nic.default.outstanding: nothing may ever leave"),
        (
            "[qos.default]\ndscp = { 64 = 3 }\n",
            "qos.default.dscp.64: \"64\" is no value or range from 0 to 63",
        ),
        ("[qos.default]\nbuffer = \"10KiB\"\n", "headroom and reserves of 2 ports need"),
        ("[nic.default]\nmtu = 1500\n", "nic.default.mtu: 1500 is no path MTU"),
        (
            "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nextra-law = \"measured\"\n",
            "link[0].extra-samples: two or more are needed",
        ),
        (
            "[[switch]]\nname = \"x\"\n[[link]]\nbetween = [\"s0\", \"x\"]\nextra-law = \"pareto\"\n\
             extra-spread = \"1us\"\nextra-shape = 0.5\n",
            "link[0].extra-shape: a shape of 0.5 is not from 1 to 1000",
        ),
    ] {
        let message = message(build(&format!("{STAR}{text}")));
        assert!(message.contains(expected), "{text}\n{message}");
        assert!(message.starts_with("lab.toml:"), "{message}");
    }
}

#[test]
fn includes_and_settings_are_named_where_they_stand() {
    let mut files = |name: &str| match name {
        "bad.toml" => Ok("[nic.default]\nmtuu = 3\n".to_owned()),
        "loop.toml" => Ok("include = [\"loop.toml\", \"bad.toml\"]\n".to_owned()),
        _ => Err("there is no such file".to_owned()),
    };
    let wrong = Document::read("lab.toml", "seed = 1\ninclude = [\"gone.toml\"]", &mut files);
    assert!(message(wrong).starts_with("lab.toml:2:12: include[0]: gone.toml: there is no such file"));
    let document = Document::read("lab.toml", "include = [\"loop.toml\"]", &mut files).unwrap();
    assert!(message(document.fields()).starts_with("bad.toml:2:1: nic.default.mtuu"));
    let mut document = Document::read("lab.toml", "seed = 1", &mut files).unwrap();
    assert!(message(document.set("link.0.rate", "1Gb/s")).contains("there is no link to set"));
    let mut document = Document::read("lab.toml", "[[link]]\nbetween = [\"a\", \"b\"]", &mut files).unwrap();
    assert!(message(document.set("link.4.rate", "1Gb/s")).contains("there is no link \"4\"; there are 1"));
    let mut document = Document::read("lab.toml", "", &mut files).unwrap();
    document.set("nic.default.dcqcn.g", "5 apples").unwrap();
    assert!(
        message(document.fields()).starts_with("--set:1:23: nic.default.dcqcn.g: \"5 apples\" is not a part")
    );
}

#[test]
fn a_vendors_file_that_is_not_understood_is_named_with_its_line() {
    let text = "[[host]]\nname = \"a\"\n[[switch]]\nname = \"sw\"\nrouteros = [\"x.rsc\"]\n[[link]]\n\
         between = [\"a\", \"sw:1\"]\n";
    let bad = "/interface ethernet switch qos port\nset qsfp28-1-1 pcf=x\n";
    assert!(message(build_with(text, &[("x.rsc", bad)])).starts_with(
        "lab.toml:5:12: switch[0].routeros: x.rsc:2: there is no property \"pcf\" here; did you mean \"pfc\"?"
    ));
    let good = "/interface ethernet switch qos port\nset qsfp28-1-1 trust-l3=keep\n";
    assert!(message(build_with(text, &[("x.rsc", good)])).contains("the switch has no port \"1\""));
    assert!(message(build_with(text, &[])).contains("x.rsc: there is no such file"));
}
