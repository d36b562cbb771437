//! What a host says on an NVMe/TCP connection, and what it understands, without the connection.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use wire::nvme::tcp::{
    CommonHeader, DIGEST_SIZE, Data, Digests, ENCODED_MAX, Fatal, Frame, Header, Initialize, ReadyToTransfer,
    flag,
};
use wire::nvme::{Command, Completion, Sgl, Status};

use super::HostError;
use super::commands::{Commands, Done, Payload};
use crate::limits::TRANSFER_BYTES_MAX;

/// What one read takes from the socket: many small answers.
const STAGING: usize = 256 << 10;
/// What it takes while large ones come: their headers, and little that has to be copied.
const STAGING_SMALL: usize = 4 << 10;
/// Data from here on are read to their place directly.
const DIRECT: usize = 8 << 10;
/// Data up to here are copied behind their header: a piece of their own costs the kernel more.
const COPIED_MAX: usize = 512;
/// Pieces that one call sends.
const PIECES_MAX: usize = 256;

/// Something to send.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// So many bytes of what was written for headers.
    Head(usize),
    /// Of a command's buffer.
    Data { cid: u16, at: usize, length: usize },
}

/// Data on their way.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    cid: u16,
    at: usize,
    remaining: usize,
    /// Of this PDU, for its digest.
    length: usize,
    /// Nothing follows to say that the command succeeded.
    is_success: bool,
}

/// The host's side of a connection.
///
/// Bytes that come go to [`Machine::room`] and are told with [`Machine::received`]; what [`Machine::pieces`]
/// names is to be sent and told with [`Machine::sent`]; [`Machine::take`] has what is finished.
#[derive(Debug)]
pub struct Machine {
    commands: Commands,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    arriving: Option<Arriving>,
    /// Whether the last data were many.
    is_large: bool,
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    heads_sent: usize,
    pieces: VecDeque<Piece>,
    is_initialized: bool,
    digests: Digests,
    in_capsule: usize,
    host_data_max: usize,
}

impl Machine {
    /// A connection for so many commands at once, of which so many bytes of data may go in a capsule. It
    /// begins with saying which digests the host would like.
    pub fn new(depth: u16, in_capsule: usize, digests: Digests) -> Self {
        let mut machine = Self {
            commands: Commands::new(depth),
            staging: vec![0; STAGING].into_boxed_slice(),
            start: 0,
            end: 0,
            arriving: None,
            is_large: false,
            heads: Vec::new(),
            heads_sent: 0,
            pieces: VecDeque::new(),
            is_initialized: false,
            digests: Digests::default(),
            in_capsule,
            host_data_max: TRANSFER_BYTES_MAX,
        };
        let request = Initialize { format: 0, alignment: 0, digests: digests.bits(), limit: 0 };
        machine.push(&Header::InitializeRequest(request), 0, None);
        machine
    }

    /// Whether the target has agreed.
    pub fn is_initialized(&self) -> bool {
        self.is_initialized
    }

    /// Commands that the target has.
    pub fn outstanding(&self) -> usize {
        self.commands.len()
    }

    /// Takes a command: identifier and descriptor are filled in.
    ///
    /// # Errors
    /// [`HostError::Full`] when the target has as many as agreed.
    pub fn submit(&mut self, command: Command, payload: Payload, token: u64) -> Result<(), HostError> {
        let (length, is_out) = match &payload {
            Payload::None => (0, false),
            Payload::Out(_, length) => (*length, true),
            Payload::In(_, length) => (*length, false),
        };
        let cid = self.commands.begin(payload, token)?;
        let in_capsule = is_out && length <= self.in_capsule;
        let sgl = match in_capsule {
            true => Sgl::InCapsule { offset: 0, length: length as u32 },
            false => Sgl::Transport { length: length as u32 },
        };
        let header = Header::Command(Command { cid, ..command }.with_sgl(sgl));
        self.push(&header, 0, in_capsule.then_some((cid, 0, length)));
        Ok(())
    }

    /// Appends what is finished; returns how many.
    pub fn take(&mut self, out: &mut Vec<Done>) -> usize {
        self.commands.take(out)
    }

    /// Whether there is something to send.
    pub fn has_output(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// What to send next, appended to `out`.
    pub fn pieces<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        let mut head = self.heads_sent;
        for piece in self.pieces.iter().take(PIECES_MAX) {
            let bytes = match *piece {
                Piece::Head(length) => {
                    head += length;
                    self.heads.get(head - length..head)
                }
                Piece::Data { cid, at, length } => {
                    let buffer = self.commands.slot(cid).and_then(|slot| slot.buffer.as_deref());
                    buffer.and_then(|buffer| buffer.get(at..at + length))
                }
            };
            out.push(IoSlice::new(bytes.unwrap_or_default()));
        }
    }

    /// So many bytes of [`Machine::pieces`] went.
    pub fn sent(&mut self, mut bytes: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let length = match piece {
                Piece::Head(length) | Piece::Data { length, .. } => length,
            };
            let take = bytes.min(*length);
            let is_whole = take == *length;
            *length -= take;
            bytes -= take;
            match piece {
                Piece::Head(_) => self.heads_sent += take,
                Piece::Data { cid, .. } if is_whole => {
                    let cid = *cid;
                    self.commands.release(cid);
                }
                Piece::Data { at, .. } => *at += take,
            }
            if !is_whole {
                return;
            }
            self.pieces.pop_front();
        }
        self.heads.clear();
        self.heads_sent = 0;
    }

    /// Appends a PDU, with data of a command's buffer: whose, from where, how many.
    fn push(&mut self, header: &Header, flags: u8, data: Option<(u16, usize, usize)>) {
        let kind = header.kind();
        let digests = if kind.has_digests() { self.digests } else { Digests::default() };
        let (cid, at, length) = data.unwrap_or((0, 0, 0));
        let mut head = [0; ENCODED_MAX];
        let end = header.encode(flags, digests, length, 4, &mut head);
        if digests.header {
            let (front, behind) = head.split_at_mut(usize::from(kind.header_length()));
            behind[..DIGEST_SIZE].copy_from_slice(&crc32c::crc32c(front).to_le_bytes());
        }
        self.push_head(&head[..end]);
        if length == 0 {
            return;
        }
        let buffer = self.commands.slot(cid).and_then(|slot| slot.buffer.as_deref());
        let bytes = buffer.and_then(|buffer| buffer.get(at..at + length)).unwrap_or_default();
        let digest = digests.data.then(|| crc32c::crc32c(bytes).to_le_bytes());
        if length <= COPIED_MAX {
            self.heads.extend_from_slice(bytes);
            self.grow_head(bytes.len());
        } else {
            self.commands.keep(cid);
            self.pieces.push_back(Piece::Data { cid, at, length });
        }
        if let Some(digest) = digest {
            self.push_head(&digest);
        }
    }

    fn push_head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.grow_head(bytes.len());
    }

    fn grow_head(&mut self, bytes: usize) {
        match self.pieces.back_mut() {
            Some(Piece::Head(length)) => *length += bytes,
            _ => self.pieces.push_back(Piece::Head(bytes)),
        }
    }

    /// The place of data that come next, when they are many and nothing lies before them.
    fn direct(&self) -> Option<(u16, usize, usize)> {
        let arriving = self.arriving.filter(|it| self.start == self.end && it.remaining >= DIRECT)?;
        Some((arriving.cid, arriving.at, arriving.remaining))
    }

    /// Room for what comes: the first slice, which may be empty, is a command's own.
    pub fn room(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.staging.len() {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let take = if self.is_large && self.end == 0 { STAGING_SMALL } else { self.staging.len() - self.end };
        let place = self.direct().and_then(|(cid, at, length)| {
            self.commands.slot_mut(cid)?.buffer.as_deref_mut()?.get_mut(at..at + length)
        });
        let staging = &mut self.staging[self.end..self.end + take];
        [IoSliceMut::new(place.unwrap_or_default()), IoSliceMut::new(staging)]
    }

    /// So many bytes came to [`Machine::room`].
    ///
    /// # Errors
    /// When the target breaks the protocol, or says that this host did.
    pub fn received(&mut self, bytes: usize) -> Result<(), HostError> {
        let to_place = self.direct().map_or(0, |(_, _, length)| length.min(bytes));
        if let Some(arriving) = &mut self.arriving {
            arriving.at += to_place;
            arriving.remaining -= to_place;
        }
        self.end = (self.end + bytes - to_place).min(self.staging.len());
        self.understand()
    }

    fn understand(&mut self) -> Result<(), HostError> {
        loop {
            if self.arriving.is_some() {
                if !self.take_data()? {
                    return Ok(());
                }
                continue;
            }
            let Some((header, frame)) = self.header()? else { return Ok(()) };
            match (self.is_initialized, header) {
                (false, Header::InitializeResponse(response)) => self.initialize(&response)?,
                (true, Header::Response(completion)) => self.finish(completion)?,
                (true, Header::ControllerData(data)) => self.data_begin(&data, &frame)?,
                (true, Header::ReadyToTransfer(ready)) => self.give(&ready)?,
                (_, Header::ControllerTermination(terminate)) => {
                    return Err(HostError::Terminated(fatal(terminate.status)));
                }
                _ => return Err(HostError::Protocol("a PDU that is not expected here")),
            }
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
        let parsed = parsed.ok_or(HostError::Protocol("a PDU that is too short"))?;
        Ok(Some((parsed, frame)))
    }

    fn initialize(&mut self, response: &Initialize) -> Result<(), HostError> {
        self.digests = Digests::parse(response.digests);
        self.host_data_max = response.limit as usize;
        if response.format != 0 || self.host_data_max < 4096 {
            return Err(HostError::Protocol("ICResp says what the specification does not allow"));
        }
        self.is_initialized = true;
        Ok(())
    }

    fn data_begin(&mut self, data: &Data, frame: &Frame) -> Result<(), HostError> {
        let slot = self.commands.slot_mut(data.cid).filter(|slot| !slot.is_out && slot.buffer.is_some());
        let slot = slot.ok_or(HostError::Protocol("data for no command"))?;
        let fits = data.offset as usize == slot.received && slot.received + frame.data <= slot.length;
        if !fits || data.length as usize != frame.data {
            return Err(HostError::Protocol("data beyond what was asked for"));
        }
        slot.received += frame.data;
        let is_success = frame.flags & flag::SUCCESS != 0;
        let (at, length) = (data.offset as usize, frame.data);
        self.is_large = length >= 2 * DIRECT;
        self.arriving = Some(Arriving { cid: data.cid, at, remaining: length, length, is_success });
        Ok(())
    }

    /// Copies data from the staging buffer; `false` when more have to come.
    fn take_data(&mut self) -> Result<bool, HostError> {
        let Some(mut arriving) = self.arriving else { return Ok(true) };
        let take = arriving.remaining.min(self.end - self.start);
        let slot = self.commands.slot_mut(arriving.cid).ok_or(HostError::Protocol("data for no command"))?;
        let place = slot.buffer.as_deref_mut().and_then(|it| it.get_mut(arriving.at..arriving.at + take));
        if let Some(place) = place {
            place.copy_from_slice(&self.staging[self.start..self.start + take]);
        }
        self.start += take;
        arriving.at += take;
        arriving.remaining -= take;
        self.arriving = Some(arriving);
        let trailer = if self.digests.data { DIGEST_SIZE } else { 0 };
        if arriving.remaining > 0 || self.end - self.start < trailer {
            return Ok(false);
        }
        if trailer != 0 {
            let whole = arriving.at - arriving.length..arriving.at;
            let whole = slot.buffer.as_deref().and_then(|it| it.get(whole)).unwrap_or_default();
            if !digest_is_right(whole, &self.staging[self.start..self.end]) {
                return Err(HostError::Protocol("data whose digest is wrong"));
            }
            self.start += trailer;
        }
        self.arriving = None;
        if arriving.is_success {
            self.finish(Completion::new(arriving.cid, Status::SUCCESS))?;
        }
        Ok(true)
    }

    fn finish(&mut self, completion: Completion) -> Result<(), HostError> {
        let slot = self.commands.slot(completion.cid);
        let is_short = slot.is_some_and(|slot| !slot.is_out && slot.received != slot.length);
        if is_short && completion.status().is_success() {
            return Err(HostError::Protocol("success without the data"));
        }
        self.commands.finish(completion)
    }

    /// Sends what an R2T asks for.
    fn give(&mut self, ready: &ReadyToTransfer) -> Result<(), HostError> {
        let slot = self.commands.slot(ready.cid).filter(|slot| slot.is_out);
        let slot = slot.ok_or(HostError::Protocol("an R2T for no command"))?;
        let (start, length) = (ready.offset as usize, ready.length as usize);
        let end = start.checked_add(length).filter(|end| *end <= slot.length && length > 0);
        let end = end.ok_or(HostError::Protocol("an R2T beyond the data"))?;
        let mut at = start;
        while at < end {
            let length = self.host_data_max.min(end - at);
            let header = Data { cid: ready.cid, tag: ready.tag, offset: at as u32, length: length as u32 };
            let flags = if at + length == end { flag::LAST } else { 0 };
            self.push(&Header::HostData(header), flags, Some((ready.cid, at, length)));
            at += length;
        }
        Ok(())
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
