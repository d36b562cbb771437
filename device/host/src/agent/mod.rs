//! The agent lets many processes share UDP port 4791: it makes a group of sockets on the port and hands one
//! to each open device, with the range of queue pair numbers that the group's BPF program steers to that
//! socket.
//!
//! ```text
//! Device::open ──connect──▶ agent: takes a free slot, makes its socket when it has none
//!              ◀──socket, owners of all slots, first queue pair number── (the connection is the lease)
//! ```
//!
//! There is one agent per network namespace and user, started by the first process that opens a device. It
//! keeps every socket that it made open, so that no index in the group changes. It ends a moment after the
//! last device was closed and the peers of its connections know. It is not on the data path.

mod dead_processes;
mod domains;
pub(crate) mod enquiry;
pub(crate) mod gsi;
pub(crate) mod journal;
pub(crate) mod leases;
mod ports;
pub(crate) mod protocol;
mod ranges;
mod serve;

use crate::error::OpenError;
use crate::port_holder::{PortHolder, agent_name};
use crate::sys::owners::Owners;
use link::udp::{QPN_BITS, Socket};
use link::unix;
use rnic::cm::IdSeries;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use wire::Qpn;

/// Version of [`Reply`], of [`protocol`] and of the meaning of slots.
const VERSION: u32 = 6;
/// Slots: ranges of queue pair numbers. The first is the agent's, for the general services interface; the
/// last has the multicast number in it.
const SLOTS: usize = 1 << (24 - QPN_BITS);
/// Connections of clients that may wait to be accepted, as `listen(2)` has it.
const BACKLOG: i32 = 128;
/// Limit of attempts to connect: an agent may be about to end, and then another one is started.
const ATTEMPTS: usize = 20;
const ATTEMPT_DELAY: Duration = Duration::from_millis(5);
/// Time that the agent may take to accept a connection and to answer, each: long enough for hundreds of
/// programs that start at once on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The agent's first answer on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reply {
    version: u32,
    /// 0, or the error number with which the creation of the slot's socket failed.
    errno: u32,
    /// The slot: 0 when all are taken.
    slot: u32,
    /// The upper bits of the slot's queue pair numbers.
    range: u32,
    /// The next communication IDs of the slot.
    ids: IdSeries,
}

const REPLY_BYTES: usize = 36;

impl Reply {
    fn to_bytes(self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&self.version.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.ids.used.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ids.key[0].to_le_bytes());
        bytes[24..32].copy_from_slice(&self.ids.key[1].to_le_bytes());
        bytes[32..].copy_from_slice(&self.range.to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; REPLY_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let ids = IdSeries {
            key: [long(16), long(24)],
            used: word(12),
        };
        Self {
            version: word(0),
            errno: word(4),
            slot: word(8),
            range: word(32),
            ids,
        }
    }
}

/// A lease: a share of port 4791.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) socket: Socket,
    /// Number of the slot: communication IDs begin with it.
    pub(crate) slot: u32,
    pub(crate) first: Qpn,
    pub(crate) count: u32,
    /// The next communication IDs.
    pub(crate) ids: IdSeries,
    /// Table of the process of each range; `None` where the kernel cannot seal such a table (before Linux
    /// 5.1).
    pub(crate) owners: Option<Owners>,
    /// The lease lasts as long as this connection is open.
    pub(crate) connection: OwnedFd,
}

/// The abstract socket name of this user's agent.
fn name() -> String {
    agent_name(os::user())
}

/// Obtains a share of port 4791; starts the agent where there is none.
pub(crate) fn lease() -> Result<Lease, OpenError> {
    lease_at(&name(), TIMEOUT)
}

fn lease_at(name: &str, timeout: Duration) -> Result<Lease, OpenError> {
    let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(ATTEMPT_DELAY);
        }
        let asked = match unix::connect(name, timeout) {
            Ok(connection) => ask(connection, name, timeout),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                start(name)?;
                continue;
            }
            Err(error) => return Err(failure(error, name, timeout)),
        };
        match asked {
            Err(OpenError::Agent(error)) if is_gone(&error) => last = error,
            other => return other,
        }
    }
    Err(OpenError::Agent(last))
}

/// Connects to the agent that runs already; `None` where none runs.
pub(crate) fn connect_existing() -> Result<Option<Lease>, OpenError> {
    let name = name();
    match unix::connect(&name, TIMEOUT) {
        Ok(connection) => ask(connection, &name, TIMEOUT).map(Some),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(failure(error, &name, TIMEOUT)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
}

/// The error of a call on the agent's socket.
fn failure(error: io::Error, name: &str, timeout: Duration) -> OpenError {
    match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::AgentSilent {
            name: name.to_owned(),
            seconds: timeout.as_secs(),
        },
        _ => OpenError::Agent(error),
    }
}

fn ask(connection: OwnedFd, name: &str, timeout: Duration) -> Result<Lease, OpenError> {
    let fd = connection.as_raw_fd();
    // Any user can listen at the name: only our own user's agent, or root's, is trusted.
    let user = unix::peer_user(fd).map_err(OpenError::Agent)?;
    if user != os::user() && user != 0 {
        let process = unix::peer_process(fd).unwrap_or(0);
        return Err(OpenError::AgentForeign {
            name: name.to_owned(),
            process,
            user,
        });
    }
    let mut bytes = [0; REPLY_BYTES];
    unix::set_timeouts(fd, timeout).map_err(OpenError::Agent)?;
    let received =
        unix::receive_fds(fd, &mut bytes).map_err(|error| failure(error, name, timeout))?;
    unix::set_timeouts(fd, Duration::ZERO).map_err(OpenError::Agent)?;
    let (length, [fd, owners, _]) = received;
    if length != REPLY_BYTES {
        return Err(OpenError::Agent(io::Error::from(
            io::ErrorKind::UnexpectedEof,
        )));
    }
    let reply = Reply::parse(bytes);
    if reply.version != VERSION {
        return Err(OpenError::AgentVersion {
            theirs: reply.version,
            ours: VERSION,
        });
    }
    match (reply.errno as i32, reply.slot, fd) {
        (libc::EADDRINUSE, _, _) => {
            let holder = PortHolder::find().unwrap_or(PortHolder::Unknown);
            Err(OpenError::PortTaken(holder))
        }
        (0, 0, _) => Err(OpenError::NoSlot(SLOTS as u32 - 2)),
        (0, slot, Some(fd)) => Ok(Lease {
            socket: Socket::from_fd(fd).map_err(OpenError::Socket)?,
            slot,
            first: Qpn::new(reply.range << QPN_BITS),
            count: 1 << QPN_BITS,
            ids: reply.ids,
            owners: owners.and_then(|owners| Owners::open(&owners).ok()),
            connection,
        }),
        (0, _, None) => Err(OpenError::Agent(io::Error::from(
            io::ErrorKind::UnexpectedEof,
        ))),
        (errno, _, _) => Err(OpenError::Socket(io::Error::from_raw_os_error(errno))),
    }
}

fn start(name: &str) -> Result<(), OpenError> {
    let listener = match unix::listen(name, BACKLOG) {
        Ok(listener) => listener,
        // Another process was faster: its agent is used.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => return Err(OpenError::Agent(error)),
    };
    serve::start(listener).map_err(OpenError::Agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener that accepts no connections.
    fn squatted(backlog: i32) -> (String, OwnedFd) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("rockery-test-agent-{}-{number}", std::process::id());
        let listener = unix::listen(&name, backlog).unwrap();
        (name, listener)
    }

    #[test]
    fn a_full_backlog_at_the_agents_name_is_an_error_after_a_bounded_time() {
        let (name, _listener) = squatted(0);
        let mut waiting = Vec::new();
        while let Ok(connection) = unix::connect_now(&name) {
            waiting.push(connection);
        }
        let failed = lease_at(&name, Duration::from_millis(200)).unwrap_err();
        assert!(
            matches!(&failed, OpenError::AgentSilent { name: named, .. } if *named == name),
            "{failed}"
        );
    }

    #[test]
    fn a_listener_that_does_not_answer_is_an_error() {
        let (name, _listener) = squatted(8);
        let failed = lease_at(&name, Duration::from_millis(200)).unwrap_err();
        assert!(matches!(failed, OpenError::AgentSilent { .. }), "{failed}");
    }

    #[test]
    fn replies_come_back_as_they_were_sent() {
        let ids = IdSeries {
            key: [u64::MAX - 1, 7],
            used: 9,
        };
        let reply = Reply {
            version: 3,
            errno: 98,
            slot: 1000,
            range: 600,
            ids,
        };
        assert_eq!(Reply::parse(reply.to_bytes()), reply);
    }
}
