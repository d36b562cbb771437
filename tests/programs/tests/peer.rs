//! The Linux kernel at one end and rockery at the other, in both directions.

use programs::{Guest, Namespace, Rockery, Segment, perftest};

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
