//! One queue, over TCP or RDMA.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use rdma::Buffer;
use wire::nvme::Command;

use super::HostError;
use super::client::Options;
use super::commands::{Done, Payload};
use super::rdma::RdmaQueue;
use super::tcp::TcpQueue;
use crate::nqn::Nqn;
use crate::sys::wait::Watched;

/// How long the target may be silent while something is expected of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What carries commands and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        })
    }
}

impl FromStr for Transport {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "rdma" => Ok(Self::Rdma),
            _ => Err("tcp or rdma"),
        }
    }
}

/// Which queue a connection is going to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    /// 0 is the admin queue.
    pub(super) id: u16,
    /// The controller, or that there is none yet.
    pub(super) controller: u16,
    /// Commands at once.
    pub(super) depth: u16,
    /// Entries of the queue: one more than commands, except for the admin queue.
    pub(super) entries: u16,
    /// Bytes of data that may go with a command.
    pub(super) in_capsule: usize,
}

/// One queue.
#[derive(Debug)]
pub struct Queue(Over);

#[derive(Debug)]
enum Over {
    Tcp(Box<TcpQueue>),
    Rdma(Box<RdmaQueue>),
}

impl Queue {
    pub(super) fn connect(
        address: SocketAddr,
        role: Role,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        Ok(Self(match options.transport {
            Transport::Tcp => Over::Tcp(Box::new(TcpQueue::connect(address, role, subsystem, options)?)),
            Transport::Rdma if options.tls.is_some() => return Err(HostError::NoTls),
            Transport::Rdma => Over::Rdma(Box::new(RdmaQueue::connect(address, role)?)),
        }))
    }

    /// Commands that it has.
    pub fn outstanding(&self) -> usize {
        match &self.0 {
            Over::Tcp(queue) => queue.outstanding(),
            Over::Rdma(queue) => queue.outstanding(),
        }
    }

    /// Zeros that this queue can send and receive: over RDMA, known to its device and open to the target,
    /// which may then be given no other's buffers.
    ///
    /// # Errors
    /// When the device takes no more memory.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        match &self.0 {
            Over::Tcp(_) => Ok(Buffer::zeroed(length)),
            Over::Rdma(queue) => queue.buffer(length),
        }
    }

    /// Gives it a command: identifier and descriptor are filled in. It goes out with the next poll.
    ///
    /// # Errors
    /// [`HostError::Full`] when it has as many as it can, [`HostError::Buffer`] when its device does not know
    /// the buffer.
    pub fn submit(&mut self, command: Command, payload: Payload, token: u64) -> Result<(), HostError> {
        match &mut self.0 {
            Over::Tcp(queue) => queue.submit(command, payload, token),
            Over::Rdma(queue) => queue.submit(command, payload, token),
        }
    }

    /// Sends and receives what can be without waiting, and appends what is finished; returns how many.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        match &mut self.0 {
            Over::Tcp(queue) => queue.poll(out),
            Over::Rdma(queue) => queue.poll(out),
        }
    }

    /// The same, and sleeps until something is finished.
    ///
    /// # Errors
    /// When the connection is broken, or the target says nothing for half a minute.
    pub fn wait(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        match &mut self.0 {
            Over::Tcp(queue) => queue.wait(out),
            Over::Rdma(queue) => queue.wait(out),
        }
    }

    /// What to sleep on, with [`crate::sys::wait`], after [`Queue::arm`].
    pub fn watched(&self) -> [Watched; 2] {
        match &self.0 {
            Over::Tcp(queue) => [queue.watched(), (-1, false)],
            Over::Rdma(queue) => queue.watched(),
        }
    }

    /// Before sleeping: what came before this has to be polled for once more.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn arm(&mut self) -> Result<(), HostError> {
        match &mut self.0 {
            Over::Tcp(_) => Ok(()),
            Over::Rdma(queue) => queue.arm(),
        }
    }

    /// One command, from its beginning to its end.
    ///
    /// # Errors
    /// When it fails, or the connection does.
    pub fn call(
        &mut self,
        what: &'static str,
        command: Command,
        payload: Payload,
    ) -> Result<Done, HostError> {
        self.submit(command, payload, 0)?;
        let mut done = Vec::new();
        while done.is_empty() {
            self.wait(&mut done)?;
        }
        let done = done.pop().ok_or(HostError::Protocol("no completion"))?;
        match done.completion.status() {
            status if status.is_success() => Ok(done),
            status => Err(HostError::Status { what, status }),
        }
    }
}
