//! SMB 2 over SMB Direct: messages in fragments, data by RDMA READ and WRITE from the size on at which
//! Windows and Linux do so too.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::smb::direct::{Connection, Parameters};
use ::smb::transport;
use buffer::Buffer;
use rdma::{Completion, Domain, Done};
use wire::smb::direct::BufferDescriptor;

use super::client::{Carrier, pattern};

/// From this size on data go by RDMA, in bytes.
const DESCRIBED_MIN: usize = 4096;
/// How long a server may take to answer.
const SILENCE: Duration = Duration::from_secs(60);
/// How long completions are polled before the thread sleeps: longer than an answer over TCP takes, so that
/// latency is not that of waking up, and short enough to leave the processor to servers on the same one.
const POLLS: Duration = Duration::from_micros(50);
/// Completions of SENDs need no distinction.
const SEND: u64 = 1;

/// Memory of one slot, which the server reads or writes.
struct Slot {
    buffer: Buffer,
    has_pattern: bool,
}

/// A connection over SMB Direct.
pub(super) struct Direct {
    connection: rdma::Connection,
    direct: Connection,
    receive_size: usize,
    origin: Instant,
    completed: Vec<Completion>,
    received: Vec<Buffer>,
    sends: Vec<Buffer>,
    message: Vec<u8>,
    messages: VecDeque<Vec<u8>>,
    free: Vec<Vec<u8>>,
    slots: Vec<Option<Slot>>,
}

impl Direct {
    pub(super) fn connect(server: SocketAddr) -> io::Result<Self> {
        let parameters = Parameters::default();
        let prepare = |connection: &mut rdma::Connection, domain: &Arc<Domain>| {
            let buffer = transport::first_receive(domain, &parameters)?;
            connection
                .receive(buffer, transport::RECEIVE)
                .map_err(|(error, _)| error)
        };
        let sizes = transport::sizes(&parameters);
        let (connection, _) =
            rdma::Connection::connect(server, sizes, &[], prepare).map_err(io::Error::other)?;
        let mut direct = Connection::initiator(parameters, Duration::ZERO);
        direct.receives_posted(1);
        let mut carrier = Self {
            connection,
            direct,
            receive_size: parameters.receive_size as usize,
            origin: Instant::now(),
            completed: Vec::new(),
            received: Vec::new(),
            sends: Vec::new(),
            message: Vec::new(),
            messages: VecDeque::new(),
            free: Vec::new(),
            slots: Vec::new(),
        };
        while !carrier.direct.is_established() {
            carrier.step()?;
        }
        Ok(carrier)
    }

    /// Posts what is to be posted.
    fn flush(&mut self) -> io::Result<()> {
        let now = self.origin.elapsed();
        self.direct.handle_timeout(now).map_err(io::Error::other)?;
        let mut posted = 0;
        while posted < self.direct.receives_to_post() {
            let buffer = match self.received.pop() {
                Some(buffer) => buffer,
                None => self
                    .connection
                    .domain()
                    .registered(self.receive_size)
                    .map_err(io::Error::other)?,
            };
            let done = self.connection.receive(buffer, transport::RECEIVE);
            done.map_err(|(error, _)| io::Error::other(error))?;
            posted += 1;
        }
        if posted > 0 {
            // Receives have to be posted before a message grants them.
            self.connection.flush().map_err(io::Error::other)?;
            self.direct.receives_posted(posted);
        }
        while self.connection.room() > 0 {
            let mut buffer = match self.sends.pop() {
                Some(buffer) => buffer,
                None => self
                    .connection
                    .domain()
                    .registered(self.receive_size)
                    .map_err(io::Error::other)?,
            };
            let Some(message) = self.direct.poll_transmit(&mut buffer, now) else {
                self.sends.push(buffer);
                break;
            };
            let sent = self
                .connection
                .send(buffer, message.length, message.invalidate, SEND);
            sent.map_err(|(error, _)| io::Error::other(error))?;
        }
        self.connection.flush().map_err(io::Error::other)
    }

    /// Handles what has completed; returns whether anything has.
    fn poll(&mut self) -> io::Result<bool> {
        let mut completed = std::mem::take(&mut self.completed);
        let count = self
            .connection
            .poll(&mut completed)
            .map_err(io::Error::other)?;
        let now = self.origin.elapsed();
        for Completion {
            token,
            done,
            buffer,
            ..
        } in completed.drain(..)
        {
            let done = done.map_err(|status| {
                io::Error::other(format!(
                    "the connection has ended (work completion status {status})"
                ))
            })?;
            match (token, done, buffer) {
                (transport::RECEIVE, Done::Receive(length), Some(buffer)) => {
                    self.collect(buffer.get(..length).unwrap_or_default(), now)?;
                    self.received.push(buffer);
                }
                (_, _, Some(buffer)) => self.sends.push(buffer),
                _ => {}
            }
        }
        self.completed = completed;
        Ok(count > 0)
    }

    /// Puts the fragments of a message together.
    fn collect(&mut self, bytes: &[u8], now: Duration) -> io::Result<()> {
        let Some(fragment) = self.direct.receive(bytes, now).map_err(io::Error::other)? else {
            return Ok(());
        };
        self.message.extend_from_slice(fragment.data);
        if fragment.remaining == 0 {
            let next = self.free.pop().unwrap_or_default();
            self.messages
                .push_back(std::mem::replace(&mut self.message, next));
        }
        Ok(())
    }

    /// Makes progress: waits until something happens.
    fn step(&mut self) -> io::Result<()> {
        self.flush()?;
        let deadline = self
            .direct
            .deadline()
            .map(|at| at.saturating_sub(self.origin.elapsed()));
        let most = deadline.map_or(SILENCE, |left| left.min(SILENCE));
        let woken = self
            .connection
            .wait(None, POLLS, Some(most))
            .map_err(io::Error::other)?;
        if woken.state {
            self.connection.check_events().map_err(io::Error::other)?;
        }
        if woken.completions && self.poll()? {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// The memory of a slot, of at least so many bytes.
    fn slot(&mut self, slot: usize, bytes: usize) -> io::Result<&mut Slot> {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        let place = self
            .slots
            .get_mut(slot)
            .ok_or(io::ErrorKind::InvalidInput)?;
        if place.as_ref().is_none_or(|it| it.buffer.len() < bytes) {
            let buffer = self
                .connection
                .domain()
                .open(bytes)
                .map_err(io::Error::other)?;
            *place = Some(Slot {
                buffer,
                has_pattern: false,
            });
        }
        place
            .as_mut()
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Carrier for Direct {
    fn send(&mut self, message: &[u8], data: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len() + data.len()).map_err(io::Error::other)?;
        self.direct.begin(length, None).map_err(io::Error::other)?;
        self.direct.append(message).map_err(io::Error::other)?;
        if !data.is_empty() {
            self.direct.append(data).map_err(io::Error::other)?;
        }
        self.flush()
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(next) = self.messages.pop_front() {
                let mut used = std::mem::replace(message, next);
                used.clear();
                self.free.push(used);
                return Ok(());
            }
            if begin.elapsed() > SILENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.step()?;
        }
    }

    fn descriptors(
        &mut self,
        slot: usize,
        bytes: usize,
        write: bool,
    ) -> io::Result<Option<Vec<u8>>> {
        if bytes < DESCRIBED_MIN {
            return Ok(None);
        }
        let domain = Arc::clone(self.connection.domain());
        let slot = self.slot(slot, bytes)?;
        if write && !slot.has_pattern {
            let all = pattern(slot.buffer.len());
            slot.buffer.copy_from_slice(&all);
            slot.has_pattern = true;
        }
        let (offset, token) = domain
            .remote(&slot.buffer)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = BufferDescriptor {
            offset,
            token,
            length: bytes as u32,
        };
        Ok(Some(descriptor.to_bytes().to_vec()))
    }

    fn placed(&self, slot: usize) -> &[u8] {
        self.slots
            .get(slot)
            .and_then(Option::as_ref)
            .map_or(&[], |slot| &slot.buffer)
    }
}
