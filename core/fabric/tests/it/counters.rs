//! Counters match the events, by port, queue, priority group and reason.

use crate::driver::{Net, profile};
use fabric::config::{BufferConfig, CLASSES, GroupConfig, Limit, Profile, Red, RedAt};
use fabric::{Drop, PortCounters, Rate, Span, Time, UNTAGGED};

/// Three senders of one class each into one port, until all is over.
fn contend(profile: Profile, total_bytes: u32) -> Net {
    let rate = Rate::from_gbps(100);
    let mut net = Net::new(
        profile,
        &[rate; 3],
        rate,
        Span::from_ns(500),
        total_bytes,
        256,
    );
    for sender in 0..3 {
        net.offer(sender, sender as u8 + 1, 4178, 400);
    }
    net.run_until(Time::NEVER);
    net
}

fn counters(net: &Net) -> Vec<PortCounters> {
    (0..net.switch.ports())
        .map(|port| net.switch.port_counters(port, Time::from_ns(1_000_000)))
        .collect()
}

#[test]
fn drops_are_counted_where_switches_count_them() {
    let full = profile(GroupConfig {
        limit: Limit::Dynamic(1 << 13),
        ..GroupConfig::default()
    });
    let mut limited = profile(GroupConfig::default());
    limited.queues[2].limit = Limit::Static(20_000);
    let mut early = profile(GroupConfig::default());
    early.queues[1].red = Some(Red {
        min_bytes: 10_000,
        max_bytes: 40_000,
        probability: u32::MAX / 2,
        mark: false,
        drop: true,
        at: RedAt::Enqueue,
    });
    for (profile, why, class) in [
        (full, Drop::Ingress, 3),
        (limited, Drop::Egress, 2),
        (early, Drop::Early, 1),
    ] {
        let net = contend(
            profile,
            if why == Drop::Ingress {
                1 << 20
            } else {
                16 << 20
            },
        );
        let ports = counters(&net);
        let total = net.counted_drops(why);
        assert!(
            total > 10 && total == net.dropped.packets,
            "{why:?}: {total}"
        );
        // Queue drops are counted at the port where the packets would have left, in their queue.
        let queues: Vec<_> = (0..CLASSES)
            .map(|queue| ports[3].dropped(queue, |is| is == why))
            .collect();
        assert_eq!(queues.iter().map(|tally| tally.packets).sum::<u64>(), total);
        assert_eq!(
            queues.iter().map(|tally| tally.bytes).sum::<u64>(),
            total * 4178
        );
        assert!(queues[class].packets > 0, "{why:?} {queues:?}");
        assert!(
            ports[..3]
                .iter()
                .all(|port| (0..CLASSES).all(|queue| port.dropped(queue, |_| true).packets == 0))
        );
        // Packets that a priority group refused are counted where they arrived as well, and no others are.
        let refused: u64 = ports
            .iter()
            .filter_map(|port| port.incidents.as_ref())
            .flat_map(|incidents| incidents.refused)
            .map(|tally| tally.packets)
            .sum();
        assert_eq!(refused, if why == Drop::Ingress { total } else { 0 });
    }
}

#[test]
fn watermarks_are_what_groups_and_pools_held_at_most() {
    let group = GroupConfig {
        limit: Limit::Static(60_000),
        headroom_bytes: 100_000,
        xon_offset_bytes: 10_000,
        reserve_bytes: 2_048,
    };
    let net = contend(profile(group), 8 << 20);
    assert_eq!(net.dropped.packets, 0);
    let (ports, buffer) = (counters(&net), net.switch.buffer());
    let mut headroom = 0;
    for (sender, port) in ports[..3].iter().enumerate() {
        let peaks = port.groups[sender + 1];
        assert!(
            (50_000..=60_000).contains(&peaks.shared_peak_bytes),
            "{peaks:?}"
        );
        assert!(
            peaks.headroom_peak_bytes > 0 && peaks.headroom_peak_bytes <= 100_000,
            "{peaks:?}"
        );
        assert_eq!(peaks.headroom_peak_bytes, port.ingress.headroom_peak_bytes);
        headroom += peaks.headroom_peak_bytes;
        let others = (0..CLASSES).filter(|other| *other != sender + 1);
        assert!(
            others
                .map(|other| port.groups[other])
                .all(|other| other == Default::default())
        );
    }
    assert!(
        buffer.shared_peak_bytes > 60_000 && buffer.shared_peak_bytes <= 3 * 60_000,
        "{buffer:?}"
    );
    assert!(
        buffer.headroom_peak_bytes > 0 && buffer.headroom_peak_bytes <= headroom,
        "{buffer:?}"
    );
    assert!(
        buffer.peak_bytes >= buffer.shared_peak_bytes && buffer.bytes == 0,
        "{buffer:?}"
    );
}

#[test]
fn pause_frames_are_counted_by_priority_at_both_ends() {
    let group = GroupConfig {
        limit: Limit::Static(60_000),
        headroom_bytes: 100_000,
        xon_offset_bytes: 10_000,
        ..GroupConfig::default()
    };
    let net = contend(profile(group), 8 << 20);
    for (sender, port) in counters(&net)[..3].iter().enumerate() {
        let sent = port.incidents.as_ref().unwrap().pfc_sent;
        // Each sender has one class: its priority is paused and resumed, and no other is named in a pause
        // frame.
        assert!(sent[sender + 1] >= 2, "{sent:?}");
        assert_eq!(sent.iter().sum::<u64>(), sent[sender + 1]);
        assert!(sent[sender + 1] >= port.ingress.pauses_sent + port.ingress.resumes_sent);
        assert_eq!(net.senders[sender].incidents().unwrap().pfc_received, sent);
    }
}

/// A common pool of headroom limits the sum of all groups: a small one loses packets, and is never exceeded.
#[test]
fn a_pool_of_headroom_is_shared_and_has_its_end() {
    let group = GroupConfig {
        limit: Limit::Static(60_000),
        headroom_bytes: 100_000,
        xon_offset_bytes: 10_000,
        ..GroupConfig::default()
    };
    let run = |pool: u32| {
        let buffer = BufferConfig {
            total_bytes: 8 << 20,
            headroom_pool_bytes: Some(pool),
            cell_bytes: 256,
        };
        let rate = Rate::from_gbps(100);
        let mut net =
            Net::with_buffer(profile(group), &[rate; 3], rate, Span::from_ns(500), buffer);
        (0..3).for_each(|sender| net.offer(sender, sender as u8 + 1, 4178, 400));
        net.run_until(Time::NEVER);
        (net.dropped.packets, net.switch.buffer().headroom_peak_bytes)
    };
    let (lost, used) = run(200_000);
    assert!(lost == 0 && used > 0, "{used} bytes");
    let (lost, most) = run(used / 2);
    assert!(
        lost > 0 && most <= used / 2,
        "{lost} lost with {most} of {} bytes",
        used / 2
    );
}

/// A packet whose DSCP is mapped to class 1 and whose priority code point is mapped to class 5.
#[test]
fn the_header_that_is_trusted_decides_about_the_class() {
    for (dscp, pcp, tagged, class) in [
        (true, true, true, 1),
        (false, true, true, 5),
        (false, true, false, 0),
        (false, false, true, 0),
    ] {
        let mut profile = profile(GroupConfig::default());
        (profile.map.trust_dscp, profile.map.trust_pcp) = (dscp, pcp);
        let rate = Rate::from_gbps(100);
        let mut net = Net::new(profile, &[rate], rate, Span::from_ns(500), 8 << 20, 256);
        net.offer_tagged(0, 1, if tagged { 5 } else { UNTAGGED }, 1086, 10);
        net.run_until(Time::NEVER);
        let sent = counters(&net)[1].queues.map(|queue| queue.sent_packets);
        assert_eq!(
            (sent[class], sent.iter().sum::<u64>()),
            (10, 10),
            "DSCP {dscp}, PCP {pcp}: {sent:?}"
        );
    }
}
