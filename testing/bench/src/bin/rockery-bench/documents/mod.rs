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
mod local;
mod perftest;
mod report;
mod runner;
mod smb;
mod spraying;
mod storage;
mod streams;

use ::bench::Machine;
use command::bench::{BenchDocuments, Document};

use crate::{Error, Programs};
use report::Report;
use runner::Runner;

/// Measures, shows and writes.
///
/// # Errors
/// When no part could be measured, or a file cannot be written.
pub(super) fn act(what: &BenchDocuments, programs: &Programs) -> Result<(), Error> {
    let mut runner = Runner::new(programs.rockery()?, what.quick, what.keep.clone())?;
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
    let report = Report {
        machine: Machine::this(),
        quick: what.quick,
        documents,
        commands: runner.commands(),
    };
    crate::output::write(&what.output, &report)
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
