//! A queue of a host, over TCP or RDMA.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use buffer::Buffer;
use wire::nvme::Command;

use super::HostError;
use super::commands::{Done, Payload};
use super::liveness::Liveness;
use super::parameters::{Options, QueueParameters, RESPONSE_TIMEOUT, Transport};
use super::rdma::RdmaQueue;
use super::retry::{Retries, RetryTimes};
use super::submission::Submission;
use super::tcp::TcpQueue;
use crate::nqn::Nqn;
use os::wait::{Watched, wait};

/// A submission queue and its completion queue on one connection.
#[derive(Debug)]
pub struct Queue {
    over: Over,
    depth: u16,
    retries: Retries,
    liveness: Arc<Liveness>,
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
        liveness: &Arc<Liveness>,
    ) -> Result<Self, HostError> {
        let over = match options.transport {
            Transport::Tcp => Over::Tcp(Box::new(TcpQueue::connect(
                address, role, subsystem, options,
            )?)),
            Transport::Rdma if options.tls.is_some() => return Err(HostError::NoTls),
            Transport::Rdma => Over::Rdma(Box::new(RdmaQueue::connect(address, role)?)),
        };
        let liveness = Arc::clone(liveness);
        Ok(Self {
            over,
            depth: role.depth,
            retries: Retries::default(),
            liveness,
        })
    }

    /// Sets the times of the controller for retries.
    pub(super) fn set_retry_times(&mut self, times: RetryTimes) {
        self.retries.times = times;
    }

    /// The number of commands that may be outstanding.
    pub fn depth(&self) -> usize {
        self.depth.into()
    }

    /// The number of outstanding commands, with those that wait for a retry.
    pub fn outstanding(&self) -> usize {
        let sent = match &self.over {
            Over::Tcp(queue) => queue.outstanding(),
            Over::Rdma(queue) => queue.outstanding(),
        };
        sent + self.retries.len()
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
    pub fn submit(
        &mut self,
        command: Command,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        if self.outstanding() >= self.depth() {
            return Err(HostError::Full);
        }
        self.send(command.into(), payload, token)
    }

    fn send(
        &mut self,
        submission: Submission,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        match &mut self.over {
            Over::Tcp(queue) => queue.submit(submission, payload, token),
            Over::Rdma(queue) => queue.submit(submission, payload, token),
        }
    }

    /// Sends and receives without waiting, and appends finished commands to `out`; returns how many. A
    /// command whose status permits a retry is not finished, but is repeated.
    ///
    /// # Errors
    /// When the connection is broken, or the target does not answer Keep Alive.
    pub fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.liveness.check_controller()?;
        while let Some((submission, payload, token)) = self.retries.next() {
            self.send(submission, payload, token)?;
        }
        let before = out.len();
        match &mut self.over {
            Over::Tcp(queue) => queue.poll(out)?,
            Over::Rdma(queue) => queue.poll(out)?,
        };
        self.retries.sort_out(out, before);
        Ok(out.len() - before)
    }

    /// As [`Queue::poll`], but sleeps until a command has finished.
    ///
    /// # Errors
    /// When the connection is broken, or the target sends nothing for 30 s or does not answer Keep Alive.
    pub fn wait(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.wait_within(out, RESPONSE_TIMEOUT)
    }

    fn wait_within(
        &mut self,
        out: &mut Vec<Done>,
        response_timeout: Duration,
    ) -> Result<usize, HostError> {
        loop {
            let count = self.poll(out)?;
            if count > 0 || self.outstanding() == 0 {
                return Ok(count);
            }
            if !self.is_drained() {
                continue;
            }
            // Completions that arrived before arming cause no notification: poll once more.
            self.arm()?;
            let count = self.poll(out)?;
            if count > 0 {
                return Ok(count);
            }
            if !self.is_drained() {
                continue;
            }
            let retry = self.until_retry().filter(|retry| *retry < response_timeout);
            if !wait(self.watched(), retry.unwrap_or(response_timeout))? && retry.is_none() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }

    /// Whether the last poll has read all that had arrived.
    fn is_drained(&self) -> bool {
        match &self.over {
            Over::Tcp(queue) => queue.is_drained(),
            Over::Rdma(_) => true,
        }
    }

    /// The descriptors to wait for, with [`os::wait`], after [`Queue::arm`] and no longer than
    /// [`Queue::until_retry`].
    pub fn watched(&self) -> [Watched; 3] {
        let [one, other] = match &self.over {
            Over::Tcp(queue) => [queue.watched(), (-1, false)],
            Over::Rdma(queue) => queue.watched(),
        };
        [one, other, self.liveness.watched()]
    }

    /// How long until [`Queue::poll`] repeats a command; `None` if no command waits for a retry.
    pub fn until_retry(&self) -> Option<Duration> {
        self.retries.until_due()
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
        self.call_within(what, command, payload, RESPONSE_TIMEOUT)
    }

    /// As [`Queue::call`], for a target that sends something within `response_timeout`.
    pub(super) fn call_within(
        &mut self,
        what: &'static str,
        command: Command,
        payload: Payload,
        response_timeout: Duration,
    ) -> Result<Done, HostError> {
        self.submit(command, payload, 0)?;
        let mut done = Vec::new();
        while done.is_empty() {
            self.wait_within(&mut done, response_timeout)?;
        }
        let done = done.pop().ok_or(HostError::Protocol(
            "a wait for a command ended without its completion",
        ))?;
        match done.completion.status() {
            status if status.is_success() => Ok(done),
            status => Err(HostError::Status { what, status }),
        }
    }
}
