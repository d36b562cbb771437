//! Authentication of one queue: a host authenticates on each of its connections (Base 8.13.5).

use std::sync::Arc;

use wire::nvme::{Command, Status, auth};

use super::{Outcome, Queue};
use crate::auth::{Authenticator, Progress};
use crate::limits::AUTHENTICATION_BYTES_MAX;
use buffer::Buffer;

/// The authentication state of a queue.
#[derive(Debug)]
pub(in crate::controller) enum Standing {
    /// The subsystem does not require authentication of this host.
    NotRequired,
    /// The host has not authenticated yet, or a reauthentication failed.
    Unauthenticated(Box<Authenticator>),
    /// The host has proved its identity.
    Authenticated(Box<Authenticator>),
}

impl Standing {
    pub(super) fn of(authenticator: Option<Box<Authenticator>>) -> Self {
        authenticator.map_or(Self::NotRequired, Self::Unauthenticated)
    }

    /// Whether commands of the host are executed.
    pub(super) fn is_trusted(&self) -> bool {
        !matches!(self, Self::Unauthenticated(_))
    }

    fn authenticator(&mut self) -> Option<&mut Authenticator> {
        match self {
            Self::NotRequired => None,
            Self::Unauthenticated(authenticator) | Self::Authenticated(authenticator) => {
                Some(authenticator)
            }
        }
    }

    fn set(&mut self, progress: Progress) {
        let standing = std::mem::replace(self, Self::NotRequired);
        *self = match (standing, progress) {
            (Self::NotRequired, _) => Self::NotRequired,
            (Self::Unauthenticated(it), Progress::Authenticated) => Self::Authenticated(it),
            (Self::Authenticated(it), Progress::Failed) => Self::Unauthenticated(it),
            (standing, _) => standing,
        };
    }
}

/// The length of the message in an Authentication Send, or of the buffer of an Authentication Receive.
pub(super) fn length(command: &Command) -> Result<u32, Status> {
    let is_right =
        auth::is_ours(command) && (1..=AUTHENTICATION_BYTES_MAX).contains(&command.cdw11);
    is_right
        .then_some(command.cdw11)
        .ok_or(Status::INVALID_FIELD.permanent())
}

impl Queue {
    /// Executes Authentication Send: a message of the host.
    pub(super) fn authentication_send(&mut self, message: &[u8], now_ns: u64) -> Status {
        let (target, peer) = (Arc::clone(&self.target), self.origin.peer);
        let was_trusted = self.is_trusted();
        let Some(standing) = self.membership_mut().map(|it| &mut it.standing) else {
            return Status::COMMAND_SEQUENCE.permanent();
        };
        let Some(authenticator) = standing.authenticator() else {
            return Status::COMMAND_SEQUENCE.permanent();
        };
        if !was_trusted
            && Authenticator::is_beginning(message)
            && !target.negotiation_limiter.begin(peer, now_ns)
        {
            return Status::COMMAND_INTERRUPTED;
        }
        let mut is_random = true;
        let progress = target.negotiation_limiter.run(|| {
            authenticator.receive(message, &mut |bytes| {
                is_random &= getrandom::fill(bytes).is_ok()
            })
        });
        if !was_trusted && progress == Progress::Authenticated {
            target.negotiation_limiter.authenticated(peer);
        }
        // Without random numbers the challenge would be predictable.
        standing.set(if is_random {
            progress
        } else {
            Progress::Failed
        });
        if is_random {
            Status::SUCCESS
        } else {
            Status::INTERNAL_ERROR
        }
    }

    /// Executes Authentication Receive: a message for the host.
    pub(super) fn authentication_receive(
        &mut self,
        command: &Command,
        length: usize,
        buffer: Option<Buffer>,
    ) -> Outcome {
        let membership = self.membership_mut();
        let message = membership.and_then(|it| it.standing.authenticator()?.next_message());
        match (message, buffer) {
            (Some(message), Some(mut buffer)) if message.len() <= length => {
                buffer[..message.len()].copy_from_slice(&message);
                buffer[message.len()..length].fill(0);
                self.reply(command.cid, Status::SUCCESS, 0, Some(buffer))
            }
            (Some(_), buffer) => {
                self.reply(command.cid, Status::INVALID_FIELD.permanent(), 0, buffer)
            }
            (None, buffer) => {
                self.reply(command.cid, Status::COMMAND_SEQUENCE.permanent(), 0, buffer)
            }
        }
    }
}
