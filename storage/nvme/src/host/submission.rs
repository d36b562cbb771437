//! A command with the history of its attempts.

use std::time::Instant;

use wire::nvme::Command;

/// A command with the history of its attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) command: Command,
    /// Attempts that failed.
    pub(super) failed: u8,
    /// When the first attempt failed.
    pub(super) since: Option<Instant>,
}

impl From<Command> for Submission {
    fn from(command: Command) -> Self {
        Self {
            command,
            failed: 0,
            since: None,
        }
    }
}
