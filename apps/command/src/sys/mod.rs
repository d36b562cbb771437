//! System calls that std does not have: processes by descriptor, signals, the user.

mod pidfd;
mod signals;

pub use pidfd::Pidfd;
pub use signals::{EndSignals, end_by_a_broken_pipe};

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: no arguments, and no failure.
    unsafe { libc::geteuid() }
}
