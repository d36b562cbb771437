//! Tasks of the engine, their actions, and their results.

use std::sync::Arc;

use buffer::Buffer;
use wire::nvme::Status;

use crate::controller::{Barrier, Counted, Effect, Namespace};
use crate::latency::Class;
use crate::store::Lent;

/// The action of a task.
#[derive(Debug)]
pub enum Action {
    /// Read into the buffer.
    Read(Buffer),
    /// Read without a buffer: the store lends its own memory.
    Lend,
    /// Write bytes of the buffer.
    Write {
        /// Buffer with the bytes to write.
        data: Buffer,
        /// Where the bytes to write begin in the buffer: 0 for disks that block.
        from: usize,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Compare the store with the buffer.
    Compare(Buffer),
    /// Compare and Write: compare, and if the data are equal, write; fused operations of other commands are
    /// excluded meanwhile.
    CompareAndWrite {
        /// The identifier (CID) of the Compare command.
        first_cid: u16,
        /// The expected data.
        expected: Buffer,
        /// The data to write.
        data: Buffer,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Nothing: the command has been executed, and completes behind a barrier.
    Nothing(Option<Buffer>),
    /// Flush one namespace to the medium.
    Flush,
    /// Flush several namespaces.
    FlushAll(Vec<Arc<Namespace>>),
    /// Read and discard the data, to find read errors.
    Verify,
    /// Makes a range read as zeros.
    Zero {
        /// Whether the blocks may be deallocated.
        deallocate: bool,
        /// Whether the zeros have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Deallocate ranges: first byte and length of each.
    Discard(Vec<(u64, u64)>),
    /// Copy these ranges, one behind the other, to the offset of the task.
    Copy {
        /// The ranges to read: first byte and length of each.
        sources: Vec<(u64, u64)>,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
}

impl Action {
    /// What the task does to the medium; `None` for one that excludes changes by other commands.
    pub(super) fn effect(&self) -> Option<Effect> {
        match self {
            Self::Read(_) | Self::Lend | Self::Compare(_) | Self::Verify => Some(Effect::Reads),
            Self::Nothing(_) | Self::Flush | Self::FlushAll(_) => Some(Effect::Reads),
            Self::Write { .. } | Self::Zero { .. } | Self::Discard(_) | Self::Copy { .. } => {
                Some(Effect::Changes)
            }
            Self::CompareAndWrite { .. } => None,
        }
    }

    /// Whether one operation of io_uring does the whole task.
    pub(super) fn suits_a_ring(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Flush | Self::Write { .. })
    }

    /// The class of the command in the statistics.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Read(_) | Self::Lend | Self::Compare(_) | Self::Verify => Class::Read,
            Self::Write { .. } | Self::CompareAndWrite { .. } | Self::Copy { .. } => Class::Write,
            Self::Nothing(_)
            | Self::Flush
            | Self::FlushAll(_)
            | Self::Zero { .. }
            | Self::Discard(_) => Class::Other,
        }
    }
}

/// An operation on a namespace for one command.
#[derive(Debug)]
pub struct Task {
    pub(super) cid: u16,
    pub(super) action: Action,
    pub(super) namespace: Option<Arc<Namespace>>,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Counts the command until it is finished, for barriers.
    pub(super) underway: Option<Counted>,
    /// What has to pass before the task begins.
    pub(super) behind: Option<Barrier>,
    /// An identifier that the transport chose for the command.
    pub tag: u32,
}

impl Task {
    pub(crate) fn new(
        cid: u16,
        action: Action,
        namespace: Option<Arc<Namespace>>,
        offset: u64,
        length: u64,
    ) -> Self {
        let (underway, behind) = (None, None);
        Self {
            cid,
            action,
            namespace,
            offset,
            length,
            underway,
            behind,
            tag: 0,
        }
    }

    /// A task that begins when a barrier has passed.
    pub(crate) fn behind(barrier: Barrier, cid: u16, action: Action) -> Self {
        Self {
            behind: Some(barrier),
            ..Self::new(cid, action, None, 0, 0)
        }
    }

    /// The task of a command that is counted.
    #[must_use]
    pub(crate) fn counted(self, underway: Counted) -> Self {
        Self {
            underway: Some(underway),
            ..self
        }
    }

    /// The result of a task that was not executed.
    pub(super) fn failed(self, status: Status) -> Finished {
        let first_of_pair = match self.action {
            Action::CompareAndWrite { first_cid, .. } => Some((first_cid, status)),
            _ => None,
        };
        let lent = matches!(self.action, Action::Lend).then(Lent::default);
        let length = if lent.is_some() {
            self.length as usize
        } else {
            0
        };
        Finished {
            first_of_pair,
            lent,
            length,
            ..Finished::without_data(self.cid, self.tag, status, self.underway)
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub struct Finished {
    /// The identifier of the command (CID).
    pub cid: u16,
    /// The status of the completion.
    pub status: Status,
    /// CID and status of the first command of a fused pair.
    pub first_of_pair: Option<(u16, Status)>,
    /// The buffer of the task, with the data that were read at its start.
    pub buffer: Option<Buffer>,
    /// Data for the host in the memory of the store, instead of in a buffer.
    pub lent: Option<Lent>,
    /// The number of bytes for the host, in the buffer or lent.
    pub length: usize,
    /// An identifier that the transport chose for the command.
    pub tag: u32,
    /// Counts the command until its completion is queued.
    pub(super) _underway: Option<Counted>,
}

impl Finished {
    /// The result of a task that has neither a buffer nor data for the host.
    pub(super) fn without_data(
        cid: u16,
        tag: u32,
        status: Status,
        underway: Option<Counted>,
    ) -> Self {
        Self {
            cid,
            status,
            first_of_pair: None,
            buffer: None,
            lent: None,
            length: 0,
            tag,
            _underway: underway,
        }
    }
}
