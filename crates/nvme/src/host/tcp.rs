//! One queue over TCP: a socket, and sleep.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;
use wire::nvme::Command;

use super::HostError;
use super::client::Options;
use super::commands::{Done, Payload};
use super::machine::Machine;
use super::queue::{PATIENCE, Role};
use crate::nqn::Nqn;
use crate::stream::Stream;
use crate::sys::wait::Watched;
use crate::tls::Connector;

/// One queue over TCP.
#[derive(Debug)]
pub(super) struct TcpQueue {
    stream: Stream,
    poll: Poll,
    events: Events,
    machine: Machine,
    idle_polls: u32,
}

/// Polls that find nothing before each gives the processor to whoever wants it: the target may. Each looks
/// at the socket, so they take longer than an answer does.
const YIELD_AFTER: u32 = 32;

impl TcpQueue {
    /// Connects, in TLS or not, and agrees on digests.
    pub(super) fn connect(
        address: SocketAddr,
        role: Role,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        let stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        if let Some(name) = &options.congestion {
            // Where the kernel does not have it, its own does.
            _ = SockRef::from(&stream).set_tcp_congestion(name.as_bytes());
        }
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        let mut stream = match &options.tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let psk = tls.key.psk(&options.host, subsystem, tls.version).ok_or(HostError::Names)?;
                let sealed = Connector::new()?.connect(stream, psk, PATIENCE);
                Stream::Sealed(Box::new(sealed.map_err(HostError::Tls)?))
            }
        };
        let poll = Poll::new()?;
        poll.registry().register(stream.socket_mut(), Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let machine = Machine::new(role.depth, role.in_capsule, options.digests);
        let mut queue = Self { stream, poll, events: Events::with_capacity(4), machine, idle_polls: 0 };
        while !queue.machine.is_initialized() {
            queue.send()?;
            if !queue.fill()? {
                queue.sleep()?;
            }
        }
        Ok(queue)
    }

    pub(super) fn outstanding(&self) -> usize {
        self.machine.outstanding()
    }

    pub(super) fn submit(&mut self, command: Command, payload: Payload, token: u64) -> Result<(), HostError> {
        self.machine.submit(command, payload, token)
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.send()?;
        if self.fill()? {
            // What an R2T asked for, before anybody sleeps.
            self.send()?;
            self.idle_polls = 0;
        } else if self.idle_polls < YIELD_AFTER {
            self.idle_polls += 1;
        } else {
            std::thread::yield_now();
        }
        Ok(self.machine.take(out))
    }

    pub(super) fn wait(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        loop {
            let count = self.poll(out)?;
            if count > 0 || self.outstanding() == 0 {
                return Ok(count);
            }
            if !self.fill()? {
                self.sleep()?;
            }
        }
    }

    pub(super) fn watched(&self) -> Watched {
        (self.stream.as_raw_fd(), self.machine.has_output())
    }

    fn sleep(&mut self) -> Result<(), HostError> {
        match self.poll.poll(&mut self.events, Some(PATIENCE)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            Ok(()) if self.events.is_empty() => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            _ => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), HostError> {
        while self.machine.has_output() {
            let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(32);
            self.machine.pieces(&mut pieces);
            match self.stream.write(&pieces)? {
                Some(bytes) => self.machine.sent(bytes),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads; `false` when there is nothing.
    fn fill(&mut self) -> Result<bool, HostError> {
        match self.stream.read(&mut self.machine.room())? {
            Some(0) => Err(HostError::Terminated(None)),
            Some(bytes) => {
                self.machine.received(bytes)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

impl Drop for TcpQueue {
    /// A connection that is given up while the target may still work for it ends at once: what the kernel
    /// had not sent must not reach the disk after what a later connection writes.
    fn drop(&mut self) {
        if self.outstanding() > 0 {
            _ = SockRef::from(&*self.stream.socket_mut()).set_linger(Some(Duration::ZERO));
        }
    }
}
