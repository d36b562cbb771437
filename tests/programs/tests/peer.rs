//! The Linux kernel at one end and rockery at the other, in both directions.

use programs::probe::Probe;
use programs::{Guest, Machine, Namespace, Rockery, Segment, perftest, scenes};

/// What a guest under emulation does in a few seconds.
const MATRIX: &[&str] = &[
    "ib_send_bw -n 20",
    "ib_write_bw -n 20",
    "ib_read_bw -n 20",
    "ib_atomic_bw -n 20",
    "ib_send_lat -n 20",
    "ib_send_bw -c UC -n 20 -s 1024",
    "ib_send_bw -c UD -n 20 -s 1024",
];

/// rockery's end, the kernel's, and what joins them; dropped in this order.
fn rockery_and_kernel(mtu: u32) -> (Namespace, Guest, Segment) {
    let segment = Segment::new(mtu).expect("a segment");
    let ours = segment.namespace(1).expect("a namespace").with(&Rockery::built());
    let theirs = segment.guest(11, &[]).expect("a guest");
    (ours, theirs, segment)
}

#[test]
fn rockery_asks_and_the_kernel_answers() {
    let (ours, theirs, _segment) = rockery_and_kernel(1500);
    for line in MATRIX {
        perftest::expect(&theirs, &ours, line);
    }
}

#[test]
fn the_kernel_asks_and_rockery_answers() {
    let (ours, theirs, _segment) = rockery_and_kernel(1500);
    for line in MATRIX {
        perftest::expect(&ours, &theirs, line);
    }
}

#[test]
fn jumbo_frames_cross_between_rockery_and_the_kernel() {
    let (ours, theirs, _segment) = rockery_and_kernel(9000);
    for line in ["ib_send_bw -n 20 -s 20000", "ib_write_bw -n 20 -s 20000", "ib_read_bw -n 20 -s 20000"] {
        perftest::expect(&theirs, &ours, line);
        perftest::expect(&ours, &theirs, line);
    }
}

/// The index of the global IPv6 address: on both sides behind the link-local and the IPv4 one.
const IPV6_GID: u32 = 2;

#[test]
fn payload_is_right_over_ipv6_in_both_directions() {
    let probe = Probe::compile("scenes").unwrap();
    let segment = Segment::new(1500).unwrap();
    let ours = segment.namespace(1).unwrap().with(&Rockery::built());
    let theirs = segment.guest(11, &[probe.path()]).unwrap();
    let (ours, theirs): (&dyn Machine, &dyn Machine) = (&ours, &theirs);
    for (responder, requester) in [(ours, theirs), (theirs, ours)] {
        for (scene, expected) in scenes::expected(false, false) {
            if ["send_sizes", "write_sizes", "read_sizes", "atomics", "uc_all", "ud_all"].contains(&scene) {
                let lines = scenes::play_with(responder, requester, &probe, scene, IPV6_GID).unwrap();
                assert_eq!(lines, expected, "{scene}");
            }
        }
    }
}
