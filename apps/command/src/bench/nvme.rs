//! The arguments of `rockery bench nvme`.

use std::path::PathBuf;

use ::nvme::serve::Bytes;

use super::{Output, Repeats};

/// How host and target reach each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Transport {
    /// No network: the same memory, in the process that measures.
    Local,
    /// RDMA through shared memory.
    Rdma,
    /// RDMA in UDP packets, between two network namespaces where that is allowed, else over loopback.
    RdmaUdp,
    /// TCP over loopback.
    Tcp,
}

impl Transport {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Rdma => "RDMA, same host",
            Self::RdmaUdp => "RDMA over UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// A part of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// 4 KiB random reads, 1, 4 and 16 at once.
    Latency,
    /// 1 MiB sequential, by 1 to 64 jobs.
    Throughput,
    /// 4 KiB random reads, 128 at once, and how steady they are.
    Stability,
    /// The matrix of CrystalDiskMark.
    Matrix,
}

/// The options of `rockery bench nvme`.
#[derive(Debug, clap::Args)]
pub struct BenchNvme {
    /// Transports to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "local,rdma,rdma-udp,tcp")]
    pub transport: Vec<Transport>,
    /// Parts of the comparison, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "latency,throughput,stability,matrix")]
    pub part: Vec<Part>,
    /// Size of the disk, with a unit.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub size: Bytes,
    /// Folder in which the disk is a file, removed at the end, in place of memory. It is read and written
    /// past the page cache (O_DIRECT) where the file system can.
    #[arg(long, value_name = "FOLDER")]
    pub disk: Option<PathBuf>,
    /// Read and write the file of --disk through the page cache. A file larger than the memory that a control
    /// group allows (systemd-run --scope -p MemoryMax=SIZE) then shows what the cache does.
    #[arg(long, requires = "disk")]
    pub cached: bool,
    /// How long and how often each job is measured.
    #[command(flatten)]
    pub repeats: Repeats,
    /// How long the target polls idle connections before it sleeps, in microseconds.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    pub poll: u64,
    /// Let one thread work all queues, instead of a thread per job. With fewer processors than jobs this
    /// measures the transport more than the scheduler.
    #[arg(long)]
    pub one_thread: bool,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}
