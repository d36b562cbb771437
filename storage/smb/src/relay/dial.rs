//! The client is on the TCP side, the server on the SMB Direct side.
//!
//! A READ or WRITE of at least [`THRESHOLD`] bytes is forwarded with a buffer descriptor in place of its
//! data, if it is neither signed nor encrypted and the dialect is 3.0 or later (MS-SMB2 3.2.4.6 and 3.2.4.7).
//! Everything else passes byte by byte.

use std::collections::HashMap;

use buffer::Buffer;
use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{
    Header, NegotiateResponse, ReadRequest, ReadResponse, SHARE_DISK, STATUS_PENDING,
    TreeConnectResponse, WriteRequest, channel, command,
};

use super::elements;
use super::frame::{self, ToTcp};
use super::incoming::{FromTcp, Piece};
use super::trees::Trees;
use super::{DIALECT_3_0_2, Moved, Session, Trust, requests, responses};
use crate::close_reason::Ended;
use crate::direct::incoming::Fragment;
use crate::limits::{READ_WRITE_MAX, REQUESTS_MAX};
use crate::peer::{Opened, Peer};

/// READs and WRITEs of at least this many bytes use RDMA.
pub const THRESHOLD: u32 = 4096;
/// Bytes of a client's message that are looked at.
const REQUEST_HEAD: usize = 256;
/// The first dialect with RDMA channels.
const DIALECT_3_0: u16 = 0x0300;
/// The dialect revision of an answer to an SMB 1 negotiation, after which another one follows.
const DIALECT_WILDCARD: u16 = 0x02ff;

/// A request whose data are in a buffer that is open to the server.
#[derive(Debug)]
struct Pending {
    opened: Opened,
    length: u32,
    is_read: bool,
}

/// The client's message under way.
#[derive(Debug)]
enum Request {
    /// None, or one that passes as it comes.
    Stream,
    /// The data of a WRITE.
    Write {
        fixed: [u8; requests::FIXED],
        descriptor: BufferDescriptor,
        invalidates: bool,
        length: u32,
    },
    /// The rest of a message that was forwarded.
    Rest,
}

/// The server's message under way.
#[derive(Debug)]
enum Response {
    /// Too few bytes are here to decide.
    Head(Vec<u8>),
    /// The rest passes as it comes.
    Stream,
    /// The rest of a message that was forwarded.
    Rest,
}

/// How a message of the client is forwarded.
enum Plan {
    Pass,
    Read(u32),
    Write { offset: usize, length: u32 },
}

/// A session between a client over TCP and a server over SMB Direct.
#[derive(Debug)]
pub struct Dial {
    request: Request,
    response: Response,
    from_client: FromTcp,
    to_client: ToTcp,
    pending: HashMap<u64, Pending>,
    /// Buffers whose requests are answered.
    done: Vec<Opened>,
    /// A message of the server has begun and not ended: its last fragment may invalidate a key.
    is_within_answer: bool,
    dialect: u16,
    trees: Trees,
    trust: Trust,
    moved: [Moved; 2],
}

impl Dial {
    /// A session with a server whose tree connections are known.
    pub fn new(trees: Trees) -> Self {
        Self {
            request: Request::Stream,
            response: Response::Head(Vec::new()),
            from_client: FromTcp::new(REQUEST_HEAD),
            to_client: ToTcp::default(),
            pending: HashMap::new(),
            done: Vec::new(),
            is_within_answer: false,
            dialect: 0,
            trees,
            trust: Trust::Stranger,
            moved: [Moved::default(); 2],
        }
    }

    /// Decides how a message of the client is forwarded.
    fn plan(&self, total: u32, head: &[u8]) -> Plan {
        let Some(header) = elements::header(head) else {
            return Plan::Pass;
        };
        let has_channels = self.dialect >= DIALECT_3_0 && self.dialect != DIALECT_WILDCARD;
        // Another connection may know the session and the tree: without a session of its own a client gets no
        // buffers.
        if self.trust == Trust::Stranger {
            return Plan::Pass;
        }
        if !has_channels || header.is_signed() || header.is_response() || header.next_command != 0 {
            return Plan::Pass;
        }
        let tree = header.tree_id();
        if !tree.is_some_and(|tree| self.trees.is_disk(header.session_id, tree)) {
            return Plan::Pass;
        }
        let body = &head[Header::SIZE..];
        let fits = |length: u32| (THRESHOLD..=READ_WRITE_MAX).contains(&length);
        match header.command {
            command::READ => match ReadRequest::split(body) {
                Some((read, _)) if read.channel == channel::NONE && fits(read.length) => {
                    Plan::Read(read.length)
                }
                _ => Plan::Pass,
            },
            command::WRITE => match WriteRequest::split(body) {
                Some((write, _)) if write.channel == channel::NONE && fits(write.length) => {
                    let (offset, length) = (usize::from(write.data_offset), write.length);
                    let is_inside = (requests::FIXED..=head.len()).contains(&offset)
                        && offset as u64 + u64::from(length) <= u64::from(total);
                    if is_inside {
                        Plan::Write { offset, length }
                    } else {
                        Plan::Pass
                    }
                }
                _ => Plan::Pass,
            },
            _ => Plan::Pass,
        }
    }

    fn request(&mut self, total: u32, head: &[u8], peer: &mut impl Peer) -> Result<(), Ended> {
        let plan = self.plan(total, head);
        let Some(fixed) = head.first_chunk::<{ requests::FIXED }>() else {
            return self.pass(total, peer);
        };
        let length = match plan {
            Plan::Pass => return self.pass(total, peer),
            Plan::Read(length) | Plan::Write { length, .. } if length > peer.read_write_size() => {
                return self.pass(total, peer);
            }
            Plan::Read(length) | Plan::Write { length, .. } => length,
        };
        let invalidates = self.dialect >= DIALECT_3_0_2;
        let Some(opened) = peer.open(length as usize, invalidates)? else {
            self.from_client.set_blocked(true);
            return Ok(());
        };
        match plan {
            Plan::Write { offset, .. } => {
                let Opened {
                    buffer,
                    descriptor,
                    invalidates,
                } = opened;
                self.from_client.take(offset);
                self.from_client.fill(buffer, length as usize);
                self.request = Request::Write {
                    fixed: *fixed,
                    descriptor,
                    invalidates,
                    length,
                };
                Ok(())
            }
            _ => {
                self.from_client.take(0);
                self.request = Request::Rest;
                self.send(fixed, opened, length, true, peer)
            }
        }
    }

    fn pass(&mut self, total: u32, peer: &mut impl Peer) -> Result<(), Ended> {
        self.from_client.take(0);
        self.request = Request::Stream;
        peer.begin(total, None)
    }

    /// Sends a request with a descriptor.
    fn send(
        &mut self,
        fixed: &[u8; requests::FIXED],
        opened: Opened,
        length: u32,
        is_read: bool,
        peer: &mut impl Peer,
    ) -> Result<(), Ended> {
        let channel = if opened.invalidates {
            channel::RDMA_V1_INVALIDATE
        } else {
            channel::RDMA_V1
        };
        let message = requests::with_descriptor(fixed, opened.descriptor, channel);
        let message_id = Header::split(fixed).map_or(0, |(header, _)| header.message_id);
        if self.pending.len() >= REQUESTS_MAX {
            return Err(Ended::TooManyRequests(REQUESTS_MAX));
        }
        if self
            .pending
            .insert(
                message_id,
                Pending {
                    opened,
                    length,
                    is_read,
                },
            )
            .is_some()
        {
            return Err(Ended::MessageId(message_id));
        }
        peer.begin(message.len() as u32, None)?;
        peer.append(&message)
    }

    /// Handles what was received from the client.
    fn process(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        while !self.from_client.is_blocked() {
            let Some(piece) = self.from_client.next()? else {
                return Ok(());
            };
            match piece {
                Piece::Head(total, bytes) => {
                    let count = bytes.len().min(REQUEST_HEAD);
                    let mut head = [0; REQUEST_HEAD];
                    head[..count].copy_from_slice(&bytes[..count]);
                    self.request(total, &head[..count], peer)?;
                }
                Piece::More(bytes, _) if matches!(self.request, Request::Stream) => {
                    peer.append(bytes)?
                }
                Piece::More(..) => {}
                Piece::Filled(buffer) => {
                    let request = std::mem::replace(&mut self.request, Request::Rest);
                    if let Request::Write {
                        fixed,
                        descriptor,
                        invalidates,
                        length,
                    } = request
                    {
                        let opened = Opened {
                            buffer,
                            descriptor,
                            invalidates,
                        };
                        self.send(&fixed, opened, length, false, peer)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Decides about a message of the server when enough of it is here.
    fn decide(&mut self, total: u32) -> Result<(), Ended> {
        let Response::Head(bytes) = &mut self.response else {
            return Ok(());
        };
        if bytes.len() < (total as usize).min(responses::FIXED) {
            return Ok(());
        }
        let bytes = std::mem::take(bytes);
        if let Some(header) = elements::header(&bytes)
            && header.is_response()
        {
            self.learn(&header, &bytes[Header::SIZE..]);
            let is_final = header.status != STATUS_PENDING;
            if is_final && let Some(pending) = self.pending.remove(&header.message_id) {
                let placed = placed_by(&header, &bytes).filter(|_| pending.is_read);
                if !pending.is_read && header.status == 0 {
                    self.moved[1].add(pending.length as usize);
                }
                if let Some(length) = placed {
                    return self.answer_read(&header, length, pending);
                }
                self.done.push(pending.opened);
            }
        }
        self.to_client.bytes(&frame::prefix(total.into())?);
        self.to_client.bytes(&bytes);
        self.response = Response::Stream;
        Ok(())
    }

    /// Answers with data that the server has written to the buffer.
    fn answer_read(&mut self, header: &Header, length: u32, pending: Pending) -> Result<(), Ended> {
        if length > pending.length {
            let (message_id, limit) = (header.message_id, pending.length);
            return Err(Ended::Answer {
                message_id,
                length: length.into(),
                limit,
            });
        }
        self.moved[0].add(length as usize);
        let total = responses::FIXED as u64 + u64::from(length);
        self.to_client.bytes(&frame::prefix(total)?);
        self.to_client.bytes(&responses::inline(header, length));
        self.to_client.opened(pending.opened, length as usize);
        self.response = Response::Rest;
        Ok(())
    }

    /// Records the state that later requests depend on: the dialect, the session and tree connections.
    fn learn(&mut self, header: &Header, body: &[u8]) {
        match header.command {
            command::NEGOTIATE if header.status == 0 => {
                if let Some((negotiated, _)) = NegotiateResponse::split(body) {
                    self.dialect = negotiated.dialect;
                }
            }
            command::TREE_CONNECT if header.status == 0 => {
                let response = TreeConnectResponse::split(body);
                if let Some(((response, _), tree)) = response.zip(header.tree_id()) {
                    let is_disk = response.share_type == SHARE_DISK;
                    self.trees.connected(header.session_id, tree, is_disk);
                }
            }
            _ => self.trust.learn(header, body),
        }
    }
}

/// How many bytes of a READ went by RDMA; `None` for any other answer.
fn placed_by(header: &Header, bytes: &[u8]) -> Option<u32> {
    let is_placed = header.command == command::READ
        && !header.is_signed()
        && responses::has_data(header.status);
    let (response, _) = ReadResponse::split(bytes.get(Header::SIZE..)?)?;
    (is_placed && response.data_length == 0 && response.data_remaining > 0)
        .then_some(response.data_remaining)
}

impl Session for Dial {
    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), Ended> {
        if fragment.begins.is_some() {
            self.response = Response::Head(Vec::new());
        }
        self.is_within_answer = fragment.remaining > 0;
        match &mut self.response {
            Response::Stream => self.to_client.bytes(fragment.data),
            Response::Rest => {}
            Response::Head(bytes) => {
                bytes.extend_from_slice(fragment.data);
                let total = bytes.len() as u32 + fragment.remaining;
                self.decide(total)?;
            }
        }
        Ok(())
    }

    fn fetched(&mut self, _: u64, _: Buffer) {}

    fn advance(&mut self, peer: &mut impl Peer) -> Result<(), Ended> {
        while !self.is_within_answer
            && let Some(opened) = self.to_client.closed().or_else(|| self.done.pop())
        {
            peer.close(opened);
        }
        if self.from_client.is_blocked() {
            self.from_client.set_blocked(false);
            self.process(peer)?;
        }
        Ok(())
    }

    fn tcp_place(&mut self) -> Option<&mut [u8]> {
        self.from_client.room_for_bytes()
    }

    fn tcp_received(&mut self, count: usize, peer: &mut impl Peer) -> Result<(), Ended> {
        self.from_client.received(count);
        self.process(peer)
    }

    fn to_tcp(&mut self) -> &mut ToTcp {
        &mut self.to_client
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn waits_for_memory(&self) -> bool {
        self.from_client.is_blocked()
    }

    fn held(&mut self) -> usize {
        self.to_client.queued()
    }

    fn moved(&self) -> [Moved; 2] {
        self.moved
    }
}
