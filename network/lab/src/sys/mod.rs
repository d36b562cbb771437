//! All unsafe code of this crate: system calls.

pub(crate) mod epoll;
pub(crate) mod interface;
pub(crate) mod namespace;
pub(crate) mod process;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The result of a system call that returns -1 on failure.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A new descriptor that a system call has returned.
fn owned(result: i32) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
