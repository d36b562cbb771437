//! The thread of one relayed connection: an SMB Direct transport, a session, and a TCP connection.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::Shared;
use super::limiter::Permit;
use super::report::Listed;
use crate::ended::Ended;
use crate::limits::{CONNECT_TIMEOUT, SESSION_TIMEOUT, TO_DIRECT_MAX, TO_TCP_MAX};
use crate::relay::Session;
use crate::transport::Transport;

const COMPLETIONS: Token = Token(0);
const STATE: Token = Token(1);
const TCP: Token = Token(2);

/// Bytes that are read from TCP before completions are handled again.
const TURN_BYTES: usize = 1 << 20;
/// How long a connection is idle before it frees its data buffers.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// The TCP side of a connection.
#[derive(Debug)]
pub(super) enum Tcp {
    /// It is there.
    Open(TcpStream),
    /// It is made when the SMB Direct peer has negotiated: a silent peer costs the server nothing.
    Later(SocketAddr),
}

/// A relayed connection.
pub(super) struct Driver<'a, S> {
    pub(super) shared: &'a Shared,
    pub(super) permit: Permit,
    pub(super) listed: Listed,
    pub(super) transport: Transport,
    pub(super) session: S,
    pub(super) tcp: Tcp,
}

impl<S: Session> Driver<'_, S> {
    /// Runs until the connection ends; returns why.
    pub(super) fn run(mut self) -> Ended {
        let ended = match self.serve() {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        self.count();
        ended
    }

    fn count(&self) {
        let moved = self.session.moved();
        self.listed.entry.counters.set(&moved, self.transport.invalidations());
    }

    fn serve(&mut self) -> Result<std::convert::Infallible, Ended> {
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(8);
        for (descriptor, token) in self.transport.descriptors().into_iter().zip([COMPLETIONS, STATE]) {
            poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        if let Tcp::Open(stream) = &mut self.tcp {
            poll.registry().register(stream, TCP, Interest::READABLE | Interest::WRITABLE)?;
        }
        let began = Instant::now();
        let (mut is_armed, mut is_released) = (false, true);
        loop {
            if self.turn(&poll)? {
                (is_armed, is_released) = (false, false);
                continue;
            }
            self.count();
            let most = self.time_to_sleep(began)?;
            if !is_armed {
                // Completions that arrived before arming cause no notification: one more turn.
                self.transport.arm()?;
                is_armed = true;
                continue;
            }
            self.transport.check_events()?;
            let most =
                if is_released { most } else { Some(most.map_or(IDLE_AFTER, |it| it.min(IDLE_AFTER))) };
            match poll.poll(&mut events, most) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
                _ => is_armed = false,
            }
            if events.is_empty() && !is_released && most == Some(IDLE_AFTER) {
                self.transport.release_idle();
                is_released = true;
            }
        }
    }

    /// Does what can be done now; returns whether there was anything.
    fn turn(&mut self, poll: &Poll) -> Result<bool, Ended> {
        let mut progress = self.transport.poll(&mut self.session)?;
        if let Tcp::Later(address) = self.tcp
            && self.transport.direct().is_established()
        {
            let mut stream = connect(address)?;
            poll.registry().register(&mut stream, TCP, Interest::READABLE | Interest::WRITABLE)?;
            self.tcp = Tcp::Open(stream);
            progress = true;
        }
        self.session.advance(&mut self.transport)?;
        if self.session.is_authenticated() {
            self.permit.mark_authenticated();
            self.listed.entry.has_session.store(true, Ordering::Relaxed);
            self.transport.trust(self.shared.parameters.credits);
        }
        progress |= self.send()?;
        progress |= self.receive()?;
        self.transport.set_receiving(self.session.to_tcp().queued() < TO_TCP_MAX);
        self.transport.flush()?;
        Ok(progress)
    }

    fn send(&mut self) -> Result<bool, Ended> {
        let Tcp::Open(stream) = &mut self.tcp else { return Ok(false) };
        let (queue, mut progress) = (self.session.to_tcp(), false);
        while let bytes = queue.next()
            && !bytes.is_empty()
        {
            let Some(count) = later(stream.write(bytes))? else { break };
            queue.sent(count);
            progress = true;
        }
        Ok(progress)
    }

    fn receive(&mut self) -> Result<bool, Ended> {
        let Tcp::Open(stream) = &mut self.tcp else { return Ok(false) };
        if !self.transport.direct().is_established() {
            return Ok(false);
        }
        let mut total = 0;
        while total < TURN_BYTES
            && self.transport.queued() < TO_DIRECT_MAX
            && let Some(place) = self.session.tcp_place()
        {
            match later(stream.read(place))? {
                None => break,
                Some(0) => return Err(Ended::TcpClosed),
                Some(count) => {
                    total += count;
                    self.session.tcp_received(count, &mut self.transport)?;
                }
            }
        }
        Ok(total > 0)
    }

    /// How long this may sleep.
    fn time_to_sleep(&self, began: Instant) -> Result<Option<Duration>, Ended> {
        let left = self.transport.time_left();
        if self.session.is_authenticated() {
            return Ok(left);
        }
        let until = SESSION_TIMEOUT.saturating_sub(began.elapsed());
        if until.is_zero() {
            return Err(Ended::NoSession(SESSION_TIMEOUT));
        }
        Ok(Some(left.map_or(until, |left| left.min(until))))
    }
}

/// Connects to the SMB server.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

fn later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match result {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(None),
        result => result.map(Some),
    }
}
