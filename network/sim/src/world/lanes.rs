//! InfiniBand in virtual time: LIDs, forwarding tables, and the lanes of ports.

use super::World;
use fabric::lanes::{LaneConfig, LaneMap, PortLanes};
use fabric::{NextHops, Span};
use std::sync::Arc;

/// A subnet as its manager has set it up.
#[derive(Clone, Debug)]
pub struct SubnetSetup {
    /// The LID of each host.
    pub lids: Vec<u16>,
    /// By switch: next hops by LID, as [`World::leaf_of_lid`] numbers them.
    pub next_hops: Vec<Arc<NextHops>>,
    /// The lanes of service levels at switches.
    pub map: LaneMap,
    /// By link: its ports.
    pub links: Vec<LinkLanes>,
}

/// The lanes of the two ports of a link.
#[derive(Clone, Debug)]
pub struct LinkLanes {
    /// In the order of the link's ends.
    pub ends: [Arc<LaneConfig>; 2],
    /// The longest time between two flow control packets of a lane.
    pub repeats_after: Span,
}

impl World {
    /// Makes the network an InfiniBand subnet, before it runs: switches forward by LID, and every port has
    /// virtual lanes with credits.
    pub fn set_lanes(&mut self, subnet: &SubnetSetup) {
        for (switch, next_hops) in (0..).zip(&subnet.next_hops) {
            self.set_forwarding(switch, next_hops.clone());
        }
        let leaves: Vec<u32> = subnet
            .lids
            .iter()
            .map(|lid| self.leaf_of_lid(*lid))
            .collect();
        for part in &mut self.parts {
            let mut attachments = part.attachments.to_vec();
            for (attachment, leaf) in attachments.iter_mut().zip(&leaves) {
                (attachment.leaf, attachment.exit) = (*leaf, 0);
            }
            part.attachments = attachments.into();
            for info in Arc::make_mut(&mut part.links.table) {
                let link = subnet.links.get(info.link as usize);
                info.repeats_after = link.map(|link| link.repeats_after);
            }
        }
        let table = self.parts[0].links.table.clone();
        let ports = self.switch_at.iter().map(|(part, index)| {
            let placed = &self.parts[usize::from(*part)].switches[*index as usize];
            vec![None; usize::from(placed.switch.ports())]
        });
        let mut ports: Vec<Vec<Option<PortLanes>>> = ports.collect();
        for info in table.iter().filter(|info| info.is_used()) {
            let Some(link) = subnet.links.get(info.link as usize) else {
                continue;
            };
            let side = usize::from(info.direction);
            let lanes = PortLanes {
                config: link.ends[side].clone(),
                peer_blocks: link.ends[1 - side].buffer_blocks,
            };
            let part = &mut self.parts[usize::from(info.from_part)];
            if info.from_host {
                let host = &mut part.hosts[info.from_node as usize];
                host.egress.set_lanes(lanes);
            } else {
                let number = part.switches[info.from_node as usize].number;
                ports[number as usize][usize::from(info.from_port)] = Some(lanes);
            }
        }
        for ((part, index), ports) in self.switch_at.clone().into_iter().zip(ports) {
            let placed = &mut self.parts[usize::from(part)].switches[index as usize];
            placed.switch.set_lanes(subnet.map.clone(), ports);
        }
    }
}
