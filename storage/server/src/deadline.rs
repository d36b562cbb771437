//! A stream with a deadline for the whole exchange, even if the peer sends or reads one byte at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A blocking socket with timeouts.
pub trait Socket {
    /// Limits the time of each call.
    ///
    /// # Errors
    /// That of `setsockopt`.
    fn set_timeouts(&self, most: Duration) -> io::Result<()>;
}

impl Socket for &TcpStream {
    fn set_timeouts(&self, most: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(most))?;
        self.set_write_timeout(Some(most))
    }
}

impl Socket for &UnixStream {
    fn set_timeouts(&self, most: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(most))?;
        self.set_write_timeout(Some(most))
    }
}

/// A stream with a deadline.
pub struct Deadline<S> {
    stream: S,
    end: Instant,
}

impl<S: Socket> Deadline<S> {
    /// The stream, with `most` as the time left for all of its calls together.
    pub fn after(stream: S, most: Duration) -> Self {
        Self {
            stream,
            end: Instant::now() + most,
        }
    }

    fn bound(&self) -> io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => self.stream.set_timeouts(left),
        }
    }
}

impl<S: Socket + Read> Read for Deadline<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.read(bytes)
    }
}

impl<S: Socket + Write> Write for Deadline<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that sends one byte at a time, each before a timeout, does not pass the deadline.
    #[test]
    fn a_slow_peer_does_not_pass_the_deadline() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let feeder = std::thread::spawn(move || {
            while (&theirs).write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut stream = Deadline::after(&ours, Duration::from_millis(50));
        let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
            ),
            "{error}"
        );
        drop(ours);
        feeder.join().unwrap();
    }
}
