//! The settings of storage in a scenario.

use fabric::{Rate, Span};

/// The storage settings of a host that has drives, or uses those of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageConfig {
    /// The time that its software takes.
    pub processor: Processor,
    /// The drives that it stores data on.
    pub drives: Drives,
    /// Over a byte stream instead of RDMA.
    pub stream: bool,
}

/// What a host does about I/Os that take too long, as Linux' NVMe over Fabrics does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoLimits {
    /// An I/O without a response after this time has timed out: `nvme_core.io_timeout`.
    pub timeout: Span,
    /// From the reset that follows until the queues are connected again: `reconnect_delay`.
    pub reconnect: Span,
    /// How often an I/O that a reset cancelled is sent again, before it ends with an error:
    /// `nvme_core.max_retries`.
    pub retries: u32,
}

impl IoLimits {
    /// The values that Linux has unless its parameters say otherwise.
    pub const LINUX: Self = Self {
        timeout: Span::from_us(30_000_000),
        reconnect: Span::from_us(10_000_000),
        retries: 5,
    };
}

/// The time that software takes on its cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    /// Cores, at least 1.
    pub cores: u32,
    /// For each I/O, at each end.
    pub io: Span,
    /// RDMA: for each work request and each completion.
    pub request: Span,
    /// Stream: for each message sent or received.
    pub call: Span,
    /// Stream: for each packet received.
    pub packet: Span,
    /// Stream: how fast a core copies.
    pub copy: Rate,
    /// The bandwidth of memory, for all cores together.
    pub memory: Option<Rate>,
    /// Stream: how long the adapter holds an interrupt back.
    pub moderation: Span,
    /// Stream: from the interrupt until the program runs.
    pub interrupt: Span,
    /// Stream: chance that an interrupt finds its core elsewhere, in units of 2^-32, and how long at most.
    pub late_chance: u32,
    /// How late a core is at most; evenly from 0.
    pub late_by: Span,
}

/// The drives of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drives {
    /// How many; I/Os take them in turn.
    pub count: u32,
    /// Whether a write also changes the parity on another drive (RAID 5): both are read before.
    pub parity: bool,
    /// The time that reading takes.
    pub read: Media,
    /// The time that writing takes.
    pub write: Media,
    /// The mean of the random time that an I/O takes longer; exponentially distributed.
    pub tail: Span,
    /// Between two commands of a drive at least.
    pub per_command: Span,
}

/// One direction of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Media {
    /// Besides moving the data.
    pub latency: Span,
    /// The bandwidth for data.
    pub rate: Rate,
}
