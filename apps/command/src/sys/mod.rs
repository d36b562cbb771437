//! System calls that std does not have: processes by descriptor, signals.

mod pidfd;
mod signals;

pub use pidfd::Pidfd;
pub use signals::{EndSignals, end_by_a_broken_pipe};
