//! Two hosts with a network between them that marks, trims, loses and reorders at will.

use super::endpoint::Incoming;
use super::{Endpoint, EntropyKind, Header, NsccConfig, Outgoing, UetConfig};
use fabric::{Pcg32, Span, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NETWORK: NsccConfig = NsccConfig {
    base_rtt: Span::from_us(10),
    target: Span::from_us(7),
    line_bps: 100_000_000_000,
    payload: 4096,
    packet: 4160,
};

const CONFIG: UetConfig = UetConfig {
    window: 100_000,
    network: NETWORK,
    nscc: true,
    rccc: false,
    entropy: EntropyKind::Reps,
    values: 64,
    ack_bytes: 16_384,
    timeout: Span::from_us(100),
    retries: 7,
};

/// Chances in 256.
#[derive(Clone, Copy, Debug)]
struct Chances {
    trimmed: u32,
    lost: u32,
    marked: u32,
}

struct Wire {
    random: Pcg32,
    chances: Chances,
    /// By time of arrival, and a number that keeps them apart.
    under_way: BTreeMap<(Time, u64), (u32, Incoming)>,
    count: u64,
}

impl Wire {
    fn hits(&mut self, chance: u32) -> bool {
        self.random.below(256) < chance
    }

    fn send(&mut self, now: Time, packet: Outgoing) {
        self.count += 1;
        if self.hits(self.chances.lost) {
            return;
        }
        let at = now + Span::from_us(5) + Span(u64::from(self.random.below(3_000_000)));
        let is_data = matches!(packet.header, Header::Data { .. });
        let is_trimmed = is_data && self.hits(self.chances.trimmed);
        let incoming = Incoming {
            flow: packet.flow,
            header: packet.header,
            payload: packet.payload,
            is_marked: is_data && self.hits(self.chances.marked),
            is_trimmed,
            at_last_hop: is_trimmed && self.hits(128),
        };
        self.under_way
            .insert((at, self.count), (packet.to, incoming));
    }
}

/// Runs until nothing happens any more. Returns bytes delivered and messages completed, by flow, how many
/// flows failed, and when it ended.
fn run(
    config: UetConfig,
    chances: Chances,
    flows: &[Vec<u64>],
) -> (Vec<u64>, Vec<u32>, usize, Time) {
    let ran = run_all(config, chances, flows);
    (ran.delivered, ran.complete, ran.failed, ran.ended)
}

/// What a run did.
struct Ran {
    delivered: Vec<u64>,
    complete: Vec<u32>,
    failed: usize,
    ended: Time,
    /// Bytes that left without a grant.
    without_grant: u64,
}

fn run_all(config: UetConfig, chances: Chances, flows: &[Vec<u64>]) -> Ran {
    let mut hosts = [Endpoint::new(config), Endpoint::new(config)];
    for (flow, messages) in (0..).zip(flows) {
        hosts[0].add_sender(flow, 1, Pcg32::new(3, u64::from(flow)));
        hosts[1].add_receiver(flow, 0);
        messages
            .iter()
            .for_each(|bytes| hosts[0].post(flow, *bytes));
    }
    let mut wire = Wire {
        random: Pcg32::new(1, 9),
        chances,
        under_way: BTreeMap::new(),
        count: 0,
    };
    let (mut delivered, mut complete) = (vec![0; flows.len()], vec![0; flows.len()]);
    let (mut failed, mut now, mut free_at) = (0, Time(0), Time(0));
    loop {
        if free_at <= now
            && let Some(packet) = hosts[0].send(now)
        {
            wire.send(now, packet);
            free_at = now + Span(332_800);
        }
        let sends = if hosts[0].has_ready() {
            free_at
        } else {
            Time::NEVER
        };
        let arrives = wire
            .under_way
            .first_key_value()
            .map_or(Time::NEVER, |((at, _), _)| *at);
        let timer = hosts.iter().map(Endpoint::next_at).min().unwrap();
        let next = sends.min(arrives).min(timer);
        if next == Time::NEVER {
            return Ran {
                delivered,
                complete,
                failed,
                ended: now,
                without_grant: hosts[0].without_grant(),
            };
        }
        now = now.max(next);
        if arrives <= now {
            let (_, (to, packet)) = wire.under_way.pop_first().unwrap();
            let answer = hosts[to as usize].take(now, &packet);
            delivered[packet.flow as usize] += u64::from(answer.delivered);
            complete[packet.flow as usize] += answer.complete;
            answer
                .packet
                .into_iter()
                .for_each(|packet| wire.send(now, packet));
        }
        while hosts[0].expire(now).is_some() {
            failed += 1;
        }
        while let Some(credit) = hosts[1].grant(now) {
            wire.send(now, credit);
        }
        hosts.iter().for_each(Endpoint::check_senders);
    }
}

fn any_config() -> impl Strategy<Value = UetConfig> {
    let kinds = prop_oneof![
        Just(EntropyKind::Oblivious),
        Just(EntropyKind::Bitmap),
        Just(EntropyKind::Reps),
        Just(EntropyKind::Mixed),
    ];
    let ack_bytes = prop_oneof![Just(1), Just(16_384), Just(u32::MAX)];
    (any::<bool>(), any::<bool>(), kinds, 0..8_u16, ack_bytes).prop_map(
        |(nscc, rccc, entropy, values, ack_bytes)| UetConfig {
            nscc,
            rccc,
            entropy,
            values: 1 << values,
            ack_bytes,
            retries: 60,
            ..CONFIG
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each byte arrives once and each message completes, whatever is trimmed, lost, marked and reordered.
    #[test]
    fn every_byte_is_delivered_once(
        config in any_config(),
        trimmed in 0..128_u32,
        lost in 0..64_u32,
        marked in 0..256_u32,
        flows in prop::collection::vec(prop::collection::vec(1..100_000_u64, 1..4), 1..4),
    ) {
        let chances = Chances { trimmed, lost, marked };
        let (delivered, complete, failed, _) = run(config, chances, &flows);
        let bytes: Vec<u64> = flows.iter().map(|messages| messages.iter().sum()).collect();
        let messages: Vec<u32> = flows.iter().map(|messages| messages.len() as u32).collect();
        prop_assert_eq!(delivered, bytes);
        prop_assert_eq!(complete, messages);
        prop_assert_eq!(failed, 0);
    }
}

const NOTHING: Chances = Chances {
    trimmed: 0,
    lost: 0,
    marked: 0,
};

/// 1,000 packets at 99 % of the rate, but for the window at the beginning, which needs no grant.
#[test]
fn credits_pace_what_is_beyond_the_first_window() {
    let config = UetConfig {
        nscc: false,
        rccc: true,
        window: 1 << 40,
        ..CONFIG
    };
    let flows = [vec![4_096_000]];
    let (delivered, _, _, with) = run(config, NOTHING, &flows);
    let (_, _, _, without) = run(
        UetConfig {
            rccc: false,
            ..config
        },
        NOTHING,
        &flows,
    );
    assert_eq!(delivered, [4_096_000]);
    assert!(
        with.0.abs_diff(without.0) * 100 < 2 * without.0,
        "{with:?} {without:?}"
    );
}

/// The receiver grants half of what the sender could send, to each of twenty flows once in 54 us, and a
/// timeout is shorter: none of them sends without.
#[test]
fn flows_wait_for_their_turn_of_credit() {
    let config = UetConfig {
        nscc: false,
        rccc: true,
        window: 1 << 40,
        network: NsccConfig {
            line_bps: 50_000_000_000,
            ..NETWORK
        },
        timeout: Span::from_us(25),
        ack_bytes: 1,
        ..CONFIG
    };
    let flows = vec![vec![1_000_000]; 20];
    let ran = run_all(config, NOTHING, &flows);
    assert_eq!(ran.delivered, [1_000_000; 20]);
    assert_eq!(ran.without_grant, 0);
}

/// Two packets fit into the window, and the receiver acknowledges after four: each asks.
#[test]
fn every_packet_asks_where_the_window_is_too_small_for_others() {
    let asks = |base_rtt| {
        let network = NsccConfig {
            base_rtt,
            ..NETWORK
        };
        let mut host = Endpoint::new(UetConfig { network, ..CONFIG });
        host.add_sender(0, 1, Pcg32::new(3, 0));
        host.post(0, 1_000_000);
        matches!(
            host.send(Time(0)).unwrap().header,
            Header::Data { asks: true, .. }
        )
    };
    assert!(asks(Span::from_ns(500)) && !asks(Span::from_us(10)));
}

#[test]
fn a_flow_fails_when_nothing_arrives_for_long_enough() {
    let chances = Chances {
        lost: 256,
        ..NOTHING
    };
    let config = UetConfig {
        retries: 3,
        ..CONFIG
    };
    let (delivered, _, failed, at) = run(config, chances, &[vec![4096]]);
    assert_eq!((delivered[0], failed), (0, 1));
    // 100, 200, 400 and 800 us.
    assert_eq!(at.0, 1_500_000_000);
}
