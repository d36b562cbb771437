//! Connections of programs that fork between accepting a connection and using it (`RDMAV_FORK_SAFE=1`, at
//! both ends). RDMA connections do not survive a fork, so the ends connect by TCP, and the first read or
//! write replaces that by an RDMA connection, as in rdma-core.
//!
//! The end that accepted listens at the same port by RDMA, and then sends four zero bytes over TCP. The other
//! end peeks at them and connects by RDMA. Processes of a host do this one at a time, since they share the
//! port. The lock is the name of a Unix socket, which the kernel releases when the process ends. (rdma-core's
//! semaphore stays locked when its owner is killed.)

use crate::make::make;
use crate::real;
use crate::rsockets as r;
use crate::table::{self, Kind, Pending};
use core::ffi::c_int;
use core::mem::offset_of;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Beginning of the lock's name in the abstract socket namespace; the user ID follows.
const LOCK_NAME: &[u8] = b"\0rockery-rsocket-fork-";
/// How long to wait for the lock, and how often to try.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
const LOCK_RETRY: Duration = Duration::from_millis(1);
const READY: [u8; 4] = [0; 4];

/// Replaces a TCP connection by an rsocket. If that fails, the connection stays on TCP.
///
/// # Safety
/// `fd` is a pending connection of the program.
#[inline(never)]
pub(crate) unsafe fn establish(fd: c_int) {
    // Two threads may use the connection for the first time at once.
    static ESTABLISHING: Mutex<()> = Mutex::new(());
    let _establishing = ESTABLISHING.lock().unwrap_or_else(PoisonError::into_inner);
    let established = match table::kind(fd) {
        // SAFETY: by this function's contract, `fd` is a pending connection of the program.
        Kind::Pending(Pending::Active) => unsafe { connect_rdma(fd) },
        // SAFETY: by this function's contract, `fd` is a pending connection of the program.
        Kind::Pending(Pending::Passive) => unsafe { accept_rdma(fd) },
        _ => return,
    };
    let kind = established.map_or(Kind::Plain, Kind::Rsocket);
    if kind != Kind::Plain {
        // SAFETY: a socket, which the peer does not use any more either.
        unsafe { real::shutdown(fd, libc::SHUT_RDWR) };
    }
    if !table::set(fd, kind)
        && let Some(rsocket) = established
    {
        // SAFETY: ours.
        unsafe { r::rclose(rsocket) };
    }
}

/// # Safety
/// As for [`establish`].
unsafe fn connect_rdma(fd: c_int) -> Option<c_int> {
    // SAFETY: room for the received bytes, and for an address.
    unsafe {
        let flags = real::fcntl(fd, libc::F_GETFL, 0);
        real::fcntl(fd, libc::F_SETFL, 0);
        let mut received = [1_u8; READY.len()];
        let got = real::recv(
            fd,
            received.as_mut_ptr().cast(),
            received.len(),
            libc::MSG_PEEK | libc::MSG_WAITALL,
        );
        real::fcntl(fd, libc::F_SETFL, flags.into());
        if got != READY.len() as isize || received != READY {
            return None;
        }
        let (address, length) = address(fd, real::getpeername)?;
        let rsocket = make(address.ss_family.into(), libc::SOCK_STREAM, 0)?;
        if r::rconnect(rsocket, core::ptr::from_ref(&address).cast(), length) != 0 {
            r::rclose(rsocket);
            return None;
        }
        inherit(rsocket, fd);
        Some(rsocket)
    }
}

/// # Safety
/// As for [`establish`].
unsafe fn accept_rdma(fd: c_int) -> Option<c_int> {
    let lock = take_lock();
    // SAFETY: by this function's contract, which is that of [`establish`].
    let accepted = unsafe { accept_once(fd) };
    drop(lock);
    if let Some(rsocket) = accepted {
        // SAFETY: both are ours.
        unsafe { inherit(rsocket, fd) };
    }
    accepted
}

/// Waits for the lock. After [`LOCK_WAIT_MAX`] it continues without it, because waiting forever is worse than
/// the small risk that two connections are confused.
fn take_lock() -> Option<OwnedFd> {
    // SAFETY: numbers.
    let user = unsafe { libc::getuid() };
    let name = [LOCK_NAME, user.to_string().as_bytes()].concat();
    // SAFETY: zeros are a valid value.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(&name) {
        *to = *from as _;
    }
    let length = (offset_of!(libc::sockaddr_un, sun_path) + name.len()) as socklen_t;
    // SAFETY: numbers; an address of that length.
    unsafe {
        let socket = real::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return None;
        }
        let lock = OwnedFd::from_raw_fd(socket);
        let limit = Instant::now() + LOCK_WAIT_MAX;
        while real::bind(socket, core::ptr::from_ref(&address).cast(), length) != 0
            && Instant::now() < limit
        {
            std::thread::sleep(LOCK_RETRY);
        }
        Some(lock)
    }
}

/// Listens by RDMA at the port of a TCP connection, notifies the peer, and accepts.
///
/// # Safety
/// As for [`establish`].
unsafe fn accept_once(fd: c_int) -> Option<c_int> {
    // SAFETY: addresses as long as they say, in room for any.
    unsafe {
        let (mut local, length) = address(fd, real::getsockname)?;
        let place = core::ptr::from_mut(&mut local);
        match c_int::from(local.ss_family) {
            libc::AF_INET => (*place.cast::<sockaddr_in>()).sin_addr.s_addr = libc::INADDR_ANY,
            libc::AF_INET6 => {
                let v6 = &mut *place.cast::<sockaddr_in6>();
                (v6.sin6_addr.s6_addr, v6.sin6_flowinfo, v6.sin6_scope_id) = ([0; 16], 0, 0);
            }
            _ => return None,
        }
        let listener = make(local.ss_family.into(), libc::SOCK_STREAM, 0)?;
        let yes: c_int = 1;
        let (yes, size) = (
            core::ptr::from_ref(&yes).cast(),
            size_of::<c_int>() as socklen_t,
        );
        r::rsetsockopt(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, yes, size);
        let accepted = if r::rbind(listener, place.cast(), length) == 0
            && r::rlisten(listener, 1) == 0
            && real::write(fd, READY.as_ptr().cast(), READY.len()) == READY.len() as isize
        {
            r::raccept(listener, core::ptr::null_mut(), core::ptr::null_mut())
        } else {
            -1
        };
        r::rclose(listener);
        (accepted >= 0).then_some(accepted)
    }
}

/// # Safety
/// `of` is `getsockname` or `getpeername`.
unsafe fn address(
    fd: c_int,
    of: unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
) -> Option<(sockaddr_storage, socklen_t)> {
    // SAFETY: zeros are a valid value, with room for any address.
    unsafe {
        let mut address: sockaddr_storage = core::mem::zeroed();
        let mut length = size_of::<sockaddr_storage>() as socklen_t;
        (of(fd, core::ptr::from_mut(&mut address).cast(), &mut length) == 0)
            .then_some((address, length))
    }
}

/// Copies options of the socket that were set so far.
///
/// # Safety
/// An rsocket of this library, and a socket.
unsafe fn inherit(rsocket: c_int, fd: c_int) {
    // SAFETY: room for a number.
    unsafe {
        r::rfcntl(rsocket, libc::F_SETFL, real::fcntl(fd, libc::F_GETFL, 0));
        for (level, name) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        ] {
            let (mut value, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
            let place = core::ptr::from_mut(&mut value).cast();
            if real::getsockopt(fd, level, name, place, &mut length) == 0 {
                r::rsetsockopt(rsocket, level, name, place, length);
            }
        }
    }
}
