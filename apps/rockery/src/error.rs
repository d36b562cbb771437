//! Errors, each with a remedy, in one line.

use std::io;
use std::path::PathBuf;

use crate::packages;

/// Why a command of rockery failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No file of that name, neither here nor on the path.
    #[error("{0}: no such program; {advice}", advice = packages::advice(.0))]
    NoSuchProgram(String),
    /// A file that may not run.
    #[error("{0} may not be executed: chmod +x, if it is a program")]
    NotExecutable(PathBuf),
    /// The dynamic linker ignores our variables for programs with set-user-ID or set-group-ID.
    #[error(
        "{0} is setuid or setgid, and such programs ignore LD_LIBRARY_PATH: run a copy without that bit"
    )]
    Privileged(PathBuf),
    /// There is no dynamic linker in it that would load our library.
    #[error(
        "{0} is statically linked, so it holds its own libibverbs: build it with dynamic linking"
    )]
    Static(PathBuf),
    /// Made for another processor.
    #[error(
        "{path} is a program for {theirs}, and this rockery is for {ours}: use one of the same architecture"
    )]
    Architecture {
        /// The path of the program.
        path: PathBuf,
        /// The architecture of the program.
        theirs: String,
        /// The architecture of this binary.
        ours: &'static str,
    },
    /// No interface has this name or address.
    #[error(
        "no device is called {name}, and no interface that is up has that address; there are: {there}"
    )]
    NoSuchDevice {
        /// The name or address that was given.
        name: String,
        /// The devices that there are.
        there: String,
    },
    /// More names than devices.
    #[error("--as is given {wanted} times, and the program has {there} devices: leave out names")]
    TooManyNames {
        /// How many names.
        wanted: usize,
        /// How many devices.
        there: usize,
    },
    /// A name of two devices.
    #[error("two devices would be called {0}: choose another name for --as")]
    NameTwice(String),
    /// A file that would be written over.
    #[error("{0} is there already, and is left as it is: name another folder, or remove it")]
    IsThere(PathBuf),
    /// A fabric file with lists, which are files beside it.
    #[error("flows are lists, which are files of their own: give --out FOLDER")]
    ListsNeedFolder,
    /// A file that cannot be imported.
    #[error(transparent)]
    Import(#[from] imports::ImportError),
    /// An incomplete installation.
    #[error(
        "{library} is missing in {looked}: install it again (make install), or build it (cargo build)"
    )]
    NoLibrary {
        /// The library's name.
        library: &'static str,
        /// Folders that were searched.
        looked: String,
    },
    /// Libraries that cargo built, which are links into its folder.
    #[error(
        "{0} has links to files outside of it, as cargo's builds have: install rockery (make install)"
    )]
    NotInstalled(PathBuf),
    /// An installation without a program that carries out a command.
    #[error(
        "no program {program} in the folder of {own}, nor on PATH: it is part of every package of rockery; \
         install it again (make install), or build it (cargo build -p {package})"
    )]
    NoCompanion {
        /// The name of the program.
        program: &'static str,
        /// The package of cargo that builds it.
        package: &'static str,
        /// The path of this program.
        own: PathBuf,
    },
    /// A variable's value has a character that a shell or the loader would misunderstand.
    #[error(
        "{0}: the dynamic linker takes no path with a colon, a space or a quote: move it elsewhere"
    )]
    BadPath(PathBuf),
    /// Neither root nor user namespaces.
    #[error(
        "--private needs a network namespace, and this system allows none ({0}): call it as root, or \
         allow user namespaces (sysctl user.max_user_namespaces, or \
         kernel.apparmor_restrict_unprivileged_userns); in a chroot the kernel makes none, so use a container"
    )]
    NoNetworkNamespace(io::Error),
    /// A file that is no trace.
    #[error("{0}")]
    NoTrace(#[source] ::trace::TraceError),
    /// A page that runs simulations, at an address that others reach.
    #[error(
        "{0} is not on loopback, and the page has no authentication: choose an address in 127.0.0.0/8 or ::1 \
         and reach it through ssh -L, or show the counters alone with --read-only"
    )]
    NotLoopback(std::net::IpAddr),
    /// A step of the transfer of `rockery check`.
    #[error("no RDMA transfer: {0}")]
    Trial(String),
    /// Neither root nor user namespaces.
    #[error("this system allows no mount namespace ({0}): use --view preload")]
    NoNamespace(io::Error),
    /// A shell that is there already cannot be moved.
    #[error(
        "a shell cannot be given a view by its variables: rockery run --view namespace -- bash"
    )]
    ViewNeedsRun,
    /// A view by preloading without preloading.
    #[error(
        "--view preload needs LD_PRELOAD, which --no-preload leaves out: use --view namespace or none"
    )]
    ViewIsPreloaded,
    /// The clocks of a slow lab without preloading.
    #[error(
        "the clocks of a lab that is slowed down need LD_PRELOAD, which --no-preload leaves out: add \
         --machine-clock to leave the program the machine's clocks"
    )]
    ClockIsPreloaded,
    /// A measurement in which commands failed.
    #[error("{count} commands of the measurements failed, the first with: {first}")]
    CommandsFailed {
        /// The number of failed commands.
        count: u64,
        /// The status of the first failed command.
        first: wire::nvme::Status,
    },
    /// A measurement that writes, without the option that allows it.
    #[error(
        "the job {0} writes, which destroys the content of the namespace: give --destroy to allow it"
    )]
    NeedsDestroy(String),
    /// The agent did not list the listeners.
    #[error("the listeners cannot be listed: {0}")]
    Listeners(#[source] host::OpenError),
    /// The target could not be started.
    #[error(transparent)]
    Serve(#[from] ::nvme::serve::ServeError),
    /// A gateway between SMB Direct and TCP could not be started.
    #[error(transparent)]
    Smb(#[from] ::smb::serve::ServeError),
    /// Another gateway or dial answers commands at this path.
    #[error(
        "{0}: another server listens on this control socket: name another path with --control, or none with \
         --control none"
    )]
    ControlTaken(PathBuf),
    /// A command for one server, and several run.
    #[error("several servers run: name one with --control: {0}")]
    SeveralServers(String),
    /// A command to a running server failed.
    #[error(transparent)]
    Control(#[from] ::server::control::ControlError),
    /// A target of NVMe over Fabrics refused, or could not be reached.
    #[error(transparent)]
    Host(#[from] ::nvme::host::HostError),
    /// The target could not be reached, or closed the connection.
    #[error("the connection to {address} failed: {source}{advice}")]
    Unreachable {
        /// The target as it was named.
        address: String,
        /// The error of the connection.
        source: io::Error,
        /// What to do about it, behind a semicolon.
        advice: &'static str,
    },
    /// No key could be made.
    #[error("no key: {0}")]
    Key(String),
    /// The subsystem was not named, and the discovery service does not say it.
    #[error(
        "{address} does not list its subsystems: {source}; name the subsystem with --subsystem"
    )]
    Discovery {
        /// The target as it was named.
        address: String,
        /// The error of the discovery controller.
        source: ::nvme::host::HostError,
    },
    /// The subsystem was not named, and the target has not exactly one.
    #[error("{address} lists {names}; name the subsystem with --subsystem")]
    Subsystems {
        /// The target as it was named.
        address: String,
        /// How many subsystems it lists, and their names.
        names: String,
    },
    /// One UUID or NGUID for several disks.
    #[error(
        "--uuid and --nguid are of one disk, and {0} files are given: write the uuid of each disk in a file \
         for --config"
    )]
    OneIdentifier(usize),
    /// An export of this name runs already.
    #[error("{0} is connected already: choose another --name, or rockery nvme disconnect {0}")]
    Connected(String),
    /// The export did not start.
    #[error("the export could not be started; the reason is printed above")]
    NotConnected,
    /// No export has this name.
    #[error("no export is called {0}: rockery nvme list shows them")]
    NoSuchConnection(String),
    /// The process of an export did not end in time.
    #[error(
        "{0} is still connected: process {1} was asked to end and did not; kill -KILL {1} ends it"
    )]
    StillConnected(String, u32),
    /// The process of an export has ended, and has not shut down its controllers.
    #[error(
        "{0} is disconnected, but its controllers were not shut down: the target may still execute requests \
         of NBD clients"
    )]
    NotShutDown(String),
    /// A record names another process than the kernel does.
    #[error(
        "process {found} listens on {socket}, but process {recorded} is recorded as the export: neither is \
         ended; end the right one with kill"
    )]
    OtherProcess {
        /// The socket for NBD clients.
        socket: PathBuf,
        /// The process that the record names.
        recorded: u32,
        /// The process that listens; 0 when it is in another PID namespace.
        found: u32,
    },
    /// An address or a host name that cannot be used.
    #[error(transparent)]
    Address(link::address::AddressError),
    /// No namespace was given.
    #[error("say what to serve: a file, a block device, --memory SIZE or --config FILE")]
    NothingToServe,
    /// A fabric file with mistakes.
    #[error("{0}")]
    Fabric(#[from] fabric_file::FileError),
    /// A dialect or version that is not known.
    #[error(transparent)]
    UnknownVersion(#[from] vendors::UnknownVersion),
    /// The fabric file has nothing of this name.
    #[error(transparent)]
    Source(#[from] doctor::SourceError),
    /// A configuration that is not understood.
    #[error(transparent)]
    Configuration(#[from] vendors::ReadError),
    /// An InfiniBand subnet that cannot be read, or contradicts itself.
    #[error(transparent)]
    Subnet(#[from] vendors::infiniband::Unreadable),
    /// An option that simulations of InfiniBand do not have.
    #[error("{0} is not there for InfiniBand yet: leave it out")]
    NotOnInfiniband(&'static str),
    /// The fabric file describes Ethernet, and the command needs an InfiniBand subnet.
    #[error("{0}: the links are Ethernet: set link-layer = \"infiniband\" in [nic.default]")]
    NoInfiniband(PathBuf),
    /// Findings, which are printed already.
    #[error("{0}")]
    Findings(String),
    /// Files of which some could not be read; findings of the others are printed.
    #[error("{0}")]
    Unread(String),
    /// `--before` for other hosts than `--host` has.
    #[error("{0} of --before, and {1} of --host or this host: give an earlier snapshot of each")]
    EarlierSnapshots(usize, usize),
    /// `--diff` of a running configuration without the name of its device.
    #[error("several devices are planned: name the device that {0} is of: --diff NAME={0}")]
    WhoseRunning(String),
    /// Ports of a switch that one configuration cannot express.
    #[error("{0}: {1}; plan these ports in files of their own")]
    GroupsDiffer(String, vendors::GroupsDiffer),
    /// `--diff` for a name that `--for` does not have.
    #[error("nothing is planned for {0}: --for {0}=DIALECT@VERSION")]
    NotPlanned(String),
    /// The parts of the fabric file do not fit together.
    #[error("{0}")]
    Scenario(#[from] ::sim::world::ScenarioError),
    /// A request to the lab has failed.
    #[error(transparent)]
    Lab(#[from] ::lab::LabError),
    /// No port has this name.
    #[error("no port is called {name}; there are: {there}")]
    NoSuchPort {
        /// The name that was given.
        name: String,
        /// Names of some of the ports.
        there: String,
    },
    /// No queue pair has this name, or several.
    #[error(transparent)]
    NoSuchQueuePair(#[from] ::sim::experiment::NoQueuePair),
    /// An SR-IOV function that does not exist, or an unknown setting of one.
    #[error("{0}")]
    Functions(String),
    /// A sweep with too many runs.
    #[error("the sweep has {0} runs, and {max} are allowed: leave out some \
        values", max = fabric_file::RUNS_MAX)]
    SweepTooLarge(usize),
    /// No such run in the sweep.
    #[error("there is no run {wanted}: the sweep has {count}, counted from 0")]
    NoSuchPoint {
        /// The number that was given.
        wanted: usize,
        /// The number of runs in the sweep.
        count: usize,
    },
    /// An option for one run with a sweep of several.
    #[error("{0} is for one run: choose one of the sweep with --point NUMBER")]
    OneRunOnly(&'static str),
    /// Formulas are asked for, and there are none.
    #[error("{0} has no [[model]]: --explain prints the formulas of models")]
    NoModel(PathBuf),
    /// An input file would be overwritten.
    #[error("{0}: this file is read for this run, and would be overwritten: choose another name")]
    OutputIsInput(PathBuf),
    /// Two options write the same file.
    #[error(
        "{0}: two options write it, or files that belong to them: choose another name for one of them"
    )]
    SameOutput(PathBuf),
    /// A Parquet file could not be written.
    #[error("{path}: {source}")]
    Parquet {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operation.
        source: parquet::errors::ParquetError,
    },
    /// Standard output is a pipe that no process reads any more.
    #[error("standard output is closed")]
    OutputClosed,
    /// A process that was not started with --fault, or is in another network namespace.
    #[error(
        "process {0} has no rules of faults here: start it with `rockery run --fault none`, and run this in \
         its network namespace"
    )]
    NoFaults(u32),
    /// The process gave no answer about its rules.
    #[error("the rules of process {pid}: {source}")]
    FaultControl {
        /// ID of the process.
        pid: u32,
        /// The error of the operation.
        source: io::Error,
    },
    /// A change of rules that the process refuses.
    #[error("{0}")]
    FaultRefused(String),
    /// A file or folder could not be used.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
}

impl From<command::runtime::FolderError> for Error {
    fn from(error: command::runtime::FolderError) -> Self {
        let command::runtime::FolderError { path, source } = error;
        Self::File { path, source }
    }
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
            Self::NoSuchProgram(_) | Self::NoCompanion { .. } => 127,
            Self::NotExecutable(_)
            | Self::Privileged(_)
            | Self::Static(_)
            | Self::Architecture { .. } => 126,
            Self::Fabric(_)
            | Self::Source(_)
            | Self::Configuration(_)
            | Self::Subnet(_)
            | Self::NoInfiniband(_)
            | Self::NotOnInfiniband(_)
            | Self::NoModel(_)
            | Self::Scenario(_)
            | Self::Findings(_)
            | Self::CommandsFailed { .. } => 1,
            Self::NoTrace(_)
            | Self::Unread(_)
            | Self::EarlierSnapshots(..)
            | Self::NeedsDestroy(_)
            | Self::NotLoopback(_) => 2,
            _ => 125,
        }
    }
}
