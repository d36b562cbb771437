//! Where a program waits for an event, and is woken by whoever has one for it: a thread of its own, or a peer
//! on this host, straight away and with nobody in between.
//!
//! A stream with two ends. Peers have the button, and could do no more with it than wake us, or close it:
//! then programs wait as they do where there is no peer.

use crate::sys::unix;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Presses that one look takes away.
const PRESSES: usize = 64;

#[derive(Debug)]
pub(crate) struct Bell {
    ear: OwnedFd,
    button: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        unix::pair().map(|[ear, button]| Self { ear, button })
    }

    /// What peers press.
    pub(crate) fn button(&self) -> RawFd {
        self.button.as_raw_fd()
    }

    /// A press that does not fit is one of many.
    pub(crate) fn ring(&self) {
        let _ = unix::send_now(self.button.as_raw_fd(), &[1]);
    }

    /// Waits until it rings, for so long at most. False when it never will again.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        let ear = self.ear.as_raw_fd();
        !unix::is_readable_within(ear, time)
            || unix::receive_some(ear, &mut [0; PRESSES]).is_ok_and(|presses| presses > 0)
    }

    /// Waits until it rings. False when it never will again.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        unix::receive_some(self.ear.as_raw_fd(), &mut [0; PRESSES]).map(|presses| presses > 0)
    }
}
