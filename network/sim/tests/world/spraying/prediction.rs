//! Figures to which nothing in the model is fitted.

use super::{PACKET_PS, QUIET, RTT_PS, Router, WINDOW_PACKETS, eight_paths, gbps, go_back_n, near};

#[test]
fn an_address_in_every_packet_costs_what_it_weighs() {
    let on = Router {
        paths: vec![0],
        out_of_order: true,
        ..QUIET
    }
    .run();
    let off = Router {
        paths: vec![0],
        ..QUIET
    }
    .run();
    near(gbps(&on.flows[0]), 100.0 * 4096.0 / (4096.0 + 98.0), 0.01);
    near(
        gbps(&off.flows[0]),
        100.0 * 4096.0 / (4096.0 + 82.0 + 1.0),
        0.01,
    );
    near(gbps(&on.flows[0]), 97.66, 0.01);
    near(gbps(&off.flows[0]), 98.01, 0.01);
    near(
        (gbps(&off.flows[0]) / gbps(&on.flows[0]) - 1.0) * 100.0,
        0.34,
        0.03,
    );
    for results in [&on, &off] {
        let flow = &results.flows[0];
        let per_ack = flow.sender.sent_packets as f64 / flow.receiver.sent_packets as f64;
        assert!(
            (3.0..=4.01).contains(&per_ack),
            "an acknowledgement for {per_ack} packets"
        );
        assert_eq!(flow.sender.retransmitted_packets, 0);
    }
    // Acknowledgements are frames of 66 bytes.
    let queue = &on.hosts[1].queues[3];
    assert_eq!(queue.sent_bytes, queue.sent_packets * 66);
}

#[test]
fn spraying_over_two_paths_costs_nothing_with_out_of_order_receive() {
    let results = Router {
        paths: vec![0, 12],
        out_of_order: true,
        spray: true,
        ..QUIET
    }
    .run();
    let flow = &results.flows[0];
    near(gbps(flow), 97.66, 0.01);
    // Delayed, and the next one not: a quarter (25.03 % were measured).
    let swapped = flow.order.swapped as f64 / flow.order.packets as f64;
    near(swapped, 0.25, 0.01);
    assert!(
        flow.order.distance_max > 10 && flow.order.distance_max <= 20,
        "{:?}",
        flow.order
    );
    assert_eq!(flow.sender.retransmitted_packets, 0);
    assert_eq!(results.hosts[1].device.sent_sequence_naks, 0);
}

/// The law: p packets in each recovery, and a round trip to begin again.
#[test]
fn go_back_n_sends_as_many_packets_per_recovery_whatever_that_takes() {
    let packets_per_recovery = |microseconds: u64| {
        let period_ps = (microseconds * 1_000_000 + RTT_PS) as f64;
        let rate = gbps(&go_back_n(microseconds).flows[0]);
        assert!(
            rate < 5.0,
            "{rate} Gb/s with a recovery of {microseconds} us"
        );
        rate * 1e9 * period_ps / 1e12 / (4096.0 * 8.0)
    };
    let of_500 = packets_per_recovery(500);
    for microseconds in [50, 200, 1000] {
        near(packets_per_recovery(microseconds) / of_500, 1.0, 0.1);
    }
}

/// A reorder distance of 200 packets has no cost, as measured. For further ones the cost is the part that
/// does not fit into the window of unacknowledged packets, and nothing is sent again.
#[test]
fn far_reordering_is_limited_by_what_may_be_unacknowledged() {
    let law = |distance: u64| {
        let room = distance as f64 + RTT_PS as f64 / PACKET_PS as f64 + 1.0;
        97.66 * (f64::from(WINDOW_PACKETS) / room).min(1.0)
    };
    for distance in [200, 400, 500] {
        let results = eight_paths(distance);
        let flow = &results.flows[0];
        let rate = gbps(flow);
        println!(
            "distance {distance}: {rate} Gb/s, {} by the law",
            law(distance)
        );
        assert!(distance != 200 || rate >= 97.6, "{rate}");
        near(rate / law(distance), 1.0, 0.01);
        assert_eq!(flow.sender.retransmitted_packets, 0);
        assert_eq!(
            results.hosts[1].device.sent_sequence_naks, 0,
            "nothing is asked for again"
        );
    }
}
