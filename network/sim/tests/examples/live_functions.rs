//! Functions of one adapter whose packets come from outside of the simulation: the adapter treats them as
//! those of simulated hosts.

use super::run_with;
use fabric::Time;
use sim::experiment::Experiment;
use sim::world::{Delivered, Forgery, FunctionDrops, LiveHosts, LivePacket, Offer, World};
use std::collections::BTreeMap;

/// Payload of packets, and their length with headers.
const PAYLOAD: u16 = 4096;
const LENGTH: u16 = PAYLOAD + 62;

/// Hosts that always have a packet for another one.
struct Senders {
    /// By sender: the receiver, and the owner of the source address in its packets.
    sends: BTreeMap<u32, (u32, Forgery)>,
    /// Packets that arrived, by sender, and packets that were lost.
    arrived: BTreeMap<u32, u64>,
    lost: u64,
}

impl LiveHosts for Senders {
    fn pull(&mut self, host: u32, classes: u8, _: Time) -> Offer {
        let Some((to, forgery)) = self.sends.get(&host).copied() else {
            return Offer::Nothing;
        };
        if classes >> 3 & 1 == 0 {
            return Offer::Nothing;
        }
        Offer::Packet(LivePacket {
            leaf: None,
            to,
            class: 3,
            tos: 26 << 2,
            pcp: None,
            length: LENGTH,
            payload: PAYLOAD,
            forgery,
            entropy: 0,
            hop_limit: 64,
            kind: fabric::PacketKind::new(0x0a, true),
            token: host,
        })
    }

    fn deliver(&mut self, _: u32, packet: Delivered, _: Time) {
        *self.arrived.entry(packet.token).or_default() += 1;
    }

    fn lose(&mut self, _: u32) {
        self.lost += 1;
    }
}

const DURATION: Time = Time::from_ns(10_000_000);

/// Runs functions of `examples/functions.toml`, by their numbers, for ten milliseconds.
fn drive(
    sets: &[(&str, &str)],
    sends: &[(&str, &str, Forgery)],
) -> (Senders, Vec<FunctionDrops>, Experiment) {
    let mut scenario = None;
    let ran = run_with("functions.toml", sets, |experiment| {
        scenario = Some(experiment.scenario.clone());
        experiment.scenario.end = Time(1);
    });
    let number = |name: &str| {
        ran.experiment
            .network
            .hosts
            .iter()
            .position(|host| host.name == name)
            .unwrap()
    };
    let mut scenario = scenario.unwrap();
    scenario.flows.clear();
    scenario.end = Time::NEVER;
    let mut world = World::new(&scenario).unwrap();
    (0..scenario.hosts.len() as u32).for_each(|host| world.set_live(host));
    let sends = sends
        .iter()
        .map(|(from, to, forgery)| (number(from) as u32, (number(to) as u32, *forgery)));
    let mut senders = Senders {
        sends: sends.collect(),
        arrived: BTreeMap::new(),
        lost: 0,
    };
    for host in senders.sends.keys() {
        world.wake_live(*host, Time(0));
    }
    world.run_live(DURATION, &mut senders);
    let drops = world
        .results()
        .hosts
        .iter()
        .map(|host| host.function_drops)
        .collect();
    (senders, drops, ran.experiment)
}

/// Payload in Gb/s that arrived of a function.
fn gbps(senders: &Senders, experiment: &Experiment, name: &str) -> f64 {
    let number = experiment
        .network
        .hosts
        .iter()
        .position(|host| host.name == name)
        .unwrap() as u32;
    let packets = senders.arrived.get(&number).copied().unwrap_or(0);
    (packets * u64::from(PAYLOAD) * 8) as f64 / (DURATION.ns() as f64)
}

#[test]
fn they_share_the_port_by_their_rates() {
    let all = ["serverv1", "serverv2", "serverv3"];
    let sends = all.map(|name| (name, "client", Forgery::None));
    let (senders, _, experiment) = drive(&[], &sends);
    let [one, two, four] = all.map(|name| gbps(&senders, &experiment, name));
    assert!(
        (two / one / 2.0 - 1.0).abs() < 0.03 && (four / one / 4.0 - 1.0).abs() < 0.03,
        "{one} {two} {four}"
    );
    assert!(
        one + two + four > 9.6,
        "and the port is full: {one} {two} {four}"
    );
}

#[test]
fn they_send_at_their_maximum_rate_at_most() {
    let sets = [("nic.x540.functions.vf.1.max-rate", "2Gb/s")];
    let (senders, ..) = drive(&sets, &[("serverv1", "client", Forgery::None)]);
    let packets: u64 = senders.arrived.values().sum();
    let bps = (packets * (u64::from(LENGTH) + 20) * 8) as f64 / (DURATION.ns() as f64);
    assert!(bps > 1.97 && bps < 2.03, "{bps} Gb/s on the wire");
}

#[test]
fn traffic_between_functions_is_limited_by_the_slot() {
    let (senders, _, experiment) = drive(&[], &[("serverv4", "serverv5", Forgery::None)]);
    let slot = 32.0 * 256.0 / 280.0;
    let rate = gbps(&senders, &experiment, "serverv4");
    assert!(rate > 0.97 * slot && rate <= slot, "{rate} of {slot}");
    assert_eq!(senders.lost, 0);
}

#[test]
fn forged_addresses_are_dropped_unless_the_function_is_trusted() {
    let sends = |forgery| [("serverv6", "client", forgery)];
    let cases = [
        (None, Forgery::Gid(0), (true, false)),
        (None, Forgery::Mac(0), (false, true)),
        (Some("trust"), Forgery::Mac(0), (false, false)),
        (Some("trust"), Forgery::Gid(0), (true, false)),
    ];
    for (setting, forgery, (gid, mac)) in cases {
        let path = setting.map(|name| format!("nic.x540.functions.vf.6.{name}"));
        let sets: Vec<(&str, &str)> = path.iter().map(|path| (path.as_str(), "true")).collect();
        let (senders, drops, experiment) = drive(&sets, &sends(forgery));
        let number = experiment
            .network
            .hosts
            .iter()
            .position(|host| host.name == "serverv6")
            .unwrap();
        let dropped = drops[number];
        assert_eq!(
            (dropped.spoofed_gid > 0, dropped.spoofed_mac > 0),
            (gid, mac),
            "{setting:?} {forgery:?}"
        );
        assert_eq!(senders.arrived.is_empty(), gid || mac);
        assert_eq!(senders.lost, dropped.spoofed_gid + dropped.spoofed_mac);
    }
}
