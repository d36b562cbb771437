//! The borders between the libraries and their process: signals, the limits of the system, and memory that
//! the program takes away. Each probe runs all cases of a table, each in a process of its own.

use programs::probe::Probe;
use programs::{Machine, Namespace, Rockery};

const SECONDS: u64 = 300;

fn expect_right(rockery: &Rockery, probe: &Probe, arguments: &[&str]) {
    let alone = Namespace::alone().expect("a namespace").with(rockery);
    let path = probe.path().to_string_lossy();
    let argv = [&[&*path], arguments].concat();
    let ran = alone.run(&argv, SECONDS).expect("it runs");
    let is_right = ran.succeeded() && ran.output.ends_with("right\n");
    assert!(is_right, "{arguments:?}, {rockery:?}:\n{}", ran.output);
}

/// A request to or from such memory ends with a status, whichever thread copies.
#[test]
fn memory_that_is_taken_away_ends_requests_and_no_process() {
    let probe = Probe::compile("memory_changed").unwrap();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        for ends in ["one", "two"] {
            expect_right(&rockery, &probe, &[ends]);
        }
    }
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let probe = Probe::compile("counts").unwrap();
    expect_right(&Rockery::built(), &probe, &[]);
}

#[test]
fn the_signals_of_a_program_do_what_they_do_without_a_device() {
    let probe = Probe::compile("signals").unwrap();
    let path = probe.path().to_string_lossy();
    let alone = Namespace::with_rockery();
    let run = |argv: &[&str]| alone.run(argv, SECONDS).unwrap().expect_success().output;
    assert_eq!(run(&[&path, "open"]), run(&[&path]));
}

#[test]
fn a_step_that_a_limit_refuses_has_an_error_number_and_succeeds_later() {
    let libraries = ["-lrdmacm", "-libverbs"];
    let probe = Probe::compile_with("cc", "resources", &libraries).unwrap();
    for limit in ["NOFILE", "MEMLOCK", "AS", "FSIZE", "NPROC", "STACK", "DATA"] {
        expect_right(&Rockery::built(), &probe, &[limit]);
    }
}
