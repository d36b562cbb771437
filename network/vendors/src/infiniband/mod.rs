//! InfiniBand subnets as tools print them: `ibnetdiscover` in its plain form and with `--ports`, and ibsim's
//! net files, which are the same with names in place of GUIDs. Written as well, and as Slurm's
//! `topology.conf` and as a graph for Graphviz. The outputs of other tools show facts of ports: states,
//! speeds and counters; forwarding tables come from OpenSM's dumps.

mod discovered;
mod layers;
mod lfts;
mod pattern;
mod ports_report;
mod read;
mod record;
mod shown;
mod write;

pub use discovered::{Discovered, DiscoveredLink, DiscoveredNode, DiscoveredPort, NodeKind};
pub use lfts::{DumpedEntry, DumpedTable, forwarding_tables};
pub use read::{Read, Remark, Unreadable, read};
pub use shown::{PortState, SubnetFacts, SubnetPort, facts};
pub use write::{ENGINES, Format, opensm};
