//! The kernel against itself: the programs and options that the tests of rockery use do work with a device
//! of the kernel. Where one of these fails, the fault is in the test and not in rockery.

use programs::{Guest, Segment, perftest};

/// Emulated processors are slow: enough messages to go through every kind of packet, and not more.
const FEW: &str = "-n 20";

fn two_guests(mtu: u32) -> (Guest, Guest, Segment) {
    let segment = Segment::new(mtu).expect("a segment");
    let guest = |number| segment.guest(number, &[]).expect("a guest");
    (guest(11), guest(12), segment)
}

#[test]
fn perftest_runs_from_guest_to_guest() {
    let (server, client, _segment) = two_guests(1500);
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"] {
        let rows = perftest::expect(&server, &client, &format!("{program} {FEW}"));
        assert_eq!(rows[0].iterations, 20, "{program}");
    }
    for program in [
        "ib_send_lat",
        "ib_write_lat",
        "ib_read_lat",
        "ib_atomic_lat",
    ] {
        perftest::expect(&server, &client, &format!("{program} {FEW}"));
    }
    perftest::expect(&server, &client, &format!("ib_send_bw -c UD {FEW}"));
    perftest::expect(&server, &client, &format!("ib_send_bw -c UC {FEW}"));
}
