//! Send and receive calls on stream sockets.

use super::iomap;
use super::socket::{Inner, Phase, Socket};
use super::stream::End;
use core::ffi::c_int;
use door::Errno;
use std::time::Duration;

fn blocking_mode(
    socket: &Socket,
    flags: c_int,
    time: impl Fn(&Inner) -> Option<Duration>,
) -> (bool, Option<Duration>) {
    let inner = socket.lock();
    (inner.nonblocking || flags & libc::MSG_DONTWAIT != 0, time(&inner))
}

/// Receives into the program's pieces of memory.
pub(super) fn receive(socket: &Socket, pieces: &mut [&mut [u8]], flags: c_int) -> Result<usize, Errno> {
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
        if enough || !stream.readable {
            let is_broken = stream.ended == Some(End::Broken);
            return if copied == 0 && is_broken { Err(Errno(libc::ECONNRESET)) } else { Ok(Some(copied)) };
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
            match socket.wait(nonblocking, time, |inner| attempt(inner, rest)) {
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

/// Sends as many bytes as there is room for; `None` when there is no room yet.
fn attempt(inner: &mut Inner, bytes: &[u8]) -> Result<Option<usize>, Errno> {
    match inner.phase {
        Phase::Connecting | Phase::Accepted => return Ok(None),
        Phase::Fresh | Phase::Bound | Phase::Listening => return Err(Errno(libc::ENOTCONN)),
        Phase::Connected | Phase::Failed => {}
    }
    inner.announce_mappings()?;
    let are_announced = inner.mappings_are_announced();
    let stream = inner.stream()?;
    if !stream.writable {
        let is_broken = stream.ended == Some(End::Broken);
        return Err(Errno(if is_broken { libc::ECONNRESET } else { libc::EPIPE }));
    }
    let now = if are_announced { stream.send(bytes)? } else { 0 };
    Ok((now > 0).then_some(now))
}

/// Writes to memory that the peer has mapped (`riowrite`).
pub(super) fn write_mapped(socket: &Socket, bytes: &[u8], offset: i64, flags: c_int) -> Result<usize, Errno> {
    let (nonblocking, time) = blocking_mode(socket, flags, |inner| inner.options.send_timeout);
    let (mut rest, mut at) = (bytes, offset as u64);
    while !rest.is_empty() {
        match socket.wait(nonblocking, time, |inner| iomap::write(inner, rest, at)) {
            Ok(now) => (rest, at) = (&rest[now..], at + now as u64),
            Err(_) if rest.len() < bytes.len() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.len() - rest.len())
}
