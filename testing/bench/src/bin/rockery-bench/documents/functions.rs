//! SR-IOV functions against a virtual switch.

use serde_json::Value;

use super::report::{Document, Row, Table};
use super::runner::{Runner, number};

/// Published Gb/s with one stream and with five: virtual switch, function.
const STREAMS: [(&str, [f64; 2]); 2] = [
    ("TCP, 1 stream", [2.21, 3.21]),
    ("TCP, 5 streams", [8.68, 9.57]),
];

/// The adapter with functions, for the simulator.
const FILE: &str = include_str!("../../../../../../examples/functions.toml");
/// Workloads of the file, and published Gb/s.
const SIMULATED: [(&str, f64); 2] = [("five streams", 9.57), ("function to function", 30.0)];

/// Measures paths, and simulates functions.
pub(super) fn measure(runner: &mut Runner) -> Document {
    let mut document = Document::new(
        "\"SR-IOV是什么？性能能好到什么程度？\" (what SR-IOV is, and how good it gets), liaoya",
        "3 September 2020",
        "An Intel X540 with 8 functions, 10 GbE, iperf3 from a virtual machine to another host.",
    );
    let seconds = if runner.is_quick() { "1" } else { "5" };
    let paths = runner.json("functions-paths", &["bench", "paths", "--seconds", seconds]);
    if let Some(report) = document.or_missing("paths between two containers", paths) {
        let remarks = report["remarks"].as_array().into_iter().flatten();
        document.remarks = remarks
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        document.add(paths_table(&report));
    }
    if let Some(report) = simulated(runner, &mut document) {
        document.add(functions_table(&report));
    }
    document
}

fn paths_table(report: &Value) -> Table {
    let all: Vec<&Value> = report["rows"].as_array().into_iter().flatten().collect();
    let distinct = |field: &str| {
        let mut names: Vec<String> = Vec::new();
        for name in all.iter().filter_map(|row| row[field].as_str()) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    };
    let (paths, tests) = (distinct("path"), distinct("test"));
    let mut rows = Vec::new();
    for test in &tests {
        let published = STREAMS
            .iter()
            .find(|(name, _)| name == test)
            .map(|(_, figures)| *figures);
        let published =
            published.map_or_else(|| vec![None; 2], |figures| figures.map(Some).to_vec());
        for (unit, field) in [("Gb/s", "/gbps"), ("CPU s/GB", "/cpu-seconds-per-gb")] {
            let here = |path: &String| {
                let row = all
                    .iter()
                    .find(|row| row["path"] == **path && row["test"] == **test)?;
                number(row, field)
            };
            let here = paths.iter().map(here).collect();
            let published = if unit == "Gb/s" {
                published.clone()
            } else {
                vec![None; 2]
            };
            rows.push(Row {
                what: test.clone(),
                unit,
                here,
                published,
            });
        }
    }
    Table {
        title: "Paths".to_owned(),
        here: paths,
        published: vec!["virtual switch", "function"],
        rows,
        differs: "The published ends are a virtual machine and another host at 10 Gb/s; here both are \
                  containers of one machine, without a hypervisor and without a link, so nothing is \
                  limited to 10 Gb/s.",
    }
}

fn simulated(runner: &mut Runner, document: &mut Document) -> Option<Value> {
    let run = runner
        .provide("functions.toml", FILE)
        .and_then(|file| runner.json("functions-sim", &["sim", &file.display().to_string()]));
    document.or_missing("functions of an adapter, simulated", run)
}

fn functions_table(report: &Value) -> Table {
    let workloads = || report["workloads"].as_array().into_iter().flatten();
    let row = |(name, published): (&str, f64)| {
        let found = workloads().find(|workload| workload["name"] == name);
        let here = vec![found.and_then(|found| Some(number(found, "/goodput_bps")? / 1e9))];
        Row {
            what: name.to_owned(),
            unit: "Gb/s",
            here,
            published: vec![Some(published)],
        }
    };
    Table {
        title: "Functions".to_owned(),
        here: vec!["simulated".to_owned()],
        published: vec!["function"],
        rows: SIMULATED.into_iter().map(row).collect(),
        differs: "The published streams are TCP; rockery sim runs RoCEv2 over the same port and PCIe link, \
                  in virtual time.",
    }
}
