//! A queue over TCP: its socket, and waiting for it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::SockRef;

use super::HostError;
use super::commands::{Done, Payload};
use super::machine::Machine;
use super::parameters::{Options, QueueParameters, RESPONSE_TIMEOUT};
use super::submission::Submission;
use crate::congestion;
use crate::nqn::Nqn;
use crate::stream::Stream;
use crate::tls::Connector;
use os::wait::{Watched, wait};

/// A queue over TCP.
#[derive(Debug)]
pub(super) struct TcpQueue {
    stream: Stream,
    machine: Machine,
    idle_polls: u32,
}

/// Polls without a result after which each poll yields the processor, because the target may be waiting for
/// it. Each poll reads the socket, so that 32 polls take longer than a response.
const YIELD_AFTER: u32 = 32;

impl TcpQueue {
    /// Connects, with or without TLS, and exchanges ICReq and ICResp.
    pub(super) fn connect(
        address: SocketAddr,
        role: QueueParameters,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        let stream = std::net::TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
        stream.set_nodelay(true)?;
        congestion::set(&SockRef::from(&stream), options.congestion.as_deref());
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        let stream = match &options.tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let psk = tls
                    .key
                    .psk(&options.host, subsystem, tls.version, tls.derivation)
                    .ok_or(HostError::Names)?;
                let tls_stream = Connector::new()?.connect(stream, psk, RESPONSE_TIMEOUT);
                Stream::Tls(Box::new(tls_stream.map_err(HostError::Tls)?))
            }
        };
        let machine = Machine::new(role.depth, role.in_capsule, options.digests);
        let mut queue = Self {
            stream,
            machine,
            idle_polls: 0,
        };
        while !queue.machine.is_initialized() {
            queue.send()?;
            if !queue.fill()? && !wait([queue.watched()], RESPONSE_TIMEOUT)? {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        Ok(queue)
    }

    pub(super) fn outstanding(&self) -> usize {
        self.machine.outstanding()
    }

    pub(super) fn submit(
        &mut self,
        submission: Submission,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        self.machine.submit_again(submission, payload, token)
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.send()?;
        if self.fill()? {
            // Data that an R2T requested are sent before the thread sleeps.
            self.send()?;
            self.idle_polls = 0;
        } else if self.idle_polls < YIELD_AFTER {
            self.idle_polls += 1;
        } else {
            std::thread::yield_now();
        }
        Ok(self.machine.take(out))
    }

    /// Whether the last poll found nothing to read. TLS may hold data that the socket no longer announces.
    pub(super) fn is_drained(&self) -> bool {
        self.idle_polls > 0
    }

    pub(super) fn watched(&self) -> Watched {
        (self.stream.as_raw_fd(), self.machine.has_output())
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

    /// Reads from the socket; `false` when nothing has arrived.
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
    /// Resets a connection that is closed while the target may still execute its commands: data that the
    /// kernel has not sent must not reach the disk after data of a later connection.
    fn drop(&mut self) {
        if self.outstanding() > 0 {
            _ = SockRef::from(&*self.stream.socket_mut()).set_linger(Some(Duration::ZERO));
        }
    }
}
