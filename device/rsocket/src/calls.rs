//! The rsocket functions that C calls: `rsocket`, `rconnect`, `rsend` and so on.

use super::options::OptionName;
use super::socket::{Phase, Socket};
use super::table::Found;
use super::wait::Endpoint;
use super::{datagram, poll, socket_options, table, transfer};
use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use ffi::{Errno, In, InOut, public_exports};
use libc::{iovec, msghdr, pollfd, timeval};
use rdma_cm::rdma_bind_addr;
use rdma_cm::rdma_listen;
use rdma_cm::sockaddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one call at most, so that the count fits the return value (Linux: `MAX_RW_COUNT`).
const CALL_BYTES_MAX: usize = 0x7fff_f000;
/// Elements of a vector at most (Linux: `UIO_MAXIOV`).
const ELEMENTS_MAX: usize = 1024;

fn found(fd: c_int) -> Result<Found, Errno> {
    table::find(fd).ok_or(Errno(libc::EBADF))
}

/// The stream socket behind a descriptor.
fn socket(fd: c_int) -> Result<Arc<Socket>, Errno> {
    match found(fd)? {
        Found::Stream(socket) => Ok(socket),
        Found::Datagram(_) => Err(Errno::UNSUPPORTED),
    }
}

/// Copies an address to the caller, cut to the room that it has.
///
/// # Safety
/// `*room` bytes are writable at `to`, or one of the pointers is NULL.
unsafe fn give_address(
    storage: &sockaddr_storage,
    to: *mut c_void,
    room: *mut u32,
) -> Result<(), Errno> {
    if to.is_null() || room.is_null() {
        return Ok(());
    }
    let address = sockaddr::stored(storage).ok_or(Errno(libc::ENOTCONN))?;
    let length = sockaddr::length(&address);
    // SAFETY: by this function's contract, `*room` bytes are writable at `to`, or one of the pointers is
    // NULL.
    unsafe {
        core::ptr::copy_nonoverlapping(
            storage.as_ptr().cast::<u8>(),
            to.cast(),
            length.min(*room) as usize,
        );
        *room = length;
    }
    Ok(())
}

/// Result of a receive call.
struct Fetched {
    bytes: usize,
    from: sockaddr_storage,
    flags: c_int,
}

fn receive(fd: c_int, pieces: &mut [&mut [u8]], flags: c_int) -> Result<Fetched, Errno> {
    match found(fd)? {
        Found::Stream(socket) => {
            let bytes = transfer::receive(&socket, pieces, flags)?;
            // SAFETY: the identifier lives as long as its socket.
            let from = unsafe { (*socket.lock().id).route.addr.dst_storage };
            Ok(Fetched {
                bytes,
                from,
                flags: 0,
            })
        }
        Found::Datagram(socket) => {
            let received = datagram::receive(&socket, pieces, flags)?;
            let is_cut = received.copied < received.length;
            Ok(Fetched {
                bytes: if flags & libc::MSG_TRUNC != 0 {
                    received.length
                } else {
                    received.copied
                },
                from: received
                    .from
                    .map_or_else(sockaddr_storage::default, sockaddr::storage),
                flags: if is_cut { libc::MSG_TRUNC } else { 0 },
            })
        }
    }
}

/// The address that a program sends to, as it passes it: NULL for the peer of a connected socket.
#[derive(Clone, Copy)]
struct Destination {
    address: *const c_void,
    length: u32,
}

/// # Safety
/// The address of `to` is NULL, or has `length` bytes.
unsafe fn send(fd: c_int, pieces: &[&[u8]], flags: c_int, to: Destination) -> Result<isize, Errno> {
    let sent = match found(fd)? {
        // On a stream the address is ignored: the peer is known.
        Found::Stream(socket) => transfer::send(&socket, pieces, flags)?,
        Found::Datagram(socket) => {
            // SAFETY: by this function's contract, `to` is NULL, or an address of `length` bytes.
            let to = (!to.address.is_null() && to.length > 0)
                .then(|| unsafe { sockaddr::read(to.address) })
                .transpose()?;
            datagram::send(&socket, pieces, flags, to)?
        }
    };
    Ok(sent as isize)
}

/// No destination: the peer that the socket is connected to.
const NO_DESTINATION: Destination = Destination {
    address: core::ptr::null(),
    length: 0,
};

/// # Safety
/// `length` bytes are readable at `memory`.
unsafe fn bytes<'a>(memory: *const c_void, length: usize) -> &'a [u8] {
    if memory.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: by this function's contract, `length` bytes are readable at `memory`.
    unsafe { core::slice::from_raw_parts(memory.cast(), length.min(CALL_BYTES_MAX)) }
}

/// # Safety
/// `length` bytes are writable at `memory`.
unsafe fn room<'a>(memory: *mut c_void, length: usize) -> &'a mut [u8] {
    if memory.is_null() || length == 0 {
        return &mut [];
    }
    // SAFETY: by this function's contract, `length` bytes are writable at `memory`.
    unsafe { core::slice::from_raw_parts_mut(memory.cast(), length.min(CALL_BYTES_MAX)) }
}

/// # Safety
/// `count` elements are at `list`, and each points to as many bytes as it names.
unsafe fn vector<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > ELEMENTS_MAX || (list.is_null() && count > 0) {
        return Err(Errno::INVALID);
    }
    Ok(if count == 0 {
        &[]
    } else {
        // SAFETY: by this function's contract, `count` elements are at `list`, and each points to as many
        // bytes as it names.
        unsafe { core::slice::from_raw_parts(list, count) }
    })
}

/// # Safety
/// As [`vector`].
unsafe fn receive_vector(
    fd: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<Fetched, Errno> {
    // SAFETY: by this function's contract, which is that of [`vector`].
    let pieces = unsafe {
        vector(list, count)?
            .iter()
            .map(|it| room(it.iov_base, it.iov_len))
    };
    let mut pieces: Vec<&mut [u8]> = pieces.collect();
    receive(fd, &mut pieces, flags)
}

/// # Safety
/// As [`vector`] and [`send`].
unsafe fn send_vector(
    fd: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
    to: Destination,
) -> Result<isize, Errno> {
    // SAFETY: by this function's contract, which is that of [`vector`] and [`send`].
    let pieces = unsafe {
        vector(list, count)?
            .iter()
            .map(|it| bytes(it.iov_base, it.iov_len))
    };
    let pieces: Vec<&[u8]> = pieces.collect();
    // SAFETY: by this function's contract, which is that of [`vector`] and [`send`].
    unsafe { send(fd, &pieces, flags, to) }
}

fn elements(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::INVALID)
}

/// Converts a time-out of `poll(2)`; a negative one is none.
fn milliseconds(time: c_int) -> Option<Duration> {
    u64::try_from(time).ok().map(Duration::from_millis)
}

/// Closes a socket's connection, and removes the socket from the table.
fn close(fd: c_int) -> Result<(), Errno> {
    let Some(found) = table::remove(fd) else {
        return super::repoll::close(fd);
    };
    match found {
        Found::Stream(socket) => socket.close_connection(),
        // Datagrams that are still queued are lost, as with UDP.
        Found::Datagram(socket) => _ = datagram::shutdown(&socket, libc::SHUT_RDWR),
    }
    Ok(())
}

/// Waits until the connection is established or has failed.
fn connected(socket: &Socket, nonblocking: bool) -> Result<(), Errno> {
    let outcome = socket.wait(nonblocking, None, |inner| match inner.phase {
        Phase::Connected => Ok(Some(())),
        Phase::Failed => inner.stream().map(|_| Some(())),
        _ => Ok(None),
    });
    outcome.map_err(|error| {
        if error == Errno(libc::EAGAIN) {
            Errno(libc::EINPROGRESS)
        } else {
            error
        }
    })
}

public_exports! {
    /// Creates a stream or datagram socket of IPv4 or IPv6.
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> number(c_int) {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let found = match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                let socket = Socket::fresh()?;
                socket.lock().nonblocking = flags & libc::SOCK_NONBLOCK != 0;
                Found::Stream(Arc::new(socket))
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Found::Datagram(Arc::new(datagram::fresh(domain, flags)?))
            }
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Errno(libc::EPROTONOSUPPORT)),
            _ => return Err(Errno(libc::ESOCKTNOSUPPORT)),
        };
        Ok(table::add(found))
    }

    fn rbind(fd: c_int, address: *const c_void, length: u32) -> status(c_int) {
        let socket = match found(fd)? {
            Found::Stream(socket) => socket,
            Found::Datagram(socket) => {
                // SAFETY: the program passes an address of `length` bytes.
                return unsafe { datagram::bind(&socket, address, length) };
            }
        };
        let mut inner = socket.lock();
        // SAFETY: the identifier lives as long as its socket; the address is as the manual page requires.
        Errno::check_code(unsafe { rdma_bind_addr(inner.id, address) })?;
        inner.phase = Phase::Bound;
        Ok(())
    }

    fn rlisten(fd: c_int, backlog: c_int) -> status(c_int) {
        let socket = socket(fd)?;
        let mut inner = socket.lock();
        if inner.phase == Phase::Listening {
            return Ok(());
        }
        // SAFETY: the identifier lives as long as its socket.
        Errno::check_code(unsafe { rdma_listen(inner.id, backlog) })?;
        inner.phase = Phase::Listening;
        Ok(())
    }

    fn raccept(fd: c_int, address: *mut c_void, length: *mut u32) -> number(c_int) {
        let socket = socket(fd)?;
        let nonblocking = socket.lock().nonblocking;
        let accepted = socket.wait(nonblocking, None, |inner| {
            if inner.phase != Phase::Listening {
                return Err(Errno::INVALID);
            }
            // A request that cannot be served is dropped; the listener stays usable.
            while let Some(accepted) = inner.accept() {
                if let Ok(accepted) = accepted {
                    return Ok(Some(accepted));
                }
            }
            Ok(None)
        })?;
        // SAFETY: the identifier was just made.
        let storage = unsafe { (*accepted.id).route.addr.dst_storage };
        let fd = table::add(Found::Stream(Arc::new(Socket::of(accepted))));
        // SAFETY: the program has room for an address of `*length` bytes, or none.
        unsafe { give_address(&storage, address, length) }?;
        Ok(fd)
    }

    fn rconnect(fd: c_int, address: *const c_void, length: u32) -> status(c_int) {
        let socket = match found(fd)? {
            Found::Stream(socket) => socket,
            Found::Datagram(socket) => {
                // SAFETY: the program passes an address of `length` bytes.
                return unsafe { datagram::connect(&socket, address, length) };
            }
        };
        let nonblocking = {
            let mut inner = socket.lock();
            match inner.phase {
                Phase::Fresh | Phase::Bound => {
                    // SAFETY: the program passes an address that is as long as its family requires.
                    unsafe { inner.connect(address) }?;
                }
                Phase::Connecting if inner.nonblocking => {
                    inner.progress_with_system_calls();
                    if inner.phase == Phase::Connecting {
                        return Err(Errno(libc::EALREADY));
                    }
                }
                Phase::Connecting => {}
                Phase::Accepted | Phase::Connected => return Err(Errno(libc::EISCONN)),
                Phase::Listening => return Err(Errno::INVALID),
                Phase::Failed => {}
            }
            inner.nonblocking
        };
        connected(&socket, nonblocking)
    }

    fn rshutdown(fd: c_int, how: c_int) -> status(c_int) {
        match found(fd)? {
            Found::Stream(socket) => socket.shutdown(how),
            Found::Datagram(socket) => datagram::shutdown(&socket, how),
        }
    }

    fn rclose(fd: c_int) -> status(c_int) {
        close(fd)
    }

    fn rrecv(fd: c_int, memory: *mut c_void, length: usize, flags: c_int) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let place = unsafe { room(memory, length) };
        receive(fd, &mut [place], flags).map(|fetched| fetched.bytes as isize)
    }

    fn rrecvfrom(fd: c_int, memory: *mut c_void, length: usize, flags: c_int, address: *mut c_void,
        address_length: *mut u32) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let place = unsafe { room(memory, length) };
        let fetched = receive(fd, &mut [place], flags)?;
        // SAFETY: the program has room for an address of `*address_length` bytes, or none.
        unsafe { give_address(&fetched.from, address, address_length) }?;
        Ok(fetched.bytes as isize)
    }

    fn rrecvmsg(fd: c_int, message: InOut<'_, msghdr>, flags: c_int) -> number(isize) {
        let message = message.get()?;
        // SAFETY: a vector of the program, whose elements are as long as they say.
        let fetched = unsafe { receive_vector(fd, message.msg_iov, message.msg_iovlen, flags) }?;
        message.msg_controllen = 0;
        message.msg_flags = fetched.flags;
        // SAFETY: the program has room for an address of that length, or none.
        unsafe { give_address(&fetched.from, message.msg_name, &mut message.msg_namelen) }?;
        Ok(fetched.bytes as isize)
    }

    fn rread(fd: c_int, memory: *mut c_void, length: usize) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let place = unsafe { room(memory, length) };
        receive(fd, &mut [place], 0).map(|fetched| fetched.bytes as isize)
    }

    fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> number(isize) {
        // SAFETY: a vector of the program, whose elements are as long as they say.
        unsafe { receive_vector(fd, list, elements(count)?, 0) }.map(|fetched| fetched.bytes as isize)
    }

    fn rsend(fd: c_int, memory: *const c_void, length: usize, flags: c_int) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let piece = unsafe { bytes(memory, length) };
        // SAFETY: there is no destination.
        unsafe { send(fd, &[piece], flags, NO_DESTINATION) }
    }

    fn rsendto(fd: c_int, memory: *const c_void, length: usize, flags: c_int, address: *const c_void,
        address_length: u32) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let piece = unsafe { bytes(memory, length) };
        // SAFETY: the program passes an address of that length, or none.
        unsafe { send(fd, &[piece], flags, Destination { address, length: address_length }) }
    }

    fn rsendmsg(fd: c_int, message: In<'_, *const msghdr>, flags: c_int) -> number(isize) {
        let message = message.get()?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let to = Destination {
            address: message.msg_name.cast_const(),
            length: message.msg_namelen,
        };
        // SAFETY: a vector of the program, whose elements are as long as they say.
        unsafe { send_vector(fd, message.msg_iov, message.msg_iovlen, flags, to) }
    }

    fn rwrite(fd: c_int, memory: *const c_void, length: usize) -> number(isize) {
        // SAFETY: the program passes `length` bytes.
        let piece = unsafe { bytes(memory, length) };
        // SAFETY: there is no destination.
        unsafe { send(fd, &[piece], 0, NO_DESTINATION) }
    }

    fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> number(isize) {
        // SAFETY: a vector of the program, whose elements are as long as they say.
        unsafe { send_vector(fd, list, elements(count)?, 0, NO_DESTINATION) }
    }

    fn rpoll(list: *mut pollfd, count: libc::nfds_t, time_ms: c_int) -> number(c_int) {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let asked = match count {
            0 => &mut [],
            // SAFETY: the program passes `count` elements.
            _ => unsafe { core::slice::from_raw_parts_mut(list, count) },
        };
        poll::poll(asked, milliseconds(time_ms))
    }

    fn rselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        time: In<'_, *mut timeval>) -> number(c_int) {
        let sets = [(read, libc::POLLIN), (write, libc::POLLOUT), (except, libc::POLLPRI)];
        let mut asked = Vec::new();
        for fd in 0..count.clamp(0, libc::FD_SETSIZE as c_int) {
            let is_in = |(set, _): &&(*mut libc::fd_set, i16)| {
                // SAFETY: a set of the program, and a number below its size.
                !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) }
            };
            let events = sets.iter().filter(is_in).fold(0, |events, (_, event)| events | event);
            if events != 0 {
                asked.push(pollfd { fd, events, revents: 0 });
            }
        }
        let time = time.optional().map(|time| {
            Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
        });
        poll::poll(&mut asked, time)?;
        let mut ready = 0;
        for (set, event) in sets.into_iter().filter(|(set, _)| !set.is_null()) {
            // SAFETY: a set of the program.
            unsafe { libc::FD_ZERO(set) };
            let ends = if event == libc::POLLPRI { 0 } else { libc::POLLHUP | libc::POLLERR };
            let wanted = asked.iter().filter(|it| it.events & event != 0 && it.revents & (event | ends) != 0);
            for asked in wanted {
                // SAFETY: a set of the program, and a number below its size.
                unsafe { libc::FD_SET(asked.fd, set) };
                ready += 1;
            }
        }
        Ok(ready)
    }

    fn rgetpeername(fd: c_int, address: *mut c_void, length: *mut u32) -> status(c_int) {
        let socket = match found(fd)? {
            Found::Stream(socket) => socket,
            Found::Datagram(socket) => {
                // SAFETY: the program has room for an address of `*length` bytes, or none.
                return unsafe { datagram::peer(&socket, address, length) };
            }
        };
        let inner = socket.lock();
        if !matches!(inner.phase, Phase::Accepted | Phase::Connected) {
            return Err(Errno(libc::ENOTCONN));
        }
        // SAFETY: the identifier lives as long as its socket.
        let storage = unsafe { &(*inner.id).route.addr.dst_storage };
        // SAFETY: the program has room for an address of `*length` bytes, or none.
        unsafe { give_address(storage, address, length) }
    }

    fn rgetsockname(fd: c_int, address: *mut c_void, length: *mut u32) -> status(c_int) {
        match found(fd)? {
            Found::Stream(socket) => {
                let inner = socket.lock();
                // SAFETY: the identifier lives as long as its socket.
                let storage = unsafe { &(*inner.id).route.addr.src_storage };
                // SAFETY: the program has room for an address of `*length` bytes, or none.
                unsafe { give_address(storage, address, length) }
            }
            Found::Datagram(socket) => {
                // SAFETY: the program has room for an address of `*length` bytes, or none.
                Errno::check_code(unsafe { libc::getsockname(socket.fd, address.cast(), length) })
            }
        }
    }

    fn rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> status(c_int) {
        let socket = match found(fd)? {
            Found::Stream(socket) => socket,
            Found::Datagram(socket) => {
                // SAFETY: the program passes `length` bytes.
                return unsafe { datagram::set_option(&socket, level, name, value, length) };
            }
        };
        let mut inner = socket.lock();
        // SAFETY: the program passes `length` bytes.
        unsafe { socket_options::set(&mut inner, OptionName { level, name }, value, length) }?;
        if inner.options.keepalive {
            table::keep_alive();
        }
        Ok(())
    }

    fn rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32)
        -> status(c_int) {
        match found(fd)? {
            // SAFETY: the program has room for `*length` bytes.
            Found::Stream(socket) => unsafe {
                socket_options::get(&mut socket.lock(), OptionName { level, name }, value, length)
            },
            // SAFETY: the program has room for `*length` bytes.
            Found::Datagram(socket) => unsafe { datagram::option(&socket, level, name, value, length) },
        }
    }

    /// `F_GETFL` and `F_SETFL`; only `O_NONBLOCK` has an effect. C declares the argument variadic, and the
    /// x86-64 ABI passes it where a fixed third argument would be.
    fn rfcntl(fd: c_int, command: c_int, argument: c_int) -> number(c_int) {
        let found = found(fd)?;
        match command {
            libc::F_GETFL => {
                let nonblocking = match &found {
                    Found::Stream(socket) => socket.lock().nonblocking,
                    Found::Datagram(socket) => socket.lock().is_nonblocking(),
                };
                Ok(libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 })
            }
            libc::F_SETFL => {
                let nonblocking = argument & libc::O_NONBLOCK != 0;
                match &found {
                    Found::Stream(socket) => socket.lock().nonblocking = nonblocking,
                    Found::Datagram(socket) => socket.lock().set_nonblocking(nonblocking),
                }
                Ok(0)
            }
            // SAFETY: these commands have no pointers.
            libc::F_GETFD | libc::F_SETFD => match unsafe { libc::fcntl(fd, command, argument) } {
                -1 => Err(Errno::last()),
                flags => Ok(flags),
            },
            _ => Err(Errno::INVALID),
        }
    }

    fn riomap(fd: c_int, memory: *mut c_void, length: usize, protection: c_int, _flags: c_int, offset: i64)
        -> number(i64) {
        // SAFETY: the program passes `length` bytes, which stay until it unmaps them.
        unsafe { transfer::map(&mut socket(fd)?.lock(), memory, length, protection, offset) }
    }

    fn riounmap(fd: c_int, memory: *mut c_void, length: usize) -> status(c_int) {
        transfer::unmap(&mut socket(fd)?.lock(), memory, length)
    }

    fn riowrite(fd: c_int, memory: *const c_void, length: usize, offset: i64, flags: c_int) -> number(usize) {
        // SAFETY: the program passes `length` bytes.
        let piece = unsafe { bytes(memory, length) };
        transfer::write_mapped(&*socket(fd)?, piece, offset, flags)
    }
}
