//! Calls on files that the standard library does not have.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What becomes of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// It reads as zeros and takes no room.
    Deallocate,
    /// It reads as zeros, and its room is kept.
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
/// As `fallocate`: `EOPNOTSUPP` where the file system cannot.
pub fn clear(file: &File, clear: Clear, offset: u64, length: u64) -> io::Result<()> {
    let range = i64::try_from(offset).and_then(|offset| Ok((offset, i64::try_from(length)?)));
    let (offset, length) = range.map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `file` is borrowed; the rest are numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode(clear), offset, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The flag of `open` that keeps the page cache out.
pub const O_DIRECT: i32 = libc::O_DIRECT;

/// The errors of a file that has no room left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}
