//! InfiniBand subnets: routing engines, credits, lanes, and what can go wrong.

mod opensm;
mod prediction;

use super::{Ran, ran_of, run, run_with};
use fabric_file::Document;
use sim::report::Severity;

/// A file in which each host of a star sends to others, with the lines of its workloads.
fn star(hosts: u32, speed: &str, more: &str) -> String {
    format!(
        "duration = \"300us\"\n\
         topology = {{ kind = \"star\", hosts = {hosts}, infiniband = \"{speed}\", delay = \"100ns\" }}\n\
         [nic.default]\nlink-layer = \"infiniband\"\n{more}"
    )
}

/// Runs a text.
fn run_text(text: &str) -> Ran {
    run_text_with(text, |_| {})
}

fn run_text_with(text: &str, prepare: impl FnOnce(&mut sim::experiment::Experiment)) -> Ran {
    let mut files = |name: &str| -> Result<String, String> { Err(format!("no {name}")) };
    let document = Document::read("test.toml", text, &mut files).unwrap();
    ran_of(&document, &mut files, prepare)
}

/// Goodput of all flows of a workload in Gb/s.
fn gbps(ran: &Ran, workload: usize) -> f64 {
    ran.report.workloads[workload].goodput_bps / 1e9
}

#[test]
fn shortest_paths_of_a_ring_stand_still_and_up_and_down_goes_on() {
    let stuck = run("infiniband/ring.toml", &[]);
    let finding = stuck.finding("loop of credits");
    assert_eq!(finding.severity, Severity::Broken);
    assert!(
        finding.seen.contains("credit deadlock at")
            && (0..5).all(|switch| finding.seen.contains(&format!("s{switch}:"))),
        "{finding:#?}"
    );
    assert!(finding.cause.contains("packets from h") && finding.cause.contains("minhop"));
    assert!(finding.instead.contains("sm.routing = \"updn\""));
    assert_eq!(stuck.dropped(), 0);
    let moves = run("infiniband/ring.toml", &[("sm.routing", "updn")]);
    assert!(moves.results.deadlocks.is_empty() && moves.dropped() == 0);
    let broken = |ran: &Ran| {
        let findings = ran.report.findings.iter();
        findings
            .filter(|one| one.severity == Severity::Broken)
            .count()
    };
    assert_eq!(
        (broken(&stuck), broken(&moves)),
        (1, 0),
        "{:#?}",
        moves.report.findings
    );
    assert!(gbps(&moves, 0) > 50.0 && gbps(&moves, 0) > 3.0 * gbps(&stuck, 0));
}

#[test]
fn a_lifetime_at_the_head_of_lanes_ends_a_deadlock_by_dropping() {
    // 4.096 us times 2^4.
    let sets = [
        ("sm.head-of-queue-lifetime", "4"),
        ("nic.default.timeout", "6"),
        ("duration", "10ms"),
    ];
    let ran = run("infiniband/ring.toml", &sets);
    let finding = ran.finding("for their lifetime at the head of a lane");
    assert!(
        ran.dropped() > 0 && finding.seen.contains("dropped"),
        "{finding:#?}"
    );
    let stuck = run("infiniband/ring.toml", &[]);
    let sent = |ran: &Ran| {
        ran.results
            .flows
            .iter()
            .map(|flow| flow.delivered_bytes)
            .sum::<u64>()
    };
    assert!(
        sent(&ran) > 2 * sent(&stuck),
        "{} and {}",
        sent(&ran),
        sent(&stuck)
    );
}

#[test]
fn a_loop_of_credits_is_named_though_the_run_does_not_come_to_stand_in_it() {
    let ran = run("infiniband/ring.toml", &[("workload.0.shift", "1")]);
    assert!(ran.results.deadlocks.is_empty());
    let finding = ran.finding("close it");
    assert_eq!(finding.severity, Severity::Note);
    assert!(
        finding
            .seen
            .contains("this run did not come to stand in it"),
        "{finding:#?}"
    );
}

#[test]
fn in_a_shift_the_engine_for_fat_trees_keeps_flows_apart() {
    let with = |engine: &str, pattern: &str| {
        let sets = [("sm.routing", engine), ("workload.0.pattern", pattern)];
        let ran = run("infiniband/routing.toml", &sets);
        assert_eq!(
            (ran.dropped(), ran.results.deadlocks.len()),
            (0, 0),
            "{engine}"
        );
        gbps(&ran, 0) / 128.0
    };
    let shift = ["minhop", "updn", "ftree"].map(|engine| with(engine, "shift"));
    let chance = ["minhop", "updn", "ftree"].map(|engine| with(engine, "permutation"));
    assert!(shift[2] > 96.0, "{shift:?}");
    // minhop's tables use half of the links between the upper switches, as OpenSM's do.
    assert!(
        chance.iter().all(|gbps| (20.0..70.0).contains(gbps)),
        "{chance:?}"
    );
    assert!(chance[2] > 1.8 * chance[0], "{chance:?}");
}

#[test]
fn lanes_share_a_link_as_the_arbitration_tables_say() {
    let more = "[nic.other]\nlink-layer = \"infiniband\"\nservice-level = 1\n\
                [[host]]\nname = \"h2\"\nnic = \"other\"\n\
                [sm]\nqos-vlarb-low = \"0:64,1:192\"\nmax-vls = 2\n\
                [[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\n\
                [[workload]]\nfrom = [\"h2\"]\nto = [\"h0\"]\n";
    let ran = run_text(&star(3, "4x EDR", more));
    let shares = [gbps(&ran, 0), gbps(&ran, 1)];
    assert!((2.8..3.2).contains(&(shares[1] / shares[0])), "{shares:?}");
    assert!(shares[0] + shares[1] > 96.0, "{shares:?}");
    let first = run_text(&star(
        3,
        "4x EDR",
        &more.replace(
            "qos-vlarb-low = \"0:64,1:192\"",
            "qos-vlarb-high = \"1:64\"\nqos-high-limit = 255",
        ),
    ));
    let shares = [gbps(&first, 0), gbps(&first, 1)];
    assert!(shares[0] < 1.0 && shares[1] > 96.0, "{shares:?}");
}

/// One service level is blocked by a full link; the other one passes it in its own lane.
#[test]
fn a_lane_of_its_own_passes_what_waits() {
    let more = |level: u8| {
        format!(
            "[nic.other]\nlink-layer = \"infiniband\"\nservice-level = {level}\n\
             [[host]]\nname = \"h9\"\nnic = \"other\"\n[sm]\nmax-vls = 2\n\
             [[workload]]\nname = \"incast\"\npattern = \"each\"\n\
             from = [\"h5\", \"h6\", \"h7\", \"h8\"]\nto = [\"h4\"]\n\
             depth = 8\n\
             [[workload]]\nname = \"victim\"\nfrom = [\"h9\"]\nto = [\"h0\"]\nmessages = 1\n"
        )
    };
    let text = |level: u8| {
        let hosts = "topology = { kind = \"leaf-spine\", leaves = 2, spines = 1, hosts = 5, \
                     infiniband = \"4x EDR\", delay = \"100ns\" }\nduration = \"2ms\"\n\
                     [nic.default]\nlink-layer = \"infiniband\"\n";
        // The incast comes from the second leaf, as the victim does: its packets wait at the spine.
        let more = more(level);
        format!("{hosts}{more}")
    };
    let [same, own] = [0, 1].map(|level| run_text(&text(level)));
    let slowdown = |ran: &Ran| ran.report.workloads[1].slowdown.unwrap().p50;
    assert!(
        slowdown(&same) > 1.7 * slowdown(&own),
        "{} and {}",
        slowdown(&same),
        slowdown(&own)
    );
    let blocked = same
        .report
        .findings
        .iter()
        .find(|one| one.seen.contains("head-of-line"));
    let blocked = blocked.unwrap_or_else(|| panic!("{:#?}", same.report.findings));
    assert!(blocked.cause.contains("had no credits for"), "{blocked:#?}");
}

#[test]
fn a_receiver_with_a_slow_bus_holds_credits_back_and_loses_nothing() {
    let more = "pcie = { generation = 3, width = 4 }\n\
                [[workload]]\npattern = \"each\"\nfrom = [\"h1\", \"h2\"]\nto = [\"h0\"]\ndepth = 4\n";
    let ran = run_text(&star(3, "4x EDR", more));
    assert_eq!(
        (ran.dropped(), ran.report.workloads[0].retransmitted),
        (0, 0)
    );
    let dropped: u64 = ran.results.hosts.iter().map(|host| host.dropped).sum();
    assert_eq!(dropped, 0);
    let rate = gbps(&ran, 0);
    assert!((27.0..28.9).contains(&rate), "{rate}");
    let finding = ran.finding("a host takes packets more slowly than they arrive");
    assert!(finding.seen.contains("without credits"), "{finding:#?}");
}

#[test]
fn a_buffer_that_is_too_small_for_a_long_link_is_named() {
    let long = |buffer: &str| {
        let more = format!(
            "lane-buffer = \"{buffer}\"\n[qos.default]\nlane-buffer = \"{buffer}\"\n\
             [[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\ndepth = 8\n"
        );
        run_text(&star(2, "4x EDR", &more).replace("100ns", "2us"))
    };
    // 16 KiB have room for three packets, in 4.33 us; 100 Gb/s need 53 KiB.
    let short = long("16KiB");
    let finding = short.finding("credits come back after 4.3");
    assert!(finding.seen.contains("16 KiB for a lane"), "{finding:#?}");
    assert!(
        finding.seen.contains("send 22.8 Gb/s at most"),
        "{finding:#?}"
    );
    assert!(
        (22.0..22.8).contains(&gbps(&short, 0)),
        "{}",
        gbps(&short, 0)
    );
    let enough = long("64KiB");
    assert!(gbps(&enough, 0) > 85.0, "{}", gbps(&enough, 0));
    assert!(
        enough.report.findings.is_empty(),
        "{:#?}",
        enough.report.findings
    );
}

#[test]
fn damaged_packets_do_not_take_credits_with_them() {
    let with = |errors: &str| {
        let more = "[[workload]]\nfrom = [\"h1\"]\nto = [\"h0\"]\ndepth = 8\n";
        let text = star(2, "4x EDR", more).replace("300us", "4ms");
        run_text(&text.replace("delay = ", &format!("bit-errors = \"{errors}\", delay = ")))
    };
    let ran = with("1e-7");
    let damaged = ran.results.damaged;
    // 64 KiB are 16 packets: without the blocks of lost ones the link would stand still after so many.
    assert!(damaged > 40, "{damaged}");
    let late = ran.results.flows[0].last_completion;
    assert!(late.0 > 3_800_000_000, "{late:?}");
    assert!(gbps(&ran, 0) > 5.0, "{}", gbps(&ran, 0));
}

#[test]
fn threads_change_no_result() {
    let with = |threads: u32| {
        let sets = [("duration", "60us")];
        let ran = run_with("infiniband/routing.toml", &sets, |experiment| {
            experiment.scenario.threads = threads;
        });
        let results = ran.results;
        (results.flows, results.hosts, results.switches, results.hops)
    };
    let one = with(1);
    assert!(one.3 > 10_000);
    assert!([2, 3, 8].into_iter().all(|threads| with(threads) == one));
}

#[test]
fn switches_that_choose_by_load_spread_over_all_shortest_paths() {
    let with = |spread: &str| {
        let sets = [
            ("routing.spread", spread),
            ("nic.default.out-of-order", "true"),
        ];
        let ran = run("infiniband/routing.toml", &sets);
        assert_eq!(ran.dropped(), 0);
        gbps(&ran, 0) / 128.0
    };
    let [fixed, adaptive] = ["hash", "adaptive"].map(with);
    assert!(
        adaptive > 1.3 * fixed && adaptive > 85.0,
        "{fixed} and {adaptive}"
    );
}

#[test]
fn hops_are_in_the_order_of_the_path() {
    let ran = run_with(
        "infiniband/routing.toml",
        &[("duration", "60us")],
        |experiment| {
            experiment.scenario.watch.hops = true;
        },
    );
    for flow in &ran.results.flows {
        let from = flow.hops.first().map_or(0, |hop| hop.from);
        let way = flow.hops.iter().filter(|hop| hop.from == from);
        let crossed: Vec<u8> = way.map(|hop| hop.crossed).collect();
        assert!(
            crossed.iter().copied().eq(0..crossed.len() as u8),
            "{crossed:?}"
        );
    }
}
