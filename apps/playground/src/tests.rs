//! Requests of the page and their answers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sim::experiment::Experiment;
use sim::report::Report;

use crate::{answer, examples};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn raw(request: &Value) -> Vec<u8> {
    answer(request.to_string().as_bytes(), &mut |_| true)
}

fn asked(request: &Value) -> Value {
    serde_json::from_slice(&raw(request)).unwrap()
}

fn example(name: &str) -> Value {
    let start = asked(&json!({ "do": "start" }));
    start["examples"]
        .as_array()
        .unwrap()
        .iter()
        .find(|example| example["name"] == name)
        .unwrap()
        .clone()
}

fn run(name: &str, set: &[[&str; 2]]) -> Value {
    let example = example(name);
    asked(&json!({ "do": "run", "text": example["text"], "files": example["files"], "set": set }))
}

/// Every file in `folder` that describes an experiment.
fn experiments(folder: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{below}{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            experiments(&path, &format!("{name}/"), found);
        } else if let Some(stem) = name.strip_suffix(".toml") {
            let text = fs::read_to_string(&path).unwrap();
            let mut files = sim::input::reader(path.parent().unwrap());
            let document = fabric_file::Document::read(&name, &text, &mut files);
            if document.is_ok_and(|document| Experiment::new(&document, &mut files).is_ok()) {
                found.push(stem.to_owned());
            }
        }
    }
}

#[test]
fn every_experiment_of_the_folder_is_an_example_of_the_page() {
    let mut found = Vec::new();
    experiments(&folder(), "", &mut found);
    found.sort();
    let mut listed: Vec<&str> = examples::all().iter().map(|example| example.name).collect();
    listed.sort_unstable();
    assert_eq!(listed, found);
}

#[test]
fn a_run_reports_what_the_file_reports_elsewhere() {
    let path = folder().join("crs504/ecn-off.toml");
    let text = fs::read_to_string(&path).unwrap();
    let mut files = sim::input::reader(path.parent().unwrap());
    let document = fabric_file::Document::read("ecn-off.toml", &text, &mut files).unwrap();
    let experiment = Experiment::new(&document, &mut files).unwrap();
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, false);
    let answer = run("crs504/ecn-off", &[]);
    assert!(!report.findings.is_empty());
    assert_eq!(
        answer["findings"],
        serde_json::to_value(&report.findings).unwrap()
    );
    assert_eq!(
        answer["csv"]["flows"],
        sim::report::flows_csv(&report, None, true)
    );
    let samples = answer["times_us"].as_array().unwrap().len();
    let loads = answer["loads"].as_array().unwrap();
    let busiest = loads
        .iter()
        .flat_map(|load| load.as_array().unwrap())
        .filter_map(Value::as_u64)
        .max();
    assert!(
        samples > 100 && busiest > Some(90),
        "{samples} samples, at most {busiest:?} percent"
    );
}

#[test]
fn dials_change_the_run() {
    let before = run("crs504/ecn-off", &[]);
    let dials = before["dials"].as_array().unwrap();
    let scripts = dials
        .iter()
        .find(|dial| dial["path"] == "switch.1.routeros")
        .unwrap();
    assert_eq!(scripts["values"].as_array().unwrap().len(), 3);
    let value = scripts["values"][1].as_str().unwrap();
    let after = run("crs504/ecn-off", &[["switch.1.routeros", value]]);
    assert_eq!(
        after["findings"],
        run("crs504/ecn-off", &[["switch.1.routeros", value]])["findings"]
    );
    assert_ne!(
        before["findings"], after["findings"],
        "without ecn-off.rsc the switch marks"
    );
}

#[test]
fn dials_of_every_example_stand_at_the_value_of_the_file() {
    for example in examples::all() {
        let mut files = |name: &str| {
            example
                .files
                .get(name)
                .map(|text| (*text).to_owned())
                .ok_or_else(|| name.to_owned())
        };
        let document = fabric_file::Document::read("file", example.text, &mut files).unwrap();
        for dial in crate::dials::of(&document.fields().unwrap()) {
            let mut set = document.clone();
            set.set(&dial.path, &dial.values[dial.at]).unwrap();
            let fields = |document: &fabric_file::Document| {
                let mut file = document.fields().unwrap();
                // Tables that the file does not contain have their defaults.
                file.qos.entry("default".to_owned()).or_default();
                file.nic.entry("default".to_owned()).or_default();
                file
            };
            let (own, same) = (fields(&document), fields(&set));
            if !own.sweep.contains_key(&dial.path) {
                assert_eq!(own, same, "{}: {}", example.name, dial.path);
            }
        }
    }
}

#[test]
fn mistakes_have_their_lines() {
    let text = "title = \"a\"\nduration = 3 sheep\n";
    let answer = asked(&json!({ "do": "run", "text": text }));
    let problem = &answer["problems"][0];
    assert_eq!(
        (&problem["file"], &problem["line"]),
        (&json!("file"), &json!(2)),
        "{answer}"
    );
    let answer = asked(&json!({ "do": "run", "text": "[nic.default]\nmtuu = 1024\n" }));
    let problem = &answer["problems"][0];
    assert_eq!(problem["line"], 2);
    assert!(
        problem["instead"].as_str().unwrap().contains("mtu"),
        "{answer}"
    );
    let answer = asked(&json!({ "do": "run", "text": "include = [\"no.toml\"]" }));
    assert!(
        answer["problems"][0]["what"]
            .as_str()
            .unwrap()
            .contains("no.toml"),
        "{answer}"
    );
    let answer = asked(&json!({ "do": "sleep" }));
    assert!(
        answer["refused"].as_str().unwrap().contains("sleep"),
        "{answer}"
    );
}

#[test]
fn a_capture_is_a_pcap_file() {
    let example = example("crs504/ecn-off");
    let mut request =
        json!({ "do": "capture", "text": example["text"], "files": example["files"] });
    request["port"] = "server".into();
    let bytes = raw(&request);
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    assert!(bytes.len() > 10_000, "{} bytes", bytes.len());
    request["port"] = json!("nobody");
    assert_eq!(asked(&request)["refused"], "no port is called nobody");
}

#[test]
fn a_stopped_run_is_reported_as_partial() {
    let example = example("fat-tree");
    let request = json!({ "do": "run", "text": example["text"], "files": example["files"] });
    let answer: Value =
        serde_json::from_slice(&answer(request.to_string().as_bytes(), &mut |_| false)).unwrap();
    assert!(
        answer["body"]
            .as_str()
            .unwrap()
            .contains("Stopped before its end")
    );
}
