//! NAKs, exceeded retries and invalid keys, which no tool shows. A C program of our own runs these scenes,
//! on rockery, on the kernel's rxe, and across the two. Each combination is a test of its own.

use programs::probe::Probe;
use programs::scenes::{self, IPV4, IPV6};
use programs::{Namespace, Pair, Rockery, Segment};

fn probe() -> Probe {
    Probe::compile("scenes").expect("the scenes compile")
}

#[test]
fn rockery_plays_every_scene_over_the_loopback() {
    let alone = Namespace::with_rockery();
    scenes::expect_all(&alone, &alone, &probe(), IPV4);
}

#[test]
fn rockery_plays_every_scene_over_the_loopback_by_packets() {
    let alone = Namespace::alone().unwrap().with(&Rockery::by_packets());
    scenes::expect_all(&alone, &alone, &probe(), IPV4);
}

#[test]
fn rockery_plays_every_scene_over_a_veth() {
    let pair = Pair::with_rockery(1500);
    scenes::expect_all(&pair.left, &pair.right, &probe(), IPV4);
    scenes::expect_all(&pair.left, &pair.right, &probe(), IPV6);
}

/// Where this one fails, the expected lines are wrong and not rockery.
#[test]
fn the_kernel_plays_every_scene_with_itself() {
    let (segment, probe) = (Segment::new(1500).unwrap(), probe());
    let guest = |number| segment.guest(number, &[probe.path()]).unwrap();
    scenes::expect_all(&guest(11), &guest(12), &probe, IPV4);
}

#[test]
fn rockery_asks_the_kernel_in_every_scene() {
    let (segment, probe) = (Segment::new(1500).unwrap(), probe());
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).unwrap();
    segment.introduce(&ours, &theirs).unwrap();
    scenes::expect_all(&theirs, &ours, &probe, IPV4);
    scenes::expect_all(&theirs, &ours, &probe, IPV6);
}

#[test]
fn the_kernel_asks_rockery_in_every_scene() {
    let (segment, probe) = (Segment::new(1500).unwrap(), probe());
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).unwrap();
    segment.introduce(&ours, &theirs).unwrap();
    scenes::expect_all(&ours, &theirs, &probe, IPV4);
    scenes::expect_all(&ours, &theirs, &probe, IPV6);
}
