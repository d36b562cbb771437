//! The SMB server behind a gateway. Whether it takes connections is asked before a client's connection is
//! accepted: a client that was accepted and then disconnected would come back at once, without the pause that
//! follows a refusal.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use server::thread::STACK_BYTES;

use crate::limits::{CONNECT_TIMEOUT, REACHABLE_TIME, UNREACHABLE_TIME};

/// How long the server may take to take a connection that only asks whether it does.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// The server, and what is known of it.
pub(super) struct Backend {
    address: SocketAddr,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the server took the last connection, and when that was.
    known: Option<(bool, Instant)>,
    /// The log says that the server takes no connections.
    is_down: bool,
    /// A thread asks the server; then it calls these.
    waiting: Option<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Backend {
    pub(super) fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            state: Mutex::default(),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server takes connections; `None` if that has to be asked.
    pub(super) fn is_reachable(&self) -> Option<bool> {
        let (is_reachable, at) = self.lock().known?;
        let time = if is_reachable {
            REACHABLE_TIME
        } else {
            UNREACHABLE_TIME
        };
        (at.elapsed() < time).then_some(is_reachable)
    }

    /// Asks the server, and calls `answered` afterwards, on another thread.
    pub(super) fn ask(self: &Arc<Self>, answered: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if let Some(waiting) = &mut state.waiting {
            waiting.push(Box::new(answered));
            return;
        }
        state.waiting = Some(vec![Box::new(answered)]);
        drop(state);
        let this = Arc::clone(self);
        let ask = move || {
            this.note_outcome(&TcpStream::connect_timeout(&this.address, ASK_TIMEOUT));
            this.call_waiting();
        };
        let thread = std::thread::Builder::new()
            .name("smb-server".to_owned())
            .stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(ask) {
            self.note_outcome(&Err(error));
            self.call_waiting();
        }
    }

    fn call_waiting(&self) {
        let waiting = self.lock().waiting.take();
        waiting
            .into_iter()
            .flatten()
            .for_each(|answered| answered());
    }

    /// Connects to the server for a client.
    ///
    /// # Errors
    /// When the server does not take the connection.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let connected = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        self.note_outcome(&connected);
        let stream = connected?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Has the server asked before the next client, because it has ended a connection.
    pub(super) fn doubt(&self) {
        let mut state = self.lock();
        if state.known.is_some_and(|(is_reachable, _)| is_reachable) {
            state.known = None;
        }
    }

    /// Notes an outcome. The log has a line when the outcome differs from the last one.
    fn note_outcome(&self, connected: &io::Result<TcpStream>) {
        let mut state = self.lock();
        state.known = Some((connected.is_ok(), Instant::now()));
        let was_down = std::mem::replace(&mut state.is_down, connected.is_err());
        drop(state);
        let server = self.address;
        match connected {
            Err(error) if !was_down => {
                tracing::warn!(%server, %error, "the SMB server takes no connections: clients are rejected");
            }
            Ok(_) if was_down => tracing::warn!(%server, "the SMB server takes connections again"),
            _ => {}
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    fn asked(backend: &Arc<Backend>) -> Option<bool> {
        let (send, receive) = mpsc::channel();
        backend.ask(move || send.send(()).unwrap());
        receive.recv().unwrap();
        backend.lock().known.map(|(is_reachable, _)| is_reachable)
    }

    #[test]
    fn the_server_is_asked_and_the_answer_expires() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let backend = Backend::new(listener.local_addr().unwrap());
        assert_eq!(backend.is_reachable(), None);
        assert_eq!(asked(&backend), Some(true));
        backend.doubt();
        assert_eq!(
            backend.is_reachable(),
            None,
            "the server ended a connection"
        );
        assert!(backend.connect().is_ok());
        drop(listener);
        assert_eq!(asked(&backend), Some(false));
        backend.doubt();
        assert!(
            backend.lock().known.is_some(),
            "an unreachable server is not doubted"
        );
        assert!(backend.connect().is_err() && backend.lock().is_down);
        std::thread::sleep(UNREACHABLE_TIME);
        assert_eq!(backend.is_reachable(), None, "the server is asked again");
    }
}
