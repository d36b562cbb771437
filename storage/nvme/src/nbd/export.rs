//! One NBD client: its stream, and the NVMe queue that executes its requests.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::StallTimer;
use thiserror::Error;

use super::session::Session;
use super::stop::Stop;
use super::terms::{Export, Fault, flag};
use super::work::Work;
use super::writes::Writes;
use crate::host::{Client, HostError, Namespace};
use crate::limits::{CONNECT_TIMEOUT, STALL_BYTES};
use os::wait::wait;

/// Outstanding NVMe commands of one client.
const DEPTH: u16 = 128;
/// Bytes of one read from the client.
pub(super) const STAGING: usize = 256 << 10;
/// How long the thread polls before it sleeps.
const POLL_TIME: Duration = Duration::from_micros(50);
/// How often the stall timer is checked while the client has to read.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a session that waits for memory, or for a write of another client, checks whether it may go on.
const OTHERS_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The time at the end of a session for its outstanding commands, and for the client to read its replies.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the thread sleeps while it waits for requests.
const IDLE_INTERVAL: Duration = Duration::from_secs(20);

/// Optional commands of a controller (Identify, ONCS).
const HAS_DATASET_MANAGEMENT: u16 = 1 << 2;
const HAS_WRITE_ZEROES: u16 = 1 << 3;

/// Why the export ended for a client.
#[derive(Debug, Error)]
pub enum NbdError {
    /// The client does not read its replies.
    #[error("the client did not read its replies for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// The client did not finish its negotiation in time.
    #[error("the client did not finish its negotiation within {} s", CONNECT_TIMEOUT.as_secs())]
    Handshake,
    /// The client violated the protocol.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The connection to the NVMe target failed, or a command did.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The session has ended, and the controller could not be shut down.
    #[error("the NBD session has ended, and the target may still execute its requests: {0}")]
    NotShutDown(HostError),
    /// The connection of the client failed.
    #[error("the NBD client's connection failed: {0}")]
    Stream(#[from] io::Error),
}

/// A controller and one of its namespaces, which a client uses.
#[derive(Debug)]
pub struct Target {
    /// The controller that this NBD client has for itself.
    pub client: Client,
    /// The namespace that is exported.
    pub namespace: Namespace,
    /// The writes of all clients of the export.
    pub writes: Arc<Writes>,
    /// Whether the export is read-only.
    pub read_only: bool,
    /// Requests the end of the session.
    pub stop: Arc<Stop>,
    /// How long the client may leave its replies unread: [`crate::limits::STALL_TIMEOUT`], except in tests.
    pub stall_timeout: Duration,
}

impl Target {
    fn export(&self, name: &str) -> Export {
        let optional = self.client.controller().identified.io_commands;
        let may = |bit: u16, flag: u16| {
            if optional & bit != 0 && !self.read_only {
                flag
            } else {
                0
            }
        };
        let read_only = if self.read_only { flag::READ_ONLY } else { 0 };
        let always = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::MULTIPLE;
        let flags = always
            | read_only
            | may(HAS_DATASET_MANAGEMENT, flag::TRIM)
            | may(HAS_WRITE_ZEROES, flag::WRITE_ZEROES);
        let size = self
            .namespace
            .blocks
            .saturating_mul(self.namespace.block_size as u64);
        let (name, description) = (
            name.to_owned(),
            format!("NVMe namespace {}", self.namespace.nsid),
        );
        Export {
            name,
            description,
            size,
            block_size: self.namespace.block_size as u32,
            flags,
        }
    }
}

struct Exporting<'a, Stream> {
    stream: &'a mut Stream,
    session: Session,
    work: Work,
    answers: StallTimer,
    stall_timeout: Duration,
    stop: Arc<Stop>,
    /// When the session ends at the latest, after [`Stop::request`].
    deadline: Option<Instant>,
}

/// Serves one client until it disconnects, or until [`Stop::request`]. In every case the requests that were
/// begun are waited for, and the controller is shut down, so that the target executes nothing of this session
/// after it. The stream has to be non-blocking.
///
/// # Errors
/// When the client or the target violates its protocol, or its connection breaks; when the controller cannot
/// be shut down.
pub fn serve<Stream: Read + Write + AsRawFd>(
    stream: &mut Stream,
    mut target: Target,
    name: &str,
) -> Result<(), NbdError> {
    let session = Session::new(target.export(name));
    let queue = target.client.queues(1, DEPTH)?.remove(0);
    let transfer_max = target.client.controller().transfer_max / target.namespace.block_size;
    let transfer_max = transfer_max * target.namespace.block_size;
    let mut exporting = Exporting {
        stream,
        session,
        work: Work::new(queue, target.namespace, transfer_max, target.writes),
        answers: StallTimer::new(target.stall_timeout, STALL_BYTES),
        stall_timeout: target.stall_timeout,
        stop: target.stop,
        deadline: None,
    };
    let ended = exporting.run();
    let deadline = exporting
        .deadline
        .unwrap_or_else(|| Instant::now() + DRAIN_TIMEOUT);
    // If commands are left, or their connection is broken, the shutdown has to end them.
    _ = exporting.work.drain(deadline);
    match (ended, target.client.shut_down()) {
        (Err(NbdError::Host(error)), _) => Err(error.into()),
        (_, Err(error)) => Err(NbdError::NotShutDown(error)),
        (ended, Ok(())) => ended,
    }
}

impl<Stream: Read + Write + AsRawFd> Exporting<'_, Stream> {
    fn run(&mut self) -> Result<(), NbdError> {
        let mut staging = vec![0; STAGING];
        let mut done = Vec::new();
        let mut active = Instant::now();
        let mut is_armed = false;
        let (began, handshake) = (Instant::now(), CONNECT_TIMEOUT);
        loop {
            let is_stopped = self.is_stopped();
            let mut progress = self.receive(&mut staging)?;
            self.take_demands()?;
            self.work.submit()?;
            progress |= self.work.queue.poll(&mut done)? > 0;
            done.drain(..).for_each(|done| self.work.finish(done));
            progress |= self.answer();
            progress |= self.send()?;
            let is_idle = self.work.is_idle() && self.session.output().is_empty();
            let now = Instant::now();
            if (self.session.is_over() || is_stopped) && is_idle
                || self.deadline.is_some_and(|it| now > it)
            {
                return Ok(());
            }
            let now_ns = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
            if self.answers.is_too_long(self.has_output(), now_ns) {
                return Err(NbdError::Stalled(self.stall_timeout));
            }
            if !self.session.is_negotiated() && now - began > handshake {
                return Err(NbdError::Handshake);
            }
            if progress {
                (active, is_armed) = (now, false);
            } else if now - active > POLL_TIME {
                if is_armed {
                    let [one, other, liveness] = self.work.queue.watched();
                    let wants_input = self.wants_input();
                    let fd = if wants_input || self.has_output() {
                        self.stream.as_raw_fd()
                    } else {
                        -1
                    };
                    let most = if !self.session.is_negotiated() || self.has_output() {
                        STALL_CHECK_INTERVAL
                    } else {
                        IDLE_INTERVAL
                    };
                    // No descriptor tells when other clients return memory or blocks: check periodically.
                    let most = if self.waits_for_others() {
                        OTHERS_CHECK_INTERVAL
                    } else {
                        most
                    };
                    let most = self
                        .work
                        .queue
                        .until_retry()
                        .map_or(most, |retry| most.min(retry));
                    let stop = self.stop.watched();
                    wait([(fd, self.has_output()), one, other, liveness, stop], most)?;
                    (active, is_armed) = (Instant::now(), false);
                } else {
                    self.work.queue.arm()?;
                    is_armed = true;
                }
            }
        }
    }

    /// Whether the end of the session is requested.
    fn is_stopped(&mut self) -> bool {
        if self.deadline.is_none() && self.stop.is_requested() {
            self.deadline = Some(Instant::now() + DRAIN_TIMEOUT);
        }
        self.deadline.is_some()
    }

    fn has_output(&self) -> bool {
        !self.session.output().is_empty()
    }

    fn wants_input(&self) -> bool {
        let has_room = self.work.has_room(self.session.output().len());
        self.deadline.is_none() && self.session.wants_input() && has_room
    }

    /// Whether the session reads no further request because other clients have memory or blocks.
    fn waits_for_others(&self) -> bool {
        self.work.waits_for_others(self.session.output().len())
    }

    fn receive(&mut self, staging: &mut [u8]) -> Result<bool, NbdError> {
        if !self.wants_input() {
            return Ok(false);
        }
        match self.stream.read(staging) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(bytes) => {
                self.session.received(&staging[..bytes]);
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self) -> Result<bool, NbdError> {
        let mut progress = false;
        while self.has_output() {
            match self.stream.write(self.session.output()) {
                Ok(bytes) => {
                    self.answers.moved(bytes);
                    self.session.sent(bytes);
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
            progress = true;
        }
        Ok(progress)
    }

    /// Turns the demands of the client into NVMe commands.
    fn take_demands(&mut self) -> Result<(), NbdError> {
        self.work.advance()?;
        while self.deadline.is_none() && self.work.has_room(self.session.output().len()) {
            let Some(demand) = self.session.next_demand()? else {
                return Ok(());
            };
            self.work.take(demand)?;
        }
        Ok(())
    }

    /// Replies to finished requests; returns whether there were any.
    fn answer(&mut self) -> bool {
        let mut progress = false;
        while let Some(finished) = self.work.finished() {
            self.session.reply(finished.cookie, finished.reply());
            progress = true;
        }
        progress
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
