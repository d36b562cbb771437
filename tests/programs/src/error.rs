//! What keeps a test from being made. A program that fails is no error: it is a [`crate::Finished`].

use std::io;
use std::path::PathBuf;

/// Why a place or a program could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not there, or may not run.
    #[error("cannot start {program}: {source} (scripts/packages.sh installs what the tests use)")]
    Start {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program that prepares a test failed.
    #[error("{command} failed: {output}")]
    Failed {
        /// The program with its arguments.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A file of a test cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A guest does not answer any more, or never did.
    #[error("the guest {name} is gone; its console says:\n{console}")]
    GuestGone {
        /// Which.
        name: String,
        /// The end of what the kernel printed.
        console: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s:\n{output}")]
    TooLate {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// What was printed until then.
        output: String,
    },
}

impl Error {
    /// For `map_err` where a file is touched.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
