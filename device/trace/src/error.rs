//! Why a file is no trace.

/// Why a file is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// It does not begin as a trace.
    #[error("this is no trace: it does not begin as `rockery run --trace` writes it")]
    NoTrace,
    /// It was written by another version of rockery.
    #[error(
        "a trace in another format: this program reads version {}; read it with the rockery that wrote it",
        crate::layout::VERSION
    )]
    Version,
}
