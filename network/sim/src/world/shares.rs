//! Which flows have the same share of a bottleneck.
//!
//! Congestion control gives alike flows the same mean rate, and lets each rate wander around it for longer
//! than a measurement may last. So the rate of such flows is measured for all of them together. Flows are
//! alike when hosts of one kind send messages of one size by one operation, over paths of one length that
//! share the same links with other flows: then nothing distinguishes them but their past.

use super::World;
use super::build;
use super::host::{Poster, digest};
use super::scenario::Transfer;
use fabric::Packet;
use rnic::{CongestionConfig, simulation};
use std::collections::BTreeMap;

/// Hops of a path at most: next hops are on shortest paths, so that none is in a circle.
const HOPS_MAX: usize = 64;

/// What flows have in common that are alike: kinds of the sender and the receiver, the operation, message
/// size and depth, links on the path, and those of them that other flows use as well.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Traits {
    kinds: [u16; 2],
    operation: Transfer,
    message: [u32; 2],
    hops: usize,
    shared: Vec<u32>,
}

impl World {
    /// The flows under way that are alike, in groups of two at least; others are in none.
    pub(super) fn alike(&self) -> Vec<Vec<u32>> {
        if !self.hash_decides {
            return Vec::new();
        }
        let posters = self
            .parts
            .iter()
            .flat_map(|part| &part.hosts)
            .flat_map(|host| &host.posters);
        let under_way = posters.filter(|poster| poster.is_under_way());
        let paths: BTreeMap<u32, (&Poster, Vec<u32>)> = under_way
            .map(|poster| (poster.number, (poster, self.path(poster))))
            .collect();
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        paths
            .values()
            .flat_map(|(_, path)| path)
            .for_each(|lane| *users.entry(*lane).or_default() += 1);
        let mut groups: BTreeMap<Traits, Vec<u32>> = BTreeMap::new();
        for (number, (poster, path)) in &paths {
            let hosts = [poster.flow.from, poster.flow.to].map(|host| {
                let (part, index) = self.host_at[host as usize];
                &self.parts[usize::from(part)].hosts[index as usize]
            });
            let kinds = &self.parts[0].kinds;
            let steered =
                kinds[usize::from(hosts[0].kind)].config.congestion != CongestionConfig::Off;
            if !steered || hosts.iter().any(|host| host.seat.is_some()) {
                continue;
            }
            let mut shared: Vec<u32> = path
                .iter()
                .copied()
                .filter(|lane| users[lane] > 1)
                .collect();
            shared.sort_unstable();
            let traits = Traits {
                kinds: hosts.map(|host| host.kind),
                operation: poster.flow.operation,
                message: [poster.flow.message_bytes, poster.flow.depth],
                hops: path.len(),
                shared,
            };
            groups.entry(traits).or_default().push(*number);
        }
        groups
            .into_values()
            .filter(|group| group.len() > 1)
            .collect()
    }

    /// The lanes on which the data of a flow travels.
    fn path(&self, poster: &Poster) -> Vec<u32> {
        let flow = &poster.flow;
        let (own, peer) = (poster.qpn.value(), poster.peer_qpn.value());
        let [own, peer] = if build::poster(flow) == flow.from {
            [own, peer]
        } else {
            [peer, own]
        };
        let port = simulation::source_port(poster.number + 1, own, peer);
        let entropy = self.parts[0].entropies.get(&poster.number).copied();
        let entropy = entropy.unwrap_or_else(|| digest(port, flow.from, flow.to));
        let to = self.parts[0].attachments[flow.to as usize];
        let packet = Packet::new(to.leaf, to.exit, 0, 0, entropy);
        let (part, index) = self.host_at[flow.from as usize];
        let mut lane = self.parts[usize::from(part)].hosts[index as usize].lane;
        let mut path = vec![lane];
        while path.len() < HOPS_MAX {
            let info = &self.parts[0].links.table[lane as usize];
            if info.to_host || !info.is_used() {
                break;
            }
            let attached = &self.parts[usize::from(info.part)].switches[info.node as usize];
            let Some(port) = attached.switch.expected_port(&packet) else {
                break;
            };
            lane = attached.first_lane + u32::from(port);
            path.push(lane);
        }
        path
    }
}
