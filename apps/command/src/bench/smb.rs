//! The arguments of `rockery bench smb`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ::nvme::host::job::Spec;
use ::nvme::serve::Bytes;

use super::{Output, Repeats};

/// How a client reaches the share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum SmbTransport {
    /// No network: the same file, through the page cache.
    Local,
    /// SMB over TCP on loopback.
    Tcp,
    /// SMB over TCP between two network namespaces.
    TcpVeth,
    /// SMB Direct to a gateway before Samba, through shared memory.
    Direct,
    /// SMB Direct in UDP packets between two network namespaces, to a gateway before Samba.
    DirectUdp,
    /// SMB over TCP on loopback, to a server that answers from memory.
    MemoryTcp,
    /// SMB Direct, through shared memory, to a gateway before a server that answers from memory.
    MemoryDirect,
}

impl SmbTransport {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local file",
            Self::Tcp => "TCP, loopback",
            Self::TcpVeth => "TCP, veth",
            Self::Direct => "SMB Direct, same host",
            Self::DirectUdp => "SMB Direct over UDP",
            Self::MemoryTcp => "TCP, memory",
            Self::MemoryDirect => "SMB Direct, memory",
        }
    }

    /// The value of its option.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Tcp => "tcp",
            Self::TcpVeth => "tcp-veth",
            Self::Direct => "direct",
            Self::DirectUdp => "direct-udp",
            Self::MemoryTcp => "memory-tcp",
            Self::MemoryDirect => "memory-direct",
        }
    }

    /// Whether it is SMB Direct.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::DirectUdp | Self::MemoryDirect)
    }

    /// Whether the server is one in memory, and not Samba.
    pub const fn is_in_memory(self) -> bool {
        matches!(self, Self::MemoryTcp | Self::MemoryDirect)
    }

    /// Whether client and servers are in namespaces of their own.
    pub const fn is_apart(self) -> bool {
        matches!(self, Self::TcpVeth | Self::DirectUdp)
    }
}

/// A part of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum SmbPart {
    /// The matrix of CrystalDiskMark.
    Matrix,
    /// Copies of one file and of four files at once; the other end of a copy is memory.
    Copy,
    /// Eight transfers of 1 MiB under way in all, over 1, 2, 4 and 8 connections.
    Connections,
}

/// The options of `rockery bench smb`.
#[derive(Debug, clap::Args)]
pub struct BenchSmb {
    /// Transports to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "local,tcp,direct,tcp-veth,direct-udp")]
    pub transport: Vec<SmbTransport>,
    /// Parts of the comparison, separated by commas.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "matrix,copy,connections"
    )]
    pub part: Vec<SmbPart>,
    /// Folder for the shared file; without it, a new one among the temporary files.
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Size of the shared file, with a unit.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub size: Bytes,
    /// How long and how often each job is measured.
    #[command(flatten)]
    pub repeats: Repeats,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
    /// In the process that measures: the server.
    #[arg(long, hide = true, value_parser = link::address::socket)]
    pub measure: Option<SocketAddr>,
    /// In the process that measures: the jobs.
    #[arg(long, hide = true)]
    pub job: Vec<Spec>,
    /// In the process that serves memory: where.
    #[arg(long, hide = true, value_parser = link::address::socket)]
    pub serve: Option<SocketAddr>,
    /// In the process that measures: the process of Samba, or of the server in memory.
    #[arg(long, hide = true)]
    pub samba_process: Option<u32>,
    /// In the process that measures: the gateway's process.
    #[arg(long, hide = true)]
    pub gateway_process: Option<u32>,
}
