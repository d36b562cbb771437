//! A deterministic driver: a heap of events, senders at ports 0 and up, a switch, a receiver behind them.

use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, PfcConfig, PortConfig, Profile, QueueConfig,
    SwitchConfig, Treatment, Weigh,
};
use fabric::{
    Drop, Egress, Frame, Next, Packet, PacketId, Packets, PauseFrame, Pcg32, Rate, Routes, Span,
    Spread, Switch, Time, Wire,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) const RESPONSE: Span = Span::from_ns(600);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    AtSwitch(u16, PacketId),
    AtReceiver(PacketId),
    SenderPaused(u16, u8, u8, u16),
    SwitchWake(u16),
    SenderWake(u16),
}

/// Events in order of time, then of their making.
#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, What)>>,
    made: u64,
}

impl Events {
    fn add(&mut self, at: Time, what: What) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, what)));
    }
}

struct Cables<'a> {
    events: &'a mut Events,
    delay: Span,
    receiver: u16,
    dropped: &'a mut Vec<(PacketId, Drop)>,
}

impl Wire for Cables<'_> {
    fn send(&mut self, port: u16, frame: Frame, end: Time, _packets: &mut Packets) {
        match frame {
            Frame::Packet(id) => self.events.add(end + self.delay, What::AtReceiver(id)),
            Frame::Pause(PauseFrame {
                priorities,
                stopped,
                quanta,
            }) => {
                assert_ne!(
                    port, self.receiver,
                    "the receiver sends nothing that could be paused"
                );
                let what = What::SenderPaused(port, priorities, stopped, quanta);
                self.events.add(end + self.delay + RESPONSE, what);
            }
            Frame::Credits(_) => panic!("ports of Ethernet send no credits"),
        }
    }

    fn wake(&mut self, port: u16, at: Time) {
        self.events.add(at, What::SwitchWake(port));
    }

    fn dropped(&mut self, _port: u16, id: PacketId, why: Drop, _packets: &mut Packets) {
        self.dropped.push((id, why));
    }
}

/// Counts of a class's packets.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
}

impl Tally {
    fn count(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += u64::from(packet.length);
        self.marked += u64::from(packet.is_marked());
    }
}

pub(crate) struct Net {
    pub(crate) switch: Switch,
    pub(crate) packets: Packets,
    pub(crate) senders: Vec<Egress>,
    /// By class, which the DSCP determines.
    pub(crate) received: [Tally; CLASSES],
    pub(crate) dropped: Tally,
    pub(crate) offered: Tally,
    profile: Profile,
    events: Events,
    delay: Span,
    random: Pcg32,
}

/// All classes alike; the class is the DSCP.
pub(crate) fn profile(group: GroupConfig) -> Profile {
    let treat = |class: usize| Treatment {
        class: class as u8,
        dscp: None,
        pcp: None,
    };
    Profile {
        map: ClassMap {
            trust_dscp: true,
            trust_pcp: false,
            dscp: std::array::from_fn(|dscp| treat(dscp % CLASSES)),
            pcp: std::array::from_fn(treat),
            default: treat(0),
        },
        queues: [QueueConfig::default(); CLASSES],
        weigh: Weigh::Bytes,
        group_of_class: std::array::from_fn(|class| class as u8),
        groups: [group; CLASSES],
        pfc: PfcConfig {
            send: 0xff,
            obey: 0xff,
            ..PfcConfig::default()
        },
    }
}

impl Net {
    /// `rates` of the senders' ports; the receiver's is `out`.
    pub(crate) fn new(
        profile: Profile,
        rates: &[Rate],
        out: Rate,
        delay: Span,
        total_bytes: u32,
        cell: u32,
    ) -> Self {
        Self::with_buffer(
            profile,
            rates,
            out,
            delay,
            BufferConfig {
                total_bytes,
                headroom_pool_bytes: None,
                cell_bytes: cell,
            },
        )
    }

    pub(crate) fn with_buffer(
        profile: Profile,
        rates: &[Rate],
        out: Rate,
        delay: Span,
        buffer: BufferConfig,
    ) -> Self {
        let port = |rate: &Rate| PortConfig {
            rate: *rate,
            profile: 0,
        };
        let config = SwitchConfig {
            ports: rates.iter().chain([&out]).map(port).collect(),
            profiles: vec![profile.clone()],
            buffer,
        };
        let routes = Routes::new(Default::default(), Spread::Hash, 0);
        let plain = Profile {
            queues: [QueueConfig::default(); CLASSES],
            ..profile
        };
        Self {
            switch: Switch::new(&config, 0, routes, Pcg32::new(1, 0)),
            packets: Packets::new(1 << 20),
            senders: rates
                .iter()
                .map(|rate| Egress::new(*rate, &plain))
                .collect(),
            received: Default::default(),
            dropped: Tally::default(),
            offered: Tally::default(),
            profile: plain,
            events: Events::default(),
            delay,
            random: Pcg32::new(1, 1),
        }
    }

    /// Gives a sender `count` ECN-capable packets to send.
    pub(crate) fn offer(&mut self, sender: u16, class: u8, length: u16, count: u32) {
        self.offer_tagged(sender, class, fabric::UNTAGGED, length, count);
    }

    /// The same with a priority code point.
    pub(crate) fn offer_tagged(
        &mut self,
        sender: u16,
        class: u8,
        pcp: u8,
        length: u16,
        count: u32,
    ) {
        for _ in 0..count {
            let mut packet = Packet::new(0, self.senders.len() as u16, length, class << 2 | 2, 0);
            packet.pcp = pcp;
            self.offered.count(&packet);
            let id = self
                .packets
                .insert(packet)
                .expect("the test stays below the limit of packets");
            self.senders[usize::from(sender)].enqueue(id, class, &mut self.packets);
        }
        self.events.add(Time(0), What::SenderWake(sender));
        self.senders[usize::from(sender)].wants_wake(Time(0));
    }

    /// Runs until `end`, or until no events are left.
    pub(crate) fn run_until(&mut self, end: Time) {
        let due = |event: &Reverse<(Time, u64, What)>| event.0.0 <= end;
        while self.events.heap.peek().is_some_and(due) {
            let Some(Reverse((now, _, what))) = self.events.heap.pop() else {
                return;
            };
            self.step(now, what);
        }
    }

    fn step(&mut self, now: Time, what: What) {
        let mut dropped = Vec::new();
        let receiver = self.senders.len() as u16;
        let Self {
            switch,
            packets,
            events,
            delay,
            ..
        } = self;
        let mut wire = Cables {
            events,
            delay: *delay,
            receiver,
            dropped: &mut dropped,
        };
        match what {
            What::AtSwitch(port, id) => switch.handle_packet(now, port, id, packets, &mut wire),
            What::SwitchWake(port) => switch.handle_wake(now, port, packets, &mut wire),
            What::AtReceiver(id) => {
                let packet = packets.remove(id);
                self.received[usize::from(packet.tos >> 2)].count(&packet);
            }
            What::SenderWake(sender) => {
                if self.senders[usize::from(sender)].take_wake(now) {
                    self.advance(now, sender);
                }
            }
            What::SenderPaused(sender, priorities, stopped, quanta) => {
                let frame = PauseFrame {
                    priorities,
                    stopped,
                    quanta,
                };
                if self.senders[usize::from(sender)].handle_pause(frame, now, &self.profile.pfc) {
                    self.advance(now, sender);
                }
            }
        }
        for (id, _) in dropped {
            let packet = self.packets.remove(id);
            self.dropped.count(&packet);
        }
    }

    fn advance(&mut self, now: Time, sender: u16) {
        let egress = &mut self.senders[usize::from(sender)];
        let next = egress.next(now, &self.profile, &mut self.packets, &mut self.random);
        let wake = match next {
            Next::Packet { id, end } => {
                self.events
                    .add(end + self.delay, What::AtSwitch(sender, id));
                egress.has_more().then_some(end)
            }
            Next::Wait(at) => Some(at),
            Next::Pause { .. } | Next::Idle => None,
            Next::Credits { .. } | Next::Expired { .. } => panic!("{next:?} at a port of Ethernet"),
        };
        if let Some(at) = wake.filter(|at| egress.wants_wake(*at)) {
            self.events.add(at, What::SenderWake(sender));
        }
    }

    /// Of all classes.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.iter().map(|tally| tally.bytes).sum()
    }

    /// Over all ports of the switch.
    pub(crate) fn counted_drops(&self, why: Drop) -> u64 {
        (0..self.switch.ports())
            .map(|port| self.switch.counters(port).dropped[why as usize])
            .sum()
    }

    /// Pause frames that the switch decided on.
    pub(crate) fn pauses(&self) -> u64 {
        (0..self.switch.ports())
            .map(|port| self.switch.counters(port).pauses_sent)
            .sum()
    }
}
