//! Variables of the environment, for all libraries that programs load. No other place of them reads one
//! (`testing/tidy/src/rules/environment.rs`).
//!
//! A program with more rights than the user who started it (set-user-ID, file capabilities) ignores that
//! user's variables, as `secure_getenv(3)` does: they would name files that it writes with its rights.

use core::ffi::CStr;
use std::ffi::OsString;

/// The value of a variable; `None` in a program with more rights than its user.
pub fn variable(name: &str) -> Option<OsString> {
    if has_more_rights() {
        None
    } else {
        std::env::var_os(name)
    }
}

/// Calls `use_value` with the value of a variable, without allocating or locking: for libraries that read it
/// before the program can change its environment. `None` without the variable, and in a program with more
/// rights than its user.
pub fn with_value<T>(name: &CStr, use_value: impl FnOnce(&CStr) -> T) -> Option<T> {
    if has_more_rights() {
        return None;
    }
    // SAFETY: the name ends with a zero.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: values end with a zero, and nothing changes this one while the function runs.
    Some(use_value(unsafe { CStr::from_ptr(value) }))
}

/// The names of the variables that begin with `prefix`; none in a program with more rights than its user.
pub fn names_beginning_with(prefix: &str) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Set-user-ID programs are tried in `testing/programs/tests/device/features.rs`.
    #[test]
    fn a_program_with_the_rights_of_its_user_reads_its_variables() {
        let path = variable("PATH").unwrap();
        let read = with_value(c"PATH", |value| value.to_bytes().to_vec()).unwrap();
        assert_eq!(read, path.as_encoded_bytes());
        assert!(names_beginning_with("PAT").contains(&"PATH".to_owned()));
        assert_eq!(variable("ROCKERY_TEST_NO_SUCH_VARIABLE"), None);
        assert_eq!(with_value(c"ROCKERY_TEST_NO_SUCH_VARIABLE", |_| ()), None);
    }
}
