//! Shares, strict priority, marks and shapers at a congested port.

use crate::driver::{Net, profile};
use fabric::config::{GroupConfig, Profile, Red, RedAt, Shaper};
use fabric::{Rate, Span, Time};

/// Two senders at 100 Gb/s keep their classes waiting at a port of 40 Gb/s for a millisecond.
fn contend(profile: Profile, classes: [(u8, u16); 2]) -> Net {
    let rate = Rate::from_gbps(100);
    let mut net = Net::new(
        profile,
        &[rate, rate],
        Rate::from_gbps(40),
        Span::from_ns(100),
        64 << 20,
        1,
    );
    for (sender, (class, length)) in classes.into_iter().enumerate() {
        net.offer(sender as u16, class, length, 13_000_000 / u32::from(length));
    }
    net.run_until(Time::from_ns(1_000_000));
    net
}

#[test]
fn shares_are_as_configured() {
    let mut profile = profile(GroupConfig::default());
    (profile.queues[1].weight, profile.queues[4].weight) = (1, 3);
    let net = contend(profile, [(1, 1086), (4, 4178)]);
    let share = net.received[4].bytes * 1000 / net.received_bytes();
    assert!(share.abs_diff(750) <= 20, "{share} of 1000");
}

#[test]
fn a_higher_level_goes_first() {
    let mut profile = profile(GroupConfig::default());
    profile.queues[6].level = 1;
    let net = contend(profile, [(1, 4178), (6, 4178)]);
    // Class 1 may send only before the first packet of class 6 has arrived.
    assert!(net.received[1].packets <= 2, "{:?}", net.received);
    assert!(net.received[6].packets > 1000, "{:?}", net.received);
}

fn marked(min_bytes: u32, max_bytes: u32, probability: u32) -> (u64, u64) {
    let mut profile = profile(GroupConfig::default());
    let red = Red {
        min_bytes,
        max_bytes,
        probability,
        mark: true,
        drop: false,
        at: RedAt::Dequeue,
    };
    profile.queues[3].red = Some(red);
    let net = contend(profile, [(3, 1086), (3, 1086)]);
    (net.received[3].marked, net.received[3].packets)
}

#[test]
fn marks_begin_at_the_lower_threshold_and_are_certain_at_the_upper() {
    assert_eq!(marked(60 << 20, 61 << 20, u32::MAX).0, 0);
    let (always, of) = marked(0, 1, u32::MAX);
    assert!(always * 100 > of * 99, "{always} of {of}");
    // The queue grows to 20 MB: the chance there is a quarter, on average an eighth.
    let (some, of) = marked(0, 40_000_000, u32::MAX / 2);
    assert!(some * 20 > of && some * 4 < of, "{some} of {of}");
}

#[test]
fn a_shaper_holds_its_rate() {
    let mut profile = profile(GroupConfig::default());
    profile.queues[3].shaper = Some(Shaper {
        rate: Rate::from_gbps(10),
        burst_bytes: 10_000,
    });
    let net = contend(profile, [(3, 1086), (3, 1086)]);
    let wire_bytes = net.received[3].packets * (1086 + 20);
    assert!(
        wire_bytes.abs_diff(1_250_000) < 15_000,
        "{wire_bytes} bytes in a millisecond"
    );
}
