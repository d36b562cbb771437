//! Replays of recorded verbs calls.

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::world::{Results, Transfer};
use std::fmt::Write;

fn run(record: &str, workload: &str) -> Result<(Experiment, Results), String> {
    let text = format!(
        "topology = {{ kind = \"star\", hosts = 8, rate = \"100Gb/s\", delay = \"500ns\" }}\n\
         [[workload]]\nreplay = \"calls.txt\"\n{workload}\n"
    );
    let mut files = |_: &str| Ok(record.to_owned());
    let document =
        Document::read("lab.toml", &text, &mut files).map_err(|error| error.to_string())?;
    let experiment = Experiment::new(&document, &mut files).map_err(|error| error.to_string())?;
    let ran = experiment
        .run(&mut |_| true)
        .map_err(|error| error.to_string())?;
    Ok((experiment, ran.results))
}

/// Ten WRITEs of growing size, two at once, of which every second one completes; 2 us between calls.
fn record() -> String {
    let mut text = format!("{}\n", wire::record::HEADER);
    let mut ns = 1_000_000;
    for round in 0..5 {
        for (bytes, how) in [(1_000 * (round + 1), "unsignaled"), (64, "signaled")] {
            ns += 2_000;
            let _ = writeln!(text, "{ns} 7 259 post write {bytes} rc {how}");
        }
        ns += 50_000;
        let _ = writeln!(text, "{ns} 7 259 done write 0 0");
    }
    text
}

#[test]
fn the_same_messages_are_posted_in_the_same_order_of_posts_and_completions() {
    let (experiment, results) = run(&record(), "from = [\"h0\"]\nto = [\"h1\"]").unwrap();
    let [flow] = &results.flows[..] else {
        panic!("one queue pair")
    };
    assert_eq!(
        (flow.messages, flow.bytes, flow.delivered_bytes),
        (10, 15_320, 15_320)
    );
    assert_eq!(
        (
            experiment.scenario.flows[0].depth,
            experiment.scenario.flows[0].operation
        ),
        (2, Transfer::Write)
    );
    // Ten gaps of 2 us, the first from the beginning of the record, which is the first post.
    let (_, at_once) = run(&record(), "from = [\"h0\"]\nto = [\"h1\"]\ngaps = false").unwrap();
    let saved = flow.finished.ns() - at_once.flows[0].finished.ns();
    assert!((10_000..=18_000).contains(&saved), "{saved}");
    assert_eq!(at_once.flows[0].bytes, 15_320);
}

#[test]
fn a_record_is_replayed_between_many_hosts() {
    let (_, results) = run(&record(), "pattern = \"ring\"\nqps = 2").unwrap();
    assert_eq!(results.flows.len(), 16);
    assert!(
        results
            .flows
            .iter()
            .all(|flow| flow.bytes == 15_320 && !flow.failed)
    );
}

#[test]
fn sends_reads_and_datagrams_are_replayed() {
    let head = wire::record::HEADER;
    let calls = "1 7 1 post send 10 rc signaled\n2 7 1 post read 20 rc signaled\n\
                 3 7 1 post atomic 8 rc signaled\n\
                 4 7 2 post send 30 ud signaled\n5 7 3 post send 40 uc signaled\n6 7 1 receive 4096\n\
                 7 7 1 done receive 9 0\n8 7 1 post local 0 rc signaled\n";
    let (_, results) = run(
        &format!("{head}\n{calls}"),
        "from = [\"h0\"]\nto = [\"h1\"]",
    )
    .unwrap();
    let bytes: Vec<u64> = results.flows.iter().map(|flow| flow.bytes).collect();
    assert_eq!(bytes, [38, 30, 40]);
    assert!(results.flows.iter().all(|flow| !flow.failed));
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let pair = "from = [\"h0\"]\nto = [\"h1\"]";
    for (record, workload, expected) in [
        ("", pair.to_owned(), "this is no record"),
        (
            "rockery-verbs-record 1\n1 2 3 write",
            pair.to_owned(),
            "calls.txt, line 2: field 4 has to be post, receive or done",
        ),
        (
            "rockery-verbs-record 1\n",
            pair.to_owned(),
            "nothing was posted",
        ),
        (
            &record(),
            format!("{pair}\nmessages = 3"),
            "a record says how much is sent",
        ),
    ] {
        let error = run(record, &workload).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
