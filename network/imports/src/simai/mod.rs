//! Files of SimAI (`aliyun/SimAI`): topologies of its generator, configurations, and workloads of AICB.

mod topology;
mod workload;

use crate::hpcc::Config;
use crate::text::FabricText;
use crate::{ImportError, Imported, Input};

/// The files of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimaiFiles<'a> {
    /// The topology, as `gen_Topo_Template.py` makes it.
    pub topology: Input<'a>,
    /// What the job computes and sends.
    pub workload: Option<Input<'a>>,
    /// The configuration, `SimAI.conf`, which has the form of HPCC's.
    pub config: Option<Input<'a>>,
}

/// Makes the fabric file of a run. The processors are hosts, called `h` with the number of their rank;
/// switches are called `s` with the number of their node. NVSwitches become the `local` of groups.
///
/// # Errors
/// Lines that are not understood, numbers of nodes that there are not, workloads for more processors than the
/// topology has, and those with more layers than a fabric file can have.
pub fn import(files: &SimaiFiles<'_>) -> Result<Imported, ImportError> {
    let mut notes = Vec::new();
    let mut servers = topology::read(files.topology, &mut notes)?;
    let config = match files.config {
        Some(input) => Some(Config::read(input, &mut notes)?),
        None => None,
    };
    let job = match files.workload {
        Some(input) => Some(workload::read(input, &servers, &mut notes)?),
        None => None,
    };
    let mut text = FabricText::titled(files.workload.unwrap_or(files.topology).name);
    if let Some(config) = &config {
        config.change_links(&mut servers.graph, &mut notes)?;
        config.write(&mut text, &servers.graph, &[], &mut notes);
    }
    if let Some(job) = &job {
        job.write(&mut text);
    }
    servers.graph.write(&mut text);
    Ok(Imported {
        fabric: text.finish(),
        lists: Vec::new(),
        notes,
    })
}
