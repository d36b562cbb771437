//! Unix sockets that carry messages and descriptors, at abstract names: they leave no files behind.

use os::checked;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptors that a message may carry.
pub const FDS_MAX: usize = 8;
/// Bytes of a control message with [`FDS_MAX`] descriptors: its header and the descriptors. The kernel closes
/// descriptors beyond it.
const CONTROL_BYTES: usize = 16 + (4 * FDS_MAX).next_multiple_of(8);

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { os::owned(libc::socket(libc::AF_UNIX, kind, 0)) }
}

/// The address of an abstract name, which is local to the network namespace, as port 4791 is.
fn address(name: &str) -> (libc::sockaddr_un, u32) {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let place = address.sun_path.iter_mut().skip(1).zip(name.bytes());
    place.for_each(|(place, byte)| *place = byte as libc::c_char);
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, length.min(size_of::<libc::sockaddr_un>()) as u32)
}

fn check_result(result: i32) -> io::Result<()> {
    checked(result).map(drop)
}

/// Listens at a name; `EADDRINUSE` when another process does.
///
/// # Errors
/// Those of the system call.
pub fn listen(name: &str, backlog: i32) -> io::Result<OwnedFd> {
    let (socket, (address, length)) = (socket()?, address(name));
    // SAFETY: an address of that length.
    check_result(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: no pointers.
    check_result(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// Connects; `ECONNREFUSED` without a listener, `EAGAIN` when its backlog was full for all of `timeout`.
///
/// # Errors
/// Those of the system call.
pub fn connect(name: &str, timeout: Duration) -> io::Result<OwnedFd> {
    let (socket, (address, length)) = (socket()?, address(name));
    set_timeout(socket.as_raw_fd(), libc::SO_SNDTIMEO, timeout)?;
    // SAFETY: an address of that length.
    check_result(unsafe {
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length)
    })?;
    set_timeout(socket.as_raw_fd(), libc::SO_SNDTIMEO, Duration::ZERO)?;
    Ok(socket)
}

/// Connects to a listener whose backlog has room; no call on the connection blocks.
///
/// # Errors
/// Those of the system call.
pub fn connect_now(name: &str) -> io::Result<OwnedFd> {
    let (socket, (address, length)) = (socket()?, address(name));
    set_nonblocking(socket.as_raw_fd())?;
    // SAFETY: an address of that length.
    check_result(unsafe {
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length)
    })?;
    Ok(socket)
}

/// Makes calls on the socket non-blocking.
///
/// # Errors
/// Those of the system call.
pub fn set_nonblocking(socket: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check_result(unsafe { libc::fcntl(socket, libc::F_SETFL, libc::O_NONBLOCK) })
}

/// Sets the timeout after which receiving fails with `EAGAIN`; zero is no limit.
///
/// # Errors
/// Those of the system call.
pub fn set_timeouts(socket: RawFd, timeout: Duration) -> io::Result<()> {
    set_timeout(socket, libc::SO_RCVTIMEO, timeout)
}

fn set_timeout(socket: RawFd, option: i32, time: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: time.as_secs() as i64,
        tv_usec: i64::from(time.subsec_micros()),
    };
    let length = size_of::<libc::timeval>() as u32;
    let place = (&raw const time).cast();
    // SAFETY: a time and its length.
    check_result(unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, place, length) })
}

/// Sends a message if there is room for it.
///
/// # Errors
/// Those of the system call.
pub fn send_now(socket: RawFd, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a slice and its length.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Creates an unnamed file in memory.
///
/// # Errors
/// Those of the system call.
pub fn anonymous_file() -> io::Result<OwnedFd> {
    os::memory_file::unsealable(c"rockery")
}

/// Sets the size of the send buffer in bytes, or the largest one that the kernel permits.
pub fn set_send_buffer(socket: RawFd, bytes: i32) {
    for option in [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF] {
        let place = (&raw const bytes).cast();
        // SAFETY: an int and its length.
        let set = unsafe {
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                option,
                place,
                size_of::<i32>() as u32,
            )
        };
        if set == 0 {
            return;
        }
    }
}

/// Waits for a short time until a message can be sent; whether it can.
pub fn wait_for_room(socket: RawFd, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one structure.
    unsafe { libc::poll(&mut watched, 1, milliseconds) == 1 && watched.revents == libc::POLLOUT }
}

/// Receives a message if there is one. 0 bytes: the other side has closed.
///
/// # Errors
/// Those of the system call.
pub fn receive_now(socket: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a slice and its length.
    let received = unsafe {
        libc::recv(
            socket,
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
        )
    };
    if received < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(received as usize)
    }
}

/// Receives a message, waiting for one. 0 bytes: the other side has closed.
///
/// # Errors
/// Those of the system call.
pub fn receive_next(socket: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: a slice and its length.
        let received = unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let error = io::Error::last_os_error();
        if received < 0 && error.kind() == io::ErrorKind::Interrupted {
            continue;
        }
        return if received < 0 {
            Err(error)
        } else {
            Ok(received as usize)
        };
    }
}

/// The length of the next message, which stays in the queue; 0 when the other side has closed.
///
/// # Errors
/// Those of the system call.
pub fn next_length(socket: RawFd) -> io::Result<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: no bytes are asked for.
    let length = unsafe { libc::recv(socket, std::ptr::null_mut(), 0, flags) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Accepts a connection.
///
/// # Errors
/// Those of the system call.
pub fn accept(listener: RawFd) -> io::Result<OwnedFd> {
    let null = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    let fd = unsafe { libc::accept4(listener, null, null.cast(), libc::SOCK_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's cookie of a socket (`SO_COOKIE`), which no other socket of the machine has.
///
/// # Errors
/// Those of the system call.
pub fn cookie(socket: RawFd) -> io::Result<u64> {
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as u32);
    let place = (&raw mut cookie).cast();
    // SAFETY: room for 64 bits, and their length.
    check_result(unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            place,
            &mut length,
        )
    })?;
    Ok(cookie)
}

/// Whether a descriptor is a socket whose other side has this abstract name.
pub fn peer_has_name(socket: RawFd, name: &str) -> bool {
    // SAFETY: all zeros is a valid address.
    let mut there: libc::sockaddr_un = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_un>() as u32;
    // SAFETY: room for an address, and its length.
    let result = unsafe { libc::getpeername(socket, (&raw mut there).cast(), &mut length) };
    let (wanted, wanted_length) = address(name);
    result == 0
        && length == wanted_length
        && there.sun_family == wanted.sun_family
        && there.sun_path == wanted.sun_path
}

/// User ID of the process at the other end.
///
/// # Errors
/// Those of the system call.
pub fn peer_user(socket: RawFd) -> io::Result<u32> {
    peer(socket).map(|peer| peer.uid)
}

/// Process ID of the process at the other end, in this PID namespace.
///
/// # Errors
/// Those of the system call.
pub fn peer_process(socket: RawFd) -> io::Result<u32> {
    peer(socket).map(|peer| peer.pid as u32)
}

/// The process at the other end of a connection, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its process ID in this PID namespace; 0 where it has none there.
    pub process: u32,
    /// The inode of its pidfd, which is the same in all PID namespaces and used once; 0 before Linux 6.9.
    pub inode: u64,
}

/// `getsockopt(2)`: a pidfd of the other end (Linux 6.5). Not in every libc's headers.
const SO_PEERPIDFD: i32 = 77;
/// `statfs(2)`: pidfds have inodes of their own (Linux 6.9).
const PID_FS_MAGIC: i64 = 0x5049_4446;

/// The process at the other end of a connection: the one that connected, or that listens.
///
/// # Errors
/// Those of the system call.
pub fn peer_identity(socket: RawFd) -> io::Result<Identity> {
    let process = peer_process(socket)?;
    let (mut fd, mut length) = (-1i32, size_of::<i32>() as u32);
    let place = (&raw mut fd).cast();
    // SAFETY: room for an int, and its length.
    let found =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, place, &mut length) };
    if found < 0 || fd < 0 {
        return Ok(Identity { process, inode: 0 });
    }
    // SAFETY: a new descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros are valid values, and there is room for one of each.
    let inode = unsafe {
        let (mut system, mut file): (libc::statfs, libc::stat) = (zeroed(), zeroed());
        let is_one =
            libc::fstatfs(fd.as_raw_fd(), &mut system) == 0 && system.f_type == PID_FS_MAGIC;
        if is_one && libc::fstat(fd.as_raw_fd(), &mut file) == 0 {
            file.st_ino
        } else {
            0
        }
    };
    Ok(Identity { process, inode })
}

/// Whether the other end is closed, without receiving anything.
pub fn is_closed(socket: RawFd) -> bool {
    let mut fd = libc::pollfd {
        fd: socket,
        events: 0,
        revents: 0,
    };
    // SAFETY: one descriptor, that lives until the call returns.
    unsafe { libc::poll(&mut fd, 1, 0) > 0 }
}

fn peer(socket: RawFd) -> io::Result<libc::ucred> {
    // SAFETY: all zeros is a valid value.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut length = size_of::<libc::ucred>() as u32;
    let place = (&raw mut peer).cast();
    // SAFETY: room for the structure, and its length.
    check_result(unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            place,
            &mut length,
        )
    })?;
    Ok(peer)
}

/// Sends a message, with a descriptor or without.
///
/// # Errors
/// Those of the system call.
pub fn send(socket: RawFd, bytes: &[u8], with: Option<RawFd>) -> io::Result<()> {
    send_fds(socket, bytes, with.as_slice())
}

/// Sends a message with up to [`FDS_MAX`] descriptors.
///
/// # Errors
/// Those of the system call.
pub fn send_fds(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros is a valid message; every pointer is to something that lives until the call returns;
    // the control buffer has room for one header and as many descriptors as there may be.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        if !fds.is_empty() && fds.len() <= FDS_MAX {
            let length = size_of_val(fds) as u32;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(length) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(length) as _;
            let place = libc::CMSG_DATA(header).cast::<RawFd>();
            place.copy_from_nonoverlapping(fds.as_ptr(), fds.len());
        }
        libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Creates a pair of connected stream sockets.
///
/// # Errors
/// Those of the system call.
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    pair_of(libc::SOCK_STREAM)
}

/// Creates a pair of connected sockets that preserve message boundaries.
///
/// # Errors
/// Those of the system call.
pub fn message_pair() -> io::Result<[OwnedFd; 2]> {
    pair_of(libc::SOCK_SEQPACKET)
}

fn pair_of(kind: i32) -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    check_result(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: new descriptors that nothing else owns.
    Ok(ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Receives the available bytes, waiting for some. 0 bytes: the other side has closed. Whether a signal
/// interrupts it depends on the flags of its handler.
///
/// # Errors
/// Those of the system call.
pub fn receive_some(socket: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a slice and its length.
    let received = unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if received < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(received as usize)
    }
}

/// Waits until there is something to receive, at most `time`; whether there is.
pub fn is_readable_within(socket: RawFd, time: Duration) -> bool {
    let mut wanted = libc::pollfd {
        fd: socket,
        events: libc::POLLIN,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    // SAFETY: one descriptor, a time, and no signal mask.
    unsafe { libc::ppoll(&mut wanted, 1, &time, std::ptr::null()) > 0 }
}

/// Waits until one of these descriptors is ready, at most `most` if there is a limit; their `revents` show
/// which are. A signal ends the wait.
///
/// # Errors
/// Those of the system call.
pub fn wait_for_any(polled: &mut [libc::pollfd], most: Option<Duration>) -> io::Result<()> {
    polled.iter_mut().for_each(|it| it.revents = 0);
    let time = most.map(|it| libc::timespec {
        tv_sec: it.as_secs() as i64,
        tv_nsec: i64::from(it.subsec_nanos()),
    });
    let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a slice and its length, a time that lives until the call returns or none, and no signal mask.
    let ready = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            limit,
            std::ptr::null(),
        )
    };
    match ready {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

/// Receives a message and its descriptor. 0 bytes: the other side has closed.
///
/// # Errors
/// Those of the system call.
pub fn receive(socket: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    receive_fds(socket, bytes).map(|(length, [first])| (length, first))
}

/// Receives a message and its first descriptors; others are closed. 0 bytes: the other side has closed.
///
/// # Errors
/// Those of the system call.
pub fn receive_fds<const MOST: usize>(
    socket: RawFd,
    bytes: &mut [u8],
) -> io::Result<(usize, [Option<OwnedFd>; MOST])> {
    receive_with(socket, bytes, 0)
}

/// The first message and its descriptor, which stay in the queue. The descriptor is a new one each time.
///
/// # Errors
/// Those of the system call.
pub fn peek(socket: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    receive_with(socket, bytes, libc::MSG_PEEK).map(|(length, [first])| (length, first))
}

fn receive_with<const MOST: usize>(
    socket: RawFd,
    bytes: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, [Option<OwnedFd>; MOST])> {
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut piece = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: as in `send`; a descriptor that comes is new, and nothing else owns it.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let received = loop {
            let received = libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC | flags);
            if received >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break received;
            }
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&message).as_ref();
        let is_fd = |header: &&libc::cmsghdr| {
            header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS
        };
        let mut fds = [const { None }; MOST];
        if let Some(header) = header.filter(is_fd) {
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            let count = (header.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
            // Excess descriptors are closed.
            for index in 0..count {
                let fd = OwnedFd::from_raw_fd(data.add(index).read_unaligned());
                if let Some(place) = fds.get_mut(index) {
                    *place = Some(fd);
                }
            }
        }
        Ok((received as usize, fds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_without_a_place_are_closed() {
        let [a, b] = pair().unwrap();
        let file = anonymous_file().unwrap();
        send_fds(a.as_raw_fd(), b"x", &[file.as_raw_fd(); 4]).unwrap();
        let (length, fds) = receive_fds::<3>(b.as_raw_fd(), &mut [0; 8]).unwrap();
        assert_eq!((length, fds.iter().flatten().count()), (1, 3));
        let same = (0..1024)
            .filter(|&fd| same_file(fd, file.as_raw_fd()))
            .count();
        assert_eq!(same, 1 + 3);
    }

    fn same_file(one: RawFd, other: RawFd) -> bool {
        let inode = |fd: RawFd| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(format!("/proc/self/fd/{fd}"))
                .map(|file| (file.dev(), file.ino()))
                .ok()
        };
        inode(one).is_some() && inode(one) == inode(other)
    }

    #[test]
    fn a_process_is_told_from_others() {
        let [a, _b] = pair().unwrap();
        let own = peer_identity(a.as_raw_fd()).unwrap();
        assert_eq!(
            (own.process, peer_identity(a.as_raw_fd()).unwrap()),
            (std::process::id(), own)
        );
    }
}
