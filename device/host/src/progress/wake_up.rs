//! Wakes a program of this process that waits for an event. The library's own thread signals it, and so do
//! peers on this host, which saves the wake-up of a second thread.
//!
//! It is a pair of stream sockets. Peers get the sending end, with which they can only wake the program or
//! shut the connection down: programs then wait as they do where there is no peer.

use super::constants::SIGNALS_MAX;
use link::{cancellation, unix};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct WakeUp {
    receiver: OwnedFd,
    sender: OwnedFd,
}

impl WakeUp {
    pub(crate) fn new() -> io::Result<Self> {
        unix::pair().map(|[receiver, sender]| Self { receiver, sender })
    }

    /// The sending end, which peers get.
    pub(crate) fn sender(&self) -> RawFd {
        self.sender.as_raw_fd()
    }

    /// Wakes the waiting thread. A full socket buffer contains signals that it has not taken yet.
    pub(crate) fn signal(&self) {
        let _ = unix::send_now(self.sender.as_raw_fd(), &[1]);
    }

    /// The receiving end, which is readable while signals wait.
    pub(crate) fn receiver(&self) -> RawFd {
        self.receiver.as_raw_fd()
    }

    /// Takes the signals that wait, without waiting for one. False when the connection was shut down.
    pub(crate) fn take(&self) -> io::Result<bool> {
        unix::receive_now(self.receiver(), &mut [0; SIGNALS_MAX]).map(|signals| signals > 0)
    }

    /// Waits at most `time` for a signal. False when the connection was shut down.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        let receiver = self.receiver.as_raw_fd();
        !unix::is_readable_within(receiver, time)
            || unix::receive_some(receiver, &mut [0; SIGNALS_MAX]).is_ok_and(|signals| signals > 0)
    }

    /// Waits for a signal. False when the connection was shut down.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        cancellation::recv(self.receiver.as_raw_fd(), &mut [0; SIGNALS_MAX])
            .map(|signals| signals > 0)
    }
}
