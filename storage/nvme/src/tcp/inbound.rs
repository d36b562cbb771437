//! Splits received bytes into PDUs: a staging buffer for headers and short data, while long data are read
//! directly into the buffer of their command.

use std::io::IoSliceMut;

use wire::nvme::tcp::{CommonHeader, DIGEST_SIZE, Digests, Fatal, Frame, Header, PduError};

/// The staging buffer of one read: many commands at once, or a large write.
const STAGING: usize = 128 << 10;
/// The staging buffer until the host is authenticated: for a Connect with its data, and some headers.
const STAGING_BEFORE_TRUST: usize = 16 << 10;
/// The staging buffer while large writes arrive: for their headers, so that few bytes have to be copied.
const STAGING_SMALL: usize = 4 << 10;
/// Data from this length on are read directly into the buffer of their command.
const DIRECT: usize = 8 << 10;

/// A complete part of a PDU.
#[derive(Debug)]
pub(super) enum Event {
    /// A header. If data follow, [`Inbound::expect`] has to say where to.
    Header(Header, Frame),
    /// All data of a PDU; `intact` is whether their digest is right.
    Data { intact: bool },
}

/// The destination of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sink {
    /// The buffer of the command with this index.
    Command(usize),
    /// The data are discarded, because the command was refused.
    Discard,
}

/// A protocol error that ends the connection.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) status: Fatal,
    pub(super) information: u32,
    /// The header with the error.
    pub(super) header: Vec<u8>,
}

/// Data of a PDU that are being received.
#[derive(Clone, Copy, Debug)]
struct Data {
    sink: Sink,
    /// The offset in the destination.
    at: usize,
    remaining: usize,
    length: usize,
    digest: bool,
}

/// Received bytes that were not processed yet.
#[derive(Debug)]
pub(super) struct Inbound {
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    data: Option<Data>,
    /// Whether the last data were long ([`DIRECT`]).
    is_large: bool,
    /// The command whose data were complete last.
    filled: Option<usize>,
    pub(super) digests: Digests,
}

impl Inbound {
    pub(super) fn new() -> Self {
        let staging = vec![0; STAGING_BEFORE_TRUST].into_boxed_slice();
        let (data, filled, digests) = (None, None, Digests::default());
        Self {
            staging,
            start: 0,
            end: 0,
            data,
            is_large: false,
            filled,
            digests,
        }
    }

    /// Gets the staging buffer of an authenticated host.
    pub(super) fn enlarge(&mut self) {
        let mut staging = vec![0; STAGING].into_boxed_slice();
        staging[..self.end].copy_from_slice(&self.staging[..self.end]);
        self.staging = staging;
    }

    /// The place of the next data, if they are long and no other bytes precede them.
    pub(super) fn direct(&self) -> Option<(usize, std::ops::Range<usize>)> {
        let data = self
            .data
            .filter(|data| self.start == self.end && data.remaining >= DIRECT)?;
        match data.sink {
            Sink::Command(index) => Some((index, data.at..data.at + data.remaining)),
            Sink::Discard => None,
        }
    }

    /// Space for bytes in the staging buffer.
    pub(super) fn room(&mut self) -> IoSliceMut<'_> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.staging.len() {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = &mut self.staging[self.end..];
        let take = if self.is_large && self.end == 0 {
            STAGING_SMALL.min(room.len())
        } else {
            room.len()
        };
        IoSliceMut::new(&mut room[..take])
    }

    /// Notes that `bytes` bytes arrived, the first `direct` of them at the place of [`Inbound::direct`].
    pub(super) fn received(&mut self, bytes: usize, direct: usize) {
        let to_place = bytes.min(direct);
        if let Some(data) = &mut self.data {
            data.at += to_place;
            data.remaining -= to_place.min(data.remaining);
        }
        self.end = (self.end + bytes - to_place).min(self.staging.len());
    }

    /// Sets the destination of the data of the last header.
    pub(super) fn expect(&mut self, sink: Sink, at: usize, frame: &Frame) {
        let (remaining, digest) = (frame.data, frame.data_digest);
        self.is_large = remaining >= 2 * DIRECT;
        self.data = Some(Data {
            sink,
            at,
            remaining,
            length: frame.data,
            digest,
        });
    }

    /// The command whose data [`Event::Data`] said are complete.
    pub(super) fn take_filled(&mut self) -> Option<usize> {
        self.filled.take()
    }

    fn staged(&self) -> &[u8] {
        &self.staging[self.start..self.end]
    }

    /// The next event. `place` returns the buffer of a command; `data_max` is the longest data of a PDU type.
    pub(super) fn next<'a>(
        &mut self,
        place: impl FnOnce(usize) -> Option<&'a mut [u8]>,
        data_max: impl Fn(u8) -> usize,
    ) -> Result<Option<Event>, Fault> {
        match self.data {
            Some(data) => self.next_data(data, place),
            None => self.next_header(data_max),
        }
    }

    fn next_header(&mut self, data_max: impl Fn(u8) -> usize) -> Result<Option<Event>, Fault> {
        let staged = self.staged();
        let Some((common, _)) = CommonHeader::split(staged) else {
            return Ok(None);
        };
        let frame = Frame::parse(&common, self.digests, data_max(common.kind));
        let frame = frame.map_err(|error| fault(error, staged))?;
        if staged.len() < frame.before_data {
            return Ok(None);
        }
        let (header, behind) = staged.split_at(frame.header);
        if frame.header_digest && !digest_is_right(header, behind) {
            let (status, information) = (Fatal::HeaderDigest, digest_of(behind));
            return Err(Fault {
                status,
                information,
                header: header.to_vec(),
            });
        }
        let Some(parsed) = Header::parse(frame.kind, &header[CommonHeader::SIZE..]) else {
            return Ok(None);
        };
        self.start += frame.before_data;
        Ok(Some(Event::Header(parsed, frame)))
    }

    fn next_data<'a>(
        &mut self,
        mut data: Data,
        place: impl FnOnce(usize) -> Option<&'a mut [u8]>,
    ) -> Result<Option<Event>, Fault> {
        let take = data.remaining.min(self.end - self.start);
        let mut place = match data.sink {
            Sink::Command(index) => place(index),
            Sink::Discard => None,
        };
        if let Some(room) = place
            .as_mut()
            .and_then(|place| place.get_mut(data.at..data.at + take))
        {
            room.copy_from_slice(&self.staging[self.start..self.start + take]);
        }
        self.start += take;
        data.at += take;
        data.remaining -= take;
        self.data = Some(data);
        let trailer = if data.digest { DIGEST_SIZE } else { 0 };
        if data.remaining > 0 || self.end - self.start < trailer {
            return Ok(None);
        }
        // A wrong data digest is an error of the command, not of the connection (TCP transport 3.3.1.1): the
        // header was right, so that the start of the next PDU is known.
        let whole = place
            .filter(|_| data.digest)
            .and_then(|it| it.get(data.at - data.length..data.at));
        let intact = whole.is_none_or(|whole| digest_is_right(whole, self.staged()));
        self.start += trailer;
        self.data = None;
        self.filled = match data.sink {
            Sink::Command(index) => Some(index),
            Sink::Discard => None,
        };
        Ok(Some(Event::Data { intact }))
    }
}

fn digest_of(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn digest_is_right(bytes: &[u8], digest: &[u8]) -> bool {
    digest.len() >= DIGEST_SIZE && crc32c::crc32c(bytes) == digest_of(digest)
}

fn fault(error: PduError, staged: &[u8]) -> Fault {
    let (status, information) = error.fatal();
    let header = staged
        .get(..staged.len().min(wire::nvme::tcp::HEADER_MAX))
        .unwrap_or_default()
        .to_vec();
    Fault {
        status,
        information,
        header,
    }
}
