//! Files of HPCC's model for ns-3 (`alibaba-edu/High-Precision-Congestion-Control`, folder `simulation/mix`):
//! topology, flows and configuration.

mod config;
mod flows;
mod topology;

use crate::text::FabricText;
use crate::{ImportError, Imported, Input};

pub(crate) use config::Config;
pub(crate) use topology::{links, node_list};

/// The files of a run.
#[derive(Clone, Copy, Debug)]
pub struct HpccFiles<'a> {
    /// Nodes and links: the `TOPOLOGY_FILE` of a configuration.
    pub topology: Input<'a>,
    /// What is sent: the `FLOW_FILE` of a configuration.
    pub flows: Option<Input<'a>>,
    /// The file that the program is started with.
    pub config: Option<Input<'a>>,
}

/// The class of data where no flow names one.
pub(crate) const CLASS: u8 = 3;

/// Makes the fabric file of a run. Hosts are called `h` and switches `s`, with the numbers of their nodes.
///
/// # Errors
/// Lines that are not understood, numbers of nodes that there are not, and congestion control that rockery
/// does not simulate.
pub fn import(files: &HpccFiles<'_>) -> Result<Imported, ImportError> {
    let mut graph = topology::read(files.topology)?;
    let mut notes = Vec::new();
    let flows = match files.flows {
        Some(input) => flows::read(input, &graph, &mut notes)?,
        None => flows::Flows::default(),
    };
    let config = match files.config {
        Some(input) => Some(Config::read(input, &mut notes)?),
        None => None,
    };
    let mut text = FabricText::titled(files.topology.name);
    if let Some(config) = &config {
        config.change_links(&mut graph, &mut notes)?;
        config.write(&mut text, &graph, &flows.classes(), &mut notes);
    }
    flows.write(&mut text);
    graph.write(&mut text);
    Ok(Imported {
        fabric: text.finish(),
        lists: flows.lists(),
        notes,
    })
}
