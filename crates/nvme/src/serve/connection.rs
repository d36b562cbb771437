//! The thread of one connection: its socket, its engine, and sleep.

use std::io::ErrorKind::{NotConnected, UnexpectedEof};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{SockRef, Socket};

use super::doorman::Guest;
use super::idle::Idle;
use super::{Counted, End, Shared, Tuning};
use crate::engine::Engine;
use crate::limits::CONNECTIONS_MAX;
use crate::stream::Stream;
use crate::target::{Origin, Proved, Queue, Wake};
use crate::tcp::{Closing, Connection};
use crate::tls::Acceptor;

const SOCKET: Token = Token(0);
pub(super) const WOKEN: Token = Token(1);
pub(super) const RING: Token = Token(2);

/// How often an admin queue looks at its deadline, at least.
pub(super) const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// How long a connection that is ending may take to say its last words.
const LAST_WORDS_NS: u64 = 2_000_000_000;

/// How long nothing happens until memory is given back. Between two bursts it stays: what the kernel has to
/// find and clear anew costs more than what was saved.
const REST_AFTER: Duration = Duration::from_millis(500);

/// Wakes a connection's thread through its poll.
pub(super) struct Waking(pub(super) Waker);

impl Wake for Waking {
    fn wake(&self) {
        // The counter behind it cannot be full for long.
        _ = self.0.wake();
    }
}

/// Sets what a socket needs: no delay for small messages, and the congestion control that was asked for.
pub(super) fn tune(socket: &Socket, tuning: &Tuning) {
    _ = socket.set_tcp_nodelay(true);
    if let Some(name) = &tuning.congestion {
        // Where the kernel does not have it, its own does.
        _ = socket.set_tcp_congestion(name.as_bytes());
    }
}

/// Serves one connection until it ends, in TLS where there is an acceptor for it.
pub(super) fn serve(shared: &Arc<Shared>, stream: TcpStream, port: u16, acceptor: Option<&Acceptor>) {
    let Ok(peer) = stream.peer_addr() else { return shared.count_end(End::Host) };
    let address = peer.ip();
    let Some(_one) = Counted::one_more(&shared.connections, CONNECTIONS_MAX) else {
        return shared.ended(End::Full, None, peer, "");
    };
    let guest = match shared.doorman.let_in(address) {
        Ok(guest) => guest,
        Err(end) => return shared.ended(end, None, peer, ""),
    };
    // What goes wrong here is the connection's end, which the host sees.
    _ = stream.set_nodelay(true);
    if let Some(name) = &shared.tuning.congestion {
        _ = SockRef::from(&stream).set_tcp_congestion(name.as_bytes());
    }
    let (stream, proved) = match acceptor {
        None => (Stream::Plain(stream), None),
        Some(acceptor) => match seal(shared, stream, acceptor) {
            Ok((stream, proved)) => (stream, Some(proved)),
            Err(error) => return shared.ended(End::Unsealed, None, peer, &error.to_string()),
        },
    };
    match Driver::new(shared, stream, (port, proved), peer, guest) {
        Err(error) => shared.count_end(if error.kind() == NotConnected { End::Host } else { End::Broken }),
        Ok(mut driver) => {
            let ended = driver.run();
            driver.say_end(&ended);
        }
    }
}

/// The handshake of TLS. Whose key it was is what Connect has to say again.
fn seal(shared: &Shared, stream: TcpStream, acceptor: &Acceptor) -> io::Result<(Stream, Proved)> {
    let target = Arc::clone(&shared.target);
    let patience = shared.tuning.patience;
    let (sealed, psk) = acceptor.accept(stream, move |identity| target.psk(identity), patience)?;
    Ok((Stream::Sealed(Box::new(sealed)), Proved { host: psk.host, subsystem: psk.subsystem }))
}

struct Driver<'a> {
    shared: &'a Shared,
    peer: SocketAddr,
    guest: Guest<'a>,
    stream: Stream,
    connection: Connection,
    engine: Engine,
    poll: Poll,
    ring_is_watched: bool,
    began_ns: u64,
    over_since_ns: Option<u64>,
}

impl<'a> Driver<'a> {
    fn new(
        shared: &'a Shared,
        mut stream: Stream,
        (port, proved): (u16, Option<Proved>),
        peer: SocketAddr,
        guest: Guest<'a>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(stream.socket_mut(), SOCKET, both)?;
        let wake: Arc<dyn Wake> = Arc::new(Waking(Waker::new(poll.registry(), WOKEN)?));
        let origin = Origin { port, local: stream.socket().local_addr()? };
        let queue = Queue::new(Arc::clone(&shared.target), origin, wake).proved(proved);
        Ok(Self {
            shared,
            peer,
            guest,
            stream,
            connection: Connection::new(queue),
            engine: Engine::new(),
            poll,
            ring_is_watched: false,
            began_ns: shared.now_ns(),
            over_since_ns: None,
        })
    }

    /// Counts its end, and says it.
    fn say_end(&self, ended: &io::Result<()>) {
        let queue = self.connection.queue();
        let (end, why) = match (ended, self.connection.closing()) {
            (Err(error), _) if error.kind() == UnexpectedEof => (End::Host, String::new()),
            (Err(error), _) => (End::Broken, error.to_string()),
            (Ok(()), Closing::Host) => (End::Host, String::new()),
            (Ok(()), Closing::Controller) => (End::Controller, String::new()),
            (Ok(()), Closing::Fault(fatal)) => (End::Fault, format!("{fatal:?}")),
            (Ok(()), Closing::No) => (End::Silent, String::new()),
        };
        self.shared.ended(end, Some(queue), self.peer, &why);
    }

    /// Until the host has gone, or has to.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        let mut idle = Idle::new(self.shared, Duration::ZERO);
        let mut is_resting = true;
        loop {
            let now_ns = self.shared.now_ns();
            self.engine.begin_round(now_ns);
            let mut progress = self.receive(now_ns)?;
            progress |= self.work(now_ns);
            self.connection.poll(now_ns);
            progress |= self.send(now_ns)?;
            if self.has_ended(now_ns) {
                return Ok(());
            }
            if progress {
                is_resting = false;
                idle.worked();
                continue;
            }
            let is_admin = self.connection.queue().id().is_none_or(|id| id == 0);
            if !is_admin && idle.may_look(now_ns) {
                std::hint::spin_loop();
                continue;
            }
            self.watch_ring()?;
            let most = self.sleep(now_ns);
            let most = if is_resting { most } else { Some(most.map_or(REST_AFTER, |it| it.min(REST_AFTER))) };
            match self.poll.poll(&mut events, most) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => idle.slept(),
            }
            if events.is_empty() && !is_resting {
                self.connection.rest();
                is_resting = true;
            }
        }
    }

    fn receive(&mut self, now_ns: u64) -> io::Result<bool> {
        if !self.connection.wants_input() {
            return Ok(false);
        }
        match self.stream.read(&mut self.connection.room())? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(bytes) => {
                self.connection.received(bytes, now_ns);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Hands tasks to the engine and back until neither has any.
    fn work(&mut self, now_ns: u64) -> bool {
        let mut worked = false;
        loop {
            let mut more = false;
            while let Some(task) = self.connection.task() {
                self.engine.begin(task);
                more = true;
            }
            self.engine.submit();
            while let Some(finished) = self.engine.finished() {
                self.connection.finish(finished, now_ns);
                more = true;
            }
            if !more {
                if worked {
                    self.engine.end_round(self.shared.now_ns(), self.connection.queue());
                }
                return worked;
            }
            worked = true;
        }
    }

    fn send(&mut self, now_ns: u64) -> io::Result<bool> {
        let mut sent = false;
        while self.connection.has_output() {
            let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(128);
            self.connection.pieces(&mut pieces);
            let Some(bytes) = self.stream.write(&pieces)? else { break };
            self.connection.sent(bytes, now_ns);
            sent = true;
        }
        Ok(sent)
    }

    fn has_ended(&mut self, now_ns: u64) -> bool {
        if self.connection.queue().is_trusted() {
            if self.guest.is_known_now() {
                self.shared.connected(self.connection.queue(), self.peer);
            }
        } else if now_ns - self.began_ns > self.shared.patience_ns() {
            return true;
        }
        if self.connection.closing() == crate::tcp::Closing::No {
            return false;
        }
        let since_ns = *self.over_since_ns.get_or_insert(now_ns);
        self.connection.is_over() || now_ns - since_ns > LAST_WORDS_NS
    }

    fn sleep(&self, now_ns: u64) -> Option<Duration> {
        let is_admin = self.connection.queue().id().is_none_or(|id| id == 0);
        if self.over_since_ns.is_none() && !is_admin {
            return None;
        }
        let deadline_ns = self.connection.queue().deadline_ns().unwrap_or(u64::MAX);
        let until_ns = deadline_ns.saturating_sub(now_ns).clamp(1_000_000, LOOK_EVERY_NS);
        Some(Duration::from_nanos(until_ns))
    }

    /// The ring comes with the first task that wants it.
    fn watch_ring(&mut self) -> io::Result<()> {
        if !self.ring_is_watched
            && let Some(descriptor) = self.engine.descriptor()
        {
            self.poll.registry().register(&mut SourceFd(&descriptor), RING, Interest::READABLE)?;
            self.ring_is_watched = true;
        }
        Ok(())
    }
}
