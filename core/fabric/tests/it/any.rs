//! For arbitrary ports, rates, lengths of cable and frames, a lossless class loses no packet.

use crate::driver::{Net, profile};
use crate::lossless::headroom;
use fabric::config::{GroupConfig, Limit};
use fabric::{Rate, Span, Time};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_everything_arrives(
        senders in prop::collection::vec((1_u64..=400, 0_u8..8, 64_u16..=9216), 1..6),
        out_gbps in 1_u64..=400,
        delay_ns in 0_u64..5_000,
        limit in 0_u32..50_000,
        cell in prop::sample::select(vec![1_u32, 64, 208]),
        count in 1_u32..80,
        quanta in 256_u16..=0xffff,
    ) {
        let delay = Span::from_ns(delay_ns);
        let rates: Vec<Rate> = senders.iter().map(|(gbps, ..)| Rate::from_gbps(*gbps)).collect();
        let need = rates.iter().map(|rate| headroom(*rate, delay, 9216, cell)).max().unwrap_or(0);
        let group =
            GroupConfig { limit: Limit::Static(limit), headroom_bytes: need, ..GroupConfig::default() };
        let mut profile = profile(group);
        profile.pfc.quanta = quanta;
        let mut net = Net::new(profile, &rates, Rate::from_gbps(out_gbps), delay, u32::MAX, cell);
        for (sender, (_, class, length)) in senders.iter().enumerate() {
            net.offer(sender as u16, *class, *length, count);
            net.offer(sender as u16, (class + 1) % 8, *length, count);
        }
        net.run_until(Time::NEVER);
        prop_assert_eq!(net.dropped.packets, 0);
        prop_assert_eq!(net.received_bytes(), net.offered.bytes);
        prop_assert_eq!((net.switch.buffer().bytes, net.packets.len()), (0, 0));
    }
}
