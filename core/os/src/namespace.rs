//! Namespaces and mounts of this process.

use crate::checked;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Moves this process to namespaces of its own (`CLONE_NEWNET` and others; unshare(2)).
///
/// # Errors
/// Those of the system call: `EPERM` without the right to, `EINVAL` for some of them in a process with more
/// than one thread.
pub fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: a number only.
    checked(unsafe { libc::unshare(namespaces) }).map(drop)
}

/// What mount(2) is called with, besides the target.
#[derive(Clone, Copy, Debug)]
pub struct Mount<'a> {
    /// The source: a folder, a file, or a name.
    pub source: &'a OsStr,
    /// The kind of a new file system, empty where none is made.
    pub file_system: &'a str,
    /// `MS_BIND` and others.
    pub flags: libc::c_ulong,
    /// Options of the file system.
    pub options: &'a str,
}

/// Calls mount(2) for a target.
///
/// # Errors
/// Those of the system call; `InvalidInput` for texts with a zero byte.
pub fn mount(target: &Path, what: Mount<'_>) -> io::Result<()> {
    let source = CString::new(what.source.as_bytes())?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    let file_system = CString::new(what.file_system)?;
    let options = CString::new(what.options)?;
    // SAFETY: all of them end with a zero, and live until the call returns.
    checked(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            file_system.as_ptr(),
            what.flags,
            options.as_ptr().cast(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_a_zero_byte_are_refused_before_the_call() {
        fn bind(source: &str) -> Mount<'_> {
            Mount {
                source: OsStr::new(source),
                file_system: "",
                flags: libc::MS_BIND,
                options: "",
            }
        }
        let kind = |it: io::Result<()>| it.unwrap_err().kind();
        let missing = Path::new("/proc/self/no such target");
        assert_eq!(
            kind(mount(missing, bind("a\0b"))),
            io::ErrorKind::InvalidInput
        );
        assert!(mount(missing, bind("/")).is_err());
    }
}
