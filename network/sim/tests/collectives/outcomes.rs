//! What reports say: bandwidths, critical paths, and why something is stuck.

use super::{Ran, experiment, run};
use sim::report::{PathReport, Report, Severity};

const STAR: &str = r#"
topology = { kind = "star", hosts = 8, rate = "100Gb/s", delay = "500ns" }
[nic.default]
congestion = "off"
"#;

fn star(text: &str) -> Ran {
    run(&format!("{STAR}{text}"))
}

fn path(ran: &Ran, name: &str) -> PathReport {
    let path = ran.collective(name).path.clone().unwrap();
    let sum = path.compute_us
        + path.local_us
        + path.wire_us
        + path.own_us
        + path.queue_us
        + path.paused_us
        + path.retransmission_us
        + path.credit_us;
    assert!(
        (sum - path.total_us).abs() < 1e-6 * path.total_us,
        "the parts are the whole: {path:?}"
    );
    for pair in path.legs.windows(2) {
        assert_eq!(
            pair[0].end_us, pair[1].begin_us,
            "one stretch follows the other"
        );
    }
    path
}

/// nccl-tests' factors, by operation.
#[test]
fn bus_bandwidth_is_that_of_nccl_tests() {
    let factors = [
        ("all-reduce", 2.0 * 7.0 / 8.0),
        ("reduce-scatter", 7.0 / 8.0),
        ("all-gather", 7.0 / 8.0),
        ("all-to-all", 7.0 / 8.0),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send", 1.0),
    ];
    for (kind, factor) in factors {
        let ran = star(&format!(
            "[[collective]]\nname = \"it\"\nkind = \"{kind}\"\nbytes = \"8MiB\"\nrepeat = 2\n"
        ));
        let one = ran.collective("it");
        let algbw = 8.0 * 1024.0 * 1024.0 / (one.time_us.unwrap() / 1e6);
        let is = |rate: Option<f64>, expected: f64| (rate.unwrap() / expected - 1.0).abs() < 1e-12;
        assert!(is(one.algbw_bytes_per_s, algbw), "{one:?}");
        assert!(is(one.busbw_bytes_per_s, algbw * factor), "{one:?}");
        assert_eq!(one.times_us.len(), 2);
        // No link carries more than its rate.
        let busbw = one.busbw_bytes_per_s.unwrap();
        assert!((6e9..12.5e9).contains(&busbw), "{kind}: {busbw}");
    }
}

/// Computing that several things wait for, and that other computing waits for, once.
#[test]
fn a_barrier_of_one_rank_is_computing_alone() {
    let ran = star(
        r#"
        [group.alone]
        hosts = ["h0"]
        [[collective]]
        name = "forward-0"
        kind = "barrier"
        group = "alone"
        compute = "300us"
        [[collective]]
        name = "forward-1"
        kind = "barrier"
        group = "alone"
        compute = "200us"
        after = ["forward-0"]
        [[transfer]]
        name = "activations-0"
        from = "h0"
        to = "h1"
        bytes = "4KiB"
        after = ["forward-0"]
        [[transfer]]
        name = "activations-1"
        from = "h0"
        to = "h2"
        bytes = "4KiB"
        after = ["forward-1"]
        [[collective]]
        name = "last"
        kind = "barrier"
        group = "alone"
        compute = "1ms"
        after = ["forward-1"]
        "#,
    );
    // Computing is over, and each transfer has begun, when it should.
    let transfers = [("activations-0", 300.0), ("activations-1", 500.0)];
    for (flow, (name, begin_us)) in ran.results.flows.iter().zip(transfers) {
        let finished_us = flow.last_completion.0 as f64 / 1e6;
        assert!(
            (begin_us..begin_us + 10.0).contains(&finished_us),
            "{name}: {finished_us}"
        );
        assert_eq!(ran.collective(name).times_us.len(), 1);
    }
    assert_eq!(ran.results.end.0, 1_500_000_000);
}

#[test]
fn a_critical_path_goes_over_the_slow_link() {
    let slow = "[[link]]\nbetween = [\"h3\", \"s0\"]\nrate = \"25Gb/s\"\n";
    let text = "[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"8MiB\"\n";
    let own = r#"
        [[host]]
        name = "h"
        count = 8
        [[switch]]
        name = "s0"
        [[link]]
        between = ["h[0-2]", "s0"]
        rate = "100Gb/s"
        [[link]]
        between = ["h[4-7]", "s0"]
        rate = "100Gb/s"
        [nic.default]
        congestion = "off"
    "#;
    let ran = run(&format!("{own}{slow}{text}"));
    let path = path(&ran, "it");
    let at_slow = path
        .legs
        .iter()
        .filter(|leg| leg.from == "h3" || leg.to == "h3");
    let slow_us: f64 = at_slow.map(|leg| leg.end_us - leg.begin_us).sum();
    assert!(
        slow_us > 0.8 * path.total_us,
        "{slow_us} of {}",
        path.total_us
    );
}

#[test]
fn time_without_room_is_credit() {
    let text = "[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"1MiB\"\n\
                chunk = \"16KiB\"\nslices = 1\n";
    let [much, little] = [8, 1].map(|credit| star(&format!("{text}credit = {credit}\n")));
    let [much, little] = [path(&much, "it"), path(&little, "it")];
    assert!(
        little.credit_us > 10.0 * much.credit_us,
        "{} and {}",
        little.credit_us,
        much.credit_us
    );
    assert!(
        little.total_us > 1.2 * much.total_us,
        "{} and {}",
        little.total_us,
        much.total_us
    );
}

#[test]
fn computing_comes_before_and_is_on_the_path() {
    let ran = star(
        "[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"64KiB\"\n\
         compute = \"40us\"\nrepeat = 3\n",
    );
    let one = ran.collective("it");
    assert_eq!(path(&ran, "it").compute_us, 40.0);
    let [begin, end] = one.interval_us.unwrap();
    let all: f64 = one.times_us.iter().sum();
    assert_eq!(begin, 40.0);
    assert!(
        (end - begin - 80.0 - all).abs() < 3.0,
        "computing lies between repetitions: {one:?}"
    );
}

/// Ranks begin at different times, other ones in each repetition, and the seed decides which.
#[test]
fn ranks_begin_later_by_chance() {
    let begins = |seed: u64, jitter: &str| {
        let ran = run(&format!(
            "seed = {seed}\n{STAR}[[collective]]\nname = \"it\"\nkind = \"barrier\"\nrepeat = 50\n{jitter}\n"
        ));
        let ranks = ran.results.jobs[0].ranks.iter();
        let begins = ranks.map(|rank| rank.times.iter().map(|times| times[0].0).collect());
        begins.collect::<Vec<Vec<u64>>>()
    };
    let (plain, late) = (begins(1, ""), begins(1, "start-jitter = \"10us\""));
    assert!(plain.iter().all(|rank| rank[0] == 0));
    let first: Vec<u64> = late.iter().map(|rank| rank[0]).collect();
    assert!(
        first.iter().all(|at| (1..=10_000_000).contains(at)),
        "{first:?}"
    );
    // The slowest of eight decides: 8/9 of 10 us on average. It finds the way cleared, and others' messages.
    let mean = |all: &[Vec<u64>]| (all[0][49] - all[0][0]) as f64 / 49e6;
    let extra = mean(&late) - mean(&plain);
    assert!((7.0..9.0).contains(&extra), "{extra} us");
    let gaps = |rank: &[u64]| {
        rank.windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect::<Vec<_>>()
    };
    assert!(
        gaps(&late[0])
            .windows(2)
            .any(|pair| pair[0].abs_diff(pair[1]) > 1_000_000)
    );
    assert_ne!(late[0], late[1]);
    assert_ne!(late, begins(2, "start-jitter = \"10us\""));
    assert_eq!(late, begins(1, "start-jitter = \"10us\""));
}

/// A host computes for one thing at a time, and what waits for nothing computes while others communicate.
#[test]
fn computing_goes_on_beside_communication() {
    let layer = |name: &str, more: &str| {
        format!(
            "[[collective]]\nname = \"{name}\"\nkind = \"all-reduce\"\nbytes = \"1MiB\"\n\
             compute = \"100us\"\n{more}\n"
        )
    };
    let beside = star(&(layer("a", "") + &layer("b", "")));
    let [a, b] = ["a", "b"].map(|name| beside.collective(name).interval_us.unwrap());
    assert_eq!(a[0], 100.0);
    assert!(
        a[1] > 200.0 && b[0] == a[1] || b[0] == 200.0,
        "{a:?}, {b:?}"
    );
    let after = star(&(layer("a", "") + &layer("b", "after = [\"a\"]")));
    let [a, b] = ["a", "b"].map(|name| after.collective(name).interval_us.unwrap());
    assert!(b[0] >= a[1] + 99.0, "{a:?}, {b:?}");
}

/// Two channels share the port evenly; a rank that waits for the other of its channels waits for nobody else.
#[test]
fn other_channels_of_the_same_host_are_no_queue() {
    let of = |channels: u32| {
        let ran = star(&format!(
            "[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"32MiB\"\nchannels = {channels}\n"
        ));
        path(&ran, "it")
    };
    let (one, two) = (of(1), of(2));
    assert!(
        one.own_us < 0.02 * one.total_us && one.queue_us < 0.02 * one.total_us,
        "{one:?}"
    );
    assert!(
        (0.45..0.55).contains(&(two.own_us / two.total_us)),
        "{} of {}",
        two.own_us,
        two.total_us
    );
    assert!(two.queue_us < 0.02 * two.total_us, "{}", two.queue_us);
}

#[test]
fn a_pause_at_the_sender_is_measured() {
    // Two senders into one receiver, which PFC slows down.
    let ran = run(
        "topology = { kind = \"star\", hosts = 3, rate = \"100Gb/s\", delay = \"500ns\" }\n\
         [nic.default]\ncongestion = \"off\"\n\
         [qos.default]\ndscp = { 26 = 3 }\npfc = { classes = [3], xoff = \"32KiB\", xon = \"16KiB\" }\n\
         [[transfer]]\nname = \"a\"\nfrom = \"h1\"\nto = \"h0\"\nbytes = \"20MB\"\n\
         [[transfer]]\nname = \"b\"\nfrom = \"h2\"\nto = \"h0\"\nbytes = \"20MB\"\n",
    );
    let path = path(&ran, "a");
    assert!(path.paused_us > 0.2 * path.total_us, "{path:?}");
}

#[test]
fn a_link_that_fails_is_the_end_of_the_chain() {
    let ran = run(
        "[[host]]\nname = \"h\"\ncount = 4\n[[switch]]\nname = \"s0\"\n\
         [nic.default]\ncongestion = \"off\"\ntimeout = 4\nretries = 1\n\
         [[link]]\nbetween = [\"h[0-2]\", \"s0\"]\n\
         [[link]]\nbetween = [\"h3\", \"s0\"]\ndown = [{ at = \"20us\", lasts = \"1s\" }]\n\
         [[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"8MiB\"\n\
         [[collective]]\nname = \"next\"\nkind = \"barrier\"\nafter = [\"it\"]\n",
    );
    let it = ran.collective("it").stuck.clone().unwrap();
    assert!(
        it.contains("waits for data of") && it.contains("h3"),
        "{it}"
    );
    assert!(it.contains("failed"), "{it}");
    let next = ran.collective("next").stuck.clone().unwrap();
    assert!(next.contains("waits for it"), "{next}");
    let finding = ran
        .report
        .findings
        .iter()
        .find(|it| it.seen.contains("it did not end"));
    assert_eq!(finding.unwrap().severity, Severity::Broken);
}

#[test]
fn the_end_of_the_run_is_a_note() {
    let ran = star(
        "[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"64MiB\"\nrepeat = 9\n",
    );
    assert_eq!(ran.collective("it").stuck, None);
    let ran = run(&format!(
        "duration = \"1ms\"\n{STAR}[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"64MiB\"\n"
    ));
    let finding = ran
        .report
        .findings
        .iter()
        .find(|it| it.seen.contains("it did not end"));
    assert_eq!(finding.unwrap().severity, Severity::Note);
}

/// What each collective sends over each link, exactly: payload, headers, and records.
#[test]
fn bytes_of_links_are_those_of_the_collectives_that_use_them() {
    let text = "[[collective]]\nname = \"first\"\nkind = \"all-reduce\"\nbytes = \"8MiB\"\nrepeat = 2\n\
                chunk = \"256KiB\"\nslices = 1\n\
                [[collective]]\nname = \"second\"\nkind = \"broadcast\"\nbytes = \"1MiB\"\n\
                [[transfer]]\nname = \"third\"\nfrom = \"h1\"\nto = \"h2\"\nbytes = \"64KiB\"\n";
    let of = |threads: u32| {
        let mut experiment = experiment(&format!("{STAR}{text}")).unwrap();
        experiment.scenario.watch.hops = true;
        experiment.scenario.threads = threads;
        let ran = experiment.run(&mut |_| true).unwrap();
        Report::new(&experiment, &ran.results, ran.partial)
    };
    let report = of(1);
    let links = |name: &str| {
        let one = report
            .collectives
            .iter()
            .find(|one| one.name == name)
            .unwrap();
        let by_port = one
            .links
            .iter()
            .map(|link| (link.port.as_str(), (link.packets, link.bytes)));
        by_port.collect::<std::collections::BTreeMap<_, _>>()
    };
    // In each repetition 14 parts of 1 MiB, which are four messages each, and a record for each message.
    let (data, records) = (2 * 14 * 256, 2 * 14 * 4);
    let message = |payload: u64, messages: u64| payload + messages * (16 + 4);
    let bytes = message(data * 4096, records) + data * 62 + records * (60 + 16 + 4 + 62);
    let first = links("first");
    assert_eq!(first.len(), 16, "both directions of eight links: {first:?}");
    for (port, sent) in first {
        assert_eq!(sent, (data + records, bytes), "{port}");
    }
    // A chain: the last rank sends records alone, and the first rank gets nothing else.
    let second = links("second");
    let (data, records) = (256, 2);
    let record_bytes = records * (60 + 16 + 4 + 62);
    let data_bytes = message(data * 4096, records) + data * 62;
    assert_eq!(second["h0"], (data, data_bytes));
    assert_eq!(second["h3"], (data + records, data_bytes + record_bytes));
    assert_eq!(second["h7"], (records, record_bytes));
    let third = links("third");
    assert_eq!(
        third.keys().copied().collect::<Vec<_>>(),
        ["h1", "h2", "s0:1", "s0:2"]
    );
    assert_eq!(of(3), report, "threads");
    let csv = sim::report::links_csv(&report, None, true);
    let all: usize = report.collectives.iter().map(|one| one.links.len()).sum();
    assert_eq!(csv.lines().count(), 1 + all);
    let (packets, bytes) = second["h7"];
    let line = format!("second,h7,s0:7,{packets},{bytes}");
    assert!(csv.lines().any(|row| row == line), "{line}: {csv}");
    let text = sim::report::table(&report);
    assert!(
        text.contains("links of second: h1 → s0:1 1.02MiB"),
        "{text}"
    );
}
