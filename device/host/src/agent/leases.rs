//! The ranges of queue pair numbers that a device has from the agent.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Connections to the agent, one for each range of queue pair numbers: the agent takes a range back when its
/// connection closes. None in the child of a fork.
#[derive(Debug)]
pub(crate) struct Leases(Vec<OwnedFd>);

impl Leases {
    pub(crate) fn new(connection: OwnedFd) -> Self {
        Self(vec![connection])
    }

    /// Adds the connection of a further range.
    pub(crate) fn add(&mut self, connection: OwnedFd) {
        self.0.push(connection);
    }

    /// The connection for requests; none in the child of a fork.
    pub(crate) fn connection(&self) -> Option<RawFd> {
        self.0.first().map(AsRawFd::as_raw_fd)
    }

    /// Closes the connections in the child of a fork: the ranges are the parent's.
    pub(crate) fn sever(&mut self) {
        self.0.clear();
    }

    /// Whether the ranges belong to the parent of a fork.
    pub(crate) fn is_severed(&self) -> bool {
        self.0.is_empty()
    }
}
