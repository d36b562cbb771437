//! Lines of a vendor's configuration that are not understood.

/// Why a vendor's configuration was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {what}{}", .instead.as_ref().map(|text| format!("; {text}")).unwrap_or_default())]
pub struct ImportError {
    /// The file's name.
    pub file: String,
    /// The line's number, from 1.
    pub line: usize,
    /// The part that is not understood, and why.
    pub what: String,
    /// The text to write instead, where one is known.
    pub instead: Option<String>,
}
