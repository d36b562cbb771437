//! What carries PDUs: a socket, in TLS or not.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use mio::net::TcpStream;

use crate::tls::Sealed;

/// A socket that does not block.
#[derive(Debug)]
pub(crate) enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// In TLS.
    Sealed(Box<Sealed>),
}

impl Stream {
    /// The socket, to be registered.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Sealed(stream) => stream.socket_mut(),
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Sealed(stream) => stream.socket(),
        }
    }

    /// Receives into the first place, which may be empty, and the second; `None` when there is nothing yet, 0
    /// at the end.
    pub(crate) fn read(&mut self, [place, staging]: &mut [IoSliceMut<'_>; 2]) -> io::Result<Option<usize>> {
        later(match self {
            // A vector of one costs the kernel more than no vector.
            Self::Plain(stream) if place.is_empty() => stream.read(staging),
            Self::Plain(stream) => {
                stream.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(staging)])
            }
            Self::Sealed(stream) if place.is_empty() => stream.read(staging),
            Self::Sealed(stream) => stream.read(place),
        })
    }

    /// Sends; `None` when there is no room now. The same pieces have to come again then.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        later(match self {
            Self::Plain(stream) => stream.write_vectored(pieces),
            Self::Sealed(stream) => stream.write(pieces),
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
