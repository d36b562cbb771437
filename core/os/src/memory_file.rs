//! Files in memory that processes share (`memfd_create(2)`), and their seals.

use crate::write_signals::without_signals;
use crate::{checked, owned};
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Makes an empty file that no process can seal.
///
/// # Errors
/// Those of the system call.
pub fn unsealable(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: a name that lives until the call returns; the call makes a descriptor.
    unsafe { owned(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) }
}

/// Makes a file of so many bytes, all zero, that can be sealed.
///
/// # Errors
/// Those of the system calls: `EFBIG` beyond the process's limit of file sizes.
pub fn sealable(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that lives until the call returns; the call makes a descriptor.
    let file = unsafe { owned(libc::memfd_create(name.as_ptr(), flags)) }?;
    set_length(&file, bytes)?;
    Ok(file)
}

/// Sets the length of a file; a length beyond the process's limit is an error, and no signal.
///
/// # Errors
/// Those of the system call.
pub fn set_length(file: &impl AsFd, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: numbers only.
    without_signals(|| checked(unsafe { libc::ftruncate(fd, bytes) })).map(drop)
}

/// Adds seals (`F_SEAL_SHRINK` and others).
///
/// # Errors
/// Those of the system call: `EPERM` for a file that no process can seal.
pub fn seal(file: &impl AsFd, seals: libc::c_int) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: numbers only.
    checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Checks that a file has at least these seals, and this length.
///
/// # Errors
/// `InvalidData` if it has not; those of the system calls, as for a file that can have no seals.
pub fn check(file: &impl AsFd, seals: libc::c_int, bytes: u64) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: all zeros is a valid value, and there is room for one.
    let (found, length) = unsafe {
        let mut stat: libc::stat = zeroed();
        let found = checked(libc::fcntl(fd, libc::F_GET_SEALS))?;
        checked(libc::fstat(fd, &mut stat))?;
        (found, stat.st_size)
    };
    if found & seals == seals && u64::try_from(length) == Ok(bytes) {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

    #[test]
    fn seals_and_length_are_checked() {
        let file = sealable(c"test", 4096).unwrap();
        let kind = |bytes| check(&file, SEALS, bytes).map_err(|error| error.kind());
        assert_eq!(kind(4096), Err(io::ErrorKind::InvalidData));
        seal(&file, SEALS).unwrap();
        assert_eq!(kind(4096), Ok(()));
        assert_eq!(kind(8192), Err(io::ErrorKind::InvalidData));
        assert!(set_length(&file, 8192).is_err() && set_length(&file, 0).is_err());
        assert!(set_length(&file, u64::MAX).is_err());
        assert!(check(&File::open("/proc/self/exe").unwrap(), 0, 0).is_err());
    }

    #[test]
    fn an_unsealable_file_takes_no_seal() {
        let file = unsealable(c"test").unwrap();
        let refused = seal(&file, SEALS).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        set_length(&file, 4096).unwrap();
    }
}
