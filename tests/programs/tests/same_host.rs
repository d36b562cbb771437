//! Programs on one host, which reach each other through memory.

use programs::probe::Probe;
use programs::{Machine, Namespace, Rockery, patterns};

const SECONDS: u64 = 60;

fn alone() -> Namespace {
    Namespace::alone().expect("a namespace").with(&Rockery::built())
}

#[test]
fn every_byte_between_two_programs_is_where_it_belongs() {
    let (alone, probe) = (alone(), Probe::compile("patterns").unwrap());
    for operation in patterns::OPERATIONS {
        patterns::expect(&alone, &alone, &probe, "", operation);
        patterns::expect(&alone, &alone, &probe, "-m 256", operation);
    }
}

#[test]
fn every_kind_of_memory_can_be_registered() {
    let probe = Probe::compile("kinds").unwrap();
    let path = probe.path().to_string_lossy();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        let run = alone.run(&[&path, "-d", "rk_lo"], SECONDS).unwrap().expect_success();
        assert_eq!(run.output.matches(": as it should be").count(), 13, "{}", run.output);
    }
}
