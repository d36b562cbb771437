//! Sockets of `NETLINK_RDMA`, which a kernel without RDMA does not answer.
//!
//! A program that creates one gets a `NETLINK_USERSOCK` socket instead, on which processes may send to each
//! other. A second socket of this process sends the answers of [`crate::nldev`] at once, so the program
//! receives, polls and closes as with the kernel's.

use crate::next_on_sockets as real;
use crate::{counters, devices, nldev};
use core::ffi::c_int;
use core::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Sockets that are remembered. When there are more, the oldest is forgotten: programs close them after a
/// request.
const SOCKETS_MAX: usize = 32;
/// Longest request in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 16 << 10;

/// A socket that was given to the program: its descriptor, and the kernel's cookie for the socket
/// (`SO_COOKIE`). The cookie shows when the descriptor was closed and is used for another socket.
struct Given {
    descriptor: AtomicI32,
    cookie: AtomicU64,
}

static GIVEN: [Given; SOCKETS_MAX] = [const {
    Given {
        descriptor: AtomicI32::new(-1),
        cookie: AtomicU64::new(0),
    }
}; SOCKETS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of sockets given. Most programs never have one, and their calls only load this.
static ANY: AtomicBool = AtomicBool::new(false);

/// A socket instead of the kernel's; `None` if there is no view, or no socket can be created.
#[inline(never)]
pub(crate) fn open(kind: c_int) -> Option<RawFd> {
    crate::translate::folder()?;
    // SAFETY: numbers only.
    let socket = unsafe { real::socket(libc::AF_NETLINK, kind, libc::NETLINK_USERSOCK) };
    if socket < 0 {
        return None;
    }
    let given = &GIVEN[COUNT.fetch_add(1, Ordering::Relaxed) % SOCKETS_MAX];
    given.descriptor.store(-1, Ordering::Relaxed);
    given.cookie.store(cookie(socket), Ordering::Relaxed);
    given.descriptor.store(socket, Ordering::Release);
    ANY.store(true, Ordering::Release);
    Some(socket)
}

/// Whether [`open`] has created a descriptor's socket.
pub(crate) fn is_given(socket: RawFd) -> bool {
    ANY.load(Ordering::Acquire)
        && GIVEN.iter().any(|given| {
            given.descriptor.load(Ordering::Acquire) == socket
                && given.cookie.load(Ordering::Relaxed) == cookie(socket)
        })
}

#[inline(never)]
fn cookie(socket: RawFd) -> u64 {
    link::unix::cookie(socket).unwrap_or_default()
}

/// Answers a request of the program; on failure returns false and sets `errno`.
pub(crate) fn answer(socket: RawFd, request: &[u8]) -> bool {
    let Some(port) = port_of(socket) else {
        return false;
    };
    let known = devices::all().unwrap_or_default();
    let counters = |name: &str| counters::all(name);
    let answers = nldev::answers(request, port, &known, &counters);
    // SAFETY: numbers only.
    let from = unsafe {
        real::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_USERSOCK,
        )
    };
    if from < 0 {
        return false;
    }
    // SAFETY: a new descriptor that nothing else owns.
    let from = unsafe { OwnedFd::from_raw_fd(from) };
    let (to, length) = address(port);
    answers.iter().all(|datagram| {
        let (bytes, count) = (datagram.as_ptr().cast(), datagram.len());
        // SAFETY: a slice, an address, and their lengths.
        let sent = unsafe {
            real::sendto(
                from.as_raw_fd(),
                bytes,
                count,
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                length,
            )
        };
        sent >= 0
    })
}

/// The netlink port that the socket receives on. It is bound if it has none yet, as the kernel does when
/// sending.
fn port_of(socket: RawFd) -> Option<u32> {
    for _ in 0..2 {
        let (mut own, mut length) = address(0);
        // SAFETY: room for an address, and its length.
        let known = unsafe { libc::getsockname(socket, (&raw mut own).cast(), &mut length) };
        if known == 0 && own.nl_pid != 0 {
            return Some(own.nl_pid);
        }
        let (any, length) = address(0);
        // SAFETY: an address and its length.
        unsafe { libc::bind(socket, (&raw const any).cast(), length) };
    }
    None
}

fn address(port: u32) -> (libc::sockaddr_nl, u32) {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_pid = port;
    (address, size_of::<libc::sockaddr_nl>() as u32)
}
