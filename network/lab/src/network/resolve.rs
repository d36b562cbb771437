//! Addresses that hosts use beside those of the file: the lab learns them from ARP and neighbour discovery,
//! and asks all hosts of a VLAN for those that it does not know, as a switch does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use super::{Network, Port};
use crate::neighbours::{Heard, HeardKind, HostAddresses, Neighbours, heard};

/// Addresses that one host may have beside those of the file.
const LEARNED_MAX: usize = 16;

/// Questions of one host that are passed on in a second of the machine: each goes to all hosts of its VLAN.
const ASKED_MAX: u32 = 64;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// What a host has asked the others in the second that runs.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Asked {
    second: u64,
    count: u32,
}

impl Asked {
    /// Whether the limit of requests allows one more.
    fn one_more(&mut self, now_ns: u64) -> bool {
        let second = now_ns / SECOND;
        if self.second != second {
            (self.second, self.count) = (second, 0);
        }
        self.count += 1;
        self.count <= ASKED_MAX
    }
}

impl Network {
    /// Works on what hosts have said of addresses that the lab does not know.
    pub(super) fn resolve(&mut self) {
        for place in 0..self.ports.len() {
            while let Some(frame) = self.ports[place]
                .tap
                .as_mut()
                .and_then(|tap| tap.unknown.pop_front())
            {
                if let Some(heard) = heard(&frame) {
                    self.resolve_one(place, &heard, &frame, link::lab::monotonic());
                }
            }
        }
    }

    pub(super) fn resolve_one(&mut self, place: usize, heard: &Heard, frame: &[u8], now_ns: u64) {
        // Of a function too: what it forges is dropped by its adapter's switch.
        if heard.mac != self.ports[place].host.mac {
            return;
        }
        let is_known = |network: &Self, address| network.addresses.contains_key(&mapped(address));
        let asks = heard.said == HeardKind::Asks && !is_known(self, heard.target);
        if let Some(sender) = heard.sender
            && !is_known(self, sender)
            && !self.learn(place, sender)
        {
            return;
        }
        // What has the address of another host goes nowhere.
        let owner = heard
            .sender
            .and_then(|own| self.addresses.get(&mapped(own)));
        if owner.is_some_and(|owner| *owner != self.ports[place].host.number) {
            self.ports[place].counters.forged += 1;
            return;
        }
        let vlan = self.ports[place].host.vlan();
        let is_for = |port: &Port| match heard.said {
            HeardKind::Asks => true,
            HeardKind::Answers(mac) => port.host.mac == mac,
            HeardKind::Announces => false,
        };
        let passes = match heard.said {
            HeardKind::Asks => asks && self.ports[place].asked.one_more(now_ns),
            HeardKind::Answers(_) => true,
            HeardKind::Announces => false,
        };
        if !passes {
            return;
        }
        let others = self.ports.iter().enumerate();
        others
            .filter(|(other, port)| *other != place && port.host.vlan() == vlan && is_for(port))
            .filter_map(|(_, port)| port.tap.as_ref())
            .for_each(|tap| tap.put_control(frame));
    }

    /// Gives a host an address that nobody has. False for what is no host's address, and beyond the limit.
    fn learn(&mut self, place: usize, address: IpAddr) -> bool {
        let port = &mut self.ports[place];
        if !is_of_a_host(address) || port.learned.len() >= LEARNED_MAX {
            return false;
        }
        port.learned.push(address);
        self.addresses.insert(mapped(address), port.host.number);
        self.tell_neighbours();
        true
    }

    /// Gives all taps the addresses of their VLAN.
    pub(super) fn tell_neighbours(&mut self) {
        let own = self
            .ports
            .iter()
            .map(|port| (port.host.vlan(), port.addresses()));
        let mut known: BTreeMap<u16, Vec<HostAddresses>> = BTreeMap::new();
        own.for_each(|(vlan, addresses)| known.entry(vlan).or_default().extend(addresses));
        for (vlan, addresses) in known {
            let addresses: Neighbours = addresses.into();
            let own = self
                .ports
                .iter_mut()
                .filter(|port| port.host.vlan() == vlan);
            own.filter_map(|port| port.tap.as_mut())
                .for_each(|tap| tap.set_neighbours(addresses.clone()));
        }
    }
}

impl Port {
    /// The addresses of the file, and those that were learned.
    fn addresses(&self) -> Vec<HostAddresses> {
        let of_file = self.host.addresses();
        let learned = self.learned.iter().map(|address| match *address {
            IpAddr::V4(v4) => HostAddresses { v4, ..of_file },
            IpAddr::V6(v6) => HostAddresses { v6, ..of_file },
        });
        core::iter::once(of_file).chain(learned).collect()
    }
}

/// An address as the network knows it.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Whether an interface may have it.
fn is_of_a_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let is_special = v4.is_loopback() || v4.is_multicast() || v4.is_broadcast();
            !is_special && v4.octets()[0] != 0
        }
        IpAddr::V6(v6) => {
            let is_special = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            !is_special && v6.to_ipv4_mapped().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::frame::VNET_BYTES;
    use crate::fuzz_entry::host;
    use crate::sys::interface;
    use crate::tap::Tap;
    use fabric::Time;
    use link::unix;
    use sim::world::{Forgery, LiveHosts};
    use std::io::IoSlice;
    use std::net::Ipv4Addr;
    use std::os::fd::{AsRawFd, OwnedFd};

    const BROADCAST: [u8; 6] = [0xff; 6];
    const OWN: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 10);
    const ASKED_FOR: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 11);

    /// Three hosts, and the kernels' ends of their taps.
    struct Hosts {
        network: Network,
        kernels: Vec<OwnedFd>,
    }

    impl Hosts {
        fn new() -> Self {
            let known: Neighbours = (0..3).map(|number| host(number).addresses()).collect();
            let mut kernels = Vec::new();
            let ports = (0..3).map(|number| {
                let [ours, theirs] = unix::message_pair().expect("a pair of sockets");
                for end in [&ours, &theirs] {
                    unix::set_nonblocking(end.as_raw_fd()).expect("it does not block");
                }
                kernels.push(theirs);
                Port::new(host(number), Some(Tap::new(ours, known.clone())))
            });
            let ports = ports.collect();
            Self {
                network: Network::new(3, ports, Clock::new(1)),
                kernels,
            }
        }

        /// The kernel of a host sends a frame.
        fn send(&mut self, from: usize, frame: &[u8]) {
            let pieces = [IoSlice::new(&[0; VNET_BYTES]), IoSlice::new(frame)];
            assert!(interface::write(self.kernels[from].as_raw_fd(), &pieces));
            let tap = self.network.ports[from].tap.as_mut().expect("a tap");
            tap.set_readable();
            let _ = self.network.pull(from as u32, 0xff, Time(1));
            self.network.resolve();
        }

        /// How many frames came to each kernel.
        fn heard(&mut self) -> [usize; 3] {
            let count = |kernel: &OwnedFd| {
                let read = || interface::read(kernel.as_raw_fd(), &mut [0; 2048]);
                core::iter::from_fn(read).count()
            };
            let counts: Vec<usize> = self.kernels.iter().map(count).collect();
            counts.try_into().expect("three hosts")
        }
    }

    fn arp(operation: u8, from: u32, sender: Ipv4Addr, to: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
        let mac = host(from).mac;
        let mut frame = [&to[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], &mac].concat();
        frame.extend(sender.octets());
        frame.extend(to);
        frame.extend(target.octets());
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn an_address_of_its_own_is_learned_asked_for_and_answered() {
        let mut hosts = Hosts::new();
        hosts.send(0, &arp(1, 0, OWN, BROADCAST, ASKED_FOR));
        assert_eq!(hosts.network.ports[0].learned, [IpAddr::V4(OWN)]);
        // Nobody is known to have the other one: all are asked, but the one that asks.
        assert_eq!(hosts.heard(), [0, 1, 1]);
        hosts.send(1, &arp(2, 1, ASKED_FOR, host(0).mac, OWN));
        assert_eq!(hosts.heard(), [1, 0, 0]);
        assert_eq!(hosts.network.ports[1].learned, [IpAddr::V4(ASKED_FOR)]);
        // Now the lab answers by itself.
        hosts.send(2, &arp(1, 2, host(2).v4, BROADCAST, ASKED_FOR));
        assert_eq!(hosts.heard(), [0, 0, 1]);
        let from = |mac, address: Ipv4Addr| hosts.network.forgery(0, mac, address.to_ipv6_mapped());
        assert_eq!(from(host(0).mac, OWN), Forgery::None);
        assert_eq!(from(host(0).mac, ASKED_FOR), Forgery::Gid(1));
    }

    #[test]
    fn no_host_takes_the_address_of_another_one() {
        let mut hosts = Hosts::new();
        hosts.send(0, &arp(1, 0, OWN, BROADCAST, OWN));
        for taken in [OWN, host(0).v4] {
            // An announcement, a question in its name, and an answer to somebody.
            hosts.send(1, &arp(1, 1, taken, BROADCAST, taken));
            hosts.send(1, &arp(1, 1, taken, BROADCAST, ASKED_FOR));
            hosts.send(1, &arp(2, 1, taken, host(2).mac, host(2).v4));
            assert_eq!(hosts.heard(), [0, 0, 0], "{taken}");
            let owner = hosts.network.addresses[&taken.to_ipv6_mapped()];
            assert_eq!((owner, hosts.network.ports[1].learned.len()), (0, 0));
        }
        assert_eq!(hosts.network.ports[1].counters.forged, 4);
        // Nor by a MAC address that is not its own.
        let mut foreign = arp(1, 0, ASKED_FOR, BROADCAST, ASKED_FOR);
        foreign[6..12].copy_from_slice(&host(2).mac);
        hosts.send(2, &foreign);
        assert!(hosts.network.ports[2].learned.is_empty());
    }

    #[test]
    fn addresses_and_questions_of_a_host_have_a_limit() {
        let mut hosts = Hosts::new();
        for number in 0..100 {
            let own = Ipv4Addr::new(172, 16, 0, number);
            hosts.send(0, &arp(1, 0, own, BROADCAST, own));
        }
        assert_eq!(hosts.network.ports[0].learned.len(), LEARNED_MAX);
        let mut asked = 0;
        for number in 0..=255 {
            let frame = arp(
                1,
                1,
                host(1).v4,
                BROADCAST,
                Ipv4Addr::new(172, 17, 0, number),
            );
            let heard = heard(&frame).expect("a question");
            hosts.network.resolve_one(1, &heard, &frame, 5 * SECOND);
            asked += hosts.heard()[2];
        }
        assert_eq!(asked, ASKED_MAX as usize);
        let frame = arp(1, 1, host(1).v4, BROADCAST, ASKED_FOR);
        let heard = heard(&frame).expect("a question");
        hosts.network.resolve_one(1, &heard, &frame, 6 * SECOND);
        assert_eq!(hosts.heard()[2], 1);
        for special in [
            "127.0.0.1",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "ff02::1",
        ] {
            assert!(
                !is_of_a_host(special.parse().expect("an address")),
                "{special}"
            );
        }
    }

    #[test]
    fn an_address_of_ipv6_is_learned_from_the_check_for_doubles() {
        let mut hosts = Hosts::new();
        let own: Ipv6Addr = "fd77::5".parse().expect("an address");
        let solicitation = |from: u32, source: Ipv6Addr, target: Ipv6Addr| {
            let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 5];
            frame.extend(host(from).mac);
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
            frame.extend(source.octets());
            frame.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 5).octets());
            frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
            frame.extend(target.octets());
            frame
        };
        hosts.send(0, &solicitation(0, Ipv6Addr::UNSPECIFIED, own));
        assert_eq!(hosts.network.ports[0].learned, [IpAddr::V6(own)]);
        assert_eq!(hosts.heard(), [0, 1, 1]);
        // Another host that wants it is told that it is taken.
        hosts.send(1, &solicitation(1, Ipv6Addr::UNSPECIFIED, own));
        assert_eq!(hosts.heard(), [0, 1, 0]);
        assert!(hosts.network.ports[1].learned.is_empty());
        hosts.send(2, &solicitation(2, host(2).v6, own));
        assert_eq!(hosts.heard(), [0, 0, 1]);
    }
}
