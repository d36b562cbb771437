//! Hearing of changes to interfaces and their addresses.

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Becomes readable when something about this network namespace's interfaces changes.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Begins to listen.
    ///
    /// # Errors
    /// What `socket(2)` and `bind(2)` say: a sandbox may forbid netlink. Changes are then not heard of.
    pub fn new() -> io::Result<Self> {
        sys::watch::open().map(Self)
    }

    /// The descriptor.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether something changed since the last call. What, [`crate::interface::interfaces`] tells.
    pub fn has_changes(&self) -> bool {
        sys::watch::drain(self.raw())
    }
}
