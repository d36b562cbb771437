//! Errors, each with a remedy, in one line.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use command::runtime::FolderError;

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command is neither named nor found.
    #[error(
        "no command rockery in the folder of {0}, nor on PATH: install rockery (make install), or name the \
         command with --rockery PATH"
    )]
    NoRockery(PathBuf),
    /// No file of that name, neither here nor on the path.
    #[error("{0}: no such program; is it installed, and on PATH?")]
    NoSuchProgram(String),
    /// A file that may not run.
    #[error("{0} may not be executed: chmod +x, if it is a program")]
    NotExecutable(PathBuf),
    /// Neither root nor user namespaces.
    #[error("this system allows no network namespace: {0}")]
    NoNamespace(io::Error),
    /// A measurement without results.
    #[error("{0}: nothing could be measured; the errors of target and host are printed above")]
    NothingMeasured(&'static str),
    /// A measuring program that failed, or printed too few figures.
    #[error(
        "{what}: figures of {found} of {jobs} jobs, {status}; the measuring program's last message: {said}"
    )]
    Incomplete {
        /// The name of what is measured.
        what: &'static str,
        /// Jobs with figures.
        found: usize,
        /// Jobs that were ordered.
        jobs: usize,
        /// The exit status of the measuring program.
        status: ExitStatus,
        /// The last line of its standard error.
        said: String,
    },
    /// The distribution's Samba did not start.
    #[error("smbd does not listen; its log says: {0}")]
    NoSamba(String),
    /// Two network namespaces could not be connected.
    #[error(
        "this user may make no network namespaces: leave out the transports that need two, or use \
         unshare --user --map-root-user"
    )]
    NoPair,
    /// The shared file would overwrite another one.
    #[error("{0}: this file exists, and would be overwritten: choose another folder, or remove it")]
    Exists(PathBuf),
    /// Standard output is a pipe that no process reads any more.
    #[error("standard output is closed")]
    OutputClosed,
    /// A file or folder could not be used.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
}

impl From<FolderError> for Error {
    fn from(error: FolderError) -> Self {
        let FolderError { path, source } = error;
        Self::File { path, source }
    }
}

impl Error {
    /// For `map_err` where a file is touched.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// The exit status: as shells and env(1) give it when a program cannot be started, and that of `rockery`
    /// for other errors.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::NoRockery(_) | Self::NoSuchProgram(_) => 127,
            Self::NotExecutable(_) => 126,
            _ => 125,
        }
    }
}
