//! A queue over RDMA: capsules are messages, and the target reads and writes the data buffers with the key in
//! the command (RDMA transport 1.0).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use buffer::Buffer;
use rdma::{BATCH, Completion as Completed, Connection, Domain, Done as Finished, Error, Sizes};
use wire::nvme::rdma::{Accept, Reject, RejectStatus, Request};
use wire::nvme::{COMMAND_SIZE, COMPLETION_SIZE, Completion, Sgl};

use super::HostError;
use super::commands::{Commands, Done, Payload};
use super::parameters::{QueueParameters, RESPONSE_TIMEOUT};
use super::submission::Submission;
use os::wait::Watched;

/// In-capsule data in bytes. Longer data are read by the target, without a copy.
const IN_CAPSULE_MAX: usize = 4096;
/// Entries of the send queue for SENDs whose completions were not polled yet, beyond one for each command.
const SPARE: u32 = 64;
/// Polls after which the connection state is checked: the check is a system call.
const CHECK_EVERY: u32 = 4096;

/// RNR retries without limit.
const RNR_RETRY: u8 = 7;

/// Values of the `wr_id` of a completion.
mod token {
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const CAPSULE: u64 = 1;
}

/// A queue over RDMA.
#[derive(Debug)]
pub(super) struct RdmaQueue {
    connection: Connection,
    commands: Commands,
    /// Capsule buffers that are free.
    capsules: Vec<Buffer>,
    completed: Vec<Completed>,
    in_capsule: usize,
    idle_polls: u32,
}

impl RdmaQueue {
    /// Connects with RDMA-CM.
    pub(super) fn connect(address: SocketAddr, role: QueueParameters) -> Result<Self, HostError> {
        let depth = u32::from(role.depth);
        // A host posts no RDMA READs: the target transfers all data.
        let (send, receive) = (2 * depth + SPARE, u32::from(role.entries) + BATCH as u32);
        let sizes = Sizes {
            send,
            receive,
            reads: 0,
            rnr_retry: RNR_RETRY,
        };
        let request = Request {
            format: 0,
            queue_id: role.id,
            receive_size: role.entries,
            send_size: role.entries - 1,
            controller_id: role.controller,
        };
        let prepare = |connection: &mut Connection, domain: &Arc<Domain>| {
            (0..sizes.receive).try_for_each(|_| {
                let buffer = domain.registered(COMPLETION_SIZE)?;
                connection
                    .receive(buffer, token::RECEIVE)
                    .map_err(|(error, _)| error)
            })
        };
        let connected = Connection::connect(address, sizes, &request.to_bytes(), prepare);
        let (connection, answer) = connected.map_err(refusal)?;
        let accept = Accept::split(&answer).ok_or(HostError::Protocol(
            "the answer to the connection request has no private data",
        ))?;
        if accept.0.format != 0 {
            return Err(HostError::Protocol(
                "the private data of the answer to Connect has a format other than 0",
            ));
        }
        Ok(Self {
            connection,
            commands: Commands::new(role.depth),
            capsules: Vec::new(),
            completed: Vec::new(),
            in_capsule: role.in_capsule.min(IN_CAPSULE_MAX),
            idle_polls: 0,
        })
    }

    pub(super) fn outstanding(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(self.connection.domain().open(length)?)
    }

    pub(super) fn submit(
        &mut self,
        submission: Submission,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        self.make_room()?;
        let mut capsule = None;
        let sgl = match &payload {
            // An SGL with a length of 0 and a key without rights: nvmet accepts no command without a keyed
            // SGL.
            Payload::None => Sgl::Keyed {
                address: 0,
                length: 0,
                key: 0,
                invalidate: false,
            },
            Payload::Out(buffer, length) if *length <= self.in_capsule => {
                let data = buffer.get(..*length).ok_or(HostError::Buffer)?;
                let end = COMMAND_SIZE + length;
                let (bytes, _) = capsule.insert((self.capsule()?, end));
                bytes[COMMAND_SIZE..end].copy_from_slice(data);
                Sgl::InCapsule {
                    offset: 0,
                    length: *length as u32,
                }
            }
            Payload::Out(buffer, length) | Payload::In(buffer, length) => {
                let (address, key) = self
                    .connection
                    .domain()
                    .remote(buffer)
                    .ok_or(HostError::Buffer)?;
                Sgl::Keyed {
                    address,
                    length: *length as u32,
                    key,
                    invalidate: false,
                }
            }
        };
        let (_, command) = self.commands.begin(submission, payload, token)?;
        let command = command.with_sgl(sgl);
        let Some((mut capsule, end)) = capsule else {
            return Ok(self.connection.send_short(&command.to_bytes(), None)?);
        };
        capsule[..COMMAND_SIZE].copy_from_slice(&command.to_bytes());
        let sent = self.connection.send(capsule, end, None, token::CAPSULE);
        sent.map_err(|(error, _)| error.into())
    }

    fn capsule(&mut self) -> Result<Buffer, HostError> {
        match self.capsules.pop() {
            Some(capsule) => Ok(capsule),
            None => Ok(self
                .connection
                .domain()
                .registered(COMMAND_SIZE + self.in_capsule)?),
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.advance()?;
        let count = self.commands.take(out);
        if count > 0 {
            self.idle_polls = 0;
        } else {
            self.idle_polls += 1;
            if self.idle_polls == CHECK_EVERY {
                self.idle_polls = 0;
                self.connection.check_events()?;
            }
        }
        Ok(count)
    }

    pub(super) fn watched(&self) -> [Watched; 2] {
        self.connection
            .descriptors()
            .map(|descriptor| (descriptor, false))
    }

    pub(super) fn arm(&mut self) -> Result<(), HostError> {
        self.connection.check_events()?;
        Ok(self.connection.arm()?)
    }

    /// Waits until the send queue has a free entry. Each command has one; the SEND of a command that the
    /// target has answered may still wait for its acknowledgement, which is on its way.
    fn make_room(&mut self) -> Result<(), HostError> {
        if self.connection.room() > 0 {
            return Ok(());
        }
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            self.advance()?;
            if self.connection.room() > 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            std::thread::yield_now();
        }
    }

    /// Processes the completions.
    fn advance(&mut self) -> Result<(), HostError> {
        let mut completed = std::mem::take(&mut self.completed);
        loop {
            let count = self.connection.poll(&mut completed)?;
            for Completed { done, buffer, .. } in completed.drain(..) {
                match (done.map_err(HostError::Request)?, buffer) {
                    (Finished::Receive(bytes), Some(buffer)) => self.response(buffer, bytes)?,
                    (Finished::Sent, Some(buffer)) => self.capsules.push(buffer),
                    _ => {}
                }
            }
            // The completion queue is empty.
            if count < BATCH {
                break;
            }
        }
        self.completed = completed;
        Ok(())
    }

    fn response(&mut self, buffer: Buffer, bytes: usize) -> Result<(), HostError> {
        let message = buffer.get(..bytes).unwrap_or_default();
        let (completion, _) = Completion::split(message).ok_or(HostError::Protocol(
            "a response capsule is shorter than a completion",
        ))?;
        self.connection
            .receive(buffer, token::RECEIVE)
            .map_err(|(error, _)| error)?;
        self.commands.finish(completion)
    }
}

fn refusal(error: Error) -> HostError {
    let Error::Rejected { private_data, .. } = &error else {
        return error.into();
    };
    use RejectStatus::*;
    let all = [
        Length,
        Format,
        QueueId,
        ReceiveSize,
        SendSize,
        Resources,
        InitiatorDepth,
        ControllerId,
    ];
    let status = Reject::split(private_data).map(|(reject, _)| reject.status);
    match all
        .into_iter()
        .find(|reason| Some(*reason as u16) == status)
    {
        Some(reason) => HostError::Refused(reason),
        None => error.into(),
    }
}
