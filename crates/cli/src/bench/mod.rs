//! `rockery bench`: comparisons that people publish, made on this machine.

mod job;
mod model;
mod nvme;
mod page;
mod place;
mod published;
mod report;
mod steady;

use clap::Subcommand;

pub(crate) use job::{Measured, Spec};

use crate::Error;

/// What to compare.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Storage over RDMA beside storage over TCP: latency, bandwidth, commands per second, processor time.
    ///
    /// A disk in memory is served by one process and used by another, over each transport in turn, beside the
    /// figures of a published test of hardware. Both sides poll, so it wants two processors and nothing else
    /// going on. Jobs are threads of their own; more than processors take turns.
    Nvme(nvme::Nvme),
}

/// Does what was asked.
///
/// # Errors
/// When nothing could be measured, or a file cannot be written.
pub(crate) fn act(what: &Bench) -> Result<(), Error> {
    match what {
        Bench::Nvme(what) => nvme::act(what),
    }
}
