//! The NVMe/TCP protocol on the side of the host, as a state machine without a socket.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use wire::nvme::tcp::{
    CommonHeader, DIGEST_SIZE, Data, Digests, ENCODED_MAX, Fatal, Frame, Header, Initialize,
    ReadyToTransfer, flag,
};
use wire::nvme::{Command, Completion, Sgl, Status};

use super::HostError;
use super::commands::{Commands, Done, Payload};
use super::submission::Submission;
use crate::limits::TRANSFER_BYTES_MAX;

/// The staging buffer of one read: many small responses.
const STAGING: usize = 256 << 10;
/// The staging buffer while large data arrive: for their headers, so that few bytes have to be copied.
const STAGING_SMALL: usize = 4 << 10;
/// Data from this length on are read directly into the buffer of their command.
const DIRECT: usize = 8 << 10;
/// Data up to this length are copied behind their header: another slice costs the kernel more.
const COPIED_MAX: usize = 512;
/// Slices of one system call.
const PIECES_MAX: usize = 256;
/// The largest data alignment that a target may request (CPDA), in dwords less one (TCP transport 3.6.2.3).
const ALIGNMENT_MAX: u8 = 31;
/// The least data of one H2CData PDU that a target may request (MAXH2CDATA, TCP transport 3.6.2.3).
const HOST_DATA_MIN: usize = 4096;

/// A part of the output.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// This many bytes of `heads`.
    Head(usize),
    /// A part of the buffer of a command.
    Data { cid: u16, at: usize, length: usize },
}

/// Data of a PDU that is being received.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    cid: u16,
    at: usize,
    remaining: usize,
    /// The length of the data of this PDU, for its digest.
    length: usize,
    /// The SUCCESS flag: the controller sends no response capsule.
    is_success: bool,
}

/// The host side of an NVMe/TCP connection.
///
/// Received bytes are placed in [`Machine::room`] and announced by [`Machine::received`]; the output of
/// [`Machine::pieces`] has to be sent and confirmed by [`Machine::sent`]; [`Machine::take`] returns finished
/// commands.
#[derive(Debug)]
pub struct Machine {
    commands: Commands,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    arriving: Option<Arriving>,
    /// Whether the last data were long ([`DIRECT`]).
    is_large: bool,
    heads: Vec<u8>,
    /// Bytes of `heads` that were sent.
    heads_sent: usize,
    pieces: VecDeque<Piece>,
    is_initialized: bool,
    /// The digests that the host requested, and after ICResp those of both sides.
    requested: Digests,
    digests: Digests,
    /// The data alignment that the target requires (CPDA), in bytes.
    alignment: usize,
    in_capsule: usize,
    host_data_max: usize,
}

impl Machine {
    /// A connection for `depth` outstanding commands and `in_capsule` bytes of in-capsule data. Its first PDU
    /// is ICReq with these digests.
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
            requested: digests,
            digests: Digests::default(),
            alignment: 4,
            in_capsule,
            host_data_max: TRANSFER_BYTES_MAX,
        };
        let request = Initialize {
            format: 0,
            alignment: 0,
            digests: digests.bits(),
            limit: 0,
        };
        machine.push(&Header::InitializeRequest(request), 0, None);
        machine
    }

    /// Whether ICResp has arrived.
    pub fn is_initialized(&self) -> bool {
        self.is_initialized
    }

    /// The number of outstanding commands.
    pub fn outstanding(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command; the identifier (CID) and the SGL are filled in.
    ///
    /// # Errors
    /// [`HostError::Full`] when the queue is full.
    pub fn submit(
        &mut self,
        command: Command,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        self.submit_again(command.into(), payload, token)
    }

    /// As [`Machine::submit`], with what is known of earlier attempts.
    pub(super) fn submit_again(
        &mut self,
        submission: Submission,
        payload: Payload,
        token: u64,
    ) -> Result<(), HostError> {
        let (length, is_out) = match &payload {
            Payload::None => (0, false),
            Payload::Out(_, length) => (*length, true),
            Payload::In(_, length) => (*length, false),
        };
        let (cid, command) = self.commands.begin(submission, payload, token)?;
        let in_capsule = is_out && length <= self.in_capsule;
        let sgl = match in_capsule {
            true => Sgl::InCapsule {
                offset: 0,
                length: length as u32,
            },
            false => Sgl::Transport {
                length: length as u32,
            },
        };
        let header = Header::Command(command.with_sgl(sgl));
        self.push(&header, 0, in_capsule.then_some((cid, 0, length)));
        Ok(())
    }

    /// Appends the finished commands to `out`; returns how many.
    pub fn take(&mut self, out: &mut Vec<Done>) -> usize {
        self.commands.take(out)
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Appends the output to send next to `out`.
    pub fn pieces<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        let mut head = self.heads_sent;
        for piece in self.pieces.iter().take(PIECES_MAX) {
            let bytes = match *piece {
                Piece::Head(length) => {
                    head += length;
                    self.heads.get(head - length..head)
                }
                Piece::Data { cid, at, length } => {
                    let buffer = self
                        .commands
                        .outstanding(cid)
                        .and_then(|command| command.buffer.as_deref());
                    buffer.and_then(|buffer| buffer.get(at..at + length))
                }
            };
            out.push(IoSlice::new(bytes.unwrap_or_default()));
        }
    }

    /// Confirms that this many bytes of [`Machine::pieces`] were sent.
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

    /// Queues a PDU, with data of the buffer of a command: CID, offset and length.
    fn push(&mut self, header: &Header, flags: u8, data: Option<(u16, usize, usize)>) {
        let kind = header.kind();
        let digests = if kind.has_digests() {
            self.digests
        } else {
            Digests::default()
        };
        let (cid, at, length) = data.unwrap_or((0, 0, 0));
        let mut head = [0; ENCODED_MAX];
        let end = header.encode(flags, digests, length, self.alignment, &mut head);
        if digests.header {
            let (front, behind) = head.split_at_mut(usize::from(kind.header_length()));
            behind[..DIGEST_SIZE].copy_from_slice(&crc32c::crc32c(front).to_le_bytes());
        }
        self.push_head(&head[..end]);
        if length == 0 {
            return;
        }
        let buffer = self
            .commands
            .outstanding(cid)
            .and_then(|command| command.buffer.as_deref());
        let bytes = buffer
            .and_then(|buffer| buffer.get(at..at + length))
            .unwrap_or_default();
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

    /// The place of the next data, if they are long and no other bytes precede them.
    fn direct(&self) -> Option<(u16, usize, usize)> {
        let arriving = self
            .arriving
            .filter(|it| self.start == self.end && it.remaining >= DIRECT)?;
        Some((arriving.cid, arriving.at, arriving.remaining))
    }

    /// Space for received bytes: the first slice, which may be empty, is part of the buffer of a command.
    pub fn room(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.staging.len() {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let take = if self.is_large && self.end == 0 {
            STAGING_SMALL
        } else {
            self.staging.len() - self.end
        };
        let place = self.direct().and_then(|(cid, at, length)| {
            self.commands
                .outstanding_mut(cid)?
                .buffer
                .as_deref_mut()?
                .get_mut(at..at + length)
        });
        let staging = &mut self.staging[self.end..self.end + take];
        [
            IoSliceMut::new(place.unwrap_or_default()),
            IoSliceMut::new(staging),
        ]
    }

    /// Processes bytes that were received into [`Machine::room`].
    ///
    /// # Errors
    /// When the target violates the protocol, or reports that this host did (C2HTermReq).
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
            let Some((header, frame)) = self.header()? else {
                return Ok(());
            };
            match (self.is_initialized, header) {
                (false, Header::InitializeResponse(response)) => self.initialize(&response)?,
                (true, Header::Response(completion)) => self.finish(completion)?,
                (true, Header::ControllerData(data)) => self.data_begin(&data, &frame)?,
                (true, Header::ReadyToTransfer(ready)) => self.send_requested(&ready)?,
                (_, Header::ControllerTermination(terminate)) => {
                    return Err(HostError::Terminated(fatal(terminate.status)));
                }
                _ => {
                    return Err(HostError::Protocol(
                        "a PDU of a type that a controller does not send in this state",
                    ));
                }
            }
        }
    }

    fn header(&mut self) -> Result<Option<(Header, Frame)>, HostError> {
        let staged = &self.staging[self.start..self.end];
        let Some((common, _)) = CommonHeader::split(staged) else {
            return Ok(None);
        };
        let frame = Frame::parse(&common, self.digests, TRANSFER_BYTES_MAX);
        let frame = frame.map_err(|_| HostError::Protocol("a PDU with an inconsistent header"))?;
        if staged.len() < frame.before_data {
            return Ok(None);
        }
        if frame.header_digest && !digest_is_right(&staged[..frame.header], &staged[frame.header..])
        {
            return Err(HostError::Protocol("a header whose digest is wrong"));
        }
        let parsed = Header::parse(frame.kind, &staged[CommonHeader::SIZE..]);
        self.start += frame.before_data;
        let parsed = parsed.ok_or(HostError::Protocol(
            "a PDU is shorter than its type requires",
        ))?;
        Ok(Some((parsed, frame)))
    }

    fn initialize(&mut self, response: &Initialize) -> Result<(), HostError> {
        self.digests = Digests::parse(response.digests);
        // H2CData PDUs have whole dwords, except the last one of a command.
        self.host_data_max = response.limit as usize & !3;
        if response.format != 0 {
            return Err(HostError::Initialize {
                field: "PFV",
                value: response.format.into(),
                right: "0",
            });
        }
        if response.alignment > ALIGNMENT_MAX {
            let value = response.alignment.into();
            return Err(HostError::Initialize {
                field: "CPDA",
                value,
                right: "0 to 31",
            });
        }
        if self.host_data_max < HOST_DATA_MIN {
            let value = response.limit;
            return Err(HostError::Initialize {
                field: "MAXH2CDATA",
                value,
                right: "at least 4096",
            });
        }
        let Digests { header, data } = self.requested;
        if self.digests.header && !header || self.digests.data && !data {
            let value = response.digests.into();
            return Err(HostError::Initialize {
                field: "DGST",
                value,
                right: "what the host requested",
            });
        }
        self.alignment = (usize::from(response.alignment) + 1) * 4;
        self.is_initialized = true;
        Ok(())
    }

    fn data_begin(&mut self, data: &Data, frame: &Frame) -> Result<(), HostError> {
        let command = self
            .commands
            .outstanding_mut(data.cid)
            .filter(|command| !command.is_out && command.buffer.is_some());
        let command = command.ok_or(HostError::Protocol("data for no command"))?;
        let fits = data.offset as usize == command.received
            && command.received + frame.data <= command.length;
        if !fits || data.length as usize != frame.data {
            return Err(HostError::Protocol("data outside the requested range"));
        }
        command.received += frame.data;
        let is_success = frame.flags & flag::SUCCESS != 0;
        let (at, length) = (data.offset as usize, frame.data);
        self.is_large = length >= 2 * DIRECT;
        self.arriving = Some(Arriving {
            cid: data.cid,
            at,
            remaining: length,
            length,
            is_success,
        });
        Ok(())
    }

    /// Copies data from the staging buffer; `false` when more data have to arrive.
    fn take_data(&mut self) -> Result<bool, HostError> {
        let Some(mut arriving) = self.arriving else {
            return Ok(true);
        };
        let take = arriving.remaining.min(self.end - self.start);
        let command = self
            .commands
            .outstanding_mut(arriving.cid)
            .ok_or(HostError::Protocol("data for no command"))?;
        let place = command
            .buffer
            .as_deref_mut()
            .and_then(|it| it.get_mut(arriving.at..arriving.at + take));
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
            let whole = command
                .buffer
                .as_deref()
                .and_then(|it| it.get(whole))
                .unwrap_or_default();
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
        let command = self.commands.outstanding(completion.cid);
        let is_short =
            command.is_some_and(|command| !command.is_out && command.received != command.length);
        if is_short && completion.status().is_success() {
            return Err(HostError::Protocol(
                "a read was reported as a success before all its data came",
            ));
        }
        self.commands.finish(completion)
    }

    /// Queues the data that an R2T requests.
    fn send_requested(&mut self, ready: &ReadyToTransfer) -> Result<(), HostError> {
        let command = self
            .commands
            .outstanding(ready.cid)
            .filter(|command| command.is_out);
        let command = command.ok_or(HostError::Protocol("an R2T for no command"))?;
        let (start, length) = (ready.offset as usize, ready.length as usize);
        let end = start
            .checked_add(length)
            .filter(|end| *end <= command.length && length > 0);
        let end = end.ok_or(HostError::Protocol("an R2T beyond the data"))?;
        let mut at = start;
        while at < end {
            let length = self.host_data_max.min(end - at);
            let header = Data {
                cid: ready.cid,
                tag: ready.tag,
                offset: at as u32,
                length: length as u32,
            };
            let flags = if at + length == end { flag::LAST } else { 0 };
            self.push(
                &Header::HostData(header),
                flags,
                Some((ready.cid, at, length)),
            );
            at += length;
        }
        Ok(())
    }
}

fn digest_is_right(bytes: &[u8], digest: &[u8]) -> bool {
    digest
        .first_chunk()
        .is_some_and(|digest| u32::from_le_bytes(*digest) == crc32c::crc32c(bytes))
}

fn fatal(status: u16) -> Option<Fatal> {
    use Fatal::{DataRange, HeaderDigest, HeaderField, Limit, Sequence, Unsupported};
    let all = [
        HeaderField,
        Sequence,
        HeaderDigest,
        DataRange,
        Limit,
        Unsupported,
    ];
    all.into_iter().find(|fatal| *fatal as u16 == status)
}
