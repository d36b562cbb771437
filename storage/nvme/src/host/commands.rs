//! The outstanding commands of one queue, for both transports.

use buffer::Buffer;
use slab::Slab;
use wire::nvme::{Command, Completion};

use super::HostError;
use super::submission::Submission;

/// The data of a command.
#[derive(Debug)]
pub enum Payload {
    /// The command moves no data.
    None,
    /// The first bytes of a buffer are sent to the target; how many.
    Out(Buffer, usize),
    /// The target sends this many bytes to the start of the buffer.
    In(Buffer, usize),
}

/// A finished command.
#[derive(Debug)]
pub struct Done {
    /// The token that the caller passed with the command.
    pub token: u64,
    /// The completion queue entry.
    pub completion: Completion,
    /// The buffer of the command.
    pub buffer: Option<Buffer>,
    /// The command as it was submitted, and the length and direction of its data, for a retry.
    pub(super) submission: Submission,
    pub(super) length: usize,
    pub(super) is_out: bool,
}

impl Done {
    /// The data of the command, as it was submitted.
    pub(super) fn into_payload(self) -> Payload {
        match self.buffer {
            None => Payload::None,
            Some(buffer) if self.is_out => Payload::Out(buffer, self.length),
            Some(buffer) => Payload::In(buffer, self.length),
        }
    }
}

/// A command that was submitted and is not finished.
#[derive(Debug)]
pub(super) struct OutstandingCommand {
    token: u64,
    submission: Submission,
    pub(super) buffer: Option<Buffer>,
    pub(super) length: usize,
    pub(super) is_out: bool,
    /// Bytes that have arrived, if they arrive in several PDUs.
    pub(super) received: usize,
    /// Parts of its buffer that are still to be sent; the command is not finished before.
    unsent: usize,
    completion: Option<Completion>,
}

/// The outstanding commands, and those that are finished.
#[derive(Debug)]
pub(super) struct Commands {
    outstanding: Slab<OutstandingCommand>,
    depth: usize,
    done: Vec<Done>,
}

impl Commands {
    /// A table for `depth` outstanding commands.
    pub(super) fn new(depth: u16) -> Self {
        Self {
            outstanding: Slab::with_capacity(depth.into()),
            depth: depth.into(),
            done: Vec::new(),
        }
    }

    /// The number of outstanding commands.
    pub(super) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Adds a command; returns its identifier (CID), and the command with this identifier.
    pub(super) fn begin(
        &mut self,
        submission: Submission,
        payload: Payload,
        token: u64,
    ) -> Result<(u16, Command), HostError> {
        if self.outstanding.len() >= self.depth {
            return Err(HostError::Full);
        }
        let (buffer, length, is_out) = match payload {
            Payload::None => (None, 0, false),
            Payload::Out(buffer, length) => (Some(buffer), length, true),
            Payload::In(buffer, length) => (Some(buffer), length, false),
        };
        let command = submission.command;
        let cid = self.outstanding.insert(OutstandingCommand {
            token,
            submission,
            buffer,
            length,
            is_out,
            received: 0,
            unsent: 0,
            completion: None,
        }) as u16;
        Ok((cid, Command { cid, ..command }))
    }

    pub(super) fn outstanding(&self, cid: u16) -> Option<&OutstandingCommand> {
        self.outstanding.get(cid.into())
    }

    pub(super) fn outstanding_mut(&mut self, cid: u16) -> Option<&mut OutstandingCommand> {
        self.outstanding.get_mut(cid.into())
    }

    /// Notes that a part of the buffer of a command is queued for sending.
    pub(super) fn keep(&mut self, cid: u16) {
        if let Some(command) = self.outstanding_mut(cid) {
            command.unsent += 1;
        }
    }

    /// Notes that a part of the buffer of a command was sent.
    pub(super) fn release(&mut self, cid: u16) {
        let Some(command) = self.outstanding_mut(cid) else {
            return;
        };
        command.unsent = command.unsent.saturating_sub(1);
        if command.unsent == 0
            && let Some(completion) = command.completion.take()
        {
            self.conclude(completion);
        }
    }

    /// Processes a completion. The command is finished once no part of its buffer is queued for sending.
    pub(super) fn finish(&mut self, completion: Completion) -> Result<(), HostError> {
        let command = self
            .outstanding_mut(completion.cid)
            .filter(|command| command.completion.is_none());
        let command = command.ok_or(HostError::Protocol("a response to no command"))?;
        if command.unsent > 0 {
            command.completion = Some(completion);
        } else {
            self.conclude(completion);
        }
        Ok(())
    }

    fn conclude(&mut self, completion: Completion) {
        if let Some(command) = self.outstanding.try_remove(completion.cid.into()) {
            let OutstandingCommand {
                token,
                submission,
                buffer,
                length,
                is_out,
                ..
            } = command;
            self.done.push(Done {
                token,
                completion,
                buffer,
                submission,
                length,
                is_out,
            });
        }
    }

    /// Appends the finished commands to `out`; returns how many.
    pub(super) fn take(&mut self, out: &mut Vec<Done>) -> usize {
        let count = self.done.len();
        out.append(&mut self.done);
        count
    }
}
