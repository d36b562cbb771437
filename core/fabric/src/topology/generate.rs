//! Generators of the topologies star, leaf-spine and fat tree.

use super::{Extent, LinkConfig, LinkError, Node, Topology, product, sum};

/// Links of a generated topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speeds {
    /// Links between hosts and switches.
    pub hosts: LinkConfig,
    /// Links between switches.
    pub fabric: LinkConfig,
}

/// Hosts around one switch.
///
/// # Errors
/// When there are more hosts than a switch may have ports.
pub fn star(hosts: u32, link: LinkConfig) -> Result<Topology, LinkError> {
    Extent {
        hosts: hosts.into(),
        switches: 1,
        ports: hosts.into(),
    }
    .check_sizes()?;
    let mut topology = Topology::default();
    let switch = Node::Switch(topology.add_switch());
    for _ in 0..hosts {
        let host = Node::Host(topology.add_host());
        topology.connect(host, switch, link)?;
    }
    Ok(topology)
}

/// Each leaf connected to each spine by one link; switches are numbered leaves first.
///
/// # Errors
/// When a switch would have too many ports, or the topology too many nodes.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts_per_leaf: u32,
    speeds: Speeds,
) -> Result<Topology, LinkError> {
    Extent {
        hosts: product([leaves, hosts_per_leaf]),
        switches: sum([leaves, spines]),
        ports: sum([hosts_per_leaf, spines]).max(leaves.into()),
    }
    .check_sizes()?;
    let mut topology = Topology::default();
    for _ in 0..leaves + spines {
        topology.add_switch();
    }
    for leaf in 0..leaves {
        for _ in 0..hosts_per_leaf {
            let host = Node::Host(topology.add_host());
            topology.connect(host, Node::Switch(leaf), speeds.hosts)?;
        }
        for spine in leaves..leaves + spines {
            topology.connect(Node::Switch(leaf), Node::Switch(spine), speeds.fabric)?;
        }
    }
    Ok(topology)
}

/// The three-stage fat tree of k-port switches with k^3/4 hosts (Al-Fares, Loukissas and Vahdat, 2008).
/// Switches are numbered edges first, pod by pod, then aggregation, then core. An odd `k` is rounded down.
///
/// # Errors
/// When a switch would have too many ports, or the topology too many nodes.
pub fn fat_tree(k: u32, speeds: Speeds) -> Result<Topology, LinkError> {
    let half = k / 2;
    let pods = half * 2;
    Extent {
        hosts: product([pods, half, half]),
        switches: product([2, pods, half]).saturating_add(product([half, half])),
        ports: pods.into(),
    }
    .check_sizes()?;
    let mut topology = Topology::default();
    for _ in 0..2 * pods * half + half * half {
        topology.add_switch();
    }
    let edge = |pod: u32, index: u32| Node::Switch(pod * half + index);
    let aggregation = |pod: u32, index: u32| Node::Switch((pods + pod) * half + index);
    let core = |row: u32, column: u32| Node::Switch(2 * pods * half + row * half + column);
    for pod in 0..pods {
        for index in 0..half {
            for _ in 0..half {
                let host = Node::Host(topology.add_host());
                topology.connect(host, edge(pod, index), speeds.hosts)?;
            }
            for up in 0..half {
                topology.connect(edge(pod, index), aggregation(pod, up), speeds.fabric)?;
            }
        }
        for row in 0..half {
            for column in 0..half {
                topology.connect(aggregation(pod, row), core(row, column), speeds.fabric)?;
            }
        }
    }
    Ok(topology)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Rate, Span};
    use crate::topology::{dragonfly, rail_optimised};
    use alloc::collections::BTreeSet;
    use alloc::sync::Arc;

    const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span(1));
    const SPEEDS: Speeds = Speeds {
        hosts: LINK,
        fabric: LINK,
    };

    #[test]
    fn a_fat_tree_has_the_counts_of_the_paper_and_all_next_hops() {
        let tree = fat_tree(8, SPEEDS).unwrap();
        assert_eq!(
            (tree.hosts(), tree.switches(), tree.links().len()),
            (128, 80, 384)
        );
        assert!((0..80).all(|switch| tree.ports(switch) == 8));
        let next_hops = tree.next_hops();
        assert_eq!(
            next_hops[0].to(31),
            [4, 5, 6, 7],
            "an edge to another pod: all of its uplinks"
        );
        assert_eq!(
            next_hops[32].to(31),
            [4, 5, 6, 7],
            "so does an aggregation switch"
        );
        assert_eq!(
            next_hops[79].to(31).len(),
            1,
            "from the core there is one path down"
        );
        let different: BTreeSet<_> = next_hops.iter().map(Arc::as_ptr).collect();
        assert_eq!(
            different.len(),
            1 + 8 + 1,
            "all edges share one table, as do all cores and each pod"
        );
    }

    /// Names of four billion hosts would be some hundred gigabytes.
    #[test]
    fn sizes_are_checked_before_anything_is_allocated() {
        const MOST: u32 = u32::MAX;
        let too_many = |made: Result<Topology, LinkError>| {
            matches!(
                made,
                Err(LinkError::TooManyNodes { .. } | LinkError::TooManyPorts(_))
            )
        };
        assert!(too_many(star(MOST, LINK)) && too_many(fat_tree(MOST, SPEEDS)));
        for sizes in [
            [MOST; 3],
            [65_535; 3],
            [65_535, 1, 65_535],
            [1, 65_535, 65_535],
            [2, 2, MOST],
        ] {
            let [one, two, three] = sizes;
            assert!(too_many(leaf_spine(one, two, three, SPEEDS)), "{sizes:?}");
            assert!(too_many(dragonfly(one, two, three, SPEEDS)), "{sizes:?}");
            assert!(
                too_many(rail_optimised(one, two, three, SPEEDS)),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn leaves_and_spines_meet_once() {
        let fabric = leaf_spine(4, 2, 3, SPEEDS).unwrap();
        assert_eq!(
            (fabric.hosts(), fabric.switches(), fabric.links().len()),
            (12, 6, 20)
        );
        assert_eq!(fabric.next_hops()[0].to(3), [3, 4]);
        assert_eq!(fabric.ports(4), 4);
        assert_eq!(star(5, LINK).unwrap().ports(0), 5);
    }
}
