//! Why a device, or a domain of it, does not open.

use std::io;

/// Why [`crate::Device::open`] failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another program, or a kernel's RoCE device, has UDP port 4791.
    #[error(
        "UDP port 4791 is taken in this network namespace: end the program that has it \
         (`ss -lunp sport = 4791`), remove the kernel's device (`rdma link delete`), \
         or run in a network namespace of its own"
    )]
    PortTaken,
    /// The socket could not be made.
    #[error("cannot open a UDP socket for RoCEv2: {0}")]
    Socket(#[source] io::Error),
    /// The agent that shares port 4791 between processes could not be reached or started.
    #[error("cannot reach the agent that shares UDP port 4791 between processes: {0}")]
    Agent(#[source] io::Error),
    /// The agent speaks another version.
    #[error(
        "the agent that shares UDP port 4791 speaks protocol version {theirs}, this library {ours}: \
         end the programs that use rockery and start again"
    )]
    AgentVersion {
        /// The version of the agent.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// All ranges of queue pair numbers are given out.
    #[error("as many processes as the port has room for use it already ({0}): end some of them")]
    NoSlot(u32),
    /// No interface of this name is up any more.
    #[error("interface {0} is not up any more, or has no address: see `ip address`")]
    Gone(String),
    /// The progress thread, its event loop or its memory could not be made.
    #[error("cannot start the device's progress thread: {0}")]
    Thread(#[source] io::Error),
}

/// Why [`crate::Device::open_domain`] failed.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// What the agent says: `EAGAIN` when nobody has the domain open and it shall not be made, `EINVAL` when
    /// somebody has and nobody shall, `ENOMEM` at its limit.
    #[error("the XRC domain cannot be opened: {0}")]
    Agent(#[from] io::Error),
    /// What the device says.
    #[error("the XRC domain cannot be made: {0}")]
    Device(#[from] rnic::Error),
}
