//! Secrets on a command line: themselves, which other users of this machine may see, or the file that has
//! them.

use std::path::Path;
use std::str::FromStr;

/// A value that was given as text, or as `@FILE`.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T> {
    /// What it is.
    pub(crate) value: T,
    /// As it was given; the file with its whole path.
    pub(crate) text: String,
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for Kept<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else {
            let value = text.parse().map_err(|error: T::Err| error.to_string())?;
            return Ok(Self { value, text: text.to_owned() });
        };
        let found = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let value = found.trim().parse().map_err(|error: T::Err| format!("{path}: {error}"))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| Path::new(path).to_owned());
        Ok(Self { value, text: format!("@{}", path.display()) })
    }
}
