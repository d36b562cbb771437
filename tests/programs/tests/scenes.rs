//! What no tool shows: NAKs, exhausted retries, keys that grant nothing. A C program of our own plays them.

use programs::probe::Probe;
use programs::{Machine, Namespace, Rockery, Segment, scenes};

/// Where the kernel departs from the specification, or from what both leave open; `docs/testing.md` says how.
const KERNEL_DIFFERS: &[&str] = &["send_too_long"];

#[test]
fn every_scene_ends_as_the_specification_has_it() {
    let probe = Probe::compile("scenes").unwrap();
    let alone = Namespace::alone().unwrap().with(&Rockery::built());
    scenes::expect_all(&alone, &alone, &probe, &[]);
}

#[test]
fn scenes_between_rockery_and_the_kernel_end_as_between_two_of_a_kind() {
    let probe = Probe::compile("scenes").unwrap();
    let segment = Segment::new(1500).unwrap();
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).unwrap();
    let (ours, theirs): (&dyn Machine, &dyn Machine) = (&ours, &theirs);
    scenes::expect_all(theirs, theirs, &probe, KERNEL_DIFFERS);
    scenes::expect_all(theirs, ours, &probe, KERNEL_DIFFERS);
    scenes::expect_all(ours, theirs, &probe, KERNEL_DIFFERS);
}
