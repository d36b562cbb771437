//! Topologies in a line.

use super::{LinkConfig, LinkError, Node, Topology};

/// Links of a generated topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speeds {
    /// Between hosts and switches.
    pub hosts: LinkConfig,
    /// Among switches.
    pub fabric: LinkConfig,
}

/// Hosts around one switch.
///
/// # Errors
/// When there are more hosts than a switch has ports.
pub fn star(hosts: u32, link: LinkConfig) -> Result<Topology, LinkError> {
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
/// When a switch would have too many ports.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts_per_leaf: u32,
    speeds: Speeds,
) -> Result<Topology, LinkError> {
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
/// When a switch would have too many ports.
pub fn fat_tree(k: u32, speeds: Speeds) -> Result<Topology, LinkError> {
    let half = k / 2;
    let pods = half * 2;
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
    use alloc::collections::BTreeSet;
    use alloc::sync::Arc;

    const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span(1));
    const SPEEDS: Speeds = Speeds { hosts: LINK, fabric: LINK };

    #[test]
    fn a_fat_tree_has_the_counts_of_the_paper_and_all_ways() {
        let tree = fat_tree(8, SPEEDS).unwrap();
        assert_eq!((tree.hosts(), tree.switches(), tree.links().len()), (128, 80, 384));
        assert!((0..80).all(|switch| tree.ports(switch) == 8));
        let ways = tree.ways();
        assert_eq!(ways[0].to(31), [4, 5, 6, 7], "an edge to another pod: all of its uplinks");
        assert_eq!(ways[32].to(31), [4, 5, 6, 7], "so does an aggregation switch");
        assert_eq!(ways[79].to(31).len(), 1, "from the core there is one way down");
        let different: BTreeSet<_> = ways.iter().map(Arc::as_ptr).collect();
        assert_eq!(different.len(), 1 + 8 + 1, "all edges share one table, as do all cores and each pod");
    }

    #[test]
    fn leaves_and_spines_meet_once() {
        let fabric = leaf_spine(4, 2, 3, SPEEDS).unwrap();
        assert_eq!((fabric.hosts(), fabric.switches(), fabric.links().len()), (12, 6, 20));
        assert_eq!(fabric.ways()[0].to(3), [3, 4]);
        assert_eq!(fabric.ports(4), 4);
        assert_eq!(star(5, LINK).unwrap().ports(0), 5);
    }
}
