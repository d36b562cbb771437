//! What no tool shows: NAKs, exhausted retries, keys that grant nothing. A C program of our own plays them.

use programs::probe::Probe;
use programs::{Namespace, Rockery, scenes};

#[test]
fn every_scene_ends_as_the_specification_has_it() {
    let probe = Probe::compile("scenes").unwrap();
    let alone = Namespace::alone().unwrap().with(&Rockery::built());
    scenes::expect_all(&alone, &alone, &probe, &[]);
}
