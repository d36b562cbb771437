//! The arguments of `rockery bench documents`.

use std::path::PathBuf;

use super::Output;

/// A published document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Document {
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
pub struct BenchDocuments {
    /// Documents, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "crs504,infiniband,nvme,functions,spraying")]
    pub part: Vec<Document>,
    /// Measure within 3 minutes instead of 15: to check that everything works, not for figures.
    #[arg(long)]
    pub quick: bool,
    /// Folder for what each program printed, created if needed; without it the output of programs is not
    /// kept.
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}
