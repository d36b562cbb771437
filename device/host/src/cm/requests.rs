//! Requests of a connection manager to the agent.
//!
//! Datagrams arrive on the same connection as answers, so its thread reads both, and passes answers on to
//! this module. The caller waits for its answer without the session's lock: while the agent is stopped,
//! connections and calls that need no answer continue.

use crate::agent::protocol::{ANSWER_BYTES, Answer, Request};
use link::unix;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time that the agent may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to the agent, and the answer that a caller waits for.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) connection: OwnedFd,
    /// Held by the caller of the pending request: there is one request at a time, because answers do not
    /// identify theirs.
    turn: Mutex<()>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

#[derive(Default, Debug)]
struct Inbox {
    answer: Option<[u8; ANSWER_BYTES]>,
    /// Number of outstanding answers to requests that have timed out.
    stale: u32,
    /// Whether no further answer can arrive.
    is_closed: bool,
}

impl Requests {
    pub(super) fn new(connection: OwnedFd) -> Self {
        let (turn, inbox, arrived) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self {
            connection,
            turn,
            inbox,
            arrived,
        }
    }

    /// Sends a request to the agent, and waits for its answer. Must not be called by the thread that reads
    /// the connection, nor with the session's lock held, which that thread needs.
    ///
    /// # Errors
    /// The agent's error; `ETIMEDOUT` when it does not answer.
    pub(super) fn ask(&self, request: &Request) -> io::Result<u16> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inbox().is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        unix::send(self.connection.as_raw_fd(), &request.to_bytes(), None)?;
        let waits = |inbox: &mut Inbox| inbox.answer.is_none() && !inbox.is_closed;
        let waited = self
            .arrived
            .wait_timeout_while(self.inbox(), TIMEOUT, waits);
        let (mut inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match inbox.answer.take() {
            Some(answer) => Answer::parse(answer),
            None if inbox.is_closed => Err(io::ErrorKind::UnexpectedEof.into()),
            None => {
                inbox.stale += 1;
                Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            }
        }
    }

    /// Takes an answer that has arrived.
    pub(super) fn take(&self, answer: [u8; ANSWER_BYTES]) {
        let mut inbox = self.inbox();
        if inbox.stale > 0 {
            inbox.stale -= 1;
        } else {
            inbox.answer = Some(answer);
            self.arrived.notify_all();
        }
    }

    /// Records that no further answer arrives: the agent has ended, or the thread that reads the connection.
    pub(super) fn close(&self) {
        self.inbox().is_closed = true;
        self.arrived.notify_all();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::Ask;
    use rnic::cm::ListenAddress;
    use std::sync::Arc;
    use wire::cm::PortSpace;

    /// Requests, and the agent's end of their connection.
    fn connected() -> (Arc<Requests>, OwnedFd) {
        let [ours, agents] = unix::message_pair().unwrap();
        (Arc::new(Requests::new(ours)), agents)
    }

    fn ask(requests: &Arc<Requests>, port: u16) -> std::thread::JoinHandle<io::Result<u16>> {
        let requests = Arc::clone(requests);
        let address = ListenAddress::Any;
        let request = Request {
            ask: Ask::Bind,
            space: PortSpace::Tcp,
            port,
            count: 1,
            address,
            shared: false,
        };
        std::thread::spawn(move || requests.ask(&request))
    }

    /// Waits until a request has arrived at the agent.
    fn await_request(agent: &OwnedFd) {
        assert!(unix::receive_next(agent.as_raw_fd(), &mut [0; 64]).unwrap() > 0);
    }

    #[test]
    fn a_caller_gets_the_answer_that_the_thread_passes_on() {
        let (requests, agent) = connected();
        let caller = ask(&requests, 7);
        await_request(&agent);
        requests.take(Answer(Ok(7)).to_bytes());
        assert_eq!(caller.join().unwrap().unwrap(), 7);
    }

    #[test]
    fn a_late_answer_is_not_that_of_the_next_request() {
        let (requests, agent) = connected();
        requests.inbox().stale = 1;
        let caller = ask(&requests, 8);
        await_request(&agent);
        requests.take(Answer(Err(libc::EADDRINUSE)).to_bytes());
        requests.take(Answer(Ok(8)).to_bytes());
        assert_eq!(caller.join().unwrap().unwrap(), 8);
    }

    #[test]
    fn requests_do_not_wait_for_an_agent_that_is_gone() {
        let (requests, agent) = connected();
        let caller = ask(&requests, 9);
        await_request(&agent);
        requests.close();
        assert_eq!(
            caller.join().unwrap().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(
            ask(&requests, 9).join().unwrap().unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
    }
}
