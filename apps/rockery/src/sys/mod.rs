//! System calls that std does not have.

pub(crate) mod datagrams;
mod frames;

pub(crate) use command::sys::{EndSignals, Pidfd, end_by_a_broken_pipe};
pub(crate) use frames::listen_for_lldp;

use os::checked;
use os::namespace::unshare;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// The source of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mount {
    /// A new file system in memory.
    Memory,
    /// A bind mount of a folder, with all mounts below it.
    Bind,
    /// No source: sets the propagation, so that mounts made elsewhere appear here, and not the other way
    /// round.
    Receive,
}

impl Mount {
    const fn flags(self) -> libc::c_ulong {
        match self {
            Self::Memory => libc::MS_NOSUID,
            Self::Bind => libc::MS_BIND | libc::MS_REC,
            Self::Receive => libc::MS_SLAVE | libc::MS_REC,
        }
    }
}

/// Moves this process to a mount namespace in which it may mount: with its own rights, or as the same user
/// and group in a new user namespace.
///
/// # Errors
/// When the kernel or its administrator allows neither.
pub(crate) fn own_mounts() -> io::Result<()> {
    if unshare(libc::CLONE_NEWNS).is_err() {
        ::lab::own_user_namespace()?;
        unshare(libc::CLONE_NEWNS)?;
    }
    mount("none", Path::new("/"), None, Mount::Receive, "")
}

/// Calls mount(2) for a target.
///
/// # Errors
/// As the kernel gives them.
pub(crate) fn mount(
    source: impl AsRef<OsStr>,
    target: &Path,
    file_system: Option<&str>,
    what: Mount,
    options: &str,
) -> io::Result<()> {
    let what = os::namespace::Mount {
        source: source.as_ref(),
        file_system: file_system.unwrap_or_default(),
        flags: what.flags(),
        options,
    };
    os::namespace::mount(target, what)
}

/// The bytes of a mapped file. Another process that changes the file meanwhile changes bytes, which readers
/// of traces take as they come; one that truncates it ends this process by SIGBUS.
pub(crate) fn bytes(mapping: &os::mapping::Mapping) -> &[u8] {
    // SAFETY: mapped as long as the mapping lives; a trace only grows, and its records are published whole.
    unsafe { std::slice::from_raw_parts(mapping.start().as_ptr(), mapping.length()) }
}

/// Limits the address space of this process to so many bytes. An allocation beyond it ends the process, which
/// leaves no core file.
///
/// # Errors
/// When the hard limit is lower.
pub(crate) fn limit_memory(bytes: u64) -> io::Result<()> {
    for (resource, most) in [(libc::RLIMIT_AS, bytes), (libc::RLIMIT_CORE, 0)] {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a structure that lives until the call returns.
        checked(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    }
    Ok(())
}

/// Raises the soft limit of descriptors to the hard limit: shells set a thousand, which is fewer than a
/// server has connections. An error leaves the limit as it is.
pub(crate) fn allow_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a structure that lives until the calls return.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
