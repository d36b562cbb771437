//! Rail-optimised: the adapters of one number, of all servers, share a leaf.

use super::{Extent, LinkError, Node, Speeds, Topology, product, sum};

/// `servers` with `rails` adapters each; the adapter r of every server is attached to leaf r, and each leaf
/// to each of `spines`. Hosts are the adapters, server by server; switches are numbered leaves first.
///
/// # Errors
/// When a switch would have too many ports, or the topology too many nodes.
pub fn rail_optimised(
    servers: u32,
    rails: u32,
    spines: u32,
    speeds: Speeds,
) -> Result<Topology, LinkError> {
    Extent {
        hosts: product([servers, rails]),
        switches: sum([rails, spines]),
        ports: sum([servers, spines]).max(rails.into()),
    }
    .check_sizes()?;
    let mut topology = Topology::default();
    for _ in 0..rails + spines {
        topology.add_switch();
    }
    for _ in 0..servers {
        for rail in 0..rails {
            let adapter = Node::Host(topology.add_host());
            topology.connect(adapter, Node::Switch(rail), speeds.hosts)?;
        }
    }
    for leaf in 0..rails {
        for spine in rails..rails + spines {
            topology.connect(Node::Switch(leaf), Node::Switch(spine), speeds.fabric)?;
        }
    }
    Ok(topology)
}
