//! Names of queue pairs, and the life of one as text, as JSON and as Chrome's trace events.

use fabric_file::Document;
use serde_json::Value;
use sim::experiment::Experiment;
use sim::report::{LifeFormat, write_life};
use sim::world::Traced;

const INCAST: &str = r#"
topology = { kind = "star", hosts = 4, rate = "100Gb/s", delay = "500ns" }
[nic.default]
congestion = "off"
[qos.default]
dscp = { 26 = 3 }
pfc = { classes = [3], xoff = "40KiB", xon = "30KiB" }
queue.3 = { ecn = { min = "20KiB", max = "100KiB", probability = "20%" } }
[[workload]]
name = "in/cast"
pattern = "each"
from = ["h[1-3]"]
to = ["h0"]
message = "64KiB"
messages = 4
qps = 2
[[workload]]
name = "other"
from = ["h0"]
to = ["h1"]
messages = 1
"#;

fn experiment() -> Experiment {
    let mut none = |name: &str| Err(format!("{name} is not there"));
    let document = Document::read("lab.toml", INCAST, &mut none).unwrap();
    Experiment::new(&document, &mut none).unwrap()
}

#[test]
fn queue_pairs_are_named_by_workload_host_and_number() {
    let experiment = experiment();
    let names: Vec<String> = experiment
        .queue_pair_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names.len(), 7);
    for (flow, name) in (0..).zip(&names) {
        assert_eq!(experiment.queue_pair(name), Ok(Traced { flow, psn: None }));
        let with_psn = format!("{name}:0x10");
        let psn = Some(16);
        assert_eq!(experiment.queue_pair(&with_psn), Ok(Traced { flow, psn }));
    }
    let other = experiment.queue_pair("other/h0/0").unwrap();
    assert_eq!(experiment.queue_pair("other"), Ok(other));
    assert_eq!(experiment.queue_pair("other/h0"), Ok(other));
}

#[test]
fn names_that_mean_none_or_several_list_what_there_is() {
    let experiment = experiment();
    let error = |name: &str| experiment.queue_pair(name).unwrap_err().to_string();
    assert_eq!(
        error("in/cast/h1"),
        "in/cast/h1 is the name of several queue pairs, choose one: in/cast/h1/0, in/cast/h1/1"
    );
    assert_eq!(
        error("other/h9:7"),
        "no queue pair is called other/h9; there are: other/h0/0"
    );
    let unknown = error("nothing");
    assert!(
        unknown.contains("in/cast/h1/0, in/cast/h1/1, in/cast/h2/0"),
        "{unknown}"
    );
    for wrong in [
        "other:-1",
        "other:16777216",
        "other:x",
        "other/h0/1",
        "other/h0/00",
        "othe",
        "",
    ] {
        assert!(error(wrong).contains("no queue pair is called"), "{wrong}");
    }
}

fn written(name: &str, format: LifeFormat) -> String {
    let mut experiment = experiment();
    experiment.scenario.watch.traced = Some(experiment.queue_pair(name).unwrap());
    let ran = experiment.run(&mut |_| true).unwrap();
    let mut text = Vec::new();
    write_life(&mut text, &experiment, &ran.results.life.unwrap(), format).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_life_is_a_line_for_each_event() {
    let text = written("in/cast/h2/0", LifeFormat::Text);
    assert!(
        text.starts_with("   0.000000000  h2    posted message 0\n"),
        "{text}"
    );
    for part in [
        "h2    sent PSN 0 write-first 4096 bytes\n",
        "s0:0  enqueued PSN ",
        " behind ",
        ", waited ",
        ", marked here",
        "h0    received PSN ",
        ", marked\n",
        "h2    received ACK up to PSN ",
        "h2    class 3 paused by s0:2",
        "h2    class 3 resumed, paused for ",
        "h2    completed message 3\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let json = written("in/cast/h2/0", LifeFormat::Json);
    assert_eq!(json.lines().count(), text.lines().count());
    let one: Value =
        serde_json::from_str(json.lines().find(|line| line.contains("\"sent\"")).unwrap()).unwrap();
    assert_eq!(
        (&one["event"], &one["place"]),
        (&"sent".into(), &"h2".into())
    );
}

#[test]
fn a_packet_that_was_never_sent_is_said_to_be_none() {
    let text = written("other:4000000", LifeFormat::Text);
    assert_eq!(text, "no packet of the queue pair had PSN 4000000\n");
    let text = written("other:0", LifeFormat::Text);
    assert!(text.ends_with("completed message 0\n"), "{text}");
}

#[test]
fn chromes_trace_events_have_the_messages_and_the_stays_of_packets() {
    let json = written("in/cast/h2/0", LifeFormat::Json);
    let counted = |event: &str| {
        let wanted = format!("\"event\":\"{event}\"");
        json.lines().filter(|line| line.contains(&wanted)).count()
    };
    let document: Value =
        serde_json::from_str(&written("in/cast/h2/0", LifeFormat::Perfetto)).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((of("b"), of("e")), (4, 4));
    assert_eq!(
        of("X"),
        counted("sent") + counted("sent-again") + counted("resumed")
    );
    assert_eq!(of("C"), counted("enqueued"));
    assert_eq!(of("i"), counted("received") + counted("lost"));
    let processes: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .filter_map(|event| event["args"]["name"].as_str())
        .collect();
    assert_eq!(processes, ["h2", "s0", "h0"]);
    for slice in events.iter().filter(|event| event["ph"] == "X") {
        assert!(slice["dur"].as_f64().unwrap() >= 0.0, "{slice}");
        assert!(slice["ts"].as_f64().unwrap() >= 0.0, "{slice}");
    }
}
