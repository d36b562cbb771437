//! The byte stream that carries PDUs: TCP, with or without TLS.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use mio::net::TcpStream;
use socket2::SockRef;

use crate::tls::TlsStream;

/// A non-blocking stream.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP without TLS.
    Plain(TcpStream),
    /// TCP with TLS 1.3.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// The TCP socket, for registration with a poll.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.socket_mut(),
        }
    }

    /// The TCP socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Receives into the first slice, which may be empty, and the second; `None` when nothing has arrived, 0
    /// at the end of the stream.
    pub(crate) fn read(
        &mut self,
        [place, staging]: &mut [IoSliceMut<'_>; 2],
    ) -> io::Result<Option<usize>> {
        later(match self {
            // A readv with one slice costs more than a read.
            Self::Plain(stream) if place.is_empty() => stream.read(staging),
            Self::Plain(stream) => {
                stream.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(staging)])
            }
            Self::Tls(stream) if place.is_empty() => stream.read(staging),
            Self::Tls(stream) => stream.read(place),
        })
    }

    /// Sends; `None` when the socket is full. The caller has to pass the same slices again then.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.write_and(pieces, false)
    }

    /// As [`Stream::write`]; `more` is whether other output follows at once.
    pub(crate) fn write_and(
        &mut self,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> io::Result<Option<usize>> {
        later(match self {
            Self::Plain(stream) if more => {
                SockRef::from(&*stream).send_vectored_with_flags(pieces, libc::MSG_MORE)
            }
            Self::Plain(stream) => stream.write_vectored(pieces),
            Self::Tls(stream) => stream.write(pieces),
        })
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }
}

fn later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match result {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(None),
        result => result.map(Some),
    }
}
