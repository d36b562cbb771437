//! The environment, as far as it can be trusted, and standard error.

use std::ffi::OsString;
use std::io;

/// A variable of the environment. In a program that runs with more rights than the user who started it
/// (set-user-ID, file capabilities) that user's variables are ignored, as `secure_getenv(3)` does: they would
/// name files to write (`ROCKERY_PCAP`), for example.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    if has_more_rights() {
        None
    } else {
        std::env::var_os(name)
    }
}

/// The names of the variables that begin with `prefix`; none in a program with more rights than its user.
pub(crate) fn names_beginning_with(prefix: &str) -> Vec<String> {
    if has_more_rights() {
        return Vec::new();
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn has_more_rights() -> bool {
    // SAFETY: reads what the kernel told the program at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Writes bytes to standard error with one call. The standard library's lock of it is not taken: a forked
/// child could find it taken by a thread that the child does not have.
pub(crate) fn write_to_standard_error(bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the call reads as many bytes as the slice has.
    let written = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    if written < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
