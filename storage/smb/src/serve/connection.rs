//! The thread of one relayed connection: an SMB Direct transport, a session, and a TCP connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma::Watched;
use server::ConnectionPermit;
use server::event_loop::{Armed, Driven, Waiting, drive};

use super::Shared;
use super::backend::Backend;
use super::report::Listed;
use crate::close_reason::Ended;
use crate::limits::{
    PART_BYTES, SESSION_TIMEOUT, TO_DIRECT_MAX, TO_TCP_MAX, UNAUTHENTICATED_QUEUE_MAX,
};
use crate::relay::{Session, Trust};
use crate::transport::Transport;

/// Bytes that are read from TCP before they are sent on and completions are handled: two parts of long data.
const TURN_BYTES: usize = 2 * PART_BYTES as usize;
/// Waits in a row that completions end before TCP is looked at, after which TCP is read anyway.
const UNSEEN_MAX: u32 = 8;
/// The transport polls by itself; an idle connection frees its data buffers.
const WAITING: Waiting = Waiting {
    poll_time: Duration::ZERO,
    idle_time: Duration::from_secs(5),
};

/// How often a connection without TCP looks whether another client needs its memory.
const DISPLACED_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How often a request that waits for memory looks whether other connections have returned some.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The readiness of the TCP connection, as far as is known: bytes to read, room to write.
#[derive(Clone, Copy, Debug)]
struct Ready {
    reads: bool,
    writes: bool,
}

/// The TCP side of a connection.
#[derive(Debug)]
pub(super) enum Tcp {
    /// The TCP connection to the server is open.
    Open(TcpStream),
    /// It is made when the SMB Direct peer has negotiated: a silent peer costs the server nothing.
    Later(Arc<Backend>),
}

/// A relayed connection.
pub(super) struct Driver<'a, S> {
    shared: &'a Shared,
    permit: ConnectionPermit,
    listed: Listed,
    transport: Transport,
    session: S,
    tcp: Tcp,
    ready: Ready,
    /// Whether completions may be waiting.
    is_completed: bool,
    /// Waits in a row that completions ended before TCP was looked at.
    unseen: u32,
    began_ns: u64,
}

impl<'a, S: Session> Driver<'a, S> {
    /// A connection whose client has no session yet.
    pub(super) fn new(
        shared: &'a Shared,
        permit: ConnectionPermit,
        listed: Listed,
        transport: Transport,
        session: S,
        tcp: Tcp,
    ) -> Self {
        Self {
            shared,
            permit,
            listed,
            transport,
            session,
            tcp,
            ready: Ready {
                reads: false,
                writes: true,
            },
            is_completed: true,
            unseen: 1,
            began_ns: shared.clock.now_ns(),
        }
    }

    /// Runs until the connection ends; returns why.
    pub(super) fn run(mut self) -> Ended {
        if let Err(ended) = self.end_when_displaced() {
            return ended;
        }
        let Shared {
            clock, spinners, ..
        } = self.shared;
        let ended = drive(&mut self, clock, spinners, WAITING);
        self.count();
        ended
    }

    /// Has the end of TCP wake this thread when another client needs the memory.
    fn end_when_displaced(&self) -> Result<(), Ended> {
        if let (Some(share), Tcp::Open(stream)) = (self.permit.memory(), &self.tcp) {
            let stream = stream.try_clone()?;
            share.on_displaced(move || _ = stream.shutdown(Shutdown::Both));
        }
        Ok(())
    }

    fn count(&self) {
        let moved = self.session.moved();
        self.listed
            .entry
            .counters
            .set(&moved, self.transport.invalidations());
    }

    /// The events of the TCP connection to wait for.
    fn watched(&mut self) -> Option<Watched> {
        let reads = self.may_receive();
        let Tcp::Open(stream) = &self.tcp else {
            return None;
        };
        let writes = !self.session.to_tcp().next().is_empty();
        Some(Watched {
            descriptor: stream.as_raw_fd(),
            reads,
            writes,
        })
    }

    /// Gives the client what its session admits. That of a guest proves nothing: its memory is charged to
    /// that of all unauthenticated clients, and it gets all receives only while these have enough.
    fn trust(&mut self) {
        let trust = self.session.trust();
        if trust == Trust::Stranger {
            return;
        }
        self.listed.entry.has_session.store(true, Ordering::Relaxed);
        if trust == Trust::User && self.permit.mark_authenticated() {
            self.transport.trust();
        }
        if !self.transport.is_wide() {
            let parameters = &self.shared.parameters;
            let bytes = 2 * usize::from(parameters.credits) * parameters.receive_size as usize;
            let memory = self.permit.memory();
            if memory.is_none_or(|memory| memory.leaves_half(bytes)) {
                self.transport.widen(parameters.credits);
            }
        }
    }

    /// How many bytes may wait in a queue, which is `most` once the client has a session.
    fn queue_max(&self, most: usize) -> usize {
        if self.session.trust() == Trust::Stranger {
            most.min(UNAUTHENTICATED_QUEUE_MAX)
        } else {
            most
        }
    }

    /// Writes to TCP as long as there are bytes and room for them.
    fn send(&mut self) -> Result<bool, Ended> {
        let Tcp::Open(stream) = &mut self.tcp else {
            return Ok(false);
        };
        let (queue, mut progress) = (self.session.to_tcp(), false);
        while let bytes = queue.next()
            && !bytes.is_empty()
            && self.ready.writes
        {
            let count = later(stream.write(bytes))?.unwrap_or(0);
            self.ready.writes = count == bytes.len();
            progress |= count > 0;
            queue.sent(count);
        }
        Ok(progress)
    }

    /// Whether bytes from TCP are taken now.
    fn may_receive(&mut self) -> bool {
        self.transport.direct().is_established()
            && self.transport.queued() < self.queue_max(TO_DIRECT_MAX)
            && self.session.tcp_place().is_some()
    }

    /// Reads from TCP as long as it has bytes and there is a place for them.
    fn receive(&mut self) -> Result<bool, Ended> {
        let mut total = 0;
        while total < TURN_BYTES && self.may_receive() {
            let Tcp::Open(stream) = &mut self.tcp else {
                break;
            };
            let Some(place) = self.session.tcp_place() else {
                break;
            };
            let room = place.len();
            match later(stream.read(place))? {
                None => {
                    self.ready.reads = false;
                    break;
                }
                Some(0) => return Err(Ended::TcpClosed),
                Some(count) => {
                    total += count;
                    self.session.tcp_received(count, &mut self.transport)?;
                    // Less than there was room for: the socket is empty, and the next wait says when it
                    // is not.
                    if count < room {
                        self.ready.reads = false;
                        break;
                    }
                }
            }
        }
        Ok(total > 0)
    }
}

impl<S: Session> Driven for Driver<'_, S> {
    type End = Ended;

    /// A turn may send or free something that the next turn waits for. TCP is read until it is empty.
    fn turn(&mut self, _: u64) -> Result<bool, Ended> {
        if self.permit.is_displaced() {
            return Err(Ended::Displaced);
        }
        let mut progress = self.is_completed && self.transport.poll(&mut self.session)?;
        if let Tcp::Later(backend) = &self.tcp
            && self.transport.direct().is_established()
        {
            self.transport.leave()?;
            self.tcp = Tcp::Open(backend.connect().map_err(Ended::Unreachable)?);
            self.end_when_displaced()?;
            progress = true;
        }
        self.session.advance(&mut self.transport)?;
        self.trust();
        progress |= self.ready.writes && self.send()?;
        progress |= self.ready.reads && self.receive()?;
        let most = self.queue_max(TO_TCP_MAX);
        self.transport
            .set_receiving(self.session.to_tcp().queued() < most);
        self.transport.flush()?;
        let held = self.session.held() + self.transport.held();
        if !self.permit.hold(held) {
            return Err(Ended::Unauthenticated);
        }
        self.is_completed = self.ready.reads;
        Ok(progress)
    }

    /// The transport polls by itself, where that has helped lately.
    fn may_poll(&self) -> bool {
        false
    }

    fn arm(&mut self) -> Result<Armed, Ended> {
        self.count();
        Ok(Armed::Before)
    }

    fn time_to_sleep(&mut self, now_ns: u64) -> Result<Option<Duration>, Ended> {
        let mut left = self.transport.time_left();
        if self.session.waits_for_memory() {
            left = Some(left.map_or(MEMORY_CHECK_INTERVAL, |left| {
                left.min(MEMORY_CHECK_INTERVAL)
            }));
        }
        if self.session.trust() != Trust::Stranger {
            return Ok(left);
        }
        let passed = Duration::from_nanos(now_ns.saturating_sub(self.began_ns));
        let until = SESSION_TIMEOUT.saturating_sub(passed);
        if until.is_zero() {
            return Err(Ended::NoSession(SESSION_TIMEOUT));
        }
        let until = if matches!(self.tcp, Tcp::Later(_)) {
            until.min(DISPLACED_CHECK_INTERVAL)
        } else {
            until
        };
        Ok(Some(left.map_or(until, |left| left.min(until))))
    }

    fn sleep(&mut self, time_max: Option<Duration>) -> Result<(), Ended> {
        let tcp = self.watched();
        let woken = self.transport.wait(tcp, time_max)?;
        self.unseen = if woken.other.is_none() {
            self.unseen + 1
        } else {
            0
        };
        let is_ready = woken
            .other
            .unwrap_or(self.unseen.is_multiple_of(UNSEEN_MAX));
        self.ready = Ready {
            reads: is_ready,
            writes: self.ready.writes | is_ready,
        };
        self.is_completed = woken.completions;
        Ok(())
    }

    fn release_idle(&mut self) {
        self.transport.release_idle();
    }
}

fn later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match result {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(None),
        result => result.map(Some),
    }
}
