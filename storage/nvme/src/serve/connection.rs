//! The thread of one TCP connection: its socket, its engine, and waiting.

use std::io::ErrorKind::NotConnected;
use std::io::{self, IoSlice};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::Interest;
use mio::net::TcpStream;
use server::event_loop::{Armed, Driven, Waiting, drive};
use server::{ConnectionPermit, Counted, StallTimer};
use socket2::{SockRef, Socket};

use super::close_reason::Over;
use super::guest::Guest;
use super::wakeups::{Wakeups, until_check};
use super::{End, Shared, Tuning};
use crate::congestion;
use crate::controller::{Origin, Proved, Queue};
use crate::engine::Engine;
use crate::limits::{CONNECTION_BYTES, CONNECTIONS_MAX, STALL_BYTES, TLS_BYTES};
use crate::pool::Pool;
use crate::stream::Stream;
use crate::tcp::{Closing, Connection};
use crate::tls::Acceptor;
use crate::zero_copy::References;

/// How long a new connection waits for displaced ones to end, whose memory it gets.
const DISPLACED_PATIENCE: Duration = Duration::from_secs(1);
/// How long a closing connection may take to send its last PDU.
const FINAL_SEND_NS: u64 = 2_000_000_000;

/// How long a connection is idle before it frees its buffers. They stay between two bursts, because
/// allocating and clearing pages again costs more than it saves.
const IDLE_AFTER: Duration = Duration::from_millis(500);

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
            let waiting = Waiting {
                poll_time: shared.tuning.poll,
                idle_time: IDLE_AFTER,
            };
            let over = drive(&mut driver, &shared.clock, &shared.spinners, waiting);
            let queue = driver.connection.queue();
            shared.ended(over.end, Some(queue), peer, &over.why);
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
    guest: Guest<'a, SocketAddr>,
    stream: Stream,
    references: References,
    connection: Connection,
    engine: Engine,
    wakeups: Wakeups,
    over_since_ns: Option<u64>,
    /// Checks that the host reads its responses, and that it sends requested data.
    answers: StallTimer,
    data: StallTimer,
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
        let wakeups = Wakeups::new()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        wakeups.watch(stream.socket_mut(), both)?;
        let origin = Origin {
            port,
            local: stream.socket().local_addr()?,
            peer: peer.ip().to_canonical(),
        };
        let guest = Guest::new(shared, peer, permit, shared.now_ns());
        let wake = wakeups.wake();
        guest.wake_when_displaced(&wake);
        let share = shared.budget.share(peer.ip(), Arc::clone(&wake));
        let pool = Pool::charging(share).of_guest(guest.memory().cloned());
        let queue = Queue::new(Arc::clone(&shared.target), origin, wake).proved(proved);
        Ok(Self {
            guest,
            references: match &stream {
                Stream::Plain(_) => References::default(),
                Stream::Tls(_) => References::Refused,
            },
            stream,
            connection: Connection::with(queue, pool),
            engine: Engine::new(),
            wakeups,
            over_since_ns: None,
            answers: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
            data: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
        })
    }

    /// The end of a connection, for which the protocol may have had a reason before.
    fn over(&self, otherwise: End) -> Over {
        match self.connection.closing() {
            Closing::No => otherwise.into(),
            Closing::Host => End::Host.into(),
            Closing::Controller => End::Controller.into(),
            Closing::Fault(fatal) => Over {
                end: End::Fault,
                why: format!("{fatal:?}"),
            },
        }
    }

    fn is_admin(&self) -> bool {
        self.connection.queue().id().is_none_or(|id| id == 0)
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
                    self.engine.end_round(self.guest.shared().now_ns(), &name);
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

    /// Checks the limits of the host.
    fn check_limits(&mut self, now_ns: u64) -> Result<(), Over> {
        let queue = self.connection.queue();
        if self.guest.note_authenticated(queue) {
            self.connection.mark_authenticated();
        }
        let is_overdrawn = self.connection.is_overdrawn();
        let checked = self
            .guest
            .check_may_go_on(self.connection.queue(), is_overdrawn, now_ns);
        checked.map_err(|end| self.over(end))?;
        if self.connection.closing() == Closing::No {
            let is_stalled = self
                .answers
                .is_too_long(self.connection.has_output(), now_ns)
                || self.data.is_too_long(self.connection.awaits_data(), now_ns);
            if !is_stalled {
                return Ok(());
            }
            // A reset discards the responses that the kernel holds for the host.
            _ = SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
            return Err(End::Stalled.into());
        }
        let since_ns = *self.over_since_ns.get_or_insert(now_ns);
        match self.connection.is_over() || now_ns - since_ns > FINAL_SEND_NS {
            true => Err(self.over(End::Host)),
            false => Ok(()),
        }
    }
}

impl Driven for Driver<'_> {
    type End = Over;

    fn turn(&mut self, now_ns: u64) -> Result<bool, Over> {
        self.engine.begin_round(now_ns);
        let mut progress = self.receive(now_ns)?;
        // Before the tasks: memory that another connection returned lets commands begin, and the thread may
        // sleep after this turn.
        self.connection.poll(now_ns);
        progress |= self.work(now_ns);
        progress |= self.send(now_ns)?;
        self.check_limits(now_ns)?;
        Ok(progress)
    }

    fn may_poll(&self) -> bool {
        !self.is_admin()
    }

    fn arm(&mut self) -> Result<Armed, Over> {
        self.wakeups.watch_ring(&self.engine)?;
        Ok(Armed::Before)
    }

    fn time_to_sleep(&mut self, now_ns: u64) -> Result<Option<Duration>, Over> {
        // No event tells when unauthenticated hosts return memory.
        let is_guest = self.guest.memory().is_some();
        let is_waited_for =
            self.connection.has_output() || self.connection.awaits_data() || is_guest;
        if self.over_since_ns.is_none() && !self.is_admin() && !is_waited_for {
            return Ok(None);
        }
        let deadline_ns = self.connection.queue().deadline_ns().unwrap_or(u64::MAX);
        Ok(Some(until_check(deadline_ns, now_ns)))
    }

    fn sleep(&mut self, time_max: Option<Duration>) -> Result<(), Over> {
        Ok(self.wakeups.sleep(time_max)?)
    }

    fn release_idle(&mut self) {
        self.connection.release_idle();
    }
}
