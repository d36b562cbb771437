//! Port 4791 is one, processes are many: the agent makes the group of sockets that share it and hands one to
//! each open device, with the range of queue pair numbers that the group's program steers to that socket.
//!
//! ```text
//! Device::open ──connect──▶ agent: takes a free slot, makes its socket when it has none
//!              ◀──socket, first queue pair number, count── (the connection is the lease)
//! ```
//!
//! There is one agent per network namespace and user. The first process that opens a device starts it, it
//! keeps every socket it made open so that no index in the group moves, and it ends a moment after the last
//! device was closed and its peers know. It is not on the data path.

mod domains;
mod farewells;
pub(crate) mod gsi;
mod ports;
pub(crate) mod protocol;
mod serve;
pub(crate) mod will;

use crate::error::OpenError;
use crate::sys::{process, unix};
use link::udp::{QPN_BITS, Socket};
use rnic::cm::IdSeries;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Qpn;

/// Changes whenever [`Reply`], [`protocol`] or the meaning of slots does.
const VERSION: u32 = 4;
/// Slots: ranges of queue pair numbers. The first is the agent's, for the general services interface; the
/// last has the multicast number in it.
const SLOTS: usize = 1 << (24 - QPN_BITS);
/// Connections that may wait.
const BACKLOG: i32 = 128;
/// An agent may be about to end when we connect: then another is started.
const ATTEMPTS: usize = 20;
const ATTEMPT_DELAY: std::time::Duration = std::time::Duration::from_millis(5);

/// What the agent answers to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reply {
    version: u32,
    /// 0, or what making the socket failed with.
    errno: u32,
    /// The slot: 0 when all are taken.
    slot: u32,
    /// Where the slot's communication IDs go on.
    ids: IdSeries,
}

const REPLY_BYTES: usize = 32;

impl Reply {
    fn to_bytes(self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&self.version.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.ids.used.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ids.key[0].to_le_bytes());
        bytes[24..].copy_from_slice(&self.ids.key[1].to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; REPLY_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let ids = IdSeries { key: [long(16), long(24)], used: word(12) };
        Self { version: word(0), errno: word(4), slot: word(8), ids }
    }
}

/// A share of port 4791.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) socket: Socket,
    pub(crate) first: Qpn,
    pub(crate) count: u32,
    /// Where communication IDs go on.
    pub(crate) ids: IdSeries,
    /// Open as long as the share is used.
    pub(crate) connection: OwnedFd,
}

/// Gets a share of port 4791, starting the agent where there is none.
pub(crate) fn lease() -> Result<Lease, OpenError> {
    let name = format!("rockery-agent-{}", process::user());
    let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(ATTEMPT_DELAY);
        }
        let asked = match unix::connect(&name) {
            Ok(connection) => ask(connection),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                start(&name)?;
                continue;
            }
            Err(error) => return Err(OpenError::Agent(error)),
        };
        match asked {
            Err(OpenError::Agent(error)) if is_gone(&error) => last = error,
            other => return other,
        }
    }
    Err(OpenError::Agent(last))
}

/// A connection to the agent that there is; `None` where there is none.
pub(crate) fn visit() -> Result<Option<Lease>, OpenError> {
    match unix::connect(&format!("rockery-agent-{}", process::user())) {
        Ok(connection) => ask(connection).map(Some),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(OpenError::Agent(error)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

fn ask(connection: OwnedFd) -> Result<Lease, OpenError> {
    // Whoever listens at the name could be anybody: only our own user's agent, or root's, is trusted.
    let peer = unix::peer_user(connection.as_raw_fd()).map_err(OpenError::Agent)?;
    if peer != process::user() && peer != 0 {
        return Err(OpenError::Agent(io::Error::from(io::ErrorKind::PermissionDenied)));
    }
    let mut bytes = [0; REPLY_BYTES];
    let (length, fd) = unix::receive(connection.as_raw_fd(), &mut bytes).map_err(OpenError::Agent)?;
    if length != REPLY_BYTES {
        return Err(OpenError::Agent(io::Error::from(io::ErrorKind::UnexpectedEof)));
    }
    let reply = Reply::parse(bytes);
    if reply.version != VERSION {
        return Err(OpenError::AgentVersion { theirs: reply.version, ours: VERSION });
    }
    match (reply.errno as i32, reply.slot, fd) {
        (libc::EADDRINUSE, _, _) => Err(OpenError::PortTaken),
        (0, 0, _) => Err(OpenError::NoSlot(SLOTS as u32 - 2)),
        (0, slot, Some(fd)) => Ok(Lease {
            socket: Socket::from_fd(fd).map_err(OpenError::Socket)?,
            first: Qpn::new(slot << QPN_BITS),
            count: 1 << QPN_BITS,
            ids: reply.ids,
            connection,
        }),
        (0, _, None) => Err(OpenError::Agent(io::Error::from(io::ErrorKind::UnexpectedEof))),
        (errno, _, _) => Err(OpenError::Socket(io::Error::from_raw_os_error(errno))),
    }
}

fn start(name: &str) -> Result<(), OpenError> {
    let listener = match unix::listen(name, BACKLOG) {
        Ok(listener) => listener,
        // Another process was faster: its agent serves us.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => return Err(OpenError::Agent(error)),
    };
    serve::start(listener).map_err(OpenError::Agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_back_as_they_were_sent() {
        let ids = IdSeries { key: [u64::MAX - 1, 7], used: 9 };
        let reply = Reply { version: 3, errno: 98, slot: 1000, ids };
        assert_eq!(Reply::parse(reply.to_bytes()), reply);
    }
}
