//! Ultra Ethernet's transport: closed forms, trimming, results that threads do not change, and what is
//! refused.

use super::run;
use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::{LifeFormat, ports_csv, sweep_rows, table, write_life};
use sim::world::{LifeEvent, Results, TransportHeaders, UetHeader};

/// Microseconds until the last flow is done.
fn tail_us(results: &Results) -> f64 {
    let ends = results
        .flows
        .iter()
        .map(|flow| flow.completion_ps().unwrap());
    ends.max().unwrap() as f64 / 1e6
}

fn trimmed(results: &Results) -> u64 {
    let ports = results.switches.iter().flat_map(|switch| &switch.ports);
    let incidents = ports.filter_map(|port| port.incidents.as_ref());
    incidents
        .flat_map(|incidents| incidents.trimmed)
        .map(|tally| tally.packets)
        .sum()
}

/// Frames of 4160 bytes with the gap at 100 Gb/s over the six links of a fat tree, each of 1 us: 100 packets
/// one behind the other, five stores of the last one, six of its acknowledgement, twelve links.
#[test]
fn a_message_alone_takes_its_closed_form_to_the_picosecond() {
    for congestion in ["nscc", "rccc", "nscc-rccc", "off"] {
        let sets = [
            ("nic.default.congestion", congestion),
            ("nic.default.data-overhead", "44B"),
            ("nic.default.control-overhead", "44B"),
            ("workload.0.pattern", "each"),
            ("workload.0.from", "[\"h0\"]"),
            ("workload.0.to", "[\"h127\"]"),
            ("workload.0.message", "409600B"),
        ];
        let ran = run("uet/permutation.toml", &sets);
        let [flow] = &ran.results.flows[..] else {
            panic!("{}", ran.results.flows.len())
        };
        // Ends at 5.12 ns of each link's acknowledgement.
        let wanted = 100 * 332_800 + 5 * 332_800 + 6 * 5_120 + 12 * 1_000_000;
        let took = flow.completion_ps().unwrap();
        assert_eq!(took, wanted, "{congestion}");
        assert_eq!(flow.delivered_bytes, 409_600);
    }
}

/// Whatever chooses the paths, each flow of the permutation ends within a quarter of the time that its bytes
/// take alone (2 MB, 489 packets of 4198 bytes and the gap, and a round trip), and every byte arrives once.
#[test]
fn a_permutation_takes_little_longer_than_its_bytes() {
    let alone = 2_000_000_f64.mul_add(8e-5, 489.0 * 122.0 * 8e-5) + 14.0;
    for (entropy, congestion) in [
        ("oblivious", "nscc"),
        ("bitmap", "nscc"),
        ("reps", "nscc"),
        ("mixed", "rccc"),
    ] {
        let sets = [
            ("nic.default.uet.entropy", entropy),
            ("nic.default.congestion", congestion),
        ];
        let ran = run("uet/permutation.toml", &sets);
        let tail = tail_us(&ran.results);
        assert!(
            tail < 1.25 * alone,
            "{entropy} {congestion}: {tail} us of {alone}"
        );
        assert!(
            ran.results
                .flows
                .iter()
                .all(|flow| flow.delivered_bytes == 2_000_000)
        );
        assert_eq!(ran.dropped(), 0, "{entropy}");
    }
}

/// The first window of each sender is for an empty network: most of it is trimmed, nothing is lost, and the
/// link to the receiver is full until the end.
#[test]
fn an_incast_is_trimmed_in_its_first_round_trip_and_loses_nothing() {
    for congestion in ["nscc", "rccc", "nscc-rccc"] {
        let ran = run("uet/incast.toml", &[("nic.default.congestion", congestion)]);
        assert!(trimmed(&ran.results) > 0, "{congestion}");
        let asked: u64 = ran.results.flows.iter().map(|flow| flow.trimmed).sum();
        assert_eq!(asked, trimmed(&ran.results), "{congestion}");
        assert!(
            ran.results
                .flows
                .iter()
                .all(|flow| flow.delivered_bytes == 2_000_000)
        );
        assert!(
            ran.results
                .flows
                .iter()
                .all(|flow| flow.sender.local_ack_timeout_err == 0)
        );
        assert_eq!(ran.dropped(), 0, "{congestion}");
        let least = 8.0 * 489.0 * 4218.0 * 8e-5;
        let tail = tail_us(&ran.results);
        assert!(
            (least..1.1 * least).contains(&tail),
            "{congestion}: {tail} us of {least}"
        );
    }
}

/// Where packets were trimmed is shown where marks and drops are, and nowhere else is a column for it.
#[test]
fn trims_are_in_every_form_of_the_report() {
    let ran = run("uet/incast.toml", &[]);
    let count = trimmed(&ran.results);
    let [switch] = &ran.report.switches[..] else {
        panic!("{:?}", ran.report.switches)
    };
    assert_eq!((switch.trimmed, switch.dropped), (count, 0));
    let port = ran.report.ports.iter().find(|port| port.trimmed > 0);
    let port = port.unwrap();
    assert_eq!((port.port.as_str(), port.trimmed), ("s0:0", count));
    let queue = port.queues.iter().find(|queue| queue.class == 3).unwrap();
    assert_eq!(queue.trimmed, count);
    assert!(table(&ran.report).contains("trimmed"));
    let csv = ports_csv(&ran.report);
    let row = csv
        .lines()
        .find(|line| line.starts_with("s0:0,h0,") && line.contains(",3,"));
    assert!(row.unwrap().ends_with(&format!(",{count}")), "{csv}");
    let rows = sweep_rows(&[(1, ran.report)]);
    assert_eq!(rows[0].last().unwrap(), "trimmed");
    assert_eq!(*rows[1].last().unwrap(), count.to_string());
    let without = run("incast.toml", &[]);
    assert!(!table(&without.report).contains("trimmed"));
}

/// Of each packet that a queue pair sent: trimmed at the switch, received so, asked for, sent again.
#[test]
fn the_life_of_a_queue_pair_has_trims() {
    let sets = [("workload.0.message", "400kB")];
    let ran = super::run_with("uet/incast.toml", &sets, |experiment| {
        let first = experiment.queue_pair_names()[0].to_string();
        let traced = experiment.queue_pair(&first).unwrap();
        experiment.scenario.watch.traced = Some(traced);
    });
    let (life, flow) = (ran.results.life.as_ref().unwrap(), &ran.results.flows[0]);
    let count = |of: &dyn Fn(&LifeEvent) -> bool| {
        let own = life.records.iter().filter(|record| of(&record.event));
        own.count() as u64
    };
    assert!(flow.trimmed > 0);
    assert_eq!(
        count(&|event| matches!(event, LifeEvent::Trimmed { to_bytes: 64 })),
        flow.trimmed
    );
    assert_eq!(
        count(&|event| matches!(event, LifeEvent::Arrived { trimmed: true, .. })),
        flow.trimmed
    );
    let again = |event: &LifeEvent| matches!(event, LifeEvent::Sent { again: true, .. });
    assert_eq!(count(&again), flow.sender.retransmitted_packets);
    assert_eq!(
        count(&|event| matches!(event, LifeEvent::Completed { message: 0 })),
        1
    );
    let mut text = Vec::new();
    write_life(&mut text, &ran.experiment, life, LifeFormat::Text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for part in [
        "s0:0  trimmed PSN ",
        " to 64 bytes",
        ", trimmed",
        "NACK: PSN ",
        "ACK up to PSN ",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

/// One packet that was trimmed: its life ends with the acknowledgement of what was sent again.
#[test]
fn the_life_of_a_packet_ends_with_its_acknowledgement() {
    let ran = |psn: Option<u32>| {
        let sets = [("workload.0.message", "400kB")];
        super::run_with("uet/incast.toml", &sets, |experiment| {
            let first = experiment.queue_pair_names()[0].to_string();
            let mut traced = experiment.queue_pair(&first).unwrap();
            traced.psn = psn;
            experiment.scenario.watch.traced = Some(traced);
        })
    };
    let all = ran(None).results.life.unwrap();
    let trimmed = all.records.iter().find_map(|record| match record.event {
        LifeEvent::Trimmed { .. } => record.packet?.headers.psn(),
        _ => None,
    });
    let psn = trimmed.unwrap();
    let life = ran(Some(psn as u32)).results.life.unwrap();
    let mut packets = life.records.iter().filter_map(|record| record.packet);
    let last = packets.next_back().unwrap().headers;
    assert!(matches!(last, TransportHeaders::Uet(UetHeader::Ack(sack)) if sack.covers(psn)));
    let is_nack = |header: &UetHeader| matches!(header, UetHeader::Nack { .. });
    let nacks = life.records.iter().filter(|record| {
        let headers = record.packet.map(|packet| packet.headers);
        matches!(headers, Some(TransportHeaders::Uet(header)) if is_nack(&header))
    });
    assert!(nacks.count() > 0);
    let others = life
        .records
        .iter()
        .filter_map(|record| match record.packet?.headers {
            TransportHeaders::Uet(UetHeader::Data { psn: other, .. }) => Some(other != psn),
            _ => None,
        });
    assert!(!others.into_iter().any(|is_other| is_other));
}

#[test]
fn two_threads_give_the_results_of_one() {
    let [one, two] = ["uet/permutation.toml"; 2].map(|name| name).map({
        let mut threads = 0;
        move |name| {
            threads += 1;
            let ran = super::run_with(name, &[("workload.0.message", "400kB")], |experiment| {
                experiment.scenario.threads = threads;
            });
            ran.results
        }
    });
    assert_eq!(one.flows, two.flows);
    assert_eq!(one.switches, two.switches);
}

fn refused(sets: &[(&str, &str)]) -> String {
    let text = include_str!("../../../../examples/uet/incast.toml");
    let mut files = |name: &str| Err(name.to_owned());
    let mut document = Document::read("incast.toml", text, &mut files).unwrap();
    let mut said = String::new();
    for (path, value) in sets {
        if let Err(error) = document.set(path, value) {
            said.push_str(&error.to_string());
        }
    }
    let made = Experiment::new(&document, &mut files);
    let made = made.map(|experiment| sim::world::World::new(&experiment.scenario).map(|_| ()));
    match made {
        Err(error) => said.push_str(&error.to_string()),
        Ok(Err(error)) => said.push_str(&error.to_string()),
        Ok(Ok(())) => {}
    }
    said
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    for (sets, reason) in [
        (
            &[("nic.default.congestion", "dcqcn")][..],
            "has no \"dcqcn\"",
        ),
        (
            &[("nic.default.transport", "rc")],
            "only transport = \"uet\" has it",
        ),
        (&[("nic.default.uet.values", "60")], "60 is no power of two"),
        (&[("nic.default.uet.timeout", "0us")], "from 1ps to 1s"),
        (&[("qos.default.queue.3.trim.queue", "3")], "another queue"),
        (
            &[("qos.default.queue.3.trim.queue", "5")],
            "no DSCP has class 5",
        ),
        (
            &[("qos.default.queue.3.trim.dscp", "26")],
            "into class 3, not into queue 6",
        ),
        (
            &[("qos.default.queue.3.trim.to", "9kB")],
            "is not from 40 to 1024",
        ),
        (
            &[("qos.default.pfc.classes", "[3]")],
            "the class is lossless",
        ),
        (
            &[("workload.0.operation", "read")],
            "only WRITEs are simulated",
        ),
    ] {
        let said = refused(sets);
        assert!(said.contains(reason), "{sets:?}: {said}");
    }
}

#[test]
fn labs_are_told_that_their_programs_speak_another_transport() {
    let text = include_str!("../../../../examples/uet/incast.toml");
    let mut files = |name: &str| Err(name.to_owned());
    let document = Document::read("incast.toml", text, &mut files).unwrap();
    let said = Experiment::idle(&document, &mut files)
        .unwrap_err()
        .to_string();
    for part in [
        "nic.default.transport",
        "simulate the file with 'rockery sim'",
    ] {
        assert!(said.contains(part), "{said}");
    }
}
