//! Programs built with GCC's sanitizers, as developers of RDMA code run them: they start with rockery's
//! libraries, nothing of rockery's is reported, and their own mistakes are.

use programs::probe::Probe;
use programs::{Finished, Machine, Namespace, Rockery};

const SECONDS: u64 = 120;

fn built_with(flags: &[&str]) -> Probe {
    let flags = [&["-g", "-pthread"], flags, &["-libverbs"]].concat();
    Probe::compile_with("cc", "sanitized", &flags).expect("GCC's sanitizers")
}

/// Runs the program over shared memory, over packets, and without preloading.
fn expect_right(probe: &Probe) {
    let path = probe.path().to_string_lossy();
    let by_script = format!("{path} && echo done");
    for rockery in [
        Rockery::built(),
        Rockery::by_packets(),
        Rockery::with_sockets(),
        Rockery::with_options(&["--no-preload"]),
    ] {
        let alone = Namespace::alone().expect("a namespace").with(&rockery);
        let lines: [&[&str]; 2] = [&[&path], &["sh", "-c", &by_script]];
        for line in lines {
            let ran = alone.run(line, SECONDS).expect("it runs");
            assert!(
                ran.succeeded() && ran.output.contains("right\n"),
                "{line:?} {rockery:?}:\n{}",
                ran.output
            );
        }
    }
}

fn run(probe: &Probe, mistake: &str) -> Finished {
    let alone = Namespace::with_rockery();
    let path = probe.path().to_string_lossy();
    alone.run(&[&path, mistake], SECONDS).expect("it runs")
}

fn expect_reported(ran: &Finished, what: &str) {
    let reports = ran.output.contains(what) && ran.output.contains("sanitized.c");
    assert!(!ran.succeeded() && reports, "{}", ran.output);
}

#[test]
fn address_sanitizer_reports_the_overflow_of_a_program_and_nothing_else() {
    for flags in [
        &["-fsanitize=address"][..],
        &["-fsanitize=address", "-static-libasan"],
        &["-fsanitize=address,undefined"],
    ] {
        let probe = built_with(flags);
        expect_right(&probe);
        expect_reported(&run(&probe, "overflow"), "heap-buffer-overflow");
    }
}

#[test]
fn thread_sanitizer_reports_the_race_of_a_program_and_nothing_else() {
    let probe = built_with(&["-fsanitize=thread"]);
    expect_right(&probe);
    expect_reported(&run(&probe, "race"), "data race");
}

#[test]
fn programs_with_the_other_sanitizers_run() {
    for flag in ["-fsanitize=leak", "-fsanitize=undefined"] {
        expect_right(&built_with(&[flag]));
    }
}

/// The user's own options count, whatever `rockery run` sets.
#[test]
fn options_of_the_user_come_last() {
    let probe = built_with(&["-fsanitize=address"]);
    let path = probe.path().to_string_lossy();
    let alone = Namespace::alone().unwrap();
    let rockery = Rockery::built();
    let options = "ASAN_OPTIONS=verify_asan_link_order=1";
    let line = ["env", options, rockery.word(), "run", "--", &path];
    let ran = alone.run(&line, SECONDS).unwrap();
    let refused = ran.output.contains("does not come first");
    assert!(!ran.succeeded() && refused, "{}", ran.output);
}
