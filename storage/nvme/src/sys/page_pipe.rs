//! A pipe through which a socket gets references to pages of this process in place of copies of them
//! (`vmsplice(2)`, `splice(2)`).

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use buffer::Buffer;

/// Bytes that the pipe has room for, one page in each of its entries: as many as an unprivileged process gets
/// by default, and a longest transfer.
const ROOM: libc::c_int = 1 << 20;

/// A pipe, and the bytes in it.
pub(crate) struct PagePipe {
    reader: OwnedFd,
    writer: OwnedFd,
    filled: usize,
}

impl PagePipe {
    /// An empty pipe.
    ///
    /// # Errors
    /// Those of `pipe2(2)` and `F_SETPIPE_SZ`: no descriptors left, or the user has too many pages in pipes.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: room for two descriptors.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) } as isize)?;
        // SAFETY: new descriptors, which this owns.
        let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: a descriptor that is open; the rest are numbers.
        checked(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) } as isize)?;
        Ok(Self {
            reader,
            writer,
            filled: 0,
        })
    }

    /// Bytes in the pipe.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Puts references to the first bytes of a range into the pipe, as many as it has room for. The range
    /// counts as referred to from now on: see [`Buffer::refer`].
    ///
    /// # Errors
    /// Those of `vmsplice(2)`; `EINVAL` for a range or a buffer that cannot be referred to.
    pub(crate) fn fill(&mut self, buffer: &Buffer, range: Range<usize>) -> io::Result<()> {
        let bytes = buffer
            .get(range.clone())
            .filter(|_| buffer.can_be_referred());
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        buffer.refer(range);
        let vector = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: one element, of bytes that the kernel only reads. It may read them when the buffer is gone
        // too: it has references to the pages, so the pages exist until then.
        let filled =
            unsafe { libc::vmsplice(self.writer.as_raw_fd(), &vector, 1, libc::SPLICE_F_NONBLOCK) };
        self.filled += checked(filled)?;
        Ok(())
    }

    /// Moves bytes of the pipe to a socket, and returns how many; `more` is whether further output follows.
    ///
    /// # Errors
    /// Those of `splice(2)`; `WouldBlock` when the socket is full.
    pub(crate) fn drain(&mut self, socket: RawFd, more: bool) -> io::Result<usize> {
        let flags = libc::SPLICE_F_NONBLOCK | if more { libc::SPLICE_F_MORE } else { 0 };
        let (none, reader) = (ptr::null_mut(), self.reader.as_raw_fd());
        // SAFETY: descriptors, which the kernel checks, without offsets.
        let moved =
            checked(unsafe { libc::splice(reader, none, socket, none, self.filled, flags) })?;
        self.filled -= moved;
        Ok(moved)
    }
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl fmt::Debug for PagePipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePipe")
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_has_the_bytes_of_the_time_at_which_it_got_the_pages() {
        const LENGTH: usize = 1 << 20;
        let mut buffer = Buffer::zeroed(LENGTH);
        buffer.fill(1);
        let (sender, mut receiver) = UnixStream::pair().unwrap();
        let mut pipe = PagePipe::new().unwrap();
        let range = 100..100_100;
        pipe.fill(&buffer, range.clone()).unwrap();
        assert!(pipe.filled() == range.len() && buffer.is_referred());
        let mut moved = pipe.drain(sender.as_raw_fd(), false).unwrap();
        assert!(buffer.renew(50_000..60_000));
        buffer[50_000..60_000].fill(2);
        assert!(buffer.is_referred());
        assert!(
            buffer[..50_000]
                .iter()
                .chain(&buffer[60_000..])
                .all(|byte| *byte == 1)
        );
        drop(buffer);
        // Likely to get the same memory.
        let mut other = Buffer::zeroed(LENGTH);
        other.fill(3);
        let mut received = vec![0; range.len()];
        for part in received.chunks_mut(4096) {
            receiver.read_exact(part).unwrap();
            while moved < range.len()
                && let Ok(more) = pipe.drain(sender.as_raw_fd(), true)
            {
                moved += more;
            }
        }
        assert!(pipe.filled() == 0 && received.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn memory_of_the_heap_is_not_referred_to() {
        let buffer = Buffer::zeroed(4096);
        assert!(PagePipe::new().unwrap().fill(&buffer, 0..4096).is_err() && !buffer.is_referred());
    }
}
