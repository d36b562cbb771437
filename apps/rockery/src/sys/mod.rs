//! System calls that std does not have.

pub(crate) mod datagrams;
mod frames;

pub(crate) use command::sys::{EndSignals, Pidfd, end_by_a_broken_pipe, user};
pub(crate) use frames::listen_for_lldp;

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

fn group() -> u32 {
    // SAFETY: no arguments, and no failure.
    unsafe { libc::getegid() }
}

/// Moves this process to a mount namespace in which it may mount: with its own rights, or as the same user
/// and group in a new user namespace.
///
/// # Errors
/// When the kernel or its administrator allows neither.
pub(crate) fn own_mounts() -> io::Result<()> {
    unshare_as_the_same_user(libc::CLONE_NEWNS)?;
    mount("none", Path::new("/"), None, Mount::Receive, "")
}

/// Moves this process to a network namespace of its own, whose loopback interface is up: with its own rights,
/// or as the same user and group in a new user namespace.
///
/// # Errors
/// When the kernel or its administrator allows neither.
pub(crate) fn own_network() -> io::Result<()> {
    unshare_as_the_same_user(libc::CLONE_NEWNET)?;
    // SAFETY: no pointers; the descriptor is new, and nothing else owns it.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = request.ifr_name.iter_mut().zip(b"lo");
    name.for_each(|(place, byte)| *place = *byte as libc::c_char);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING) as i16;
    // SAFETY: a request that lives until the call returns.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    })
}

/// Moves this process to new namespaces: with its own rights, or as the same user and group in a new user
/// namespace.
fn unshare_as_the_same_user(namespaces: libc::c_int) -> io::Result<()> {
    if unshare(namespaces).is_ok() {
        return Ok(());
    }
    let (user, group) = (user(), group());
    unshare(namespaces | libc::CLONE_NEWUSER)?;
    // user_namespaces(7): groups can be mapped by an ordinary user only where they cannot be dropped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: numbers only. This process has one thread.
    checked(unsafe { libc::unshare(flags) })
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
    let source = CString::new(source.as_ref().as_bytes())?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    let file_system = CString::new(file_system.unwrap_or_default())?;
    let options = CString::new(options)?;
    // SAFETY: all of them end with a zero, and live until the call returns.
    checked(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            file_system.as_ptr(),
            what.flags(),
            options.as_ptr().cast(),
        )
    })
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

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
