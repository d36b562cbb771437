//! A value on a command line, or the file that has it: other users of this machine may see the arguments of a
//! process, and not a file of mode 0600.

use std::path::Path;
use std::str::FromStr;

/// A value that was given as text, or as `@FILE`.
#[derive(Clone, Debug)]
pub(crate) struct ValueOrFile<T> {
    /// The value, parsed from the text or from the content of the file.
    pub(crate) value: T,
    /// The argument as it was given; a file with its absolute path.
    pub(crate) text: String,
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for ValueOrFile<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else {
            let value = text.parse().map_err(|error: T::Err| error.to_string())?;
            return Ok(Self {
                value,
                text: text.to_owned(),
            });
        };
        let found =
            ::sim::input::read_text(path.as_ref()).map_err(|error| format!("{path}: {error}"))?;
        let value = found
            .trim()
            .parse()
            .map_err(|error: T::Err| format!("{path}: {error}"))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| Path::new(path).to_owned());
        Ok(Self {
            value,
            text: format!("@{}", path.display()),
        })
    }
}
