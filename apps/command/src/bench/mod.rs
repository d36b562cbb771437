//! Arguments of the comparisons: `rockery bench` has them for its help, completions and manual pages, and
//! `rockery-bench` carries them out.

mod documents;
mod nvme;
mod paths;
mod results;
mod smb;

use clap::Subcommand;

pub use documents::{BenchDocuments, Document};
pub use nvme::{BenchNvme, Part, Transport};
pub use paths::{BenchPaths, Way};
pub use results::{Output, Repeats, Times, rest};
pub use smb::{BenchSmb, SmbPart, SmbTransport};

/// The comparisons of `rockery bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Storage over RDMA beside storage over TCP: latency, bandwidth, commands per second, processor time.
    ///
    /// One process serves a disk in memory and another one uses it, over each transport in turn, beside the
    /// figures of a published test of hardware. Both sides poll, so the measurement needs two processors and
    /// an otherwise idle machine. Each job is a thread; more jobs than processors share these.
    Nvme(BenchNvme),
    /// A share of Samba: CrystalDiskMark's matrix and copies, beside published figures of SMB Direct.
    ///
    /// The distribution's Samba serves a temporary folder to a client of rockery's own, the same over each
    /// transport: SMB 3.0.2, as a guest, neither signed nor encrypted.
    Smb(Box<BenchSmb>),
    /// Paths between two containers of one host: veth with a bridge, macvlan, tap with a switch in a program.
    ///
    /// iperf3 with one and five streams, and ib_write_bw over rockery, beside the figures of a published test
    /// of a virtual switch: Gb/s, the slowest and the fastest second, processor time. Needs iperf3, perftest,
    /// iproute2, and user namespaces or root.
    Paths(BenchPaths),
    /// Five published documents part by part: their figures beside those of this machine.
    ///
    /// Runs the other comparisons, the simulator, the lab, perftest, iperf3 and NetPIPE within 15 minutes.
    /// Parts whose programs or privileges are missing are named with the reason.
    Documents(BenchDocuments),
}
