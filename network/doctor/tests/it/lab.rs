//! The CRS504 lab: its script, and the plan of its fabric file.

use std::fs;
use std::path::PathBuf;

use doctor::cost_simulation::{Case, compare};
use doctor::switch_intent;
use fabric::topology::LinkConfig;
use fabric::{Rate, Span};
use fabric_file::{Document, Network};
use vendors::Dialect;
use vendors::{Imported, PortPlace};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/crs504")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("it is there")
}

fn network(name: &str) -> Network {
    let mut files =
        |name: &str| fs::read_to_string(folder().join(name)).map_err(|error| error.to_string());
    let document = Document::read(name, &text(name), &mut files).expect("it is TOML");
    let file = document.fields().expect("it has known fields");
    Network::build(&document, &file, &mut files).expect("it fits together")
}

#[test]
fn the_plan_and_the_script_import_to_equal_profiles() {
    let (dialect, version) = Dialect::parse("routeros@7.17").expect("it is known");
    let intent = switch_intent(&network("lab.toml"), "crs504", dialect).expect("it is there");
    let written = dialect.write(&intent, version);
    assert_eq!(written.notes, []);
    let link = LinkConfig::new(Rate::from_gbps(100), Span::from_ns(15));
    let import = |texts: &[(&str, String)]| Imported::read(false, texts).expect("it is read");
    let planned = import(&[("plan.rsc", written.text)]);
    let script = import(&[
        ("roce.rsc", text("roce.rsc")),
        ("as-printed.rsc", text("as-printed.rsc")),
    ]);
    for name in script.port_names() {
        let place = PortPlace {
            name: Some(&name),
            index: 0,
            count: 4,
        };
        assert_eq!(
            planned.port(&place, &link),
            script.port(&place, &link),
            "{name}"
        );
    }
    assert_eq!(planned.buffer(), script.buffer());
}

#[test]
fn the_script_as_it_is_written_leaves_dscp_26_in_a_lossy_class() {
    let intent = Dialect::RouterOs
        .read("roce.rsc", &text("roce.rsc"))
        .expect("it is read");
    assert_eq!(
        (
            intent.class_of_dscp(26),
            intent.lossless(1),
            intent.lossless(3)
        ),
        (1, false, true)
    );
    assert_eq!(intent.ports.len(), 4, "lanes of a port are one port");
    let mut mapped = intent.clone();
    mapped.dscp[26] = 3;
    let cost = compare(&Case::incast(&intent, 100), &Case::incast(&mapped, 100)).expect("it runs");
    assert!(
        cost.now.gbps < 0.8 * cost.fixed.gbps && cost.now.dropped > 0,
        "{cost}"
    );
    assert_eq!(cost.fixed.dropped, 0, "{cost}");
}
