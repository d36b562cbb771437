//! Long data are sent by reference: the socket gets the pages of the store, and not a copy of them. Only the
//! receiver copies them then. Where the kernel refuses that, they are copied.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;

use buffer::Buffer;

use crate::sys::page_pipe::PagePipe;

/// Output that may be sent by reference.
#[derive(Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) range: Range<usize>,
    /// Whether other output follows it.
    pub(crate) more: bool,
}

/// Sends references on one socket.
#[derive(Debug, Default)]
pub(crate) enum References {
    /// Nothing was sent by reference yet.
    #[default]
    Untried,
    Here(PagePipe),
    /// The socket is not a plain one, or the kernel refuses references.
    Refused,
}

impl References {
    /// Whether references may be sent.
    pub(crate) fn are_possible(&self) -> bool {
        !matches!(self, Self::Refused)
    }

    /// Sends bytes from the beginning of the reference on; `None` when the socket is full. The same
    /// reference, without the bytes that were sent, has to be the next output. After an error the output has
    /// to be copied.
    pub(crate) fn send(
        &mut self,
        socket: RawFd,
        reference: &Reference<'_>,
    ) -> io::Result<Option<usize>> {
        let sent = self.try_to_send(socket, reference);
        match sent {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(error) => {
                tracing::debug!("data are copied to the socket: {error}");
                // Bytes in the pipe were not sent.
                *self = Self::Refused;
                Err(error)
            }
            sent => sent.map(Some),
        }
    }

    fn try_to_send(&mut self, socket: RawFd, reference: &Reference<'_>) -> io::Result<usize> {
        if let Self::Untried = self {
            *self = Self::Here(PagePipe::new()?);
        }
        let Self::Here(pipe) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if pipe.filled() == 0 {
            pipe.fill(reference.buffer, reference.range.clone())?;
        }
        let more = reference.more || pipe.filled() < reference.range.len();
        pipe.drain(socket, more)
    }
}
