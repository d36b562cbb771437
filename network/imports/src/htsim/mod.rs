//! Files of htsim (`ultraethernet/uet-htsim`, `Broadcom/csg-htsim`): topologies (`.topo`) and connection
//! matrices (`.cm`).

mod matrix;
mod topology;

use crate::text::FabricText;
use crate::{ImportError, Imported, Input};

/// The files of a run.
#[derive(Clone, Copy, Debug)]
pub struct HtsimFiles<'a> {
    /// The tiers of a fat tree, as `.topo` files have them.
    pub topology: Input<'a>,
    /// What is sent.
    pub matrix: Option<Input<'a>>,
    /// The unit of the matrix's start times.
    pub start_unit: StartUnit,
}

/// Above this, 32 MiB are not enough for the headroom of all ports.
const LARGE_BPS: u64 = 25_600_000_000_000;
const LARGE_BUFFER: &str = "256MiB";

/// The unit of start times, in which htsim's programs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartUnit {
    /// Those for UEC, RoCE and Swift.
    Microseconds,
    /// Those for NDP and others.
    Picoseconds,
}

/// Makes the fabric file of a run. Hosts are called `h` with their number, and switches `s`: first those with
/// hosts, then those above them.
///
/// # Errors
/// Lines that are not understood, numbers that do not fit each other, failures, and connections whose start
/// depends on what their hosts do not know.
pub fn import(files: &HtsimFiles<'_>) -> Result<Imported, ImportError> {
    let mut notes = Vec::new();
    let topology = topology::Topology::read(files.topology, &mut notes)?;
    let graph = topology.graph();
    let traffic = match files.matrix {
        Some(input) => Some(matrix::Matrix::read(input, topology.hosts)?),
        None => None,
    };
    let mut text = FabricText::titled(files.matrix.unwrap_or(files.topology).name);
    let lists = match &traffic {
        Some(matrix) => matrix.write(&mut text, files.start_unit)?,
        None => Vec::new(),
    };
    if graph.largest_switch_bps() > LARGE_BPS {
        notes.push(format!(
            "buffers of {LARGE_BUFFER} are assumed, since a switch has more than 25.6 Tb/s"
        ));
        text.table("qos.default");
        text.quoted("buffer", LARGE_BUFFER);
    }
    graph.write(&mut text);
    Ok(Imported {
        fabric: text.finish(),
        lists,
        notes,
    })
}
