//! The calls as C makes them: those of sockets, with an `r` before their names.

use super::socket::{Phase, Socket};
use super::{poll, table};
use crate::address::rdma_bind_addr;
use crate::listen::rdma_listen;
use crate::sockaddr;
use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use libc::{iovec, msghdr, pollfd, timeval};
use std::sync::Arc;
use std::time::Duration;

/// A call moves at most as much, so that the count fits the answer (as Linux's MAX_RW_COUNT).
const CALL_BYTES_MAX: usize = 0x7fff_f000;
/// Elements of a vector, as the kernel has it (UIO_MAXIOV).
const ELEMENTS_MAX: usize = 1024;

fn socket(fd: c_int) -> Result<Arc<Socket>, Errno> {
    table::find(fd).ok_or(Errno(libc::EBADF))
}

/// Copies an address to where a caller wants one, as much as there is room for.
///
/// # Safety
/// `*room` bytes can be written at `to`, or one of them is NULL.
unsafe fn give_address(storage: &sockaddr_storage, to: *mut c_void, room: *mut u32) -> Result<(), Errno> {
    if to.is_null() || room.is_null() {
        return Ok(());
    }
    let address = sockaddr::stored(storage).ok_or(Errno(libc::ENOTCONN))?;
    let length = sockaddr::length(&address);
    // SAFETY: as above.
    unsafe {
        core::ptr::copy_nonoverlapping(storage.as_ptr().cast::<u8>(), to.cast(), length.min(*room) as usize);
        *room = length;
    }
    Ok(())
}

/// Receives into one piece of memory after the other.
fn receive(fd: c_int, pieces: &mut [&mut [u8]], flags: c_int) -> Result<usize, Errno> {
    let socket = socket(fd)?;
    let (nonblocking, time) = {
        let inner = socket.lock();
        (inner.nonblocking || flags & libc::MSG_DONTWAIT != 0, inner.options.receive_timeout)
    };
    let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut piece, mut at, mut copied) = (0, 0, 0);
    let received = socket.wait(nonblocking, time, |inner| {
        if wanted == 0 {
            return Ok(Some(0));
        }
        if matches!(inner.phase, Phase::Connecting) {
            return Ok(None);
        }
        let stream = inner.stream()?;
        while piece < pieces.len() && stream.has_data() {
            let room = &mut pieces[piece][at..];
            let now = stream.take(room, flags & libc::MSG_PEEK != 0);
            (at, copied) = (at + now, copied + now);
            if flags & libc::MSG_PEEK != 0 {
                return Ok(Some(copied));
            }
            if at == pieces[piece].len() {
                (piece, at) = (piece + 1, 0);
            }
        }
        let enough = copied == wanted || (copied > 0 && flags & libc::MSG_WAITALL == 0);
        if enough || !stream.readable {
            let is_broken = stream.ended == Some(super::stream::End::Broken);
            return if copied == 0 && is_broken { Err(Errno(libc::ECONNRESET)) } else { Ok(Some(copied)) };
        }
        Ok(None)
    });
    match received {
        Err(_) if copied > 0 => Ok(copied),
        other => other,
    }
}

/// Sends one piece of memory after the other.
fn send(fd: c_int, pieces: &[&[u8]], flags: c_int) -> Result<usize, Errno> {
    let socket = socket(fd)?;
    let (nonblocking, time) = {
        let inner = socket.lock();
        (inner.nonblocking || flags & libc::MSG_DONTWAIT != 0, inner.options.send_timeout)
    };
    let mut sent = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let now = socket.wait(nonblocking, time, |inner| {
                match inner.phase {
                    Phase::Connecting | Phase::Accepted => return Ok(None),
                    Phase::Fresh | Phase::Bound | Phase::Listening => return Err(Errno(libc::ENOTCONN)),
                    Phase::Connected | Phase::Failed => {}
                }
                inner.tell_mappings()?;
                let told = inner.mappings_are_told();
                let stream = inner.stream()?;
                if !stream.writable {
                    let is_broken = stream.ended == Some(super::stream::End::Broken);
                    return Err(Errno(if is_broken { libc::ECONNRESET } else { libc::EPIPE }));
                }
                let now = if told { stream.send(rest)? } else { 0 };
                Ok((now > 0).then_some(now))
            });
            match now {
                Ok(now) => (sent, rest) = (sent + now, &rest[now..]),
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
            // What did not go at once waits for the next call.
            if nonblocking && !rest.is_empty() {
                return Ok(sent);
            }
        }
    }
    Ok(sent)
}

/// # Safety
/// `length` bytes are at `memory`.
unsafe fn bytes<'a>(memory: *const c_void, length: usize) -> &'a [u8] {
    if memory.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { core::slice::from_raw_parts(memory.cast(), length.min(CALL_BYTES_MAX)) }
}

/// # Safety
/// `length` bytes can be written at `memory`.
unsafe fn room<'a>(memory: *mut c_void, length: usize) -> &'a mut [u8] {
    if memory.is_null() || length == 0 {
        return &mut [];
    }
    // SAFETY: as above.
    unsafe { core::slice::from_raw_parts_mut(memory.cast(), length.min(CALL_BYTES_MAX)) }
}

/// # Safety
/// `count` elements are at `list`, and each leads to as many bytes as it says.
unsafe fn vector<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > ELEMENTS_MAX || (list.is_null() && count > 0) {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    Ok(if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(list, count) } })
}

/// # Safety
/// As [`vector`].
unsafe fn receive_vector(fd: c_int, list: *const iovec, count: usize, flags: c_int) -> Result<isize, Errno> {
    // SAFETY: as above.
    let pieces = unsafe { vector(list, count)?.iter().map(|it| room(it.iov_base, it.iov_len)) };
    let mut pieces: Vec<&mut [u8]> = pieces.collect();
    receive(fd, &mut pieces, flags).map(|received| received as isize)
}

/// # Safety
/// As [`vector`].
unsafe fn send_vector(fd: c_int, list: *const iovec, count: usize, flags: c_int) -> Result<isize, Errno> {
    // SAFETY: as above.
    let pieces = unsafe { vector(list, count)?.iter().map(|it| bytes(it.iov_base, it.iov_len)) };
    let pieces: Vec<&[u8]> = pieces.collect();
    send(fd, &pieces, flags).map(|sent| sent as isize)
}

fn elements(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::INVALID)
}

/// A time as `poll` has it.
fn milliseconds(time: c_int) -> Option<Duration> {
    u64::try_from(time).ok().map(Duration::from_millis)
}

/// Ends what is connected, and frees it.
fn close(fd: c_int) -> Result<(), Errno> {
    let socket = table::remove(fd).ok_or(Errno(libc::EBADF))?;
    let is_open = {
        let mut inner = socket.lock();
        inner.progress();
        let is_connected = matches!(inner.phase, Phase::Accepted | Phase::Connected);
        is_connected && inner.stream.as_ref().is_some_and(|stream| stream.ended.is_none())
    };
    if is_open {
        // A peer that is gone does not hear it, and that is no failure of closing.
        _ = socket.shutdown(libc::SHUT_RDWR);
    }
    Ok(())
}

/// Waits until a connection is there, or has failed.
fn connected(socket: &Socket, nonblocking: bool) -> Result<(), Errno> {
    let outcome = socket.wait(nonblocking, None, |inner| match inner.phase {
        Phase::Connected => Ok(Some(())),
        Phase::Failed => inner.stream().map(|_| Some(())),
        _ => Ok(None),
    });
    outcome.map_err(|error| if error == Errno(libc::EAGAIN) { Errno(libc::EINPROGRESS) } else { error })
}

door! {
    /// Streams of IPv4 and IPv6.
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> number(c_int) {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM {
            return Err(Errno(libc::ESOCKTNOSUPPORT));
        }
        if protocol != 0 && protocol != libc::IPPROTO_TCP {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let socket = Socket::fresh()?;
        socket.lock().nonblocking = nonblocking;
        Ok(table::add(socket))
    }

    fn rbind(fd: c_int, address: *const c_void, _length: u32) -> status(c_int) {
        let socket = socket(fd)?;
        let mut inner = socket.lock();
        Errno::check(rdma_bind_addr(inner.id, address))?;
        inner.phase = Phase::Bound;
        Ok(())
    }

    fn rlisten(fd: c_int, backlog: c_int) -> status(c_int) {
        let socket = socket(fd)?;
        let mut inner = socket.lock();
        if inner.phase == Phase::Listening {
            return Ok(());
        }
        Errno::check(rdma_listen(inner.id, backlog))?;
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
            // A peer that could not be served is one less, and no failure of the listener.
            while let Some(accepted) = inner.accept() {
                if let Ok(accepted) = accepted {
                    return Ok(Some(accepted));
                }
            }
            Ok(None)
        })?;
        let storage = (*accepted.id).route.addr.dst_storage;
        let fd = table::add(Socket::of(accepted));
        give_address(&storage, address, length)?;
        Ok(fd)
    }

    fn rconnect(fd: c_int, address: *const c_void, _length: u32) -> status(c_int) {
        let socket = socket(fd)?;
        let nonblocking = {
            let mut inner = socket.lock();
            match inner.phase {
                Phase::Fresh | Phase::Bound => inner.connect(address)?,
                Phase::Connecting if inner.nonblocking => {
                    inner.attend();
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
        socket(fd)?.shutdown(how)
    }

    fn rclose(fd: c_int) -> status(c_int) {
        close(fd)
    }

    fn rrecv(fd: c_int, memory: *mut c_void, length: usize, flags: c_int) -> number(isize) {
        receive(fd, &mut [room(memory, length)], flags).map(|received| received as isize)
    }

    fn rrecvfrom(fd: c_int, memory: *mut c_void, length: usize, flags: c_int, address: *mut c_void,
        address_length: *mut u32) -> number(isize) {
        let received = receive(fd, &mut [room(memory, length)], flags)?;
        let storage = (*socket(fd)?.lock().id).route.addr.dst_storage;
        give_address(&storage, address, address_length)?;
        Ok(received as isize)
    }

    fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> number(isize) {
        let message = message.as_mut().ok_or(Errno::INVALID)?;
        message.msg_controllen = 0;
        message.msg_flags = 0;
        receive_vector(fd, message.msg_iov, message.msg_iovlen, flags)
    }

    fn rread(fd: c_int, memory: *mut c_void, length: usize) -> number(isize) {
        receive(fd, &mut [room(memory, length)], 0).map(|received| received as isize)
    }

    fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> number(isize) {
        receive_vector(fd, list, elements(count)?, 0)
    }

    fn rsend(fd: c_int, memory: *const c_void, length: usize, flags: c_int) -> number(isize) {
        send(fd, &[bytes(memory, length)], flags).map(|sent| sent as isize)
    }

    /// Of a stream, the address says nothing new.
    fn rsendto(fd: c_int, memory: *const c_void, length: usize, flags: c_int, _address: *const c_void,
        _address_length: u32) -> number(isize) {
        send(fd, &[bytes(memory, length)], flags).map(|sent| sent as isize)
    }

    fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> number(isize) {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Errno::UNSUPPORTED);
        }
        send_vector(fd, message.msg_iov, message.msg_iovlen, flags)
    }

    fn rwrite(fd: c_int, memory: *const c_void, length: usize) -> number(isize) {
        send(fd, &[bytes(memory, length)], 0).map(|sent| sent as isize)
    }

    fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> number(isize) {
        send_vector(fd, list, elements(count)?, 0)
    }

    fn rpoll(list: *mut pollfd, count: libc::nfds_t, time_ms: c_int) -> number(c_int) {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let asked = if count == 0 { &mut [] } else { core::slice::from_raw_parts_mut(list, count) };
        poll::poll(asked, milliseconds(time_ms))
    }

    fn rselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        time: *mut timeval) -> number(c_int) {
        let sets = [(read, libc::POLLIN), (write, libc::POLLOUT), (except, libc::POLLPRI)];
        let mut asked = Vec::new();
        for fd in 0..count.clamp(0, libc::FD_SETSIZE as c_int) {
            let is_in = |(set, _): &&(*mut libc::fd_set, i16)| !set.is_null() && libc::FD_ISSET(fd, *set);
            let events = sets.iter().filter(is_in).fold(0, |events, (_, event)| events | event);
            if events != 0 {
                asked.push(pollfd { fd, events, revents: 0 });
            }
        }
        let time = time.as_ref().map(|time| {
            Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
        });
        poll::poll(&mut asked, time)?;
        let mut ready = 0;
        for (set, event) in sets.into_iter().filter(|(set, _)| !set.is_null()) {
            libc::FD_ZERO(set);
            let ends = if event == libc::POLLPRI { 0 } else { libc::POLLHUP | libc::POLLERR };
            let wanted = asked.iter().filter(|it| it.events & event != 0 && it.revents & (event | ends) != 0);
            for asked in wanted {
                libc::FD_SET(asked.fd, set);
                ready += 1;
            }
        }
        Ok(ready)
    }

    fn rgetpeername(fd: c_int, address: *mut c_void, length: *mut u32) -> status(c_int) {
        let socket = socket(fd)?;
        let inner = socket.lock();
        if !matches!(inner.phase, Phase::Accepted | Phase::Connected) {
            return Err(Errno(libc::ENOTCONN));
        }
        give_address(&(*inner.id).route.addr.dst_storage, address, length)
    }

    fn rgetsockname(fd: c_int, address: *mut c_void, length: *mut u32) -> status(c_int) {
        let socket = socket(fd)?;
        let inner = socket.lock();
        give_address(&(*inner.id).route.addr.src_storage, address, length)
    }

    fn rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> status(c_int) {
        let socket = socket(fd)?;
        let mut inner = socket.lock();
        inner.set_option(level, name, value, length)?;
        if inner.options.keepalive {
            table::keep_alive();
        }
        Ok(())
    }

    fn rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32)
        -> status(c_int) {
        socket(fd)?.lock().option(level, name, value, length)
    }

    /// `F_GETFL` and `F_SETFL`, of which only whether it blocks has a meaning. The argument is where a number
    /// that is always there would be.
    fn rfcntl(fd: c_int, command: c_int, argument: c_int) -> number(c_int) {
        let socket = socket(fd)?;
        let mut inner = socket.lock();
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if inner.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                inner.nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Errno::check(0).map(|()| libc::fcntl(fd, command, argument)),
            _ => Err(Errno::INVALID),
        }
    }

    fn riomap(fd: c_int, memory: *mut c_void, length: usize, protection: c_int, _flags: c_int, offset: i64)
        -> number(i64) {
        socket(fd)?.lock().map(memory, length, protection, offset)
    }

    fn riounmap(fd: c_int, memory: *mut c_void, length: usize) -> status(c_int) {
        socket(fd)?.lock().unmap(memory, length)
    }

    fn riowrite(fd: c_int, memory: *const c_void, length: usize, offset: i64, flags: c_int) -> number(usize) {
        let (socket, mut rest) = (socket(fd)?, bytes(memory, length));
        let nonblocking = socket.lock().nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let mut at = offset as u64;
        while !rest.is_empty() {
            let now = socket.wait(nonblocking, None, |inner| {
                let stream = inner.stream()?;
                if !stream.writable {
                    return Err(Errno(libc::EPIPE));
                }
                if !stream.can_map() {
                    return Ok(None);
                }
                stream.write_mapped(rest, at)?.ok_or(Errno::INVALID).map(Some)
            });
            match now {
                Ok(now) => (rest, at) = (&rest[now..], at + now as u64),
                Err(_) if rest.len() < length => break,
                Err(error) => return Err(error),
            }
        }
        Ok(length - rest.len())
    }
}
