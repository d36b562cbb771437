//! One queue over TCP, the host's side.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rdma::Buffer;
use slab::Slab;
use socket2::SockRef;
use wire::nvme::tcp::{
    CommonHeader, DIGEST_SIZE, Data, Digests, ENCODED_MAX, Fatal, Frame, Header, Initialize, ReadyToTransfer,
    flag,
};
use wire::nvme::{Command, Completion, Sgl, Status};

use super::HostError;
use crate::limits::TRANSFER_BYTES_MAX;

/// What one read takes from the socket.
const STAGING: usize = 256 << 10;
/// Data from here on are read to their place directly.
const DIRECT: usize = 8 << 10;
/// How long the target may be silent while something is expected of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Data of a command.
#[derive(Debug)]
pub enum Payload {
    /// None.
    None,
    /// The first so many bytes of a buffer go to the target.
    Out(Buffer, usize),
    /// So many bytes come from the target.
    In(Buffer, usize),
}

/// A command that is finished.
#[derive(Debug)]
pub struct Done {
    /// The caller's name for it.
    pub token: u64,
    /// What the target says.
    pub completion: Completion,
    /// The command's buffer.
    pub buffer: Option<Buffer>,
}

#[derive(Debug)]
struct Slot {
    token: u64,
    buffer: Option<Buffer>,
    length: usize,
    is_out: bool,
    received: usize,
}

/// One queue over TCP.
#[derive(Debug)]
pub struct Queue {
    stream: TcpStream,
    poll: Poll,
    events: Events,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    /// Data on their way: slot, place, bytes that remain, and whether nothing follows to say it succeeded.
    data: Option<(usize, usize, usize, bool)>,
    outgoing: Vec<u8>,
    sent: usize,
    slots: Slab<Slot>,
    depth: usize,
    digests: Digests,
    /// Data that may go in a capsule.
    pub(super) in_capsule: usize,
    host_data_max: usize,
    done: Vec<Done>,
}

impl Queue {
    /// Connects and agrees on digests. `depth` is how many commands it can have at once.
    ///
    /// # Errors
    /// When nobody answers, or not as NVMe/TCP does.
    pub fn connect(
        address: SocketAddr,
        depth: u16,
        digests: Digests,
        congestion: Option<&str>,
    ) -> Result<Self, HostError> {
        let stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        if let Some(name) = congestion {
            // Where the kernel does not have it, its own does.
            _ = SockRef::from(&stream).set_tcp_congestion(name.as_bytes());
        }
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let poll = Poll::new()?;
        poll.registry().register(&mut stream, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let mut queue = Self {
            stream,
            poll,
            events: Events::with_capacity(4),
            staging: vec![0; STAGING].into_boxed_slice(),
            start: 0,
            end: 0,
            data: None,
            outgoing: Vec::new(),
            sent: 0,
            slots: Slab::new(),
            depth: depth.into(),
            digests: Digests::default(),
            in_capsule: crate::limits::TCP_IN_CAPSULE_ADMIN,
            host_data_max: TRANSFER_BYTES_MAX,
            done: Vec::new(),
        };
        queue.initialize(digests)?;
        Ok(queue)
    }

    fn initialize(&mut self, digests: Digests) -> Result<(), HostError> {
        let request = Initialize { format: 0, alignment: 0, digests: digests.bits(), limit: 0 };
        self.push(&Header::InitializeRequest(request), 0, &[]);
        loop {
            self.send()?;
            if let Some((Header::InitializeResponse(response), _)) = self.header()? {
                self.digests = Digests::parse(response.digests);
                self.host_data_max = response.limit as usize;
                if response.format != 0 || self.host_data_max < 4096 {
                    return Err(HostError::Protocol("ICResp says what TP 8000 does not allow"));
                }
                return Ok(());
            }
            if !self.fill()? {
                self.sleep()?;
            }
        }
    }

    /// Commands that it has.
    pub fn outstanding(&self) -> usize {
        self.slots.len()
    }

    /// Gives it a command: identifier and descriptor are filled in. It goes out with the next poll.
    ///
    /// # Errors
    /// [`HostError::Full`] when it has as many as it can.
    pub fn submit(&mut self, command: Command, payload: Payload, token: u64) -> Result<(), HostError> {
        if self.slots.len() >= self.depth {
            return Err(HostError::Full);
        }
        let (buffer, length, is_out) = match payload {
            Payload::None => (None, 0, false),
            Payload::Out(buffer, length) => (Some(buffer), length, true),
            Payload::In(buffer, length) => (Some(buffer), length, false),
        };
        let in_capsule = is_out && length <= self.in_capsule;
        let sgl = match in_capsule {
            true => Sgl::InCapsule { offset: 0, length: length as u32 },
            false => Sgl::Transport { length: length as u32 },
        };
        let slot = self.slots.vacant_key();
        let command = Command { cid: slot as u16, ..command }.with_sgl(sgl);
        let header = Header::Command(command);
        match (&buffer, in_capsule) {
            (Some(buffer), true) => push(&mut self.outgoing, self.digests, &header, 0, &buffer[..length]),
            _ => push(&mut self.outgoing, self.digests, &header, 0, &[]),
        }
        self.slots.insert(Slot { token, buffer, length, is_out, received: 0 });
        Ok(())
    }

    /// Sends and receives what can be without waiting, and appends what is finished; returns how many.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        self.send()?;
        self.fill()?;
        self.understand()?;
        // What an R2T asked for, before anybody sleeps.
        self.send()?;
        let count = self.done.len();
        out.append(&mut self.done);
        Ok(count)
    }

    /// The same, and sleeps until something is finished.
    ///
    /// # Errors
    /// When the connection is broken, or the target says nothing for half a minute.
    pub fn wait(&mut self, out: &mut Vec<Done>) -> Result<usize, HostError> {
        loop {
            let count = self.poll(out)?;
            if count > 0 || self.slots.is_empty() {
                return Ok(count);
            }
            if !self.fill()? {
                self.sleep()?;
            }
        }
    }

    /// One command, from its beginning to its end.
    ///
    /// # Errors
    /// When it fails, or the connection does.
    pub fn call(
        &mut self,
        what: &'static str,
        command: Command,
        payload: Payload,
    ) -> Result<Done, HostError> {
        self.submit(command, payload, 0)?;
        let mut done = Vec::new();
        while done.is_empty() {
            self.wait(&mut done)?;
        }
        let done = done.pop().ok_or(HostError::Protocol("no completion"))?;
        match done.completion.status() {
            status if status.is_success() => Ok(done),
            status => Err(HostError::Status { what, status }),
        }
    }

    fn sleep(&mut self) -> Result<(), HostError> {
        match self.poll.poll(&mut self.events, Some(PATIENCE)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            Ok(()) if self.events.is_empty() => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            _ => Ok(()),
        }
    }

    fn push(&mut self, header: &Header, flags: u8, data: &[u8]) {
        push(&mut self.outgoing, self.digests, header, flags, data);
    }

    fn send(&mut self) -> Result<(), HostError> {
        while self.sent < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads; `false` when there is nothing.
    fn fill(&mut self) -> Result<bool, HostError> {
        let read = match self.data {
            Some((slot, at, remaining, success)) if self.start == self.end && remaining >= DIRECT => {
                let buffer = self.slots.get_mut(slot).and_then(|slot| slot.buffer.as_deref_mut());
                let place = buffer.and_then(|buffer| buffer.get_mut(at..at + remaining));
                let read = self.stream.read(place.unwrap_or_default());
                if let Ok(bytes) = read {
                    self.data = Some((slot, at + bytes, remaining - bytes, success));
                }
                read
            }
            _ => {
                if self.start == self.end {
                    (self.start, self.end) = (0, 0);
                } else if self.end == self.staging.len() {
                    self.staging.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                }
                if self.end == self.staging.len() {
                    // Full: what is there has to be understood first.
                    return Ok(true);
                }
                let read = self.stream.read(&mut self.staging[self.end..]);
                if let Ok(bytes) = read {
                    self.end += bytes;
                }
                read
            }
        };
        match read {
            Ok(0) => Err(HostError::Terminated(None)),
            Ok(_) => Ok(true),
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn header(&mut self) -> Result<Option<(Header, Frame)>, HostError> {
        let staged = &self.staging[self.start..self.end];
        let Some((common, _)) = CommonHeader::split(staged) else { return Ok(None) };
        let frame = Frame::parse(&common, self.digests, TRANSFER_BYTES_MAX);
        let frame = frame.map_err(|_| HostError::Protocol("a PDU that contradicts itself"))?;
        if staged.len() < frame.before_data {
            return Ok(None);
        }
        if frame.header_digest && !digest_is_right(&staged[..frame.header], &staged[frame.header..]) {
            return Err(HostError::Protocol("a header whose digest is wrong"));
        }
        let parsed = Header::parse(frame.kind, &staged[CommonHeader::SIZE..]);
        self.start += frame.before_data;
        Ok(parsed.map(|header| (header, frame)))
    }

    fn understand(&mut self) -> Result<(), HostError> {
        loop {
            if self.data.is_some() {
                if !self.take_data()? {
                    return Ok(());
                }
                continue;
            }
            let Some((header, frame)) = self.header()? else { return Ok(()) };
            match header {
                Header::Response(completion) => self.finish(completion)?,
                Header::ControllerData(data) => self.data_begin(&data, &frame)?,
                Header::ReadyToTransfer(ready) => self.give(&ready)?,
                Header::ControllerTermination(terminate) => {
                    return Err(HostError::Terminated(fatal(terminate.status)));
                }
                _ => return Err(HostError::Protocol("a PDU that only hosts send")),
            }
        }
    }

    fn data_begin(&mut self, data: &Data, frame: &Frame) -> Result<(), HostError> {
        let index = usize::from(data.cid);
        let slot = self.slots.get_mut(index).filter(|slot| !slot.is_out);
        let slot = slot.ok_or(HostError::Protocol("data for no command"))?;
        let fits = data.offset as usize == slot.received && slot.received + frame.data <= slot.length;
        if !fits || data.length as usize != frame.data {
            return Err(HostError::Protocol("data beyond what was asked for"));
        }
        slot.received += frame.data;
        self.data = Some((index, data.offset as usize, frame.data, frame.flags & flag::SUCCESS != 0));
        Ok(())
    }

    /// Copies data from the staging buffer; `false` when more have to come.
    fn take_data(&mut self) -> Result<bool, HostError> {
        let Some((index, at, remaining, success)) = self.data else { return Ok(true) };
        let take = remaining.min(self.end - self.start);
        let slot = self.slots.get_mut(index).ok_or(HostError::Protocol("data for no command"))?;
        if let Some(place) = slot.buffer.as_deref_mut().and_then(|it| it.get_mut(at..at + take)) {
            place.copy_from_slice(&self.staging[self.start..self.start + take]);
        }
        self.start += take;
        let (at, remaining) = (at + take, remaining - take);
        self.data = Some((index, at, remaining, success));
        let trailer = if self.digests.data { DIGEST_SIZE } else { 0 };
        if remaining > 0 || self.end - self.start < trailer {
            return Ok(false);
        }
        if trailer != 0 {
            let whole = slot.buffer.as_deref().and_then(|it| it.get(..at)).unwrap_or_default();
            if !digest_is_right(whole, &self.staging[self.start..self.end]) {
                return Err(HostError::Protocol("data whose digest is wrong"));
            }
            self.start += trailer;
        }
        self.data = None;
        if success {
            self.finish(Completion::new(index as u16, Status::SUCCESS))?;
        }
        Ok(true)
    }

    fn finish(&mut self, completion: Completion) -> Result<(), HostError> {
        let slot = self.slots.try_remove(completion.cid.into());
        let slot = slot.ok_or(HostError::Protocol("a response to no command"))?;
        let is_short = !slot.is_out && slot.received != slot.length;
        if is_short && completion.status().is_success() {
            return Err(HostError::Protocol("success without the data"));
        }
        self.done.push(Done { token: slot.token, completion, buffer: slot.buffer });
        Ok(())
    }

    /// Sends what an R2T asks for.
    fn give(&mut self, ready: &ReadyToTransfer) -> Result<(), HostError> {
        let slot = self.slots.get(ready.cid.into()).filter(|slot| slot.is_out);
        let slot = slot.ok_or(HostError::Protocol("an R2T for no command"))?;
        let (start, length) = (ready.offset as usize, ready.length as usize);
        let end = start.checked_add(length).filter(|end| *end <= slot.length && length > 0);
        let end = end.ok_or(HostError::Protocol("an R2T beyond the data"))?;
        let whole = slot.buffer.as_deref().and_then(|it| it.get(start..end)).unwrap_or_default();
        for (index, part) in whole.chunks(self.host_data_max).enumerate() {
            let offset = start + index * self.host_data_max;
            let length = part.len() as u32;
            let header = Data { cid: ready.cid, tag: ready.tag, offset: offset as u32, length };
            let flags = if offset + part.len() == end { flag::LAST } else { 0 };
            push(&mut self.outgoing, self.digests, &Header::HostData(header), flags, part);
        }
        Ok(())
    }
}

fn push(outgoing: &mut Vec<u8>, digests: Digests, header: &Header, flags: u8, data: &[u8]) {
    let kind = header.kind();
    let digests = if kind.has_digests() { digests } else { Digests::default() };
    let mut head = [0; ENCODED_MAX];
    let end = header.encode(flags, digests, data.len(), 4, &mut head);
    if digests.header {
        let (front, behind) = head.split_at_mut(usize::from(kind.header_length()));
        behind[..DIGEST_SIZE].copy_from_slice(&crc32c::crc32c(front).to_le_bytes());
    }
    outgoing.extend_from_slice(&head[..end]);
    outgoing.extend_from_slice(data);
    if digests.data && !data.is_empty() {
        outgoing.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
    }
}

fn digest_is_right(bytes: &[u8], digest: &[u8]) -> bool {
    digest.first_chunk().is_some_and(|digest| u32::from_le_bytes(*digest) == crc32c::crc32c(bytes))
}

fn fatal(status: u16) -> Option<Fatal> {
    use Fatal::{DataRange, HeaderDigest, HeaderField, Limit, Sequence, Unsupported};
    let all = [HeaderField, Sequence, HeaderDigest, DataRange, Limit, Unsupported];
    all.into_iter().find(|fatal| *fatal as u16 == status)
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
