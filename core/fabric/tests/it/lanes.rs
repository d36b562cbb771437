//! InfiniBand switches in a line, with a sender at one end and receivers at the other: credits, arbitration,
//! lifetimes.

use fabric::config::{
    BufferConfig, CLASSES, GroupConfig, PfcConfig, PortConfig, Profile, SwitchConfig,
};
use fabric::lanes::{Arbitration, ArbitrationEntry, BLOCK_BYTES, LaneConfig, LaneMap, PortLanes};
use fabric::{
    Drop, Frame, LinkNews, NextHops, Packet, PacketId, Packets, Pcg32, Rate, Routes, Span, Spread,
    Switch, Time, Wire,
};
use std::sync::Arc;

const RATE: Rate = Rate::from_gbps(100);

/// A switch with an input, port 0, and an output, port 1: its peers are the test.
struct Line {
    switch: Switch,
    packets: Packets,
    /// The time of the last wake.
    woken: Time,
    seen: Seen,
}

/// What the switch sent and dropped.
#[derive(Default)]
struct Seen {
    wakes: Vec<(Time, u16)>,
    sent: Vec<(Time, PacketId)>,
    credits: Vec<(Time, u16, fabric::lanes::CreditUpdate)>,
    dropped: Vec<(Time, Drop)>,
}

impl Wire for Seen {
    fn send(&mut self, port: u16, frame: Frame, end: Time, _: &mut Packets) {
        match frame {
            Frame::Packet(id) => self.sent.push((end, id)),
            Frame::Credits(update) => self.credits.push((end, port, update)),
            Frame::Pause(frame) => panic!("{frame:?} on a link with credits"),
        }
    }

    fn wake(&mut self, port: u16, at: Time) {
        self.wakes.push((at, port));
    }

    fn dropped(&mut self, _: u16, _: PacketId, why: Drop, _: &mut Packets) {
        self.dropped.push((Time(0), why));
    }
}

fn switch(config: &LaneConfig, map: LaneMap, peer_blocks: u16) -> Switch {
    let group = GroupConfig {
        reserve_bytes: u32::from(config.buffer_blocks) * BLOCK_BYTES,
        ..GroupConfig::default()
    };
    let profile = Profile {
        pfc: PfcConfig::default(),
        ..crate::driver::profile(group)
    };
    let port = PortConfig {
        rate: RATE,
        profile: 0,
    };
    let buffer = BufferConfig {
        total_bytes: 2 * CLASSES as u32 * group.reserve_bytes + 1,
        headroom_pool_bytes: None,
        cell_bytes: BLOCK_BYTES,
    };
    let all = SwitchConfig {
        ports: vec![port; 2],
        profiles: vec![profile],
        buffer,
    };
    // LID 1 is behind port 1.
    let next_hops = NextHops::new([&[][..], &[1]].into_iter());
    let routes = Routes::new(Arc::new(next_hops), Spread::Hash, 0);
    let mut switch = Switch::new(&all, 7, routes, Pcg32::new(1, 0));
    let port = Some(PortLanes {
        config: Arc::new(config.clone()),
        peer_blocks,
    });
    switch.set_lanes(map, vec![port.clone(), port]);
    switch
}

impl Line {
    fn new(config: &LaneConfig, peer_blocks: u16) -> Self {
        let map = LaneMap::Uniform(std::array::from_fn(|level| level as u8 % 8));
        Self {
            switch: switch(config, map, peer_blocks),
            packets: Packets::new(1 << 16),
            woken: Time(0),
            seen: Seen::default(),
        }
    }

    /// A packet of a service level arrives in the lane of its number.
    fn arrive(&mut self, now: Time, level: u8, length: u16, lid: u32) -> PacketId {
        let mut packet = Packet::new(lid, 0, length, level << 2, 0);
        (packet.hop_limit, packet.pcp) = (0, level % 8);
        let id = self.packets.insert(packet).expect("there is room");
        self.switch
            .handle_packet(now, 0, id, &mut self.packets, &mut self.seen);
        id
    }

    fn hear(&mut self, now: Time, port: u16, news: LinkNews) {
        self.switch
            .handle_credits(now, port, news, &mut self.packets, &mut self.seen);
    }

    /// Handles wakes until nothing more is to be done by `end`.
    fn run(&mut self, end: Time) {
        loop {
            self.seen.wakes.sort_unstable();
            let due = self.seen.wakes.iter().position(|(at, _)| *at <= end);
            let Some(due) = due else { break };
            let (at, port) = self.seen.wakes.remove(due);
            self.woken = at;
            self.switch
                .handle_wake(at, port, &mut self.packets, &mut self.seen);
        }
    }
}

fn config(buffer_blocks: u16) -> LaneConfig {
    LaneConfig {
        buffer_blocks,
        arbitration: Arbitration::default(),
        lifetime: None,
        stall_count: 0,
    }
}

const SECOND: Time = Time(1_000_000_000_000);

#[test]
fn a_packet_takes_its_bytes_and_two_delimiters() {
    let mut line = Line::new(&config(200), 200);
    line.arrive(Time(0), 0, 4_122, 1);
    assert_eq!(line.seen.sent[0].0, Time(0) + RATE.time_of(4_124));
}

#[test]
fn packets_wait_for_credits_and_leave_when_there_are_some() {
    // Room for two packets of 65 blocks behind the output.
    let mut line = Line::new(&config(400), 130);
    for _ in 0..4 {
        line.arrive(Time(0), 0, 4_122, 1);
    }
    line.run(SECOND);
    assert_eq!(line.seen.sent.len(), 2);
    assert_eq!(line.switch.egress(1).paused(), 1);
    assert_eq!(line.switch.egress(1).credits(0), Some(0));
    // A block too few, then enough.
    for (limit, sent) in [(130 + 64, 2), (130 + 65, 3), (130 + 130, 4)] {
        let update = fabric::lanes::CreditUpdate {
            lane: 0,
            sent: 0,
            limit,
        };
        line.hear(SECOND, 1, LinkNews::Credits(update));
        line.run(Time::NEVER);
        assert_eq!(line.seen.sent.len(), sent, "limit {limit}");
    }
    assert_eq!(line.seen.dropped, []);
}

#[test]
fn the_peer_gets_credits_back_for_what_has_left() {
    let mut line = Line::new(&config(400), 65);
    for _ in 0..2 {
        line.arrive(Time(0), 0, 4_122, 1);
    }
    line.run(SECOND);
    // One packet has left, one waits: of 130 blocks received and 400 in all, 65 are in use.
    let (_, port, last) = *line.seen.credits.last().unwrap();
    assert_eq!((port, last.lane, last.limit), (0, 0, 130 + 400 - 65));
    // What has no way gives its credits back at once.
    line.arrive(SECOND, 0, 4_122, 9);
    line.run(Time::NEVER);
    let (_, _, last) = *line.seen.credits.last().unwrap();
    assert_eq!(last.limit, 195 + 400 - 65);
    assert_eq!(line.seen.dropped, [(Time(0), Drop::NoRoute)]);
    // What was lost on the link counts as received.
    line.hear(
        SECOND,
        0,
        LinkNews::Lost {
            lane: 0,
            length: 4_122,
        },
    );
    line.run(Time::NEVER);
    let (_, _, last) = *line.seen.credits.last().unwrap();
    assert_eq!(last.limit, 260 + 400 - 65);
}

#[test]
fn a_lane_without_credits_does_not_hold_up_another_one() {
    let mut line = Line::new(&config(400), 65);
    for lane in [0, 0, 3, 3] {
        line.arrive(Time(0), lane, 4_122, 1);
    }
    line.run(SECOND);
    let lanes: Vec<u8> = line
        .seen
        .sent
        .iter()
        .map(|(_, id)| line.packets[*id].class())
        .collect();
    assert_eq!(lanes, [0, 3]);
    assert_eq!(line.switch.egress(1).paused(), 0b1001);
}

#[test]
fn a_packet_that_waits_beyond_its_lifetime_is_dropped() {
    let lifetime = Span::from_us(50);
    let config = LaneConfig {
        lifetime: Some(lifetime),
        ..config(400)
    };
    let mut line = Line::new(&config, 65);
    for _ in 0..3 {
        line.arrive(Time(0), 0, 4_122, 1);
    }
    line.run(Time(0) + Span::from_us(49));
    assert_eq!((line.seen.sent.len(), line.seen.dropped.len()), (1, 0));
    line.run(SECOND);
    // Each has its lifetime, from when it was at the head.
    assert_eq!(line.seen.dropped, [(Time(0), Drop::Lifetime); 2]);
    assert!(line.woken >= Time(0) + lifetime.times(2));
    let counters = line.switch.port_counters(1, SECOND);
    let dropped = counters.dropped(0, |why| why == Drop::Lifetime);
    assert_eq!((dropped.packets, dropped.bytes), (2, 2 * 4_122));
    // Their credits are free again.
    let (_, _, last) = *line.seen.credits.last().unwrap();
    assert_eq!(last.limit, 195 + 400);
}

#[test]
fn a_lane_stalls_after_packets_that_waited_in_vain() {
    let lifetime = Span::from_us(10);
    let config = LaneConfig {
        lifetime: Some(lifetime),
        stall_count: 2,
        ..config(2_000)
    };
    let mut line = Line::new(&config, 65);
    for _ in 0..6 {
        line.arrive(Time(0), 0, 4_122, 1);
    }
    // The first leaves, two wait in vain, and then all are dropped for eight lifetimes.
    line.run(Time(0) + Span::from_us(25));
    assert_eq!((line.seen.sent.len(), line.seen.dropped.len()), (1, 5));
    line.arrive(Time(0) + Span::from_us(30), 0, 4_122, 1);
    assert_eq!(line.seen.dropped.len(), 6);
    let late = Time(0) + Span::from_us(110);
    line.arrive(late, 0, 4_122, 1);
    line.run(late);
    assert_eq!(line.seen.dropped.len(), 6, "the stall is over");
}

#[test]
fn arbitration_decides_between_lanes() {
    let entry = |lane, weight| ArbitrationEntry { lane, weight };
    let config = LaneConfig {
        arbitration: Arbitration {
            high: vec![],
            low: vec![entry(0, 65), entry(1, 195)],
            high_limit: 0,
        },
        ..config(2_048)
    };
    let mut line = Line::new(&config, 2_048);
    for lane in [0, 1] {
        for _ in 0..24 {
            line.arrive(Time(0), lane, 4_122, 1);
        }
    }
    line.run(Time(0) + RATE.time_of(4_124).times(20));
    let lane_1 = line.seen.sent[..20]
        .iter()
        .filter(|(_, id)| line.packets[*id].class() == 1)
        .count();
    assert!((14..=16).contains(&lane_1), "{lane_1} of 20");
}

#[test]
fn the_map_of_lanes_may_differ_by_ports() {
    let mut lanes = vec![[0; 16]; 4];
    lanes[1] = [5; 16];
    let mut line = Line::new(&config(400), 400);
    let port = Some(PortLanes {
        config: Arc::new(config(400)),
        peer_blocks: 400,
    });
    line.switch
        .set_lanes(LaneMap::ByPorts(2, lanes), vec![port.clone(), port]);
    let id = line.arrive(Time(0), 3, 100, 1);
    assert_eq!((line.packets[id].class(), line.packets[id].pcp), (5, 5));
}
