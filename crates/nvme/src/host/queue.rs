//! A queue of a host, over TCP or RDMA.

use std::net::SocketAddr;

use buffer::Buffer;
use wire::nvme::Command;

use super::HostError;
use super::commands::{Done, Payload};
use super::parameters::{Options, QueueParameters, Transport};
use super::rdma::RdmaQueue;
use super::tcp::TcpQueue;
use crate::nqn::Nqn;
use crate::sys::wait::Watched;

/// A submission queue and its completion queue on one connection.
#[derive(Debug)]
pub struct Queue {
    over: Over,
    depth: u16,
}

#[derive(Debug)]
enum Over {
    Tcp(Box<TcpQueue>),
    Rdma(Box<RdmaQueue>),
}

impl Queue {
    pub(super) fn connect(
        address: SocketAddr,
        role: QueueParameters,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        let over = match options.transport {
            Transport::Tcp => Over::Tcp(Box::new(TcpQueue::connect(address, role, subsystem, options)?)),
            Transport::Rdma if options.tls.is_some() => return Err(HostError::NoTls),
            Transport::Rdma => Over::Rdma(Box::new(RdmaQueue::connect(address, role)?)),
        };
        Ok(Self { over, depth: role.depth })
    }

    /// The number of commands that may be outstanding.
    pub fn depth(&self) -> usize {
        self.depth.into()
    }

    /// The number of outstanding commands.
    pub fn outstanding(&self) -> usize {
        match &self.over {
            Over::Tcp(queue) => queue.outstanding(),
            Over::Rdma(queue) => queue.outstanding(),
        }
    }

    /// A zeroed buffer for commands of this queue. Over RDMA it is registered with the device of the queue,
    /// and the target may access it with its key; buffers of other queues are not accessible to this target.
    ///
    /// # Errors
    /// When the device cannot register more memory.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        match &self.over {
            Over::Tcp(_) => Ok(Buffer::zeroed(length)),
            Over::Rdma(queue) => queue.buffer(length),
        }
    }

    /// Queues a command; the identifier (CID) and the SGL are filled in. It is sent by the next poll.
    ///
    /// # Errors
    /// [`HostError::Full`] when the queue is full, [`HostError::Buffer`] when the buffer is not registered
    /// with the device of the queue.
    pub fn submit(&mut self, command: Command, payload: Payload, token: u64) -> Result<(), HostError> {
        match &mut self.over {
            Over::Tcp(queue) => queue.submit(command, payload, token),
            Over::Rdma(queue) => queue.submit(command, payload, token),
        }
    }

    /// Sends and receives without waiting, and appends finished commands to `out`; returns how many.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        match &mut self.over {
            Over::Tcp(queue) => queue.poll(out),
            Over::Rdma(queue) => queue.poll(out),
        }
    }

    /// As [`Queue::poll`], but sleeps until a command has finished.
    ///
    /// # Errors
    /// When the connection is broken, or the target sends nothing for 30 s.
    pub fn wait(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        match &mut self.over {
            Over::Tcp(queue) => queue.wait(out),
            Over::Rdma(queue) => queue.wait(out),
        }
    }

    /// The descriptors to wait for, with [`crate::sys::wait`], after [`Queue::arm`].
    pub fn watched(&self) -> [Watched; 2] {
        match &self.over {
            Over::Tcp(queue) => [queue.watched(), (-1, false)],
            Over::Rdma(queue) => queue.watched(),
        }
    }

    /// Requests a notification for the next completion. Completions that arrived before this call cause none,
    /// so [`Queue::poll`] has to be called once more before sleeping.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn arm(&mut self) -> Result<(), HostError> {
        match &mut self.over {
            Over::Tcp(_) => Ok(()),
            Over::Rdma(queue) => queue.arm(),
        }
    }

    /// Submits one command, and waits until it is finished.
    ///
    /// # Errors
    /// When the command or the connection fails.
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
