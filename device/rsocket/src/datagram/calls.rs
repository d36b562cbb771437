//! Calls on datagram sockets.

use super::{Datagrams, Storage, Waiting, udp};
use crate::options::{
    RDMA_INLINE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA, read, timeout, timeval, write,
};
use crate::sizes::{BYTES, INLINE_BYTES_MAX, REQUESTS};
use crate::wait::{Endpoint, Shared};
use core::ffi::{c_int, c_void};
use ffi::Errno;
use rdma_cm::sockaddr;
use std::net::SocketAddr;
use std::time::Duration;

/// Time that closing waits for datagrams to be sent.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// A datagram that was read.
pub(crate) struct Received {
    /// Bytes copied to the program, and bytes of the datagram.
    pub(crate) copied: usize,
    pub(crate) length: usize,
    /// The sender's address, IPv4-mapped on sockets of IPv6.
    pub(crate) from: Option<SocketAddr>,
}

/// Copies the next datagram into the program's pieces of memory.
pub(crate) fn receive(
    socket: &Shared<Datagrams>,
    pieces: &mut [&mut [u8]],
    flags: c_int,
) -> Result<Received, Errno> {
    let (nonblocking, time) = {
        let inner = socket.lock();
        (
            inner.nonblocking || flags & libc::MSG_DONTWAIT != 0,
            inner.receive_timeout,
        )
    };
    socket.wait(nonblocking, time, |inner| {
        if let Some(first) = inner.arrived.front() {
            let received = inner.copy(first, pieces);
            if flags & libc::MSG_PEEK == 0 {
                inner.drop_first();
            }
            return Ok(Some(received));
        }
        match inner.error.take() {
            Some(error) => Err(error),
            None if inner.is_readable => Ok(None),
            None => Ok(Some(Received {
                copied: 0,
                length: 0,
                from: None,
            })),
        }
    })
}

impl Datagrams {
    fn copy(&self, waiting: &Waiting, pieces: &mut [&mut [u8]]) -> Received {
        let mut copied = 0;
        for piece in pieces {
            copied += match &waiting.place {
                Storage::Slot(at, arrival) => self.ud_qps[*at].copy(arrival, copied, piece),
                Storage::Heap(bytes) => {
                    let rest = bytes.get(copied..).unwrap_or_default();
                    let now = rest.len().min(piece.len());
                    piece[..now].copy_from_slice(&rest[..now]);
                    now
                }
            };
        }
        let length = match &waiting.place {
            Storage::Slot(_, arrival) => arrival.length as usize,
            Storage::Heap(bytes) => bytes.len(),
        };
        Received {
            copied,
            length,
            from: Some(self.udp.seen(waiting.from)),
        }
    }

    /// The port of the UDP socket; sending binds it if it is not bound.
    fn port(&mut self) -> Result<u16, Errno> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let local = self.udp.local()?;
        if local.port() == 0 {
            let any = self.udp.seen(SocketAddr::new(local.ip(), 0));
            let storage = sockaddr::storage(any);
            // SAFETY: an address as long as it says.
            Errno::check_code(unsafe {
                libc::bind(
                    self.udp.descriptor(),
                    storage.as_ptr().cast(),
                    sockaddr::length(&any),
                )
            })?;
        }
        let port = self.udp.local()?.port();
        self.port = Some(port);
        Ok(port)
    }
}

/// Sends one datagram, to the connected peer unless another destination is given.
pub(crate) fn send(
    socket: &Shared<Datagrams>,
    pieces: &[&[u8]],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize, Errno> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (nonblocking, time) = {
        let inner = socket.lock();
        (
            inner.nonblocking || flags & libc::MSG_DONTWAIT != 0,
            inner.send_timeout,
        )
    };
    socket.wait(nonblocking, time, |inner| {
        if let Some(error) = inner.error.take() {
            return Err(error);
        }
        if !inner.is_writable {
            return Err(Errno(libc::EPIPE));
        }
        let to = to
            .map(udp::plain)
            .or(inner.connected)
            .ok_or(Errno(libc::EDESTADDRREQ))?;
        // A datagram that has arrived meanwhile may carry the peer's queue pair number.
        inner.progress_with_system_calls();
        let port = inner.port()?;
        Ok(inner.send_to(to, pieces, length, port)?.map(|()| length))
    })
}

/// # Safety
/// `length` bytes are at `address`.
pub(crate) unsafe fn bind(
    socket: &Shared<Datagrams>,
    address: *const c_void,
    length: u32,
) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `length` bytes are at `address`.
    Errno::check_code(unsafe { libc::bind(socket.fd, address.cast(), length) })
}

/// Connects the socket to a peer, from which alone it receives from then on; `AF_UNSPEC` disconnects it.
///
/// # Safety
/// `length` bytes are at `address`.
pub(crate) unsafe fn connect(
    socket: &Shared<Datagrams>,
    address: *const c_void,
    length: u32,
) -> Result<(), Errno> {
    let mut inner = socket.lock();
    // SAFETY: by this function's contract, `length` bytes are at `address`; an address begins with its
    // family.
    let (connected, family) = unsafe {
        let family = address
            .cast::<libc::sockaddr>()
            .as_ref()
            .ok_or(Errno::INVALID)?
            .sa_family;
        (
            libc::connect(socket.fd, address.cast(), length),
            c_int::from(family),
        )
    };
    Errno::check_code(connected)?;
    if family == libc::AF_UNSPEC {
        inner.connected = None;
        return Ok(());
    }
    // SAFETY: by this function's contract, `length` bytes are at `address`.
    let peer = udp::plain(unsafe { sockaddr::read(address) }?);
    inner.add_peer(peer)?;
    inner.connected = Some(peer);
    Ok(())
}

/// Returns the address of the connected peer.
///
/// # Safety
/// `*length` bytes are writable at `address`.
pub(crate) unsafe fn peer(
    socket: &Shared<Datagrams>,
    address: *mut c_void,
    length: *mut u32,
) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `*length` bytes are writable at `address`.
    Errno::check_code(unsafe { libc::getpeername(socket.fd, address.cast(), length) })
}

/// Shuts down sending after the queued datagrams have left, or receiving.
pub(crate) fn shutdown(socket: &Shared<Datagrams>, how: c_int) -> Result<(), Errno> {
    let left = socket.wait(false, Some(CLOSE_MAX), |inner| {
        Ok(inner.is_idle().then_some(()))
    });
    let mut inner = socket.lock();
    if inner.connected.is_none() {
        return Err(Errno(libc::ENOTCONN));
    }
    match how {
        libc::SHUT_RD => inner.is_readable = false,
        libc::SHUT_WR => inner.is_writable = false,
        libc::SHUT_RDWR => (inner.is_readable, inner.is_writable) = (false, false),
        _ => return Err(Errno::INVALID),
    }
    left
}

/// Sets an option: queue sizes and time-outs here, all others on the UDP socket.
///
/// # Safety
/// `length` bytes are at `value`.
pub(crate) unsafe fn set_option(
    socket: &Shared<Datagrams>,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: u32,
) -> Result<(), Errno> {
    let mut inner = socket.lock();
    // SAFETY: by this function's contract, `length` bytes are at `value`.
    let number = || unsafe { read::<c_int>(value, length) }.map(|value| value.max(0) as u32);
    let requests = || number().map(|value| value.clamp(*REQUESTS.start(), *REQUESTS.end()));
    let bytes = || number().map(|value| (value as usize).clamp(*BYTES.start(), *BYTES.end()));
    let is_fresh = inner.ud_qps.is_empty();
    match (level, name) {
        (SOL_RDMA, RDMA_SQSIZE) if is_fresh => inner.sizes.sends = requests()?,
        (SOL_RDMA, RDMA_RQSIZE) if is_fresh => inner.sizes.receives = requests()?,
        (SOL_RDMA, RDMA_INLINE) if is_fresh => {
            inner.sizes.inline_bytes = number()?.min(INLINE_BYTES_MAX)
        }
        (SOL_RDMA, _) => return Err(Errno::INVALID),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            // SAFETY: by this function's contract, `length` bytes are at `value`.
            inner.receive_timeout = timeout(unsafe { read(value, length) }?);
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            // SAFETY: by this function's contract, `length` bytes are at `value`.
            inner.send_timeout = timeout(unsafe { read(value, length) }?);
        }
        _ => {
            // SAFETY: by this function's contract, `length` bytes are at `value`.
            Errno::check_code(unsafe { libc::setsockopt(socket.fd, level, name, value, length) })?;
            if (level, name) == (libc::SOL_SOCKET, libc::SO_RCVBUF) {
                inner.sizes.receive_bytes = bytes()?;
            } else if (level, name) == (libc::SOL_SOCKET, libc::SO_SNDBUF) {
                inner.sizes.send_bytes = bytes()?;
            }
        }
    }
    Ok(())
}

/// # Safety
/// `*length` bytes are writable at `value`.
pub(crate) unsafe fn option(
    socket: &Shared<Datagrams>,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut u32,
) -> Result<(), Errno> {
    let mut inner = socket.lock();
    // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
    unsafe {
        match (level, name) {
            (SOL_RDMA, RDMA_SQSIZE) => write(inner.sizes.sends as c_int, value, length),
            (SOL_RDMA, RDMA_RQSIZE) => write(inner.sizes.receives as c_int, value, length),
            (SOL_RDMA, RDMA_INLINE) => write(inner.sizes.inline_bytes as c_int, value, length),
            (SOL_RDMA, _) => Err(Errno(libc::ENOPROTOOPT)),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                write(timeval(inner.receive_timeout), value, length)
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                write(timeval(inner.send_timeout), value, length)
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                write(inner.sizes.receive_bytes as c_int, value, length)
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                write(inner.sizes.send_bytes as c_int, value, length)
            }
            (libc::SOL_SOCKET, libc::SO_ERROR) if inner.error.is_some() => {
                let error = inner.error.take().map_or(0, |Errno(error)| error);
                write(error, value, length)
            }
            _ => Errno::check_code(libc::getsockopt(socket.fd, level, name, value, length)),
        }
    }
}
