//! One queue over TCP: a socket, and sleep.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;
use wire::nvme::Command;

use super::HostError;
use super::client::Options;
use super::commands::{Done, Payload};
use super::machine::Machine;
use super::queue::{PATIENCE, Role};
use crate::sys::wait::Watched;

/// One queue over TCP.
#[derive(Debug)]
pub(super) struct TcpQueue {
    stream: TcpStream,
    poll: Poll,
    events: Events,
    machine: Machine,
}

impl TcpQueue {
    /// Connects and agrees on digests.
    pub(super) fn connect(address: SocketAddr, role: Role, options: &Options) -> Result<Self, HostError> {
        let stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        if let Some(name) = &options.congestion {
            // Where the kernel does not have it, its own does.
            _ = SockRef::from(&stream).set_tcp_congestion(name.as_bytes());
        }
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let poll = Poll::new()?;
        poll.registry().register(&mut stream, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let machine = Machine::new(role.depth, role.in_capsule, options.digests);
        let mut queue = Self { stream, poll, events: Events::with_capacity(4), machine };
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
            match self.stream.write_vectored(&pieces) {
                Ok(bytes) => self.machine.sent(bytes),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads; `false` when there is nothing.
    fn fill(&mut self) -> Result<bool, HostError> {
        let [place, staging] = &mut self.machine.room();
        // A vector of one costs the kernel more than no vector.
        let read = match place.is_empty() {
            true => self.stream.read(staging),
            false => self.stream.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(staging)]),
        };
        match read {
            Ok(0) => Err(HostError::Terminated(None)),
            Ok(bytes) => {
                self.machine.received(bytes)?;
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
