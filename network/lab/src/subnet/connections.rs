//! Connections of programs to their device files: a file of the umad device is a socket with records in both
//! directions, and one of the issm device shows a manager while it is open.

use super::LiveSubnet;
use fabric::{Span, Time};
use infiniband::agents::{FileId, RECORDS_BYTES_MAX};
use infiniband::ipoib::{Failure, Target};
use infiniband::sa::PathRecord;
use link::management::{self, REQUEST_BYTES_MAX, Request, answer};
use link::path_request::{PathRequest, PathTarget, ResolvedPath};
use link::unix;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Connections of a host at most.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of records in a socket, as far as the machine allows.
const SEND_BUFFER: i32 = RECORDS_BYTES_MAX as i32;
/// Records that are taken from a program at once.
const RECORDS_AT_ONCE: usize = 64;
/// After which time records for a program that had no room are tried again.
const AGAIN: fabric::Span = fabric::Span(1_000_000_000);

/// A unit of the time for which a program waits for a path.
const MILLISECOND: Span = Span(1_000_000_000);

/// What a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The program has sent no request yet.
    New,
    /// A file of the umad device, with the cookie of the program's socket.
    File { id: FileId, cookie: u64 },
    /// An open file of the issm device.
    Manager,
    /// The program waits for a path; number of the question.
    Resolving(u64),
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    host: usize,
    kind: Kind,
}

/// What became of a connection that had something to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeted {
    /// The connection stays open.
    Stays,
    /// The connection has been closed.
    Ended,
}

/// All connections, by their descriptor.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<RawFd, Connection>,
    /// A program has no room for its records.
    is_stuck: bool,
    /// The number of the last question for a path.
    last_question: u64,
}

impl Connections {
    /// Takes a connection of a host, if it may have one more. Another user's is closed.
    pub(crate) fn add(&mut self, socket: OwnedFd, host: usize) -> bool {
        let of_host = self.all.values().filter(|one| one.host == host).count();
        let is_ours = unix::peer_user(socket.as_raw_fd()).is_ok_and(|user| user == os::user());
        if !is_ours || of_host >= CONNECTIONS_MAX {
            return false;
        }
        let kind = Kind::New;
        self.all
            .insert(socket.as_raw_fd(), Connection { socket, host, kind });
        true
    }

    /// Reads what a connection has sent.
    pub(crate) fn read(&mut self, fd: RawFd, now: Time, subnet: &mut LiveSubnet) -> Greeted {
        let kind = self.all.get(&fd).map(|connection| connection.kind);
        let stays = match kind {
            Some(Kind::New) => self.read_request(fd, now, subnet),
            Some(Kind::File { .. }) => self.read_records(fd, now, subnet),
            // Nothing is sent on such a connection: it has ended.
            Some(Kind::Manager | Kind::Resolving(_)) | None => false,
        };
        if stays {
            return Greeted::Stays;
        }
        self.end(fd, now, subnet);
        Greeted::Ended
    }

    fn read_request(&mut self, fd: RawFd, now: Time, subnet: &mut LiveSubnet) -> bool {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let length = match unix::receive_now(fd, &mut bytes) {
            Ok(length) => length,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let Some(host) = self.all.get(&fd).map(|connection| connection.host) else {
            return false;
        };
        let kind = match Request::parse(&bytes[..length]) {
            Some(Request::Describe) => {
                let _ = unix::send_now(fd, subnet.describe(host).as_bytes());
                return false;
            }
            Some(Request::Port) => {
                let _ = unix::send_now(fd, &subnet.port_state(host).to_bytes());
                return false;
            }
            Some(Request::Call {
                cookie,
                command,
                mut argument,
            }) => {
                let errno = self.call(host, cookie, command, &mut argument, subnet);
                let _ = unix::send_now(fd, &answer(errno, &argument));
                return false;
            }
            Some(Request::Resolve(request)) => {
                self.last_question += 1;
                if let Some(connection) = self.all.get_mut(&fd) {
                    connection.kind = Kind::Resolving(self.last_question);
                }
                resolve(subnet, now, host, self.last_question, request);
                return true;
            }
            Some(Request::Open { cookie }) => {
                unix::set_send_buffer(fd, SEND_BUFFER);
                let id = subnet.agents(host).open();
                Kind::File { id, cookie }
            }
            Some(Request::OpenManager) => {
                let mut others = self.all.values().filter(|one| one.host == host);
                if others.any(|one| one.kind == Kind::Manager) {
                    let _ = unix::send_now(fd, &answer(libc::EAGAIN, &[]));
                    return false;
                }
                subnet.set_is_manager(now, host, true);
                Kind::Manager
            }
            None => return false,
        };
        if let Some(connection) = self.all.get_mut(&fd) {
            connection.kind = kind;
        }
        unix::send_now(fd, &answer(0, &[])).is_ok()
    }

    /// A call on the file whose socket has a cookie.
    fn call(
        &self,
        host: usize,
        cookie: u64,
        command: u32,
        argument: &mut [u8],
        subnet: &mut LiveSubnet,
    ) -> i32 {
        let file = self.all.values().find_map(|one| match one.kind {
            Kind::File { id, cookie: own } if one.host == host && own == cookie => Some(id),
            _ => None,
        });
        let Some(file) = file else { return libc::EBADF };
        let result = subnet.agents(host).call(file, command, argument);
        result.err().map_or(0, |errno| errno.0)
    }

    fn read_records(&mut self, fd: RawFd, now: Time, subnet: &mut LiveSubnet) -> bool {
        let Some(Connection { host, kind, .. }) = self.all.get(&fd) else {
            return false;
        };
        let Kind::File { id, .. } = *kind else {
            return false;
        };
        for _ in 0..RECORDS_AT_ONCE {
            match management::receive_record(fd) {
                Ok(Some(record)) => subnet.write(now, *host, id, &record),
                Ok(None) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn end(&mut self, fd: RawFd, now: Time, subnet: &mut LiveSubnet) {
        let Some(connection) = self.all.remove(&fd) else {
            return;
        };
        match connection.kind {
            Kind::New => {}
            Kind::File { id, .. } => subnet.agents(connection.host).close(id),
            Kind::Manager => subnet.set_is_manager(now, connection.host, false),
            Kind::Resolving(number) => subnet.cancel(connection.host, number),
        }
        drop(connection.socket);
    }

    /// Answers programs that have asked for paths. Their connections end when the programs close them.
    pub(crate) fn answer_resolved(&self, subnet: &mut LiveSubnet) {
        for (number, result) in subnet.take_resolved() {
            let mut all = self.all.iter();
            let found = all.find(|(_, one)| one.kind == Kind::Resolving(number));
            if let Some((fd, _)) = found {
                let answer = match result {
                    Ok(path) => answer(0, &path_of(&path).to_bytes()),
                    Err(failure) => answer(errno_of(failure), &[]),
                };
                let _ = unix::send_now(*fd, &answer);
            }
        }
    }

    /// Sends records to the programs that have room for them.
    pub(crate) fn flush(&mut self, subnet: &mut LiveSubnet) {
        self.is_stuck = false;
        for (fd, connection) in &self.all {
            let Kind::File { id, .. } = connection.kind else {
                continue;
            };
            let agents = subnet.agents(connection.host);
            while let Some(record) = agents.first_record(id) {
                match management::send_record(*fd, record) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.is_stuck = true;
                        break;
                    }
                    // The record has gone, or the program has ended.
                    _ => agents.drop_record(id),
                }
            }
        }
    }

    /// When records that had no room are tried again.
    pub(crate) fn next_try(&self, now: Time) -> Time {
        if self.is_stuck {
            now + AGAIN
        } else {
            Time::NEVER
        }
    }
}

fn resolve(subnet: &mut LiveSubnet, now: Time, host: usize, number: u64, request: PathRequest) {
    let target = match request.target {
        PathTarget::Ip(address) => Target::Ip(address),
        PathTarget::Gid(gid) => Target::Gid(gid),
    };
    let milliseconds = request.timeout.as_millis() as u64;
    subnet.resolve(now, host, number, target, MILLISECOND.times(milliseconds));
}

fn path_of(record: &PathRecord) -> ResolvedPath {
    ResolvedPath {
        gid: record.destination,
        source_gid: record.source,
        lid: record.destination_lid,
        source_lid: record.source_lid,
        p_key: record.p_key,
        flow_label: record.flow_label,
        hop_limit: record.hop_limit,
        traffic_class: record.traffic_class,
        service_level: record.service_level,
        mtu: record.mtu,
        rate: record.rate,
        life_time: record.life_time,
    }
}

fn errno_of(failure: Failure) -> i32 {
    match failure {
        Failure::TimedOut => libc::ETIMEDOUT,
        Failure::NoNeighbour => libc::EHOSTUNREACH,
        Failure::NoPath => libc::ENETUNREACH,
        Failure::NoRoom => libc::ENOBUFS,
    }
}
