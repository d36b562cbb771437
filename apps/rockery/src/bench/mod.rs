//! `rockery bench`: published comparisons, repeated on this machine.

mod documents;
mod matrix;
mod model;
mod nvme;
mod output;
mod page;
mod paths;
mod place;
mod published;
mod repeats;
mod report;
mod smb;
mod steady;

use clap::Subcommand;

use crate::Error;

/// The comparisons of `rockery bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Storage over RDMA beside storage over TCP: latency, bandwidth, commands per second, processor time.
    ///
    /// One process serves a disk in memory and another one uses it, over each transport in turn, beside the
    /// figures of a published test of hardware. Both sides poll, so the measurement needs two processors and
    /// an otherwise idle machine. Each job is a thread; more jobs than processors share these.
    Nvme(nvme::BenchNvme),
    /// A share of Samba: CrystalDiskMark's matrix and copies, beside published figures of SMB Direct.
    ///
    /// The distribution's Samba serves a temporary folder to a client of rockery's own, the same over each
    /// transport: SMB 3.0.2, as a guest, neither signed nor encrypted.
    Smb(Box<smb::BenchSmb>),
    /// Paths between two containers of one host: veth with a bridge, macvlan, tap with a switch in a program.
    ///
    /// iperf3 with one and five streams, and ib_write_bw over rockery, beside the figures of a published test
    /// of a virtual switch: Gb/s, the slowest and the fastest second, processor time. Needs iperf3, perftest,
    /// iproute2, and user namespaces or root.
    Paths(paths::BenchPaths),
    /// Five published documents part by part: their figures beside those of this machine.
    ///
    /// Runs the other comparisons, the simulator, the lab, perftest, iperf3 and NetPIPE within 15 minutes.
    /// Parts whose programs or privileges are missing are named with the reason.
    Documents(documents::BenchDocuments),
}

/// Runs a comparison.
///
/// # Errors
/// When nothing could be measured, or a file cannot be written.
pub(crate) fn act(what: &Bench) -> Result<(), Error> {
    match what {
        Bench::Nvme(what) => nvme::act(what),
        Bench::Smb(what) => smb::act(what),
        Bench::Paths(what) => paths::act(what),
        Bench::Documents(what) => documents::act(what),
    }
}
