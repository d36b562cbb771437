//! What an executed operation counts as: its status, the counters of the namespace, and the latency.

use std::io;
use std::sync::atomic::Ordering;

use wire::nvme::Status;

use crate::controller::Namespace;
use crate::latency::{Class, Observer};
use crate::sys::file::is_full;

/// The completion status for the result of a read.
pub(super) fn status_of_read(result: &io::Result<()>) -> Status {
    status_of(result, Status::UNRECOVERED_READ)
}

/// The completion status for the result of a write, or of a flush.
pub(super) fn status_of_write(result: &io::Result<()>) -> Status {
    status_of(result, Status::WRITE_FAULT)
}

fn status_of(result: &io::Result<()>, fault: Status) -> Status {
    match result {
        Ok(()) => Status::SUCCESS,
        Err(error) if is_full(error) => Status::CAPACITY_EXCEEDED.permanent(),
        Err(_) => fault,
    }
}

/// An operation on one namespace that has ended.
pub(super) struct Executed {
    pub(super) class: Class,
    pub(super) bytes: usize,
    pub(super) status: Status,
    /// When the operation began, in nanoseconds.
    pub(super) began_ns: u64,
}

impl Executed {
    /// Adds the operation to the counters and to the latencies of its namespace.
    pub(super) fn count(&self, namespace: &Namespace, observer: &mut Observer) {
        let counters = &namespace.counters;
        let (commands, bytes) = match self.class {
            Class::Other => (&counters.others, None),
            Class::Read => (&counters.reads, Some(&counters.read_bytes)),
            Class::Write => (&counters.writes, Some(&counters.written_bytes)),
        };
        commands.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            bytes.fetch_add(self.bytes as u64, Ordering::Relaxed);
        }
        if !self.status.is_success() {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        observer.ended(namespace.observed(), self.class, self.began_ns);
    }
}
