//! Next-hop selection: how traffic is spread over paths of equal cost.

use crate::next_hops::NextHops;
use crate::packet::{Operations, Packet, PacketKind};
use crate::random::{Pcg32, mix};
use crate::time::{Span, Time};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How packets are spread over paths of equal cost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Spread {
    /// By a hash of the five-tuple: a flow stays on one path.
    #[default]
    Hash,
    /// A random path for each packet that may be sprayed; others by hash.
    Random,
    /// The paths in turn for each packet that may be sprayed; others by hash.
    RoundRobin,
    /// The path with the shortest queue, the first found from a random place; others by hash.
    Adaptive,
    /// A flow may change to the path with the shortest queue when it paused this long (Kandula et al.,
    /// 2007).
    Flowlet(Span),
}

/// The hash of a packet's entropy in a switch; `salt` is the switch's salt, mixed.
#[inline]
fn hash_of(entropy: u32, salt: u64) -> u32 {
    mix(u64::from(entropy) ^ salt) as u32
}

/// ECMP selection: which of `count` next hops of equal cost a switch with this salt selects for a flow.
pub fn ecmp_select(entropy: u32, salt: u64, count: u16) -> u16 {
    ((u64::from(hash_of(entropy, mix(salt))) * u64::from(count)) >> 32) as u16
}

/// Flowlets that a switch can distinguish.
const FLOWLETS: usize = 4096;

/// Ports whose links are reserved for packets of some operations.
#[derive(Clone, Debug)]
struct Reserved {
    /// By port: the operations, none where the link is for all.
    operations: Vec<Operations>,
    /// The ports that a packet may take, kept for its memory.
    open: Vec<u16>,
}

impl Reserved {
    fn of(&self, port: u16) -> Operations {
        self.operations
            .get(usize::from(port))
            .copied()
            .unwrap_or_default()
    }

    /// The ports of those on shortest paths that a packet may take: those reserved for its operation, else
    /// those that are for all, else all.
    fn open(&self, ports: &[u16], kind: PacketKind) -> impl Fn(&u16) -> bool {
        let is_own = |port: &u16| self.of(*port).has(kind);
        let is_free = |port: &u16| self.of(*port).is_empty();
        let (any_own, any_free) = (ports.iter().any(is_own), ports.iter().any(is_free));
        move |port| match (any_own, any_free) {
            (true, _) => self.of(*port).has(kind),
            (false, true) => self.of(*port).is_empty(),
            (false, false) => true,
        }
    }
}

/// A switch's next hops, how it selects among them, and the state of the selection.
#[derive(Clone, Debug)]
pub struct Routes {
    next_hops: Arc<NextHops>,
    spread: Spread,
    salt: u64,
    turn: u32,
    flowlets: Vec<(Time, u16)>,
    reserved: Option<Box<Reserved>>,
}

impl Routes {
    /// `salt` makes switches hash differently, as vendors recommend.
    pub fn new(next_hops: Arc<NextHops>, spread: Spread, salt: u64) -> Self {
        let flowlets = if let Spread::Flowlet(_) = spread {
            FLOWLETS
        } else {
            0
        };
        let flowlets = alloc::vec![(Time(0), u16::MAX); flowlets];
        Self {
            next_hops,
            spread,
            salt: mix(salt),
            turn: 0,
            flowlets,
            reserved: None,
        }
    }

    /// Reserves links for packets of some operations, by port: of several next hops, those packets take the
    /// reserved ones, and others those that are for all.
    #[must_use]
    pub fn with_reserved(self, operations: Vec<Operations>) -> Self {
        let open = Vec::with_capacity(operations.len());
        Self {
            reserved: Some(Box::new(Reserved { operations, open })),
            ..self
        }
    }

    /// Replaces the next hops.
    pub(crate) fn set_next_hops(&mut self, next_hops: Arc<NextHops>) {
        self.next_hops = next_hops;
    }

    /// The port for a packet to another switch, selected by the hash alone.
    #[inline]
    pub(crate) fn by_hash(&self, packet: &Packet) -> Option<u16> {
        let ports = self.next_hops.to(packet.leaf);
        let hash = u64::from(hash_of(packet.entropy, self.salt));
        let index = |count: usize| ((hash * count as u64) >> 32) as usize;
        match &self.reserved {
            None => ports.get(index(ports.len())).copied(),
            Some(reserved) => {
                let is_open = reserved.open(ports, packet.kind);
                let open = || ports.iter().copied().filter(&is_open);
                open().nth(index(open().count()))
            }
        }
    }

    /// The port for a packet to another switch; `load` returns how many bytes wait at a port.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        packet: &Packet,
        now: Time,
        random: &mut Pcg32,
        load: impl Fn(u16) -> u32,
    ) -> Option<u16> {
        let mut ports = self.next_hops.to(packet.leaf);
        if let (Some(reserved), [_, _, ..]) = (&mut self.reserved, ports) {
            let mut open = core::mem::take(&mut reserved.open);
            open.clear();
            open.extend(
                ports
                    .iter()
                    .copied()
                    .filter(reserved.open(ports, packet.kind)),
            );
            reserved.open = open;
            ports = &reserved.open;
        }
        match ports {
            [] => None,
            [only] => Some(*only),
            _ => {
                let hash = hash_of(packet.entropy, self.salt);
                let by_hash = ((u64::from(hash) * ports.len() as u64) >> 32) as usize;
                let index = match self.spread {
                    Spread::Hash => by_hash,
                    Spread::Flowlet(gap) => {
                        let slot = &mut self.flowlets[hash as usize % FLOWLETS];
                        let rested = slot.1 == u16::MAX || now - slot.0 >= gap;
                        if rested {
                            slot.1 = shortest(ports, random, load) as u16;
                        }
                        slot.0 = now;
                        usize::from(slot.1) % ports.len()
                    }
                    _ if !packet.kind.is_sprayable() => by_hash,
                    Spread::Random => random.below(ports.len() as u32) as usize,
                    Spread::RoundRobin => {
                        self.turn = self.turn.wrapping_add(1);
                        self.turn as usize % ports.len()
                    }
                    Spread::Adaptive => shortest(ports, random, load),
                };
                Some(ports[index])
            }
        }
    }
}

fn shortest(ports: &[u16], random: &mut Pcg32, load: impl Fn(u16) -> u32) -> usize {
    let start = random.below(ports.len() as u32) as usize;
    let order = (start..ports.len()).chain(0..start);
    order
        .min_by_key(|index| load(ports[*index]))
        .unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const WRITE_ONLY: u8 = 0x0a;

    fn kind(sprayable: bool) -> PacketKind {
        PacketKind::new(WRITE_ONLY, sprayable)
    }

    fn taken(spread: Spread, sprayable: bool) -> BTreeSet<u16> {
        let next_hops: [&[u16]; 2] = [&[4], &[5, 6, 7, 8]];
        let mut routes = Routes::new(Arc::new(NextHops::new(next_hops.into_iter())), spread, 1);
        let mut random = Pcg32::new(1, 1);
        let packet = Packet {
            kind: kind(sprayable),
            ..Packet::new(1, 0, 64, 0, 99)
        };
        (0..100)
            .filter_map(|_| routes.choose(&packet, Time(0), &mut random, |_| 0))
            .collect()
    }

    #[test]
    fn a_flow_stays_on_its_path_unless_it_is_sprayed() {
        assert_eq!(taken(Spread::Hash, true).len(), 1);
        assert_eq!(taken(Spread::Random, false).len(), 1);
        for spread in [Spread::Random, Spread::RoundRobin, Spread::Adaptive] {
            assert_eq!(taken(spread, true).len(), 4, "{spread:?}");
        }
        assert_eq!(taken(Spread::Flowlet(Span(1)), true).len(), 1);
    }

    /// Packets within a gap of 10 ps keep their port, whatever the queues; after it the shortest queue is
    /// taken.
    #[test]
    fn flowlets_move_to_the_shortest_queue_after_a_gap_and_not_before() {
        let next_hops: [&[u16]; 1] = [&[0, 1, 2]];
        let next_hops = Arc::new(NextHops::new(next_hops.into_iter()));
        let mut routes = Routes::new(next_hops, Spread::Flowlet(Span(10)), 3);
        let mut random = Pcg32::new(1, 1);
        let packet = Packet {
            kind: kind(true),
            ..Packet::new(0, 0, 64, 0, 1)
        };
        let mut hop = |at: u64, shortest: u16| {
            routes.choose(&packet, Time(at), &mut random, |port| {
                u32::from(port != shortest)
            })
        };
        assert_eq!(hop(100, 1), Some(1));
        for at in [105, 114, 123] {
            assert_eq!(hop(at, 2), Some(1), "at {at}");
        }
        assert_eq!(hop(200, 2), Some(2));
    }

    #[test]
    fn the_port_that_is_expected_is_the_one_that_the_hash_selects() {
        let next_hops: [&[u16]; 3] = [&[0, 1, 2, 3], &[7], &[]];
        let mut routes = Routes::new(
            Arc::new(NextHops::new(next_hops.into_iter())),
            Spread::Hash,
            3,
        );
        let mut random = Pcg32::new(1, 1);
        for (leaf, entropy) in (0..3).flat_map(|leaf| (0..50).map(move |entropy| (leaf, entropy))) {
            let packet = Packet::new(leaf, 0, 64, 0, entropy);
            let expected = routes.by_hash(&packet);
            assert_eq!(
                expected,
                routes.choose(&packet, Time(0), &mut random, |_| 0),
                "to {leaf}"
            );
        }
    }

    /// Of ports 0 to 3, two are reserved for WRITE ONLY, and one for READ requests.
    #[test]
    fn packets_take_links_that_are_reserved_for_their_operation_and_others_the_rest() {
        let write = Operations::default().with(WRITE_ONLY);
        let read = Operations::default().with(0x0c);
        let reserved = [write, write, Operations::default(), read];
        let next_hops: [&[u16]; 3] = [&[0, 1, 2, 3], &[0, 1], &[3]];
        let taken = |spread: Spread, leaf: u32, kind: PacketKind| -> Vec<u16> {
            let next_hops = Arc::new(NextHops::new(next_hops.into_iter()));
            let mut routes = Routes::new(next_hops, spread, 1).with_reserved(reserved.to_vec());
            let mut random = Pcg32::new(1, 1);
            let mut one = |entropy: u32| {
                let packet = Packet {
                    kind,
                    ..Packet::new(leaf, 0, 64, 0, entropy)
                };
                let expected = routes.by_hash(&packet);
                let port = routes.choose(&packet, Time(0), &mut random, |_| 0);
                assert!(spread != Spread::Hash || port == expected, "{port:?}");
                port
            };
            let ports: BTreeSet<u16> = (0..100).filter_map(&mut one).collect();
            ports.into_iter().collect()
        };
        let acknowledge = PacketKind::new(0x11, false);
        for spread in [
            Spread::Hash,
            Spread::Random,
            Spread::RoundRobin,
            Spread::Adaptive,
        ] {
            assert_eq!(taken(spread, 0, kind(true)), [0, 1], "{spread:?}");
            assert_eq!(taken(spread, 0, acknowledge), [2], "{spread:?}");
            assert_eq!(taken(spread, 0, PacketKind::OTHER), [2], "{spread:?}");
            assert_eq!(taken(spread, 0, PacketKind::new(0x0c, false)), [3]);
            // No link is left for it: all are.
            assert_eq!(taken(spread, 1, acknowledge), [0, 1], "{spread:?}");
            assert_eq!(taken(spread, 2, acknowledge), [3], "{spread:?}");
        }
    }

    #[test]
    fn flows_spread_evenly_over_paths() {
        let next_hops: [&[u16]; 1] = [&[0, 1, 2, 3]];
        let mut routes = Routes::new(
            Arc::new(NextHops::new(next_hops.into_iter())),
            Spread::Hash,
            3,
        );
        let mut random = Pcg32::new(1, 1);
        let mut counts = [0; 4];
        for entropy in 0..4000 {
            let packet = Packet::new(0, 0, 64, 0, entropy);
            counts[usize::from(routes.choose(&packet, Time(0), &mut random, |_| 0).unwrap())] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn adaptive_takes_the_shortest_queue_and_no_next_hop_is_none() {
        let next_hops: [&[u16]; 2] = [&[0, 1, 2], &[]];
        let mut routes = Routes::new(
            Arc::new(NextHops::new(next_hops.into_iter())),
            Spread::Adaptive,
            3,
        );
        let mut random = Pcg32::new(1, 1);
        let mut packet = Packet {
            kind: kind(true),
            ..Packet::new(0, 0, 64, 0, 1)
        };
        let load = |port: u16| [500, 200, 900][usize::from(port)];
        assert_eq!(routes.choose(&packet, Time(0), &mut random, load), Some(1));
        packet.leaf = 1;
        assert_eq!(routes.choose(&packet, Time(0), &mut random, load), None);
    }
}
