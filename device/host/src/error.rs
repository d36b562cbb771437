//! Errors of opening a device or an XRC domain.

use std::io;

/// Errors of [`crate::Device::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another program, or a kernel's RoCE device, has UDP port 4791.
    #[error(
        "UDP port 4791 is taken in this network namespace by {0}: end that, or use a network namespace of \
         its own (`rockery run --private -- PROGRAM`: loopback only; `rockery lab`)"
    )]
    PortTaken(crate::port_holder::PortHolder),
    /// An environment variable has a wrong value.
    #[error(transparent)]
    Setting(#[from] crate::settings::SettingError),
    /// The creation of the socket failed.
    #[error("cannot open a UDP socket for RoCEv2: {0}")]
    Socket(#[source] io::Error),
    /// The device could not be attached to the lab that its host belongs to.
    #[error("cannot attach to the lab of this host: {0}; `rockery lab ps` says whether it runs")]
    Lab(#[source] io::Error),
    /// The agent that shares port 4791 between processes could not be reached or started.
    #[error("cannot reach the agent that shares UDP port 4791 between processes: {0}")]
    Agent(#[source] io::Error),
    /// A process of another user listens at the agent's abstract socket name.
    #[error(
        "the name @{name} of the agent that shares UDP port 4791 is taken by process {process} of user \
         {user}: end that process, or use a network namespace of its own"
    )]
    AgentForeign {
        /// The abstract socket name.
        name: String,
        /// Process ID in this PID namespace; 0 where it has none.
        process: u32,
        /// User ID of that process.
        user: u32,
    },
    /// A process listens at the agent's name and does not answer.
    #[error(
        "the process that listens at @{name} did not answer for {seconds} s; it should be the agent that \
         shares UDP port 4791 between processes, and may be stopped, or another program with its name: \
         end it (`ss -xlp src @{name}` shows it to its user and to root)"
    )]
    AgentSilent {
        /// The abstract socket name.
        name: String,
        /// Seconds waited for the answer.
        seconds: u64,
    },
    /// The agent uses another protocol version.
    #[error(
        "the agent that shares UDP port 4791 speaks protocol version {theirs}, this library {ours}: \
         end the programs that use rockery and start again"
    )]
    AgentVersion {
        /// Protocol version of the agent.
        theirs: u32,
        /// Protocol version of this library.
        ours: u32,
    },
    /// All ranges of queue pair numbers are in use.
    #[error("as many processes as the port has room for use it already ({0}): end some of them")]
    NoSlot(u32),
    /// The kernel does not list the interfaces of the host.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(#[source] io::Error),
    /// No interface with this name is up any more.
    #[error("interface {0} is not up any more, or has no address: see `ip address`")]
    Gone(String),
    /// The creation of the progress thread, its event loop or its memory failed.
    #[error("cannot start the device's progress thread: {0}")]
    Thread(#[source] io::Error),
}

/// Errors of [`crate::Device::open_domain`].
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The agent's error: `EAGAIN` when no process has the domain open and `O_CREAT` was not given, `EINVAL`
    /// when a process has it open and `O_EXCL` was given, `ENOMEM` at the agent's limit.
    #[error("the XRC domain cannot be opened: {0}")]
    Agent(#[from] io::Error),
    /// The device's error.
    #[error("the XRC domain cannot be made: {0}")]
    Device(#[from] rnic::Error),
}
