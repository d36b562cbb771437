//! Requests of a device to the agent after the lease: to open and close XRC domains.

use super::protocol::{ANSWER_BYTES, Answer, DomainRequest};
use link::unix;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time that the agent may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests of one device, one at a time. The device's own lock is not held meanwhile, so that a stopped
/// agent does not stop the device's traffic.
#[derive(Default, Debug)]
pub(crate) struct Enquiries {
    /// Number of outstanding answers to requests that have timed out.
    owed: Mutex<u32>,
}

impl Enquiries {
    /// Sends a request over the device's connection to the agent, and waits for the answer.
    pub(crate) fn ask(&self, lease: Option<RawFd>, request: DomainRequest) -> io::Result<()> {
        let lease = lease.ok_or(io::ErrorKind::NotConnected)?;
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        unix::set_timeouts(lease, TIMEOUT)?;
        while *owed > 0 {
            receive(lease)?;
            *owed -= 1;
        }
        unix::send(lease, &request.to_bytes(), None)?;
        *owed += 1;
        let answer = receive(lease)?;
        *owed -= 1;
        Answer::parse(answer).map(drop)
    }
}

fn receive(lease: RawFd) -> io::Result<[u8; ANSWER_BYTES]> {
    let mut answer = [0; ANSWER_BYTES];
    match unix::receive_next(lease, &mut answer)? {
        ANSWER_BYTES => Ok(answer),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
