//! With headroom no packet is lost; without it losses are counted.

use crate::driver::{Net, RESPONSE, profile};
use fabric::config::{GroupConfig, Limit};
use fabric::headroom::Headroom;
use fabric::{Drop, Rate, Span, Time};

const FRAME: u16 = 4178;

pub(crate) fn headroom(rate: Rate, delay: Span, frame: u16, cell: u32) -> u32 {
    Headroom {
        rate,
        delay,
        our_frame_max_bytes: u32::from(frame),
        peer_frame_max_bytes: u32::from(frame),
        response: RESPONSE,
        cell_bytes: cell,
        frame_min_bytes: 64,
    }
    .bytes()
}

fn two_into_one(headroom_bytes: u32) -> Net {
    let (rate, delay) = (Rate::from_gbps(100), Span::from_ns(500));
    let group = GroupConfig {
        limit: Limit::Static(20_000),
        headroom_bytes,
        ..GroupConfig::default()
    };
    let mut net = Net::new(profile(group), &[rate, rate], rate, delay, 16 << 20, 1);
    net.offer(0, 3, FRAME, 1000);
    net.offer(1, 3, FRAME, 1000);
    net
}

#[test]
fn nothing_is_lost_with_the_headroom_of_the_formula() {
    let mut net = two_into_one(headroom(Rate::from_gbps(100), Span::from_ns(500), FRAME, 1));
    net.run_until(Time::from_ns(100_000));
    assert!(
        net.switch.buffer().bytes > 0,
        "the switch is congested half way"
    );
    net.run_until(Time::NEVER);
    assert_eq!(net.dropped.packets, 0);
    assert_eq!(net.received[3].bytes, net.offered.bytes);
    assert_eq!((net.switch.buffer().bytes, net.packets.len()), (0, 0));
    assert!(net.pauses() > 0, "PAUSE is sent");
    for sender in &net.senders {
        assert!(sender.counters(3, Time::NEVER).paused_ps > 0, "and obeyed");
    }
}

#[test]
fn without_headroom_drops_are_counted() {
    let mut net = two_into_one(0);
    net.run_until(Time::NEVER);
    assert!(net.dropped.packets > 0);
    assert_eq!(net.pauses(), 0, "a group without headroom is lossy");
    assert_eq!(net.counted_drops(Drop::Ingress), net.dropped.packets);
    assert_eq!(net.received[3].bytes + net.dropped.bytes, net.offered.bytes);
    assert_eq!((net.switch.buffer().bytes, net.packets.len()), (0, 0));
}

#[test]
fn bytes_per_metre_are_those_of_a_published_table() {
    // Tomahawk 3 at 400 Gb/s, cells of 254 bytes, half of the frames of 64 bytes (one cell) and half of
    // 1082 (five cells): SONiC has 178,562 bytes for 5 m and 373,888 for 300 m.
    let of = |metres: u64| Headroom {
        rate: Rate::from_gbps(400),
        delay: Span::from_ns(metres * 5),
        our_frame_max_bytes: 9216,
        peer_frame_max_bytes: 9216,
        response: Span::from_ns(670),
        cell_bytes: 254 + 5 * 254,
        frame_min_bytes: 64 + 1082,
    };
    let own = f64::from(of(300).bytes() - of(5).bytes());
    let published = f64::from(373_888 - 178_562);
    assert!((own / published - 1.0).abs() < 0.01, "{own} {published}");
}
