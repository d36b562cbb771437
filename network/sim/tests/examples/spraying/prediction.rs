//! Figures to which nothing in the model is fitted.

use super::{IN_ORDER, PACKET_US, Ran, gbps, run};

#[test]
fn an_address_in_every_packet_and_its_acknowledgements_cost_a_third_of_a_percent() {
    let on = run(
        "spraying/two-hosts.toml",
        &[("nic.default.out-of-order", "true")],
    );
    let off = run("spraying/two-hosts.toml", &[IN_ORDER]);
    let (with, without) = (gbps(&on), gbps(&off));
    assert!(
        (with - 97.66).abs() < 0.01 && (without - 98.01).abs() < 0.01,
        "{with} {without}"
    );
    assert!(((without / with - 1.0) * 100.0 - 0.34).abs() < 0.03);
    let flow = &on.results.flows[0];
    let per_ack = flow.sender.sent_packets as f64 / flow.receiver.sent_packets as f64;
    assert!(
        (3.0..=4.01).contains(&per_ack),
        "an acknowledgement for {per_ack} packets"
    );
    let acknowledgements = &on.results.hosts[1].queues[3];
    assert_eq!(
        acknowledgements.sent_bytes,
        66 * acknowledgements.sent_packets
    );
}

#[test]
fn out_of_order_receive_loses_nothing_over_two_paths_and_go_back_n_names_its_cause() {
    let on = run("spraying/two-paths.toml", &[]);
    assert!((gbps(&on) - 97.66).abs() < 0.01, "{}", gbps(&on));
    let workload = &on.report.workloads[0];
    assert_eq!(workload.retransmitted, 0);
    assert!(
        (workload.swapped_percent - 25.03).abs() < 0.5,
        "{}",
        workload.swapped_percent
    );
    assert!(
        (49.0..=50.5).contains(&workload.late_percent),
        "{}: the slow half",
        workload.late_percent
    );
    assert!(
        (10..=20).contains(&workload.reorder_distance_max),
        "{}",
        workload.reorder_distance_max
    );
    // Published: from one packet out of order to the next it is 1 to 20 packets.
    let steps: u64 = workload.swap_steps.iter().sum();
    let near: u64 = workload.swap_steps.iter().take(5).sum();
    let swapped = workload.swapped_percent / 100.0 * on.results.flows[0].order.packets as f64;
    assert!((steps as f64 - swapped).abs() < 2.0, "{steps} {swapped}");
    assert!(near as f64 > 0.999 * steps as f64 && workload.swap_step_max < 64);
    let sets = [
        IN_ORDER,
        ("nic.default.recovery", "500us"),
        ("duration", "200ms"),
    ];
    let off = run("spraying/two-paths.toml", &sets);
    assert!(gbps(&off) < 1.0, "{}", gbps(&off));
    assert!(
        off.finding("in order only (go-back-N)")
            .instead
            .contains("out-of-order = true")
    );
}

#[test]
fn goodput_follows_the_recovery_time() {
    // p packets in each recovery and round trip, whatever the recovery time.
    let packets = |recovery_us: f64| {
        let text = format!("{recovery_us}us");
        let ran = run(
            "spraying/recovery.toml",
            &[IN_ORDER, ("nic.default.recovery", &text)],
        );
        gbps(&ran) * 1e3 * (recovery_us + 8.0) / (4096.0 * 8.0)
    };
    let of_500 = packets(500.0);
    for recovery_us in [50.0, 100.0, 250.0, 1000.0] {
        let ratio = packets(recovery_us) / of_500;
        assert!(
            (0.9..1.1).contains(&ratio),
            "{recovery_us} us: {ratio} times the packets of 500 us"
        );
    }
}

#[test]
fn long_paths_cost_as_much_as_does_not_fit_into_the_window() {
    for (extra_us, measured, within) in [
        (67.2, 97.66, 0.06),
        (134.4, f64::NAN, 0.0),
        (168.0, f64::NAN, 0.0),
    ] {
        let text = format!("{extra_us}us");
        let ran = run(
            "spraying/eight-paths.toml",
            &[("link.3.extra-delay", &text)],
        );
        let law = 97.66 * (381.0 / (extra_us / PACKET_US + 8.0 / PACKET_US + 1.0)).min(1.0);
        assert!(
            (gbps(&ran) / law - 1.0).abs() < 0.01,
            "{extra_us} us: {}, {law} by the law",
            gbps(&ran)
        );
        assert!(
            measured.is_nan() || (gbps(&ran) - measured).abs() <= within,
            "{}",
            gbps(&ran)
        );
        let workload = &ran.report.workloads[0];
        // No further than the window allows, a round trip's packets less.
        let furthest = (extra_us / PACKET_US).min(381.0 - 8.0 / PACKET_US);
        assert!(
            f64::from(workload.reorder_distance_max) > 0.95 * furthest,
            "{extra_us} us"
        );
        assert_eq!(
            (
                workload.retransmitted,
                ran.results.hosts[1].device.sent_sequence_naks
            ),
            (0, 0)
        );
    }
}

/// Packets that left for the other switch by the third path, and by the two for WRITE ONLY.
fn by_path(ran: &Ran, switch: usize) -> [u64; 3] {
    let ports = &ran.results.switches[switch].ports;
    let sent = |port: usize| -> u64 {
        let queues = &ports[port].queues;
        queues.iter().map(|queue| queue.sent_packets).sum()
    };
    [1, 2, 3].map(sent)
}

/// The router of the experiment: WRITE ONLY packets at random over two paths, others by a third one.
#[test]
fn a_router_that_sprays_write_only_packets_leaves_all_others_in_order() {
    let on = run("spraying/by-opcode.toml", &[]);
    assert!((gbps(&on) - 97.66).abs() < 0.01, "{}", gbps(&on));
    let swapped = on.report.workloads[0].swapped_percent;
    assert!((swapped - 25.03).abs() < 0.5, "{swapped}");
    let [third, direct, delayed] = by_path(&on, 0);
    let half = (direct + delayed) as f64 / 2.0;
    assert!(third == 0 && (direct as f64 / half - 1.0).abs() < 0.05);
    let [acknowledgements, others @ ..] = by_path(&on, 1);
    assert!(acknowledgements > 0 && others == [0, 0], "{others:?}");
    // 64 KiB in order are WRITE FIRST, MIDDLE and LAST.
    let off = run("spraying/by-opcode.toml", &[IN_ORDER]);
    assert!((gbps(&off) - 98.01).abs() < 0.01, "{}", gbps(&off));
    let [third, others @ ..] = by_path(&off, 0);
    assert!(third > 0 && others == [0, 0], "{others:?}");
    assert_eq!(off.report.workloads[0].swapped_percent, 0.0);
    // Messages of one packet are WRITE ONLY, and go-back-N meets the disorder.
    let sets = [
        IN_ORDER,
        ("workload.0.message", "4KiB"),
        ("nic.default.recovery", "500us"),
    ];
    let lost = run("spraying/by-opcode.toml", &sets);
    assert!(gbps(&lost) < 1.0, "{}", gbps(&lost));
}
