//! Namespaces and mounts.

use super::interface::Interfaces;
use os::checked;
use os::namespace::unshare;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// Moves this process, which has one thread, to a user namespace of its own, as the same user and group.
///
/// # Errors
/// When the kernel or its administrator allows none.
pub fn own_user_namespace() -> io::Result<()> {
    let (user, group) = (os::user(), os::group());
    unshare(libc::CLONE_NEWUSER)?;
    // user_namespaces(7): an ordinary user can map groups only where they cannot be dropped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Moves this process, which has one thread, to a network namespace of its own, whose loopback interface is
/// up: with its own rights, or as the same user and group in a new user namespace.
///
/// # Errors
/// When the kernel or its administrator allows neither.
pub fn own_network() -> io::Result<()> {
    let own = || unshare(libc::CLONE_NEWNET);
    own().or_else(|_| own_user_namespace().and_then(|()| own()))?;
    Interfaces::new()?.up("lo")
}

/// Moves this process to network, UTS, IPC and mount namespaces of its own.
pub(crate) fn own_host_namespaces() -> io::Result<()> {
    let flags = libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    unshare(flags)
}

/// Moves this process to the namespace of a descriptor; a PID namespace takes its next child.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: numbers only.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), 0) }).map(drop)
}

/// Sets the name of the host.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: a string and its length.
    checked(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// The kind of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mount {
    /// A new file system.
    New(&'static str),
    /// A bind mount.
    Bind,
    /// No mounts made here appear elsewhere.
    Private,
}

/// Mounts a file system or a file for this mount namespace.
pub(crate) fn mount(source: &Path, target: &Path, what: Mount) -> io::Result<()> {
    let (file_system, flags) = match what {
        Mount::New(kind) => (kind, libc::MS_NOSUID | libc::MS_NODEV),
        Mount::Bind => ("", libc::MS_BIND),
        Mount::Private => ("", libc::MS_PRIVATE | libc::MS_REC),
    };
    let what = os::namespace::Mount {
        source: source.as_os_str(),
        file_system,
        flags,
        options: "",
    };
    os::namespace::mount(target, what)
}
