//! The thread of one TCP connection: its socket, its engine, and waiting.

use std::io::ErrorKind::{NotConnected, UnexpectedEof};
use std::io::{self, IoSlice};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use server::{ConnectionPermit, Counted, Spin, StallTimer};
use socket2::{SockRef, Socket};

use super::{End, Shared, Tuning};
use crate::congestion;
use crate::controller::{Origin, Proved, Queue, Wake};
use crate::engine::Engine;
use crate::limits::{CONNECTION_BYTES, CONNECTIONS_MAX, STALL_BYTES, TLS_BYTES};
use crate::pool::Pool;
use crate::references::References;
use crate::stream::Stream;
use crate::tcp::{Closing, Connection};
use crate::tls::Acceptor;

const SOCKET: Token = Token(0);
pub(super) const WOKEN: Token = Token(1);
pub(super) const RING: Token = Token(2);

/// The longest interval between two checks of the keep alive deadline.
pub(super) const CHECK_INTERVAL_NS: u64 = 1_000_000_000;
/// How long a new connection waits for displaced ones to end, whose memory it gets.
const DISPLACED_PATIENCE: Duration = Duration::from_secs(1);
/// How long a closing connection may take to send its last PDU.
const FINAL_SEND_NS: u64 = 2_000_000_000;

/// How long a connection is idle before it frees its buffers. They stay between two bursts, because
/// allocating and clearing pages again costs more than it saves.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Wakes the thread of a connection through its `Poll`.
pub(super) struct PollWaker(pub(super) Waker);

impl Wake for PollWaker {
    fn wake(&self) {
        // A full eventfd counter is already a pending wake-up.
        _ = self.0.wake();
    }
}

/// Configures a socket: TCP_NODELAY, and the configured congestion control.
pub(super) fn tune(socket: &Socket, tuning: &Tuning) {
    _ = socket.set_tcp_nodelay(true);
    congestion::set(&SockRef::from(socket), tuning.congestion.as_deref());
}

/// Serves one connection until it ends, with TLS if there is an acceptor.
pub(super) fn serve(
    shared: &Arc<Shared>,
    stream: TcpStream,
    port: u16,
    acceptor: Option<&Acceptor>,
) {
    let Ok(peer) = stream.peer_addr() else {
        return shared.count_end(End::Host);
    };
    let address = peer.ip();
    let Some(_one) = Counted::one_more(&shared.connections, CONNECTIONS_MAX) else {
        return shared.ended(End::Full, None, peer, "");
    };
    let bytes = CONNECTION_BYTES + if acceptor.is_some() { TLS_BYTES } else { 0 };
    let permit = shared
        .connection_limiter
        .admit(address)
        .and_then(|mut permit| {
            permit.charge(bytes, DISPLACED_PATIENCE)?;
            Ok(permit)
        });
    let permit = match permit {
        Ok(permit) => permit,
        Err(refusal) => return shared.ended(refusal.into(), None, peer, ""),
    };
    // An error here is not fatal: if the socket is broken, the first read reports it.
    _ = stream.set_nodelay(true);
    congestion::set(&SockRef::from(&stream), shared.tuning.congestion.as_deref());
    let (stream, proved) = match acceptor {
        None => (Stream::Plain(stream), None),
        Some(acceptor) => match tls_handshake(shared, stream, acceptor, &permit) {
            Ok((stream, proved)) => (stream, Some(proved)),
            Err(_) if permit.is_displaced() => return shared.ended(End::Displaced, None, peer, ""),
            Err(error) => return shared.ended(End::TlsHandshake, None, peer, &error.to_string()),
        },
    };
    match Driver::new(shared, stream, port, proved, peer, permit) {
        Err(error) => shared.count_end(if error.kind() == NotConnected {
            End::Host
        } else {
            End::Broken
        }),
        Ok(mut driver) => {
            let ended = driver.run();
            driver.log_end(&ended);
        }
    }
}

/// Performs the TLS handshake. The names in the PSK identity have to be those of Connect.
fn tls_handshake(
    shared: &Shared,
    stream: TcpStream,
    acceptor: &Acceptor,
    permit: &ConnectionPermit,
) -> io::Result<(Stream, Proved)> {
    let target = Arc::clone(&shared.target);
    let find = move |identity: &str| target.psks(identity);
    if let Some(memory) = permit.memory() {
        // A handshake waits for its socket alone, so this ends its wait at once: a new connection waits for
        // the memory.
        let socket = net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        memory.on_displaced(move || _ = socket.shutdown(Shutdown::Both));
    }
    let (tls_stream, psk) = acceptor.accept(stream, find, shared.tuning.connect_timeout)?;
    Ok((Stream::Tls(Box::new(tls_stream)), Proved(psk)))
}

struct Driver<'a> {
    shared: &'a Shared,
    peer: SocketAddr,
    permit: ConnectionPermit,
    stream: Stream,
    references: References,
    connection: Connection,
    engine: Engine,
    poll: Poll,
    ring_is_watched: bool,
    began_ns: u64,
    over_since_ns: Option<u64>,
    /// Checks that the host reads its responses, and that it sends requested data.
    answers: StallTimer,
    data: StallTimer,
    is_stalled: bool,
    is_displaced: bool,
    has_announced_host: bool,
}

impl<'a> Driver<'a> {
    fn new(
        shared: &'a Shared,
        mut stream: Stream,
        port: u16,
        proved: Option<Proved>,
        peer: SocketAddr,
        permit: ConnectionPermit,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(stream.socket_mut(), SOCKET, both)?;
        let wake: Arc<dyn Wake> = Arc::new(PollWaker(Waker::new(poll.registry(), WOKEN)?));
        let origin = Origin {
            port,
            local: stream.socket().local_addr()?,
            peer: peer.ip().to_canonical(),
        };
        let share = shared.budget.share(peer.ip(), Arc::clone(&wake));
        let pool = Pool::charging(share).of_guest(permit.memory().cloned());
        if let Some(memory) = permit.memory() {
            let wake = Arc::clone(&wake);
            memory.on_displaced(move || wake.wake());
        }
        let queue = Queue::new(Arc::clone(&shared.target), origin, wake).proved(proved);
        Ok(Self {
            shared,
            peer,
            permit,
            references: match &stream {
                Stream::Plain(_) => References::default(),
                Stream::Tls(_) => References::Refused,
            },
            stream,
            connection: Connection::with(queue, pool),
            engine: Engine::new(),
            poll,
            ring_is_watched: false,
            began_ns: shared.now_ns(),
            over_since_ns: None,
            answers: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
            data: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
            is_stalled: false,
            is_displaced: false,
            has_announced_host: false,
        })
    }

    /// Counts the end of the connection by reason, and logs it.
    fn log_end(&self, ended: &io::Result<()>) {
        let queue = self.connection.queue();
        let (end, why) = match (ended, self.connection.closing()) {
            (Ok(()), Closing::No) if self.is_stalled => (End::Stalled, String::new()),
            (Ok(()), Closing::No) if self.is_displaced => (End::Displaced, String::new()),
            (Err(error), _) if error.kind() == UnexpectedEof => (End::Host, String::new()),
            (Err(error), _) => (End::Broken, error.to_string()),
            (Ok(()), Closing::Host) => (End::Host, String::new()),
            (Ok(()), Closing::Controller) => (End::Controller, String::new()),
            (Ok(()), Closing::Fault(fatal)) => (End::Fault, format!("{fatal:?}")),
            (Ok(()), Closing::No) => (End::ConnectTimeout, String::new()),
        };
        self.shared.ended(end, Some(queue), self.peer, &why);
    }

    /// Runs until the connection ends.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        let mut spin = Spin::new(&self.shared.spinners, self.shared.tuning.poll);
        let mut is_released = true;
        loop {
            let now_ns = self.shared.now_ns();
            self.engine.begin_round(now_ns);
            let mut progress = self.receive(now_ns)?;
            // Before the tasks: memory that another connection returned lets commands begin, and the thread
            // may sleep after this round.
            self.connection.poll(now_ns);
            progress |= self.work(now_ns);
            progress |= self.send(now_ns)?;
            if self.has_ended(now_ns) {
                return Ok(());
            }
            if progress {
                is_released = false;
                spin.worked();
                continue;
            }
            let is_admin = self.connection.queue().id().is_none_or(|id| id == 0);
            if !is_admin && spin.may_poll(now_ns) {
                std::hint::spin_loop();
                continue;
            }
            self.watch_ring()?;
            let most = self.sleep(now_ns);
            let most = if is_released {
                most
            } else {
                Some(most.map_or(IDLE_AFTER, |it| it.min(IDLE_AFTER)))
            };
            match self.poll.poll(&mut events, most) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => spin.slept(),
            }
            if events.is_empty() && !is_released {
                self.connection.release_idle();
                is_released = true;
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
                self.data.moved(bytes);
                self.connection.received(bytes, now_ns);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Passes tasks to the engine and results back, until neither has any.
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
                    let name = || self.connection.queue().name();
                    self.engine.end_round(self.shared.now_ns(), &name);
                }
                return worked;
            }
            worked = true;
        }
    }

    fn send(&mut self, now_ns: u64) -> io::Result<bool> {
        let mut sent = false;
        while self.connection.has_output() {
            let Some(bytes) = self.send_some()? else {
                break;
            };
            self.answers.moved(bytes);
            self.connection.sent(bytes, now_ns);
            sent = true;
        }
        Ok(sent)
    }

    /// Sends some output, and returns how many bytes; `None` when the socket is full.
    fn send_some(&mut self) -> io::Result<Option<usize>> {
        if self.references.are_possible()
            && let Some(reference) = self.connection.reference()
            && let Ok(sent) = self.references.send(self.stream.as_raw_fd(), &reference)
        {
            return Ok(sent);
        }
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(128);
        if !self.references.are_possible() {
            self.connection.pieces(&mut pieces);
            return self.stream.write(&pieces);
        }
        let more = self.connection.pieces_before_reference(&mut pieces);
        self.stream.write_and(&pieces, more)
    }

    fn has_ended(&mut self, now_ns: u64) -> bool {
        if self.connection.queue().is_authenticated() && self.permit.mark_authenticated() {
            self.connection.mark_authenticated();
        }
        self.is_displaced = self.permit.is_displaced() || self.connection.is_overdrawn();
        if self.is_displaced {
            return true;
        }
        if self.connection.queue().is_trusted() {
            if !std::mem::replace(&mut self.has_announced_host, true) {
                self.shared.connected(self.connection.queue(), self.peer);
            }
        } else if now_ns - self.began_ns > self.shared.connect_timeout_ns() {
            return true;
        }
        if self.connection.closing() == crate::tcp::Closing::No {
            self.is_stalled = self
                .answers
                .is_too_long(self.connection.has_output(), now_ns)
                || self.data.is_too_long(self.connection.awaits_data(), now_ns);
            if self.is_stalled {
                // A reset discards the responses that the kernel holds for the host.
                _ = SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
            }
            return self.is_stalled;
        }
        let since_ns = *self.over_since_ns.get_or_insert(now_ns);
        self.connection.is_over() || now_ns - since_ns > FINAL_SEND_NS
    }

    fn sleep(&self, now_ns: u64) -> Option<Duration> {
        let is_admin = self.connection.queue().id().is_none_or(|id| id == 0);
        // No event tells when unauthenticated hosts return memory.
        let is_guest = self.permit.memory().is_some();
        let is_waited_for =
            self.connection.has_output() || self.connection.awaits_data() || is_guest;
        if self.over_since_ns.is_none() && !is_admin && !is_waited_for {
            return None;
        }
        let deadline_ns = self.connection.queue().deadline_ns().unwrap_or(u64::MAX);
        let until_ns = deadline_ns
            .saturating_sub(now_ns)
            .clamp(1_000_000, CHECK_INTERVAL_NS);
        Some(Duration::from_nanos(until_ns))
    }

    /// Registers the io_uring of the engine with the poll: it is created with the first task that needs it.
    fn watch_ring(&mut self) -> io::Result<()> {
        if !self.ring_is_watched
            && let Some(descriptor) = self.engine.descriptor()
        {
            self.poll
                .registry()
                .register(&mut SourceFd(&descriptor), RING, Interest::READABLE)?;
            self.ring_is_watched = true;
        }
        Ok(())
    }
}
