//! What a scenario says about storage.

use fabric::{Rate, Span};

/// What a host needs to store, or to use others' storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageConfig {
    /// What its software costs.
    pub processor: Processor,
    /// What it stores on.
    pub drives: Drives,
    /// Over a byte stream instead of RDMA.
    pub stream: bool,
}

/// What software costs.
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
    /// How fast memory is for all cores together.
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

/// What a host stores on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drives {
    /// How many; I/Os take them in turn.
    pub count: u32,
    /// What reading takes.
    pub read: Media,
    /// What writing takes.
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
    /// How fast data moves.
    pub rate: Rate,
}
