//! Listeners at abstract names. No call on them or on their connections waits, because one thread serves all.

use link::unix;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 128;

/// Listens; `EADDRINUSE` when another process does.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let socket = unix::listen(name, BACKLOG)?;
    unix::set_nonblocking(socket.as_raw_fd())?;
    Ok(socket)
}

/// Accepts a connection.
pub(crate) fn accept(listener: RawFd) -> io::Result<OwnedFd> {
    let socket = unix::accept(listener)?;
    unix::set_nonblocking(socket.as_raw_fd())?;
    Ok(socket)
}
