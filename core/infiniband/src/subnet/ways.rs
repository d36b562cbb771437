//! The ways of data through a subnet, as its manager has written them: which ports lead to a LID, and which
//! hosts are behind a multicast LID.

use super::{End, Subnet};
use crate::lid::FIRST_MULTICAST;
use crate::node::PortState;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Switches that a packet crosses at most, where tables lead in a circle.
const HOPS_MAX: usize = 64;

impl Subnet {
    /// The port by which a switch forwards packets of data for each unicast LID that it forwards: the
    /// table's, if data passes there.
    pub fn forwarding(&self, node: usize) -> impl Iterator<Item = (u16, u8)> {
        let switch = &self.nodes[node];
        let tables = switch.switch_tables();
        let top = tables.map_or(0, |tables| tables.linear_top.min(FIRST_MULTICAST - 1));
        (1..=top).filter_map(move |lid| {
            let port = tables?.port_of(lid)?;
            let passes = port > 0 && self.carries(End { node, port });
            passes.then_some((lid, port))
        })
    }

    /// Whether data leaves by a port.
    pub fn carries(&self, end: End) -> bool {
        let port = self.nodes[end.node].ports.get(usize::from(end.port));
        port.is_some_and(|port| port.state == PortState::Active)
    }

    /// The nodes that are no switches and that packets for a multicast LID reach from a port of one, in
    /// ascending order.
    pub fn reached_by_group(&self, from: End, lid: u16) -> Vec<usize> {
        let (mut reached, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut next = Vec::from_iter(self.neighbour(from).filter(|_| self.carries(from)));
        for _ in 0..HOPS_MAX {
            let arrived = core::mem::take(&mut next);
            for at in arrived {
                let node = &self.nodes[at.node];
                let Some(tables) = node.switch_tables() else {
                    reached.insert(at.node);
                    continue;
                };
                if !seen.insert(at) {
                    continue;
                }
                let out = (1..=node.port_count())
                    .filter(|port| *port != at.port && tables.is_multicast_port(lid, *port));
                let out = out.map(|port| End { port, ..at });
                next.extend(
                    out.filter(|end| self.carries(*end))
                        .filter_map(|end| self.neighbour(end)),
                );
            }
        }
        reached.remove(&from.node);
        reached.into_iter().collect()
    }
}
