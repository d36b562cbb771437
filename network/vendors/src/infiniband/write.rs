//! Subnets in the forms of tools.

use super::discovered::{Discovered, DiscoveredLink, DiscoveredNode, DiscoveredPort, NodeKind};
use super::layers;
use crate::path_spread::PathSpread;
use ::infiniband::{LinkSpeed, Speed, Width};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A form in which a subnet is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The output of `ibnetdiscover`.
    Ibnetdiscover,
    /// A net file of ibsim: the same, with the widths and speeds that ports have enabled.
    Ibsim,
    /// Slurm's `topology.conf` for the plug-in `topology/tree`.
    Slurm,
    /// A graph for Graphviz.
    Dot,
}

/// Routing engines of OpenSM 3.3 (opensm(8), `--routing_engine`), and those that NVIDIA's has besides: `ar_`
/// for adaptive routing (UFM, opensm.conf).
pub const ENGINES: [&str; 21] = [
    "minhop",
    "updn",
    "dnup",
    "file",
    "ftree",
    "lash",
    "dor",
    "torus-2QoS",
    "nue",
    "dfsssp",
    "sssp",
    "no_fallback",
    "kdor-hc",
    "chain",
    "pqft",
    "dfp",
    "dfp2",
    "ar_updn",
    "ar_ftree",
    "ar_torus",
    "ar_dor",
];

/// Options of OpenSM for a subnet: engines for trees, which avoid loops of credits, the next one where the
/// subnet is none for the first. Where packets take several paths, engines of adaptive routing.
pub fn opensm(spread: PathSpread) -> String {
    let (engines, about) = match spread {
        PathSpread::Flows => (
            "ftree,updn",
            "# ftree for fat trees, else updn: neither makes loops of credits. A path by destination.\n",
        ),
        PathSpread::Packets | PathSpread::Flowlets(_) => (
            "ar_ftree,ar_updn",
            "# Adaptive routing: only NVIDIA's OpenSM (UFM) has these engines, others route with minhop.\n\
             # The adapters have to take packets in any order.\n",
        ),
    };
    format!(
        "# Lines for opensm.conf; opensm -c FILE writes the others. Review before use.\n{about}\
         routing_engine {engines}\n"
    )
}

impl Discovered {
    /// The subnet in a form. Nodes need GUIDs; `names` are the names of nodes for Slurm and Graphviz.
    pub fn write(&self, format: Format, names: &[String]) -> String {
        match format {
            Format::Ibnetdiscover => self.records(false),
            Format::Ibsim => self.records(true),
            Format::Slurm => layers::slurm(self, names),
            Format::Dot => layers::dot(self, names),
        }
    }

    /// The records of `ibnetdiscover`: switches, then adapters, then routers. LIDs are those of a subnet
    /// without a subnet manager.
    fn records(&self, is_ibsim: bool) -> String {
        let links = self.links_of_nodes();
        let mut text = String::from("# Topology file\n");
        for kind in [NodeKind::Switch, NodeKind::ChannelAdapter, NodeKind::Router] {
            let nodes = self.nodes.iter().zip(&links);
            for (node, links) in nodes.filter(|(node, _)| node.kind == kind) {
                self.record(&mut text, node, links, is_ibsim);
            }
        }
        text
    }

    fn record(
        &self,
        text: &mut String,
        node: &DiscoveredNode,
        links: &BTreeMap<u8, (DiscoveredPort, DiscoveredLink)>,
        is_ibsim: bool,
    ) {
        let guid = node.guid.unwrap_or_default();
        let is_switch = node.kind == NodeKind::Switch;
        let _ = write!(text, "\nvendid=0x0\ndevid=0x0\nsysimgguid=0x{guid:x}\n");
        let (key, kind, more, tail) = match node.kind {
            NodeKind::Switch => (
                "switch",
                "Switch",
                format!("({guid:x})"),
                " base port 0 lid 0 lmc 0",
            ),
            NodeKind::ChannelAdapter => ("ca", "Ca", String::new(), ""),
            NodeKind::Router => ("rt", "Rt", String::new(), ""),
        };
        let DiscoveredNode {
            ports, description, ..
        } = node;
        let id = id(node);
        let _ = write!(
            text,
            "{key}guid=0x{guid:x}{more}\n{kind}\t{ports} {id}\t\t# \"{description}\"{tail}\n"
        );
        for (number, (peer, link)) in links {
            let _ = write!(text, "[{number}]");
            if !is_switch {
                let _ = write!(text, "({:x}) ", node.port_guid(*number));
            }
            let other = &self.nodes[peer.node];
            let _ = write!(text, "\t{}[{}]", self::id(other), peer.port);
            if other.kind != NodeKind::Switch {
                let _ = write!(text, "({:x}) ", other.port_guid(peer.port));
            }
            if let Some(speed) = link.speed.filter(|_| is_ibsim) {
                let _ = write!(text, " {}", enabled(speed));
            }
            let own = if is_switch { "" } else { "lid 0 lmc 0 " };
            let _ = write!(text, "\t\t# {own}\"{}\" lid 0", other.description);
            if let Some(LinkSpeed { width, speed }) = link.speed {
                let _ = write!(text, " {}x{}", width.lanes(), speed.name());
            }
            text.push('\n');
        }
    }
}

impl DiscoveredNode {
    /// The GUID of a port, or the one that ibsim gives it.
    pub(super) fn port_guid(&self, port: u8) -> u64 {
        let after = self.guid.unwrap_or_default().wrapping_add(u64::from(port));
        self.port_guids.get(&port).copied().unwrap_or(after)
    }
}

fn id(node: &DiscoveredNode) -> String {
    format!(
        "\"{}-{:016x}\"",
        node.kind.letter(),
        node.guid.unwrap_or_default()
    )
}

/// The options of a port in a net file: masks of LinkWidthEnabled, LinkSpeedEnabled and LinkSpeedExtEnabled
/// up to the width and the speed (IBTA 14.2.5.6).
fn enabled(speed: LinkSpeed) -> String {
    let width = match speed.width {
        Width::X1 => 1,
        Width::X2 => 16,
        Width::X4 => 3,
        Width::X8 => 4,
        Width::X12 => 11,
    };
    let (lower, extended) = match speed.speed {
        Speed::Sdr => (1, 0),
        Speed::Ddr => (3, 0),
        Speed::Qdr | Speed::Fdr10 => (7, 0),
        Speed::Fdr => (7, 1),
        Speed::Edr => (7, 3),
        Speed::Hdr => (7, 7),
        Speed::Ndr | Speed::Xdr => (7, 15),
    };
    match extended {
        0 => format!("w={width} s={lower}"),
        _ => format!("w={width} s={lower} e={extended}"),
    }
}
