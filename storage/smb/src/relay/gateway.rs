//! The client is on the SMB Direct side, the server on the TCP side.
//!
//! A WRITE with buffer descriptors is forwarded with its data inline, once RDMA READs have fetched them. A
//! READ with descriptors is forwarded without them; the data of its answer go to the client by RDMA WRITE
//! before the answer without data. Long ones go in parts, each while the server sends the next. Everything
//! else, signed and encrypted messages among it, passes byte by byte. Requests reach the server in the order
//! in which the client sent them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use buffer::Buffer;
use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{Header, NegotiateResponse, STATUS_PENDING, command};

use super::elements::{self, Element};
use super::frame::{self, ToTcp};
use super::incoming::{FromTcp, Piece};
use super::requests::{self, Asked, Remote};
use super::{DIALECT_3_0_2, Moved, Session, Trust, responses};
use crate::close_reason::Ended;
use crate::direct::incoming::Fragment;
use crate::limits::{
    DESCRIPTORS_MAX, MESSAGE_MAX, PART_BYTES, REQUESTS_MAX, UNAUTHENTICATED_MESSAGE_MAX,
};
use crate::peer::Peer;

/// Bytes of a server's message that are looked at: the data of a READ response begin within 255.
const RESPONSE_HEAD: usize = 256;

/// A request with descriptors that the server has not answered.
#[derive(Debug)]
struct Pending {
    remote: Remote,
    is_read: bool,
}

/// RDMA READs that wait for a buffer.
#[derive(Debug)]
struct Fetch {
    operation: u64,
    remote: Remote,
    head: usize,
}

/// The message of the client under way.
#[derive(Debug)]
enum Request {
    /// Too few bytes are here to decide, or all are needed.
    Collect(Vec<u8>),
    /// The rest passes as it comes.
    Stream,
}

/// The server's message under way.
#[derive(Debug)]
enum Response {
    /// None, or one that passes as it comes.
    Stream,
    /// One that is needed as a whole.
    Collect(Vec<u8>),
    /// The data of a READ, of which so many bytes are placed.
    Read {
        header: Header,
        remote: Remote,
        length: u32,
        placed: u32,
    },
    /// The rest of a READ response behind its data.
    Rest,
}

/// A session between a client over SMB Direct and a server over TCP.
#[derive(Debug)]
pub struct Gateway {
    request: Request,
    response: Response,
    from_server: FromTcp,
    to_server: ToTcp,
    fetches: VecDeque<Fetch>,
    pending: HashMap<u64, Pending>,
    /// Buffer descriptors of the pending requests.
    descriptors: usize,
    operations: u64,
    /// The dialect has Channel 2: with 3.0 a key stays valid whatever the client asks (MS-SMB2 3.3.5.12).
    has_invalidation: bool,
    trust: Trust,
    moved: [Moved; 2],
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            request: Request::Collect(Vec::new()),
            response: Response::Stream,
            from_server: FromTcp::new(RESPONSE_HEAD),
            to_server: ToTcp::default(),
            fetches: VecDeque::new(),
            pending: HashMap::new(),
            descriptors: 0,
            operations: 0,
            has_invalidation: true,
            trust: Trust::Stranger,
            moved: [Moved::default(); 2],
        }
    }
}

/// Whether a message has to be here as a whole before it is forwarded.
fn is_rewritten(head: &[u8]) -> bool {
    let Some(header) = elements::header(head) else {
        return false;
    };
    header.next_command != 0
        || requests::has_channel(&Element {
            header,
            bytes: head,
        })
}

impl Gateway {
    /// Decides about a message of the client when enough of it is here.
    fn decide(&mut self, total: u32) -> Result<(), Ended> {
        let Request::Collect(bytes) = &mut self.request else {
            return Ok(());
        };
        if bytes.len() < (total as usize).min(requests::FIXED) {
            return Ok(());
        }
        if !is_rewritten(bytes) {
            self.to_server.bytes(&frame::prefix(total.into())?);
            self.to_server.bytes(bytes);
            self.request = Request::Stream;
            return Ok(());
        }
        let limit = if self.trust == Trust::Stranger {
            UNAUTHENTICATED_MESSAGE_MAX
        } else {
            MESSAGE_MAX
        };
        if total > limit {
            return Err(Ended::Compound {
                length: total,
                limit,
            });
        }
        if bytes.len() < total as usize {
            return Ok(());
        }
        let bytes = std::mem::take(bytes);
        self.forward(&bytes)
    }

    /// Forwards a message whose descriptors stay here.
    fn forward(&mut self, message: &[u8]) -> Result<(), Ended> {
        let Some(elements) = elements::split(message) else {
            // The server refuses what is no compound.
            self.to_server.bytes(&frame::prefix(message.len() as u64)?);
            self.to_server.bytes(message);
            return Ok(());
        };
        let mut parts = Vec::with_capacity(elements.len());
        for element in &elements {
            parts.push(self.rewrite(element)?);
        }
        let total: usize = parts.iter().map(Part::length).sum();
        let mut bytes = frame::prefix(total as u64)?.to_vec();
        for Part {
            bytes: rewritten,
            data,
        } in parts
        {
            bytes.extend_from_slice(&rewritten);
            let Some((remote, padding)) = data else {
                continue;
            };
            let head = std::mem::replace(&mut bytes, vec![0; padding]);
            let (operation, length) = (self.operations, remote.length as usize);
            self.operations += 1;
            self.fetches.push_back(Fetch {
                operation,
                remote,
                head: head.len(),
            });
            self.to_server.awaited(operation, head, length);
        }
        self.to_server.bytes(&bytes);
        Ok(())
    }

    fn rewrite(&mut self, element: &Element<'_>) -> Result<Part, Ended> {
        let (mut bytes, remote, is_read) = match requests::asked(element) {
            Asked::Nothing => {
                return Ok(Part {
                    bytes: element.bytes.to_vec(),
                    data: None,
                });
            }
            // Without a session the server refuses a READ or WRITE anyway: no memory is taken for its data.
            _ if self.trust == Trust::Stranger => (requests::invalid(element), None, false),
            Asked::Invalid => (requests::invalid(element), None, false),
            Asked::Read(remote) => (requests::inline_read(element), Some(remote), true),
            Asked::Write(remote) => (
                requests::inline_write(element, remote.length),
                Some(remote),
                false,
            ),
        };
        let data = remote
            .as_ref()
            .filter(|remote| !is_read && remote.length > 0)
            .cloned();
        if let Some(mut remote) = remote {
            remote.invalidate = remote.invalidate.filter(|_| self.has_invalidation);
            self.expect(element.header.message_id, Pending { remote, is_read })?;
        }
        let Some(remote) = data else {
            if !element.is_last() {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                let next = bytes.len() as u32;
                elements::set_next(&mut bytes, next);
            }
            return Ok(Part { bytes, data: None });
        };
        let end = bytes.len() + remote.length as usize;
        let padding = if element.is_last() {
            0
        } else {
            end.next_multiple_of(8) - end
        };
        if !element.is_last() {
            elements::set_next(&mut bytes, (end + padding) as u32);
        }
        Ok(Part {
            bytes,
            data: Some((remote, padding)),
        })
    }

    fn expect(&mut self, message_id: u64, pending: Pending) -> Result<(), Ended> {
        if self.pending.len() >= REQUESTS_MAX {
            return Err(Ended::TooManyRequests(REQUESTS_MAX));
        }
        self.descriptors += pending.remote.descriptors.len();
        if self.descriptors > DESCRIPTORS_MAX {
            return Err(Ended::TooManyDescriptors(DESCRIPTORS_MAX));
        }
        match self.pending.insert(message_id, pending) {
            None => Ok(()),
            Some(_) => Err(Ended::MessageId(message_id)),
        }
    }

    /// The request that this message of the server answers finally. Nothing may touch its memory afterwards.
    fn answered(&mut self, header: &Header) -> Option<Pending> {
        let is_final = header.is_response() && header.status != STATUS_PENDING;
        let pending = if is_final {
            self.pending.remove(&header.message_id)
        } else {
            None
        };
        self.descriptors -= pending
            .as_ref()
            .map_or(0, |pending| pending.remote.descriptors.len());
        pending
    }

    /// Decides about a message of the server.
    fn respond(&mut self, total: u32, head: &[u8], peer: &mut impl Peer) -> Result<(), Ended> {
        let Some(header) = elements::header(head) else {
            return self.pass(total, None, peer);
        };
        self.trust
            .learn(&header, head.get(Header::SIZE..).unwrap_or_default());
        if header.command == command::NEGOTIATE
            && header.is_response()
            && let Some((negotiated, _)) =
                head.get(Header::SIZE..).and_then(NegotiateResponse::split)
        {
            self.has_invalidation = negotiated.dialect >= DIALECT_3_0_2;
        }
        if header.next_command != 0 && !self.pending.is_empty() {
            self.from_server.take(0);
            self.response = Response::Collect(Vec::with_capacity(total as usize));
            return Ok(());
        }
        let fixed = head.first_chunk::<{ responses::FIXED }>();
        let data = fixed.and_then(|fixed| responses::data_of(fixed, total));
        match (self.pending.get(&header.message_id), data) {
            (
                Some(Pending {
                    is_read: true,
                    remote,
                }),
                Some((offset, length)),
            ) if header.is_response()
                && !header.is_signed()
                && header.command == command::READ
                && responses::has_data(header.status)
                && length > 0 =>
            {
                check_answer(&header, remote, length)?;
                self.from_server.take(offset as usize);
                if let Some(Pending { remote, .. }) = self.answered(&header) {
                    self.response = Response::Read {
                        header,
                        remote,
                        length,
                        placed: 0,
                    };
                }
                self.receive_part(peer)
            }
            _ => {
                let invalidate = self
                    .answered(&header)
                    .and_then(|pending| pending.remote.invalidate);
                self.pass(total, invalidate, peer)
            }
        }
    }

    fn pass(
        &mut self,
        total: u32,
        invalidate: Option<u32>,
        peer: &mut impl Peer,
    ) -> Result<(), Ended> {
        self.from_server.take(0);
        self.response = Response::Stream;
        peer.begin(total, invalidate)
    }

    /// Has the next part of a READ's data put into a buffer. Without memory the server's bytes wait.
    fn receive_part(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        let Response::Read { length, placed, .. } = self.response else {
            return Ok(());
        };
        let part = (length - placed).min(PART_BYTES) as usize;
        match peer.buffer(part)? {
            Some(buffer) => self.from_server.fill(buffer, part),
            None => self.from_server.set_blocked(true),
        }
        Ok(())
    }

    /// Sends a part of the data of a READ, and behind the last one its answer.
    fn place_part(&mut self, buffer: Buffer, peer: &mut impl Peer) -> Result<(), Ended> {
        let Response::Read {
            header,
            remote,
            length,
            placed,
        } = &mut self.response
        else {
            return Ok(());
        };
        let (begin, length) = (*placed, *length);
        *placed = length.min(begin + PART_BYTES);
        write_to_client(buffer, begin..*placed, remote, peer);
        if *placed < length {
            return self.receive_part(peer);
        }
        let (answer, invalidate) = (responses::placed(header, length), remote.invalidate);
        self.response = Response::Rest;
        self.moved[0].add(length as usize);
        peer.begin(responses::FIXED as u32, invalidate)?;
        peer.append(&answer)
    }

    /// Forwards a compound of the server, READs of which have their data placed.
    fn respond_to_compound(&mut self, message: &[u8], peer: &mut impl Peer) -> Result<(), Ended> {
        let Some(elements) = elements::split(message) else {
            peer.begin(message.len() as u32, None)?;
            return peer.append(message);
        };
        let (mut bytes, mut invalidate) = (Vec::with_capacity(message.len()), None);
        for element in &elements {
            let placed = self.place_element(element, &mut invalidate, peer)?;
            let Some(placed) = placed else {
                bytes.extend_from_slice(element.bytes);
                continue;
            };
            let begin = bytes.len();
            bytes.extend_from_slice(&placed);
            if !element.is_last() {
                // 80 bytes: the next header begins at a multiple of 8.
                elements::set_next(&mut bytes[begin..], placed.len() as u32);
            }
        }
        peer.begin(bytes.len() as u32, invalidate)?;
        peer.append(&bytes)
    }

    /// Places the data of a READ response of a compound; returns the response without data.
    fn place_element(
        &mut self,
        element: &Element<'_>,
        invalidate: &mut Option<u32>,
        peer: &mut impl Peer,
    ) -> Result<Option<[u8; responses::FIXED]>, Ended> {
        let header = element.header;
        let Some(Pending { remote, is_read }) = self.answered(&header) else {
            return Ok(None);
        };
        // One message invalidates one key.
        *invalidate = invalidate.or(remote.invalidate);
        if !is_read || header.is_signed() || !responses::has_data(header.status) {
            return Ok(None);
        }
        let fixed = element.bytes.first_chunk::<{ responses::FIXED }>();
        let data = fixed.and_then(|fixed| responses::data_of(fixed, element.bytes.len() as u32));
        let Some((offset, length)) = data.filter(|(_, length)| *length > 0) else {
            return Ok(None);
        };
        check_answer(&header, &remote, length)?;
        let (begin, count) = (offset as usize, length as usize);
        let mut buffer = peer.buffer_beyond(count)?.ok_or(Ended::Unauthenticated)?;
        buffer[..count].copy_from_slice(&element.bytes[begin..begin + count]);
        self.moved[0].add(count);
        write_to_client(buffer, 0..length, &remote, peer);
        Ok(Some(responses::placed(&header, length)))
    }

    /// Handles what was received from the server.
    fn process(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        while !self.from_server.is_blocked() {
            let Some(piece) = self.from_server.next()? else {
                return Ok(());
            };
            match piece {
                Piece::Head(total, bytes) => {
                    let count = bytes.len().min(RESPONSE_HEAD);
                    let mut head = [0; RESPONSE_HEAD];
                    head[..count].copy_from_slice(&bytes[..count]);
                    self.respond(total, &head[..count], peer)?;
                }
                Piece::More(bytes, remaining) => match &mut self.response {
                    Response::Stream => peer.append(bytes)?,
                    Response::Collect(message) => {
                        message.extend_from_slice(bytes);
                        if remaining == 0 {
                            let message = std::mem::take(message);
                            self.response = Response::Stream;
                            self.respond_to_compound(&message, peer)?;
                        }
                    }
                    Response::Read { .. } | Response::Rest => {}
                },
                Piece::Filled(buffer) => self.place_part(buffer, peer)?,
            }
        }
        Ok(())
    }

    fn start_fetches(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        while let Some(Fetch {
            operation,
            remote,
            head,
        }) = self.fetches.front()
        {
            let length = remote.length as usize;
            let Some(buffer) = peer.buffer(head + length)? else {
                return Ok(());
            };
            peer.fetch(*operation, buffer, *head, &remote.descriptors, length);
            self.fetches.pop_front();
        }
        Ok(())
    }
}

/// A rewritten message, and the data that are to be fetched behind it, with the padding behind those.
struct Part {
    bytes: Vec<u8>,
    data: Option<(Remote, usize)>,
}

impl Part {
    fn length(&self) -> usize {
        self.bytes.len()
            + self
                .data
                .as_ref()
                .map_or(0, |(remote, padding)| remote.length as usize + padding)
    }
}

/// Writes the bytes of a READ in this range, which the buffer begins with, to the client's memory.
fn write_to_client(buffer: Buffer, range: Range<u32>, remote: &Remote, peer: &mut impl Peer) {
    let count = (range.end - range.start) as usize;
    // The length was checked against that of the descriptors.
    if let Some(pieces) = requests::part_of(&remote.descriptors, range) {
        peer.write_by_rdma(buffer, 0..count, &pieces);
    }
}

/// A server must not answer a READ with more bytes than were requested.
fn check_answer(header: &Header, remote: &Remote, length: u32) -> Result<(), Ended> {
    let (message_id, limit) = (header.message_id, remote.length);
    if length > limit {
        Err(Ended::Answer {
            message_id,
            length: length.into(),
            limit,
        })
    } else {
        Ok(())
    }
}

impl Session for Gateway {
    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), Ended> {
        if fragment.begins.is_some() {
            self.request = Request::Collect(Vec::new());
        }
        match &mut self.request {
            Request::Stream => self.to_server.bytes(fragment.data),
            Request::Collect(bytes) => {
                bytes.extend_from_slice(fragment.data);
                let total = bytes.len() as u32 + fragment.remaining;
                self.decide(total)?;
            }
        }
        Ok(())
    }

    fn fetched(&mut self, operation: u64, buffer: Buffer) {
        let length = self.to_server.arrived(operation, buffer);
        self.moved[1].add(length);
    }

    fn advance(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        while let Some(buffer) = self.to_server.recycled() {
            peer.recycle(buffer);
        }
        self.start_fetches(peer)?;
        if self.from_server.is_blocked() {
            self.from_server.set_blocked(false);
            self.receive_part(peer)?;
            self.process(peer)?;
        }
        Ok(())
    }

    fn tcp_place(&mut self) -> Option<&mut [u8]> {
        self.from_server.room_for_bytes()
    }

    fn tcp_received(&mut self, count: usize, peer: &mut impl Peer) -> Result<(), Ended> {
        self.from_server.received(count);
        self.process(peer)
    }

    fn to_tcp(&mut self) -> &mut ToTcp {
        &mut self.to_server
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn waits_for_memory(&self) -> bool {
        !self.fetches.is_empty() || self.from_server.is_blocked()
    }

    fn held(&mut self) -> usize {
        let request = if let Request::Collect(bytes) = &self.request {
            bytes.len()
        } else {
            0
        };
        let response = if let Response::Collect(bytes) = &self.response {
            bytes.len()
        } else {
            0
        };
        request
            + response
            + self.to_server.queued()
            + self.descriptors * size_of::<BufferDescriptor>()
    }

    fn moved(&self) -> [Moved; 2] {
        self.moved
    }
}
