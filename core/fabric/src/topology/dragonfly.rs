//! Dragonfly (Kim, Dally, Scott and Abts, ISCA 2008).

use super::{Extent, LinkError, Node, Speeds, Topology, product};

/// `groups` of `routers` with `hosts` each. The routers of a group are all linked with each other, and each
/// pair of groups by one link; these are dealt to the routers of a group in turn. Switches are numbered group
/// by group.
///
/// # Errors
/// When a switch would have too many ports, or the topology too many nodes.
pub fn dragonfly(
    groups: u32,
    routers: u32,
    hosts: u32,
    speeds: Speeds,
) -> Result<Topology, LinkError> {
    let others = |count: u32| u64::from(count.saturating_sub(1));
    Extent {
        hosts: product([groups, routers, hosts]),
        switches: product([groups, routers]),
        ports: u64::from(hosts)
            + others(routers)
            + others(groups).div_ceil(u64::from(routers.max(1))),
    }
    .check_sizes()?;
    let mut topology = Topology::default();
    for _ in 0..groups * routers {
        let router = Node::Switch(topology.add_switch());
        for _ in 0..hosts {
            let host = Node::Host(topology.add_host());
            topology.connect(host, router, speeds.hosts)?;
        }
    }
    let router = |group: u32, index: u32| Node::Switch(group * routers + index % routers.max(1));
    for group in 0..groups {
        for one in 0..routers {
            for other in one + 1..routers {
                topology.connect(router(group, one), router(group, other), speeds.fabric)?;
            }
        }
    }
    for one in 0..groups {
        for other in one + 1..groups {
            topology.connect(router(one, other - 1), router(other, one), speeds.fabric)?;
        }
    }
    Ok(topology)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Rate, Span};
    use crate::topology::{LinkConfig, rail_optimised};

    const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span(1));
    const SPEEDS: Speeds = Speeds {
        hosts: LINK,
        fabric: LINK,
    };

    #[test]
    fn groups_are_joined_pair_by_pair_and_everyone_is_reached() {
        // The balanced dragonfly of the paper's figure 5: p = h = 2, a = 4, g = a * h + 1 = 9, 72 hosts.
        let dragonfly = dragonfly(9, 4, 2, SPEEDS).unwrap();
        assert_eq!((dragonfly.hosts(), dragonfly.switches()), (72, 36));
        assert_eq!(dragonfly.links().len(), 72 + 9 * 6 + 36);
        assert!(
            (0..36).all(|switch| dragonfly.ports(switch) == 7),
            "radix p + h + a - 1"
        );
        let next_hops = dragonfly.next_hops();
        assert!((0..36).all(|from| {
            (0..36).all(|to| from == to || !next_hops[from as usize].to(to).is_empty())
        }));
    }

    #[test]
    fn one_rail_is_one_hop_and_spines_join_them() {
        let fabric = rail_optimised(4, 8, 2, SPEEDS).unwrap();
        assert_eq!(
            (fabric.hosts(), fabric.switches(), fabric.links().len()),
            (32, 10, 48)
        );
        let attached = fabric.attachments();
        assert_eq!(
            attached[3].map(|(leaf, _)| leaf),
            attached[8 + 3].map(|(leaf, _)| leaf)
        );
        assert_eq!(fabric.next_hops()[0].to(1).len(), 2);
    }
}
