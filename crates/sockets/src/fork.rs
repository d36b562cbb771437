//! Where programs fork between accepting a connection and using it (`RDMAV_FORK_SAFE=1`, at both ends), which
//! a connection by RDMA does not survive: the two ends meet by TCP, and the first call that reads or writes
//! replaces that by a connection by RDMA, as rdma-core does it.
//!
//! The end that accepted listens at the same port by RDMA, and tells so by four bytes of zeros over TCP. The
//! other end looks at them and connects. One process of a host does this at a time, since they share a port.

use crate::calls::make;
use crate::real;
use crate::rsockets as r;
use crate::table::{self, Kind, Pending};
use core::ffi::{CStr, c_int};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::sync::{Mutex, PoisonError};

/// As rdma-core's is called, whose programs take part.
const TURN: &CStr = c"/rsocket_fork";
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
    // SAFETY: the name ends with 0; a semaphore is used until it is closed.
    unsafe {
        let turn = libc::sem_open(TURN.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o666, 1);
        if turn == libc::SEM_FAILED {
            return None;
        }
        while libc::sem_wait(turn) != 0 {}
        let accepted = accept_once(fd);
        libc::sem_post(turn);
        libc::sem_close(turn);
        if let Some(rsocket) = accepted {
            inherit(rsocket, fd);
        }
        accepted
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
