//! What is wrong, and what to do, in one line.

use std::io;
use std::path::PathBuf;

/// Why rockery did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No file of that name, neither here nor on the path.
    #[error("{0}: no such program; is it installed, and on PATH?")]
    NoSuchProgram(String),
    /// A file that may not run.
    #[error("{0} may not be executed: chmod +x, if it is a program")]
    NotExecutable(PathBuf),
    /// The kernel ignores our variables for it, for good reason.
    #[error("{0} is setuid or setgid, and such programs ignore LD_LIBRARY_PATH: run a copy without that bit")]
    Privileged(PathBuf),
    /// There is no dynamic linker in it that would load our library.
    #[error("{0} is statically linked, so it holds its own libibverbs: build it with dynamic linking")]
    Static(PathBuf),
    /// Made for another processor.
    #[error(
        "{path} is a program for {theirs}, and this rockery is for {ours}: use one of the same architecture"
    )]
    Architecture {
        /// The program.
        path: PathBuf,
        /// Its architecture.
        theirs: String,
        /// Ours.
        ours: &'static str,
    },
    /// No interface has this name or address.
    #[error("no device is called {name}, and no interface that is up has that address; there are: {there}")]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// The devices that there are.
        there: String,
    },
    /// Half an installation.
    #[error("{library} is missing in {looked}: install it again (make install), or build it (cargo build)")]
    NoLibrary {
        /// The library's name.
        library: &'static str,
        /// Where it was looked for.
        looked: String,
    },
    /// A variable's value has a character that a shell or the loader would misunderstand.
    #[error("{0}: the dynamic linker takes no path with a colon, a space or a quote: move it elsewhere")]
    BadPath(PathBuf),
    /// Neither root nor user namespaces.
    #[error("this system allows no mount namespace ({0}): use --view preload")]
    NoNamespace(io::Error),
    /// A shell that is there already cannot be moved.
    #[error("a shell cannot be given a view by its variables: rockery run --view namespace -- bash")]
    ViewNeedsRun,
    /// Nobody tells who listens.
    #[error("cannot tell who listens: {0}")]
    Listeners(#[source] host::OpenError),
    /// Storage cannot be served so.
    #[error(transparent)]
    Serve(#[from] ::nvme::serve::ServeError),
    /// A server could not be told something.
    #[error(transparent)]
    Control(#[from] ::nvme::serve::ControlError),
    /// A target of NVMe over Fabrics.
    #[error(transparent)]
    Host(#[from] ::nvme::host::HostError),
    /// An NBD client.
    #[error(transparent)]
    Nbd(#[from] ::nvme::nbd::NbdError),
    /// A name that is taken.
    #[error("{0} is connected already: choose another --name, or rockery nvme disconnect {0}")]
    Connected(String),
    /// The export did not start.
    #[error("it could not be connected; the reason stands above")]
    NotConnected,
    /// No connection of this name.
    #[error("nothing is connected as {0}: rockery nvme list")]
    NoSuchConnection(String),
    /// A measurement that did not take place.
    #[error("{0}: nothing could be measured; what target or host said about it stands above")]
    NothingMeasured(&'static str),
    /// A name that leads nowhere.
    #[error("{0} is no address: write HOST:PORT, as in server:4420")]
    NoSuchHost(String),
    /// Nothing to serve.
    #[error("say what to serve: a file, a block device, --memory SIZE or --config FILE")]
    NothingToServe,
    /// A fabric file with mistakes.
    #[error("{0}")]
    Fabric(#[from] fabric::file::FileError),
    /// What the file describes does not fit together.
    #[error("{0}")]
    Scenario(#[from] ::sim::world::ScenarioError),
    /// No port has this name.
    #[error("no port is called {name}; there are: {there}")]
    NoSuchPort {
        /// What was asked for.
        name: String,
        /// Some that there are.
        there: String,
    },
    /// A sweep with too many runs.
    #[error("the sweep has {0} runs, and {max} are allowed: leave out some \
        values", max = fabric::file::RUNS_MAX)]
    SweepTooLarge(usize),
    /// No such run in the sweep.
    #[error("there is no run {wanted}: the sweep has {count}, counted from 0")]
    NoSuchPoint {
        /// What was asked for.
        wanted: usize,
        /// How many there are.
        count: usize,
    },
    /// Captures are of one run.
    #[error("--pcap and --html are for one run: choose one of the sweep with --point NUMBER")]
    OneRunOnly,
    /// A Parquet file could not be written.
    #[error("{path}: {source}")]
    Parquet {
        /// Which.
        path: PathBuf,
        /// Why.
        source: parquet::errors::ParquetError,
    },
    /// A file or folder could not be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err` where a file is touched.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// The exit status: as shells and env(1) give it when a program cannot be started.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::NoSuchProgram(_) => 127,
            Self::NotExecutable(_) | Self::Privileged(_) | Self::Static(_) | Self::Architecture { .. } => 126,
            Self::Fabric(_) | Self::Scenario(_) => 1,
            _ => 125,
        }
    }
}
