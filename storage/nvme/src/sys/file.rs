//! System calls on files that the standard library does not have.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// How a range is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// The range is deallocated, and reads as zeros.
    Deallocate,
    /// The range reads as zeros, and stays allocated.
    Zero,
}

/// The mode of `fallocate` that does it.
pub(crate) const fn mode(clear: Clear) -> i32 {
    match clear {
        Clear::Deallocate => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        Clear::Zero => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    }
}

/// Clears a range of a file or block device.
///
/// # Errors
/// The error of `fallocate`: `EOPNOTSUPP` where the file system cannot do it.
pub fn clear(file: &File, clear: Clear, offset: u64, length: u64) -> io::Result<()> {
    let range = i64::try_from(offset).and_then(|offset| Ok((offset, i64::try_from(length)?)));
    let (offset, length) = range.map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `file` is borrowed; the rest are numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode(clear), offset, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Clears `O_NONBLOCK`: with the flag, io_uring completes operations that would wait with `EAGAIN`.
///
/// # Errors
/// The error of `fcntl`.
pub(crate) fn set_blocking(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed; the rest are numbers.
    let result = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK),
        }
    };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The flag of `open` for direct I/O.
pub const O_DIRECT: i32 = libc::O_DIRECT;

/// Whether an error means that the file system or a quota is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    )
}

/// The identifier of the file system of a file (`f_fsid`); 0 where the file system has none.
///
/// # Errors
/// The error of `fstatvfs`.
pub(crate) fn file_system_id(file: &File) -> io::Result<u64> {
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` has room for the structure.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) } {
        // SAFETY: the call has succeeded, so that the structure is filled.
        0 => Ok(unsafe { found.assume_init() }.f_fsid),
        _ => Err(io::Error::last_os_error()),
    }
}
