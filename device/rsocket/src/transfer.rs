//! Send and receive calls on stream sockets.

use super::closing::End;
use super::socket::{Inner, Phase, Socket};
use super::wait::Endpoint as _;
use core::ffi::{c_int, c_void};
use ffi::Errno;
use std::time::Duration;

fn blocking_mode(
    socket: &Socket,
    flags: c_int,
    time: impl Fn(&Inner) -> Option<Duration>,
) -> (bool, Option<Duration>) {
    let inner = socket.lock();
    (
        inner.nonblocking || flags & libc::MSG_DONTWAIT != 0,
        time(&inner),
    )
}

/// Receives into the program's pieces of memory.
pub(super) fn receive(
    socket: &Socket,
    pieces: &mut [&mut [u8]],
    flags: c_int,
) -> Result<usize, Errno> {
    let (nonblocking, time) = blocking_mode(socket, flags, |inner| inner.options.receive_timeout);
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
        if enough || !stream.closing.is_readable() {
            let is_broken = stream.closing.ended() == Some(End::Broken);
            return if copied == 0 && is_broken {
                Err(Errno(libc::ECONNRESET))
            } else {
                Ok(Some(copied))
            };
        }
        Ok(None)
    });
    match received {
        Err(_) if copied > 0 => Ok(copied),
        other => other,
    }
}

/// Sends the program's pieces of memory.
pub(super) fn send(socket: &Socket, pieces: &[&[u8]], flags: c_int) -> Result<usize, Errno> {
    let (nonblocking, time) = blocking_mode(socket, flags, |inner| inner.options.send_timeout);
    let mut sent = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let ahead = attempt_ahead(&mut socket.lock(), rest).transpose();
            match ahead
                .unwrap_or_else(|| socket.wait(nonblocking, time, |inner| attempt(inner, rest)))
            {
                Ok(now) => (sent, rest) = (sent + now, &rest[now..]),
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
            // A partial send is returned; the program sends the rest.
            if nonblocking && !rest.is_empty() {
                return Ok(sent);
            }
        }
    }
    Ok(sent)
}

/// Sends long messages without looking for completions before each: a look that finds none sends the packets
/// that are held back to leave with those of the next message.
fn attempt_ahead(inner: &mut Inner, bytes: &[u8]) -> Result<Option<usize>, Errno> {
    if !inner.sends_ahead(bytes.len()) {
        return Ok(None);
    }
    inner.used();
    attempt(inner, bytes)
}

/// Sends as many bytes as there is room for; `None` when there is no room yet.
fn attempt(inner: &mut Inner, bytes: &[u8]) -> Result<Option<usize>, Errno> {
    match inner.phase {
        Phase::Connecting | Phase::Accepted => return Ok(None),
        Phase::Fresh | Phase::Bound | Phase::Listening => return Err(Errno(libc::ENOTCONN)),
        Phase::Connected | Phase::Failed => {}
    }
    if let Some(stream) = &mut inner.stream {
        inner.mappings.announce(stream)?;
    }
    let are_announced = inner.mappings.are_announced();
    let stream = inner.stream()?;
    if !stream.closing.is_writable() {
        let is_broken = stream.closing.ended() == Some(End::Broken);
        return Err(Errno(if is_broken {
            libc::ECONNRESET
        } else {
            libc::EPIPE
        }));
    }
    let now = if are_announced {
        stream.send(bytes)?
    } else {
        0
    };
    Ok((now > 0).then_some(now))
}

/// Writes to memory that the peer has mapped (`riowrite`).
pub(super) fn write_mapped(
    socket: &Socket,
    bytes: &[u8],
    offset: i64,
    flags: c_int,
) -> Result<usize, Errno> {
    let (nonblocking, time) = blocking_mode(socket, flags, |inner| inner.options.send_timeout);
    let (mut rest, mut at) = (bytes, offset as u64);
    while !rest.is_empty() {
        match socket.wait(nonblocking, time, |inner| attempt_mapped(inner, rest, at)) {
            Ok(now) => (rest, at) = (&rest[now..], at + now as u64),
            Err(_) if rest.len() < bytes.len() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.len() - rest.len())
}

/// Writes as many bytes to the peer's mapped memory as there is room for; `None` when there is none.
fn attempt_mapped(inner: &mut Inner, bytes: &[u8], offset: u64) -> Result<Option<usize>, Errno> {
    let stream = inner.stream()?;
    if !stream.closing.is_writable() {
        return Err(Errno(libc::EPIPE));
    }
    if !stream.can_map() {
        return Ok(None);
    }
    stream
        .write_mapped(bytes, offset)?
        .ok_or(Errno::INVALID)
        .map(Some)
}

/// Maps memory for the peer (`riomap`).
///
/// # Safety
/// `length` bytes at `memory` stay valid until they are unmapped.
pub(super) unsafe fn map(
    inner: &mut Inner,
    memory: *mut c_void,
    length: usize,
    protection: c_int,
    offset: i64,
) -> Result<i64, Errno> {
    inner.stream()?;
    let Some(stream) = &mut inner.stream else {
        return Err(Errno(libc::ENOTCONN));
    };
    // SAFETY: the identifier lives as long as its socket, and has a queue pair, and so a domain. By this
    // function's contract, `length` bytes at `memory` stay valid until they are unmapped.
    unsafe {
        inner
            .mappings
            .map(stream, (*inner.id).pd, memory, length, protection, offset)
    }
}

/// Unmaps memory (`riounmap`).
pub(super) fn unmap(inner: &mut Inner, memory: *mut c_void, length: usize) -> Result<(), Errno> {
    inner.mappings.unmap(memory, length)?;
    if inner
        .stream()
        .is_ok_and(|stream| stream.closing.ended().is_some())
    {
        inner.mappings.remove_unmapped();
        return Ok(());
    }
    match &mut inner.stream {
        Some(stream) => inner.mappings.announce(stream),
        None => Ok(()),
    }
}
