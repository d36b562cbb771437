//! The credentials of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The credentials of a process at the time when it called `connect` or `listen` (`SO_PEERCRED`, unix(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process ID; 0 for a process outside this PID namespace.
    pub process: u32,
    /// The effective user ID; 65534 for a user outside this user namespace.
    pub user: u32,
}

impl Peer {
    /// Whether the process has the same effective user ID as this process, or is root.
    pub fn is_trusted(&self) -> bool {
        self.user == os::user() || self.user == 0
    }
}

/// The credentials of the process at the other end.
///
/// # Errors
/// The error of `getsockopt`.
pub(crate) fn of(stream: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open while `stream` is borrowed; the kernel writes at most `length` bytes to
    // `found`, which has as many.
    let result = unsafe {
        let place = (&raw mut found).cast();
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            place,
            &mut length,
        )
    };
    match result {
        0 => Ok(Peer {
            process: u32::try_from(found.pid).unwrap_or(0),
            user: found.uid,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}
