//! Errors of the harness. A program that fails is not an error but a [`crate::Finished`].

use std::io;
use std::path::PathBuf;

/// Why a namespace, a guest or a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not there, or may not run.
    #[error("cannot start {program}: {source} (scripts/packages.sh installs what the tests use)")]
    Start {
        /// Its path or name.
        program: String,
        /// The error of the operation.
        source: io::Error,
    },
    /// A program that prepares a test failed.
    #[error("{command} failed: {output}")]
    Failed {
        /// The program with its arguments.
        command: String,
        /// The output of the program.
        output: String,
    },
    /// A file of a test cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Its path or name.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
    /// A guest does not answer any more, or never did.
    #[error("the guest {name} is gone; its console says:\n{console}")]
    GuestGone {
        /// Its path or name.
        name: String,
        /// The end of what the kernel printed.
        console: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s:\n{output}")]
    TooLate {
        /// The event that was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// The output until then.
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
