//! Protocol between the device files of a program on an InfiniBand host and the lab that has the subnet:
//! messages on Unix sockets at an abstract name in the host's network namespace.
//!
//! A connection begins with a [`Request`]. [`Request::Open`] makes it the file of a umad device: from then on
//! both sides send records. Another connection names that file by its socket's cookie, which the kernel gives
//! and which stays that of the socket after `dup`, `fork` and `exec`.

use crate::path_request::{PathRequest, ResolvedPath};
use crate::port_state::PortState;
use crate::unix;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The abstract name.
pub const NAME: &str = "rockery-subnet";
/// The InfiniBand device of a host.
pub const DEVICE: &str = "rk_ib0";
/// Bytes of a request at most: a call with its argument.
pub const REQUEST_BYTES_MAX: usize = 128;
/// Bytes of an answer at most.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a lab may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The files of the device in `/sys`: answered by lines of path, tab and value.
    Describe,
    /// A file of the umad device.
    Open {
        /// The cookie of the connection's own socket.
        cookie: u64,
    },
    /// A file of the issm device, which shows that a manager runs, until the connection ends.
    OpenManager,
    /// A call (`ioctl`) on an open file: answered by an errno and the argument as it is afterwards.
    Call {
        /// The cookie of the file's socket.
        cookie: u64,
        /// The number of the call.
        command: u32,
        /// The argument as it is before the call.
        argument: Vec<u8>,
    },
    /// The state of the port: answered by a [`PortState`].
    Port,
    /// A path: answered when it is known, or cannot be, by an errno and a [`ResolvedPath`].
    Resolve(PathRequest),
}

impl Request {
    /// Encodes the request.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Describe => bytes.push(0),
            Self::Open { cookie } => {
                bytes.push(1);
                bytes.extend(cookie.to_le_bytes());
            }
            Self::OpenManager => bytes.push(2),
            Self::Call {
                cookie,
                command,
                argument,
            } => {
                bytes.push(3);
                bytes.extend(cookie.to_le_bytes());
                bytes.extend(command.to_le_bytes());
                bytes.extend(argument);
            }
            Self::Port => bytes.push(4),
            Self::Resolve(request) => {
                bytes.push(5);
                bytes.extend(request.to_bytes());
            }
        }
        bytes
    }

    /// Decodes a request; `None` for what is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 if rest.is_empty() => Some(Self::Describe),
            1 => Some(Self::Open {
                cookie: u64::from_le_bytes(rest.try_into().ok()?),
            }),
            2 if rest.is_empty() => Some(Self::OpenManager),
            3 => {
                let (cookie, rest) = rest.split_first_chunk()?;
                let (command, argument) = rest.split_first_chunk()?;
                Some(Self::Call {
                    cookie: u64::from_le_bytes(*cookie),
                    command: u32::from_le_bytes(*command),
                    argument: argument.to_vec(),
                })
            }
            4 if rest.is_empty() => Some(Self::Port),
            5 => PathRequest::parse(rest).map(Self::Resolve),
            _ => None,
        }
    }
}

/// The answer to [`Request::Open`], [`Request::OpenManager`] and [`Request::Call`]: an errno, and bytes.
pub fn answer(errno: i32, bytes: &[u8]) -> Vec<u8> {
    let mut answer = errno.to_le_bytes().to_vec();
    answer.extend_from_slice(bytes);
    answer
}

/// Connects to the lab of this user's host. Another user's process at this name is none.
fn connect() -> io::Result<OwnedFd> {
    let socket = unix::connect(NAME, TIMEOUT)?;
    if unix::peer_user(socket.as_raw_fd())? != os::user() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(socket)
}

fn ask(request: &Request, socket: &OwnedFd) -> io::Result<Vec<u8>> {
    unix::set_timeouts(socket.as_raw_fd(), TIMEOUT)?;
    unix::send_now(socket.as_raw_fd(), &request.to_bytes())?;
    let mut bytes = vec![0; ANSWER_BYTES_MAX];
    let length = unix::receive_next(socket.as_raw_fd(), &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// The errno that an answer begins with, and what is behind it.
fn parse_answer(bytes: &[u8]) -> io::Result<&[u8]> {
    let (errno, rest) = bytes
        .split_first_chunk()
        .ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))?;
    match i32::from_le_bytes(*errno) {
        0 => Ok(rest),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The files of the device with their values; an error on a host that has none.
///
/// # Errors
/// When no lab with an InfiniBand subnet has this host.
pub fn describe() -> io::Result<Vec<(String, String)>> {
    let socket = connect()?;
    let bytes = ask(&Request::Describe, &socket)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(lines
        .filter(|(path, _)| is_of_device(path))
        .map(|(path, value)| (path.to_owned(), value.to_owned()))
        .collect())
}

/// The state of the host's port.
///
/// # Errors
/// When no lab with an InfiniBand subnet has this host.
pub fn port_state() -> io::Result<PortState> {
    let socket = connect()?;
    let bytes = ask(&Request::Port, &socket)?;
    PortState::parse(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Asks for a path. The descriptor is readable when there is an answer, which [`finish_resolving`] takes.
///
/// # Errors
/// When no lab with an InfiniBand subnet has this host.
pub fn begin_resolving(request: PathRequest) -> io::Result<OwnedFd> {
    let socket = connect()?;
    unix::set_timeouts(socket.as_raw_fd(), TIMEOUT)?;
    unix::send_now(socket.as_raw_fd(), &Request::Resolve(request).to_bytes())?;
    Ok(socket)
}

/// The answer to [`begin_resolving`], for which this waits.
///
/// # Errors
/// `ETIMEDOUT` when no answer came in the time of the request, `EHOSTUNREACH` when no host has the address,
/// `ENETUNREACH` when the manager knows no path; those of the socket where the lab has ended.
pub fn finish_resolving(socket: &OwnedFd) -> io::Result<ResolvedPath> {
    unix::set_timeouts(socket.as_raw_fd(), Duration::ZERO)?;
    let mut bytes = [0; REQUEST_BYTES_MAX];
    let length = unix::receive_next(socket.as_raw_fd(), &mut bytes)?;
    let path = parse_answer(&bytes[..length])?;
    ResolvedPath::parse(path).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Folders of the files that a lab describes, relative to the root.
pub const FOLDERS: [&str; 3] = [
    "sys/class/infiniband/rk_ib0",
    "sys/class/infiniband_mad",
    "sys/class/net/ib0",
];

/// Whether a path is of the device's files, and leads nowhere else.
fn is_of_device(path: &str) -> bool {
    FOLDERS.iter().any(|folder| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    }) && !path.split('/').any(|part| part == "..")
}

/// Opens the umad device.
///
/// # Errors
/// When no lab has this host, or refuses.
pub fn open() -> io::Result<OwnedFd> {
    let socket = connect()?;
    let cookie = unix::cookie(socket.as_raw_fd())?;
    parse_answer(&ask(&Request::Open { cookie }, &socket)?)?;
    unix::set_timeouts(socket.as_raw_fd(), Duration::ZERO)?;
    Ok(socket)
}

/// Opens the issm device: the port's capabilities show a manager until the descriptor is closed.
///
/// # Errors
/// When no lab has this host, or refuses: `EAGAIN` where another program has it open.
pub fn open_manager() -> io::Result<OwnedFd> {
    let socket = connect()?;
    parse_answer(&ask(&Request::OpenManager, &socket)?)?;
    Ok(socket)
}

/// A call on an open file of the umad device.
///
/// # Errors
/// The errno of the call.
pub fn call(file: RawFd, command: u32, argument: &mut [u8]) -> io::Result<()> {
    let request = Request::Call {
        cookie: unix::cookie(file)?,
        command,
        argument: argument.to_vec(),
    };
    let socket = connect()?;
    let bytes = ask(&request, &socket)?;
    // The argument comes back also with an error: supported flags are written there.
    let after = bytes.get(4..).unwrap_or_default();
    if after.len() == argument.len() {
        argument.copy_from_slice(after);
    }
    parse_answer(&bytes).map(drop)
}

/// Bytes of a record that goes through the socket. A longer one is in a file in memory, whose descriptor goes
/// with the first bytes of the record.
const RECORD_IN_SOCKET_MAX: usize = 128 << 10;
/// Length of the mark in bytes; every record has a longer header.
const MARK_BYTES: usize = 16;
/// Bytes of a record at most.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Sends a record, in one direction or the other.
///
/// # Errors
/// Those of the system calls: `EAGAIN` where there is no room.
pub fn send_record(socket: RawFd, record: &[u8]) -> io::Result<()> {
    if record.len() <= RECORD_IN_SOCKET_MAX {
        return unix::send_now(socket, record);
    }
    let file = File::from(unix::anonymous_file()?);
    file.write_all_at(record, 0)?;
    unix::send(socket, &record[..MARK_BYTES], Some(file.as_raw_fd()))
}

/// Receives a record on a socket that does not wait; `None` when the other side has closed.
///
/// # Errors
/// Those of the system calls: `EAGAIN` where there is no record.
pub fn receive_record(socket: RawFd) -> io::Result<Option<Vec<u8>>> {
    let mut record = vec![0; RECORD_IN_SOCKET_MAX];
    let (length, file) = unix::receive(socket, &mut record)?;
    if length == 0 {
        return Ok(None);
    }
    match file {
        Some(file) if length == MARK_BYTES => read_whole(&File::from(file)).map(Some),
        _ => {
            record.truncate(length);
            Ok(Some(record))
        }
    }
}

/// The bytes of a file as long as it was said to be. A program that cuts it meanwhile gets an error.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > RECORD_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut record = vec![0; length as usize];
    file.read_exact_at(&mut record, 0)?;
    Ok(record)
}

/// The next record of a socket, which stays in the queue.
pub enum Next {
    /// The record is in the socket, with so many bytes.
    InSocket(usize),
    /// The record is in a file.
    InFile(File, usize),
}

/// Looks at the next record.
///
/// # Errors
/// Those of the system calls.
pub fn next_record(socket: RawFd) -> io::Result<Next> {
    let length = unix::next_length(socket)?;
    if length == MARK_BYTES
        && let (_, Some(file)) = unix::peek(socket, &mut [0; MARK_BYTES])?
    {
        let file = File::from(file);
        let length = file.metadata()?.len() as usize;
        return Ok(Next::InFile(file, length));
    }
    Ok(Next::InSocket(length))
}

/// Whether a descriptor is an open file of the umad device, however the program came by it.
pub fn is_file(file: RawFd) -> bool {
    unix::peer_has_name(file, NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_request::PathTarget;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let requests = [
            Request::Describe,
            Request::Open {
                cookie: u64::MAX - 7,
            },
            Request::OpenManager,
            Request::Port,
            Request::Resolve(PathRequest {
                target: PathTarget::Gid([3; 16]),
                timeout: Duration::from_secs(2),
            }),
            Request::Call {
                cookie: 9,
                command: 0xc01c_1b01,
                argument: vec![1, 2, 3],
            },
        ];
        for request in requests {
            let bytes = request.to_bytes();
            assert_eq!(Request::parse(&bytes), Some(request.clone()));
            if !matches!(request, Request::Call { .. }) {
                let longer = [&bytes[..], &[0]].concat();
                assert_eq!(Request::parse(&longer), None, "{request:?}");
            }
        }
        assert_eq!(Request::parse(&[]), None);
        assert_eq!(Request::parse(&[9]), None);
        assert_eq!(Request::parse(&[3, 0, 0]), None);
    }

    #[test]
    fn files_are_those_of_the_device_alone() {
        assert!(is_of_device("sys/class/infiniband/rk_ib0/ports/1/state"));
        assert!(is_of_device("sys/class/infiniband_mad/umad0/port"));
        assert!(is_of_device("sys/class/net/ib0/address") && !is_of_device("sys/class/net/lo/mtu"));
        for path in [
            "sys/class/infiniband/rk_ib0",
            "sys/class/infiniband/rk_ib01/x",
            "sys/class/infiniband/rk_ib0/../rk_lo/node_guid",
            "etc/passwd",
            "/etc/passwd",
        ] {
            assert!(!is_of_device(path), "{path}");
        }
    }

    #[test]
    fn records_of_any_length_arrive_in_order() {
        let [one, other] = unix::message_pair().unwrap();
        unix::set_nonblocking(other.as_raw_fd()).unwrap();
        let record = |length: usize| -> Vec<u8> { (0..length).map(|at| at as u8).collect() };
        for length in [
            88,
            320,
            RECORD_IN_SOCKET_MAX,
            RECORD_IN_SOCKET_MAX + 1,
            3 << 20,
        ] {
            send_record(one.as_raw_fd(), &record(length)).unwrap();
            let seen = match next_record(other.as_raw_fd()).unwrap() {
                Next::InSocket(length) | Next::InFile(_, length) => length,
            };
            assert_eq!(seen, length);
            assert_eq!(
                receive_record(other.as_raw_fd()).unwrap(),
                Some(record(length))
            );
        }
        let nothing = receive_record(other.as_raw_fd()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(receive_record(other.as_raw_fd()).unwrap(), None);
    }

    #[test]
    fn a_descriptor_is_a_file_by_the_name_of_its_other_side() {
        let name = format!("{NAME}-{}", std::process::id());
        let listener = unix::listen(&name, 4).unwrap();
        let socket = unix::connect(&name, TIMEOUT).unwrap();
        assert!(unix::peer_has_name(socket.as_raw_fd(), &name));
        assert!(!is_file(socket.as_raw_fd()));
        assert!(!is_file(listener.as_raw_fd()));
        assert!(!is_file(2));
        let own = unix::cookie(socket.as_raw_fd()).unwrap();
        let copy = socket.try_clone().unwrap();
        assert_eq!(unix::cookie(copy.as_raw_fd()).unwrap(), own);
        assert_ne!(unix::cookie(listener.as_raw_fd()).unwrap(), own);
    }
}
