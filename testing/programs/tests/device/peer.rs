//! The Linux kernel at one end and rockery at the other, in both directions.

use programs::probe::Probe;
use programs::{Pair, Rockery, Segment, patterns, perftest};

/// Programs that a guest under emulation completes in a few seconds.
const MATRIX: &[&str] = &[
    "ib_send_bw -n 20",
    "ib_write_bw -n 20",
    "ib_read_bw -n 20",
    "ib_atomic_bw -n 20",
    "ib_send_lat -n 20",
    "ib_write_lat -n 20",
    "ib_read_lat -n 20",
    "ib_atomic_lat -n 20",
    "ib_send_bw -c UC -n 20 -s 1024",
    "ib_write_bw -c UC -n 20 -s 1024",
    "ib_send_bw -c UD -n 20 -s 1024",
    "ib_send_lat -c UD -n 20 -s 1024",
];
/// The Ethernet MTUs, and the path MTU that fits each.
const MTUS: [(u32, u32); 2] = [(1500, 1024), (9000, 4096)];

fn both_directions(mtu: u32) {
    let (ours, theirs, _segment) = Segment::rockery_and_kernel(mtu, &[]);
    for line in MATRIX {
        perftest::expect(&theirs, &ours, line);
        perftest::expect(&ours, &theirs, line);
    }
    // A rule of packets that none of these matches makes packets leave one by one. Each then needs the ICRC
    // of a single packet, or the kernel drops it, and datagrams are not sent again.
    let other = &["--fault", "packet: drop peer 192.0.2.1"];
    let ours = ours.with(&Rockery::with_options(other));
    perftest::expect(&theirs, &ours, "ib_send_bw -c UD -n 50 -s 1024");
}

#[test]
fn perftest_runs_in_both_directions_at_mtu_1500() {
    both_directions(1500);
}

#[test]
fn perftest_runs_in_both_directions_at_mtu_9000() {
    both_directions(9000);
}

#[test]
fn perftest_runs_in_both_directions_over_ipv6() {
    let (ours, theirs, _segment) = Segment::rockery_and_kernel(1500, &[]);
    for program in [
        "ib_send_bw",
        "ib_write_bw",
        "ib_read_bw",
        "ib_atomic_bw",
        "ib_send_bw -c UD -s 1024",
    ] {
        let line = format!("{program} -x 2 -n 20");
        perftest::expect(&theirs, &ours, &line);
        perftest::expect(&ours, &theirs, &line);
    }
}

#[test]
fn every_byte_between_rockery_and_the_kernel_is_as_it_was_sent() {
    let probe = Probe::compile("patterns").unwrap();
    for (mtu, path_mtu) in MTUS {
        let (ours, theirs, _segment) = Segment::rockery_and_kernel(mtu, &[probe.path()]);
        for operation in patterns::OPERATIONS {
            patterns::expect(&theirs, &ours, &probe, &format!("-m {path_mtu}"), operation);
            patterns::expect(
                &ours,
                &theirs,
                &probe,
                &format!("-m {path_mtu} -6"),
                operation,
            );
        }
    }
}

#[test]
fn every_byte_between_two_of_rockery_is_as_it_was_sent() {
    let probe = Probe::compile("patterns").unwrap();
    for (mtu, path_mtu) in MTUS {
        let pair = Pair::with_rockery(mtu);
        for operation in patterns::OPERATIONS {
            patterns::expect(
                &pair.left,
                &pair.right,
                &probe,
                &format!("-m {path_mtu}"),
                operation,
            );
            patterns::expect(
                &pair.right,
                &pair.left,
                &probe,
                &format!("-m {path_mtu} -6"),
                operation,
            );
        }
    }
}

/// Where this one fails, the probe is wrong and not rockery.
#[test]
fn every_byte_between_two_kernels_is_as_it_was_sent() {
    let probe = Probe::compile("patterns").unwrap();
    let segment = Segment::new(1500).unwrap();
    let guest = |number| segment.guest(number, &[probe.path()]).unwrap();
    let (one, other) = (guest(11), guest(12));
    for operation in patterns::OPERATIONS {
        patterns::expect(&one, &other, &probe, "", operation);
    }
}
