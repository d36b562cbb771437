//! Packets that find their queue full are cut to their headers.

use crate::driver::{Net, profile};
use fabric::config::{GroupConfig, Limit, Trim};
use fabric::{Drop, Rate, Span, Time};

const TRIM: Trim = Trim {
    at_bytes: 20_000,
    to_bytes: 64,
    class: 6,
    dscp: 6,
};

/// Two senders at 100 Gb/s send 500 packets of 1000 bytes each through a port of 40 Gb/s.
fn run(limit: Limit, length: u16) -> Net {
    let mut profile = profile(GroupConfig::default());
    profile.queues[3].trim = Some(TRIM);
    profile.queues[6].level = 1;
    profile.queues[6].limit = limit;
    let rate = Rate::from_gbps(100);
    let delay = Span::from_ns(100);
    let mut net = Net::new(
        profile,
        &[rate, rate],
        Rate::from_gbps(40),
        delay,
        64 << 20,
        1,
    );
    (0..2).for_each(|sender| net.offer(sender, 3, length, 500));
    net.run_until(Time::from_ns(10_000_000));
    net
}

#[test]
fn what_a_queue_has_no_room_for_arrives_as_headers() {
    let net = run(Limit::None, 1000);
    let counters = net.switch.port_counters(2, Time::from_ns(10_000_000));
    let cut = counters.incidents.unwrap().trimmed[3];
    let [whole, headers] = [3, 6].map(|class: usize| net.received[class]);
    assert_eq!(whole.packets + headers.packets, 1000);
    assert_eq!(
        (whole.bytes, headers.bytes),
        (whole.packets * 1000, headers.packets * 64)
    );
    assert_eq!(
        (cut.packets, cut.bytes),
        (headers.packets, headers.packets * 1000)
    );
    assert_eq!(net.dropped.packets, 0);
    assert!(headers.packets > 400, "{headers:?}");
    assert_eq!(counters.queues[3].peak_bytes, 20_000);
}

#[test]
fn headers_are_dropped_where_their_queue_is_full_as_well() {
    let net = run(Limit::Static(64), 1000);
    let arrived: u64 = net.received.iter().map(|tally| tally.packets).sum();
    assert!(net.dropped.packets > 0);
    assert_eq!(arrived + net.dropped.packets, 1000);
    assert_eq!(net.counted_drops(Drop::Egress), net.dropped.packets);
    assert_eq!(net.dropped.bytes, net.dropped.packets * 64);
}

#[test]
fn packets_without_more_than_headers_wait_or_are_dropped_as_others() {
    let net = run(Limit::None, 64);
    assert_eq!(
        (net.received[3].packets, net.received[6].packets),
        (1000, 0)
    );
}
