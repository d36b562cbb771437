//! Notification of changes to interfaces and their addresses (netlink).

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A socket that becomes readable when the interfaces of this network namespace change.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Opens the socket.
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`: a sandbox may forbid netlink. Changes are not noticed then.
    pub fn new() -> io::Result<Self> {
        sys::watch::open().map(Self)
    }

    /// The descriptor, to wait for.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether something changed since the last call; [`crate::interface::interfaces`] lists the current
    /// state.
    pub fn has_changes(&self) -> bool {
        sys::watch::drain(self.raw())
    }
}
