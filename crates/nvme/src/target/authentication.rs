//! Authentication of one queue: each connection of a host proves anew who it is (Base 8.13.5).

use wire::nvme::{Command, Status, auth};

use super::queue::{Outcome, Queue};
use crate::auth::{Authenticator, Progress};
use crate::limits::AUTHENTICATION_BYTES_MAX;
use rdma::Buffer;

/// What a host has proved.
#[derive(Debug)]
pub(super) enum Standing {
    /// It need not.
    Free,
    /// Not yet that it is who it says.
    Strange(Box<Authenticator>),
    /// That it is who it says.
    Known(Box<Authenticator>),
}

impl Standing {
    pub(super) fn of(authenticator: Option<Box<Authenticator>>) -> Self {
        authenticator.map_or(Self::Free, Self::Strange)
    }

    /// Whether its commands are carried out.
    pub(super) fn is_trusted(&self) -> bool {
        !matches!(self, Self::Strange(_))
    }

    fn authenticator(&mut self) -> Option<&mut Authenticator> {
        match self {
            Self::Free => None,
            Self::Strange(authenticator) | Self::Known(authenticator) => Some(authenticator),
        }
    }

    fn set(&mut self, progress: Progress) {
        let standing = std::mem::replace(self, Self::Free);
        *self = match (standing, progress) {
            (Self::Free, _) => Self::Free,
            (Self::Strange(it), Progress::Authenticated) => Self::Known(it),
            (Self::Known(it), Progress::Failed) => Self::Strange(it),
            (standing, _) => standing,
        };
    }
}

/// Bytes of the message that a command carries, or has room for.
pub(super) fn length(command: &Command) -> Result<u32, Status> {
    let is_right = auth::is_ours(command) && (1..=AUTHENTICATION_BYTES_MAX).contains(&command.cdw11);
    is_right.then_some(command.cdw11).ok_or(Status::INVALID_FIELD.permanent())
}

impl Queue {
    /// A message of the host.
    pub(super) fn hear(&mut self, _command: &Command, message: &[u8]) -> Status {
        let Some(standing) = self.membership_mut().map(|it| &mut it.standing) else {
            return Status::COMMAND_SEQUENCE.permanent();
        };
        let Some(authenticator) = standing.authenticator() else {
            return Status::COMMAND_SEQUENCE.permanent();
        };
        let mut is_random = true;
        let progress = authenticator.hear(message, &mut |bytes| is_random &= getrandom::fill(bytes).is_ok());
        // Without randomness there is no challenge that nobody knows.
        standing.set(if is_random { progress } else { Progress::Failed });
        if is_random { Status::SUCCESS } else { Status::INTERNAL_ERROR }
    }

    /// A message for the host.
    pub(super) fn say(&mut self, command: &Command, length: usize, buffer: Option<Buffer>) -> Outcome {
        let membership = self.membership_mut();
        let message = membership.and_then(|it| it.standing.authenticator()?.say());
        match (message, buffer) {
            (Some(message), Some(mut buffer)) if message.len() <= length => {
                buffer[..message.len()].copy_from_slice(&message);
                buffer[message.len()..length].fill(0);
                self.reply(command.cid, Status::SUCCESS, 0, Some(buffer))
            }
            (Some(_), buffer) => self.reply(command.cid, Status::INVALID_FIELD.permanent(), 0, buffer),
            (None, buffer) => self.reply(command.cid, Status::COMMAND_SEQUENCE.permanent(), 0, buffer),
        }
    }
}
