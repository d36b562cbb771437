//! Where programs fork between accepting a connection and using it (`RDMAV_FORK_SAFE=1`, at both ends), which
//! a connection by RDMA does not survive: the two ends meet by TCP, and the first call that reads or writes
//! replaces that by a connection by RDMA, as rdma-core does it.
//!
//! The end that accepted listens at the same port by RDMA, and tells so by four bytes of zeros over TCP. The
//! other end looks at them and connects. One process of a host does this at a time, since they share a port:
//! whoever has bound a name of Unix sockets, which goes with the process. (rdma-core has a semaphore, which
//! nobody raises any more when its owner is killed.)

use crate::calls::make;
use crate::real;
use crate::rsockets as r;
use crate::table::{self, Kind, Pending};
use core::ffi::c_int;
use core::mem::offset_of;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of Unix sockets without a file; the user's number follows.
const TURN: &[u8] = b"\0rockery-rsocket-fork-";
/// How long another process may take, and how often it is asked.
const TURN_MAX: Duration = Duration::from_secs(10);
const TURN_AGAIN: Duration = Duration::from_millis(1);
const READY: [u8; 4] = [0; 4];

/// Makes an rsocket of a connection that is TCP's so far. Where that fails it stays TCP's.
///
/// # Safety
/// `fd` is the program's, and pending.
pub(crate) unsafe fn settle(fd: c_int) {
    // Two threads may begin to use it at once.
    static SETTLING: Mutex<()> = Mutex::new(());
    let _settling = SETTLING.lock().unwrap_or_else(PoisonError::into_inner);
    let settled = match table::kind(fd) {
        // SAFETY: as above.
        Kind::Pending(Pending::Active) => unsafe { meet_as_active(fd) },
        // SAFETY: as above.
        Kind::Pending(Pending::Passive) => unsafe { meet_as_passive(fd) },
        _ => return,
    };
    let kind = settled.map_or(Kind::Plain, Kind::Rsocket);
    if kind != Kind::Plain {
        // SAFETY: a socket; the peer has no use for it either.
        unsafe { real::shutdown(fd, libc::SHUT_RDWR) };
    }
    if !table::set(fd, kind)
        && let Some(rsocket) = settled
    {
        // SAFETY: ours.
        unsafe { r::rclose(rsocket) };
    }
}

/// # Safety
/// As [`settle`].
unsafe fn meet_as_active(fd: c_int) -> Option<c_int> {
    // SAFETY: room for what is received, and for an address.
    unsafe {
        let flags = real::fcntl(fd, libc::F_GETFL, 0);
        real::fcntl(fd, libc::F_SETFL, 0);
        let mut said = [1_u8; READY.len()];
        let got = real::recv(fd, said.as_mut_ptr().cast(), said.len(), libc::MSG_PEEK | libc::MSG_WAITALL);
        real::fcntl(fd, libc::F_SETFL, flags.into());
        if got != READY.len() as isize || said != READY {
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
/// As [`settle`].
unsafe fn meet_as_passive(fd: c_int) -> Option<c_int> {
    let turn = take_turn();
    // SAFETY: as above.
    let accepted = unsafe { accept_once(fd) };
    drop(turn);
    if let Some(rsocket) = accepted {
        // SAFETY: both are ours.
        unsafe { inherit(rsocket, fd) };
    }
    accepted
}

/// Waits until no other process accepts in this way. After a while it goes on without: a peer that is
/// mistaken for another is better than none.
fn take_turn() -> Option<OwnedFd> {
    // SAFETY: numbers.
    let user = unsafe { libc::getuid() };
    let name = [TURN, user.to_string().as_bytes()].concat();
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
        let turn = OwnedFd::from_raw_fd(socket);
        let limit = Instant::now() + TURN_MAX;
        while real::bind(socket, core::ptr::from_ref(&address).cast(), length) != 0 && Instant::now() < limit
        {
            std::thread::sleep(TURN_AGAIN);
        }
        Some(turn)
    }
}

/// Listens at the port of a TCP connection, tells the peer, and accepts it.
///
/// # Safety
/// As [`settle`].
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
        let (yes, size) = (core::ptr::from_ref(&yes).cast(), size_of::<c_int>() as socklen_t);
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
        (of(fd, core::ptr::from_mut(&mut address).cast(), &mut length) == 0).then_some((address, length))
    }
}

/// What was set on the socket so far.
///
/// # Safety
/// An rsocket of ours, and a socket.
unsafe fn inherit(rsocket: c_int, fd: c_int) {
    // SAFETY: room for a number.
    unsafe {
        r::rfcntl(rsocket, libc::F_SETFL, real::fcntl(fd, libc::F_GETFL, 0));
        for (level, name) in [(libc::SOL_SOCKET, libc::SO_KEEPALIVE), (libc::IPPROTO_TCP, libc::TCP_NODELAY)]
        {
            let (mut value, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
            let place = core::ptr::from_mut(&mut value).cast();
            if real::getsockopt(fd, level, name, place, &mut length) == 0 {
                r::rsetsockopt(rsocket, level, name, place, length);
            }
        }
    }
}
