//! `rockery bench documents`: five published documents, measured again part by part on this machine.
//!
//! Measurements are those of other commands (`bench nvme`, `bench smb`, `bench paths`, `sim`, `lab`) and of
//! perftest, iperf3, NetPIPE and libiscsi: this one starts them, and places their figures beside the
//! published ones.
//! Reading order: [`report`], [`runner`], then a module for each document.

mod crs504;
mod functions;
mod infiniband;
mod iser;
mod perftest;
mod report;
mod runner;
mod smb;
mod spraying;
mod storage;

use std::path::PathBuf;

use ::bench::Machine;

use super::output::Output;
use crate::Error;
use report::Report;
use runner::Runner;

/// A published document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Document {
    /// A 100G network with a CRS504: CrystalDiskMark's matrix by ways to the disk.
    Crs504,
    /// SMB 3 over InfiniBand: verbs, TCP, then files, layer by layer.
    Infiniband,
    /// NVMe over Fabrics, RDMA against TCP.
    Nvme,
    /// SR-IOV functions against a virtual switch.
    Functions,
    /// Packet spraying and out-of-order receive, in virtual time.
    Spraying,
}

/// The options of `rockery bench documents`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchDocuments {
    /// Documents, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "crs504,infiniband,nvme,functions,spraying")]
    part: Vec<Document>,
    /// Measure within 3 minutes instead of 15: to check that everything works, not for figures.
    #[arg(long)]
    quick: bool,
    /// Folder for what each program printed, created if needed; without it the output of programs is not
    /// kept.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Measures, shows and writes.
///
/// # Errors
/// When no part could be measured, or a file cannot be written.
pub(super) fn act(what: &BenchDocuments) -> Result<(), Error> {
    let mut runner = Runner::new(what.quick, what.keep.clone())?;
    let documents: Vec<_> = what
        .part
        .iter()
        .map(|part| measure(*part, &mut runner))
        .collect();
    if documents.iter().all(|document| document.tables.is_empty()) {
        let missing = documents.iter().flat_map(|document| &document.missing);
        missing.for_each(|missing| crate::output::note!("{}: {}", missing.what, missing.reason));
        return Err(Error::NothingMeasured("documents"));
    }
    what.output.write(&Report {
        machine: Machine::this(),
        quick: what.quick,
        documents,
        commands: runner.commands(),
    })
}

fn measure(part: Document, runner: &mut Runner) -> report::Document {
    match part {
        Document::Crs504 => crs504::measure(runner),
        Document::Infiniband => infiniband::measure(runner),
        Document::Nvme => storage::measure(runner),
        Document::Functions => functions::measure(runner),
        Document::Spraying => spraying::measure(runner),
    }
}
