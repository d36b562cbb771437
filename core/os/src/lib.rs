//! Interfaces of Linux that several crates use and the standard library does not have, behind safe functions.
//! What one crate alone calls is in the folder `sys` of that crate.
//!
//! The C libraries are loaded into programs whose calls a preloaded library may replace, so what they use of
//! this crate allocates nothing and takes no lock.
//!
//! Everything that touches an operating system stands on this crate, so the processors that rockery is not
//! for are refused here, before the assembly of other crates is missed.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "rockery is for x86-64 and 64-bit ARM: its C libraries, its copies of other processes' memory and its \
     waits have assembly of these processors, and none of this one"
);

#[cfg(target_endian = "big")]
compile_error!(
    "rockery is for little-endian processors: what processes share in memory, and the devices' journals, are \
     little-endian"
);

pub mod epoll;
pub mod event_counter;
pub mod interface;
pub mod mapping;
pub mod memory_file;
pub mod namespace;
pub mod page;
pub mod sealed_table;
pub mod wait;
pub mod write_signals;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The result of a system call that returns -1 on failure.
///
/// # Errors
/// That of the call, from `errno`.
pub fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The descriptor that a system call has made.
///
/// # Errors
/// That of the call, from `errno`.
///
/// # Safety
/// `result` is what a call has returned that makes a descriptor, and nothing else owns it.
pub unsafe fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: a new descriptor, as the caller promises.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The effective user ID of this process.
pub fn user() -> u32 {
    // SAFETY: no arguments, and no failure.
    unsafe { libc::geteuid() }
}

/// The effective group ID of this process.
pub fn group() -> u32 {
    // SAFETY: no arguments, and no failure.
    unsafe { libc::getegid() }
}
