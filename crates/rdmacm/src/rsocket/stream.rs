//! The byte stream of a connection: credits, granted memory, received data.
//!
//! Driven by completions: [`Stream::progress`] takes them and sends credits when the reader has made room.

use super::buffer::Buffer;
use super::completions::{BATCH, Completions};
use super::protocol::{
    Connect, GRANTS, LENGTH_MAX, MAPPING_BYTES, Message, RANGE_BYTES, Range, scale, unscale,
};
use super::sizes::{REQUESTS, Sizes};
use super::writes::{request, tail_bytes};
use crate::qp;
use crate::verbs;
use abi::{
    IBV_QPT_RC, IBV_SEND_INLINE, IBV_SEND_SIGNALED, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_wc, rdma_cm_id,
};
use door::Errno;
use std::collections::VecDeque;
use std::ptr::null_mut;

/// `IBV_ACCESS_LOCAL_WRITE` and `IBV_ACCESS_REMOTE_WRITE`.
const WRITABLE: u32 = 1 | 2;
/// Work requests reserved for control messages.
const CONTROL_REQUESTS: u32 = 4;
/// Bytes of one WRITE at most.
const TRANSFER_BYTES_MAX: usize = 64 << 10;
/// Bytes of free send buffer below which sending does not start (rdma-core's low-water mark), so that a
/// writer is not woken for a few bytes.
const LOW_WATER_BYTES: usize = 2048;
/// Marks in work request IDs: receives, and control messages. Other IDs are the length.
const RECEIVE: u64 = 1 << 63;
const CONTROL: u64 = 1 << 62;
const LENGTH: u64 = LENGTH_MAX as u64;

/// How the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The peer closed it.
    Orderly,
    /// The queue pair failed.
    Broken,
}

/// A connection's send and receive rings, and its flow control.
pub(super) struct Stream {
    id: *mut rdma_cm_id,
    pub(super) completions: Completions,
    inline_bytes: usize,
    depth: u16,

    outgoing: Buffer,
    outgoing_at: usize,
    outgoing_free: usize,
    requests_left: u32,
    controls_left: u32,
    controls_sent: usize,
    sent: u16,
    may_send: u16,
    /// Index of the grant that is being written to.
    grant: usize,

    incoming: Buffer,
    incoming_at: usize,
    incoming_free: usize,
    granted_at: usize,
    /// Bytes that the peer may have written and that are not announced yet: its messages may not exceed it.
    outstanding: usize,
    arrived: VecDeque<u32>,
    first_read: u32,
    received: u16,
    credits_due_at: u16,

    /// Table that the peer writes: grants, then mappings. Behind them, ranges that control messages send.
    tables: Buffer,
    mappings: u32,
    peer: Connect,
    peer_grant: u32,

    /// Whether the peer may send; the next field: whether this end may.
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) ended: Option<End>,
    /// The connection manager has reported DISCONNECTED.
    peer_is_gone: bool,
    /// A message has arrived, so the peer is connected even if the RTU was lost.
    pub(super) has_received: bool,
    /// The peer's queue pair can receive. Before that it would drop packets.
    open: bool,
    /// Path MTU, if the send queue has room for two requests for each longer message.
    mtu: usize,
    takes_two: bool,
}

// SAFETY: the objects behind the pointers belong to the stream, and verbs may be called from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates the buffers and the queue pair of an identifier.
    ///
    /// # Safety
    /// `id` has a device, no queue pair, and outlives the stream.
    pub(super) unsafe fn new(id: *mut rdma_cm_id, sizes: &Sizes) -> Result<Self, Errno> {
        // SAFETY: by this function's contract, `id` has a device, no queue pair, and outlives the stream.
        unsafe {
            let (pd, context) = (crate::id::id(id)?.state().device.ok_or(Errno::INVALID)?.pd()?, (*id).verbs);
            let mappings = unscale(scale(sizes.mappings));
            let tables = GRANTS * RANGE_BYTES + mappings as usize * MAPPING_BYTES;
            let outgoing = Buffer::new(pd, sizes.send_bytes, 0)?;
            let incoming = Buffer::new(pd, sizes.receive_bytes, WRITABLE)?;
            let tables = Buffer::new(pd, tables + CONTROL_REQUESTS as usize * RANGE_BYTES, WRITABLE)?;
            // If the queue pair fails, every posted request completes.
            let completions = Completions::new(context, 2 * sizes.sends + sizes.receives)?;
            let (outgoing_free, half) = (outgoing.length(), incoming.length() / 2);
            let mut stream = Self {
                id,
                completions,
                inline_bytes: 0,
                depth: sizes.receives as u16,
                outgoing,
                outgoing_at: 0,
                outgoing_free,
                requests_left: (sizes.sends).saturating_sub(CONTROL_REQUESTS),
                controls_left: CONTROL_REQUESTS,
                controls_sent: 0,
                sent: 0,
                may_send: 0,
                grant: 0,
                incoming,
                incoming_at: 0,
                incoming_free: half,
                granted_at: half,
                outstanding: half,
                arrived: VecDeque::with_capacity(sizes.receives as usize + 1),
                first_read: 0,
                received: 0,
                credits_due_at: sizes.receives as u16 / 2,
                tables,
                mappings,
                peer: Connect::default(),
                peer_grant: 1,
                readable: true,
                writable: true,
                ended: None,
                peer_is_gone: false,
                has_received: false,
                open: false,
                mtu: usize::MAX,
                takes_two: 2 * sizes.sends <= *REQUESTS.end(),
            };
            stream.make_queue_pair(sizes)?;
            stream.post_receives(sizes.receives)?;
            stream.completions.arm()?;
            Ok(stream)
        }
    }

    /// # Safety
    /// As for [`Stream::new`].
    unsafe fn make_queue_pair(&mut self, sizes: &Sizes) -> Result<(), Errno> {
        let mut attr = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.completions.queue(),
            recv_cq: self.completions.queue(),
            srq: null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: if self.takes_two { 2 * sizes.sends } else { sizes.sends },
                max_recv_wr: sizes.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: sizes.inline_bytes,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: by this function's contract, which is that of [`Stream::new`].
        Errno::check(unsafe { qp::rdma_create_qp(self.id, null_mut(), &mut attr) })?;
        self.inline_bytes = attr.cap.max_inline_data as usize;
        Ok(())
    }

    /// The private data of this end.
    pub(super) fn private_data(&self) -> Connect {
        Connect {
            big_endian: cfg!(target_endian = "big"),
            credits: self.depth,
            mappings: self.mappings,
            grants: Range { address: self.tables.address(), key: self.tables.key(), length: GRANTS as u32 },
            first: Range {
                address: self.incoming.address(),
                key: self.incoming.key(),
                length: (self.incoming.length() / 2) as u32,
            },
        }
    }

    /// Sets the parameters of the peer.
    pub(super) fn set_peer(&mut self, peer: Connect) {
        self.peer = peer;
        self.may_send = peer.credits;
        self.tables.put(0, &peer.first.to_memory(cfg!(target_endian = "big")));
    }

    /// Both queue pairs are connected.
    pub(super) fn open(&mut self) {
        self.open = true;
        // SAFETY: the identifier outlives the stream.
        if let Ok(id) = unsafe { crate::id::id(self.id) }
            && self.takes_two
        {
            self.mtu = 128 << id.state().negotiated.mtu;
        }
    }

    /// Takes completions, and sends credits. Every call on the socket runs it.
    pub(super) fn progress(&mut self) {
        loop {
            let mut completions = [ibv_wc::default(); BATCH];
            let Ok(completions) = self.completions.take(&mut completions) else {
                self.end(End::Broken);
                return;
            };
            let mut receives = 0;
            for completion in completions {
                receives += self.complete(completion);
            }
            if receives > 0 && self.post_receives(receives).is_err() {
                self.end(End::Broken);
            }
            if completions.len() < BATCH {
                break;
            }
        }
        self.give_credits();
    }

    /// Processes a completion; returns the number of receives that it consumed.
    fn complete(&mut self, completion: &ibv_wc) -> u32 {
        let is_receive = completion.wr_id & RECEIVE != 0;
        if completion.status != 0 {
            self.end(End::Broken);
            return 0;
        }
        if is_receive {
            self.has_received = true;
            self.receive(Message::parse(u32::from_be(completion.imm_data)));
            return 1;
        }
        if completion.wr_id & CONTROL != 0 {
            self.controls_left += 1;
        } else {
            self.requests_left += 1;
            self.outgoing_free += (completion.wr_id & LENGTH) as usize;
        }
        0
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Data(length) => {
                let is_granted = self.arrived.len() < usize::from(self.depth);
                match self.outstanding.checked_sub(length as usize).filter(|_| is_granted) {
                    Some(left) => {
                        self.outstanding = left;
                        self.arrived.push_back(length);
                    }
                    // A peer that announces more bytes than it was granted violates the protocol.
                    None => self.end(End::Broken),
                }
            }
            Message::Credits(credits) => self.may_send = credits,
            Message::Mapping(_) => self.received = self.received.wrapping_add(1),
            Message::Disconnect => self.end(End::Orderly),
            Message::Shutdown if self.writable => self.readable = false,
            Message::Shutdown => self.end(End::Orderly),
            Message::KeepAlive | Message::Unknown => {}
        }
    }

    /// Records how the connection ended; the first reason is kept.
    pub(super) fn end(&mut self, how: End) {
        self.ended.get_or_insert(how);
        self.readable = false;
        self.writable = false;
    }

    fn post_receives(&mut self, count: u32) -> Result<(), Errno> {
        let mut request = ibv_recv_wr { wr_id: RECEIVE, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        for _ in 0..count {
            let mut bad = null_mut();
            // SAFETY: the queue pair is ours, and the request is read before the call returns.
            Errno::check(unsafe { verbs::post_recv((*self.id).qp, &mut request, &mut bad) })?;
        }
        Ok(())
    }

    /// # Safety
    /// The elements are registered until the request completes, or inline.
    unsafe fn write(
        &mut self,
        elements: &mut [ibv_sge],
        to: (u64, u32),
        message: Option<Message>,
        id: u64,
        inline: bool,
    ) -> Result<(), Errno> {
        let flags = IBV_SEND_SIGNALED | if inline { IBV_SEND_INLINE } else { 0 };
        // SAFETY: by this function's contract, the elements are registered until the request completes, or
        // inline.
        unsafe { self.post(&mut request(elements, to, message, id, flags)) }
    }

    /// # Safety
    /// As for [`Stream::write`], for each request of the list.
    unsafe fn post(&mut self, requests: &mut ibv_send_wr) -> Result<(), Errno> {
        let mut bad = null_mut();
        // SAFETY: by this function's contract, which is that of [`Stream::write`], for each request of the
        // list.
        let posted = Errno::check(unsafe { verbs::post_send((*self.id).qp, requests, &mut bad) });
        if posted.is_err() {
            self.end(End::Broken);
        }
        posted
    }

    /// Whether a control message may be sent.
    pub(super) fn can_control(&self) -> bool {
        self.open && self.controls_left > 0 && self.ended.is_none()
    }

    /// Sends a control message without data. [`Stream::can_control`] has to be true.
    pub(super) fn control(&mut self, message: Message) -> Result<(), Errno> {
        self.controls_left = self.controls_left.saturating_sub(1);
        // SAFETY: there are no elements.
        unsafe { self.write(&mut [], (0, 0), Some(message), CONTROL, false) }
    }

    /// Sends credits and a grant, when half of the buffer or half of the receives is free.
    fn give_credits(&mut self) {
        let half = self.incoming.length() / 2;
        let has_room = self.incoming_free >= half;
        let is_due = self.received.wrapping_sub(self.credits_due_at) as i16 >= 0;
        if !(has_room || is_due) || !self.can_control() || self.peer.credits == 0 {
            return;
        }
        self.credits_due_at = self.received.wrapping_add(self.depth / 2);
        let credits = Message::Credits(self.received.wrapping_add(self.depth));
        if !has_room {
            _ = self.control(credits);
            return;
        }
        let range = Range {
            address: self.incoming.address() + self.granted_at as u64,
            key: self.incoming.key(),
            length: half as u32,
        };
        let slots = GRANTS * RANGE_BYTES + self.mappings as usize * MAPPING_BYTES;
        let slot = slots + (self.controls_sent % CONTROL_REQUESTS as usize) * RANGE_BYTES;
        self.controls_sent += 1;
        self.tables.put(slot, &range.to_memory(self.peer.big_endian));
        let (mut pieces, _) = self.tables.pieces(slot, RANGE_BYTES);
        let to = self.peer.grants.address.wrapping_add(u64::from(self.peer_grant) * RANGE_BYTES as u64);
        self.controls_left -= 1;
        // SAFETY: a slot is used again only after as many control messages have completed.
        let posted = unsafe {
            self.write(&mut pieces[..1], (to, self.peer.grants.key), Some(credits), CONTROL, false)
        };
        if posted.is_ok() {
            self.incoming_free -= half;
            self.outstanding += half;
            self.granted_at = if self.granted_at == 0 { half } else { 0 };
            self.peer_grant = (self.peer_grant + 1) % self.peer.grants.length.max(1);
        }
    }

    /// The granted range that is written to next.
    fn granted(&self) -> Range {
        Range::from_memory(self.tables.read(self.grant * RANGE_BYTES))
    }

    /// Whether bytes may be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.writable && self.can_write() && self.granted().length > 0
    }

    /// Whether this end has a free request and buffer, and the peer a free receive.
    fn can_write(&self) -> bool {
        let low = LOW_WATER_BYTES.min(self.outgoing.length());
        self.requests_left > 0 && self.outgoing_free >= low && self.sent != self.may_send
    }

    /// Sends as many bytes as there is room for, and returns how many.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<usize, Errno> {
        let all = bytes.len();
        while !bytes.is_empty() && self.can_send() {
            let mut target = self.granted();
            let length =
                bytes.len().min(TRANSFER_BYTES_MAX).min(self.outgoing_free).min(target.length as usize);
            let (now, later) = bytes.split_at(length);
            let to = (target.address, target.key);
            target.address = target.address.wrapping_add(length as u64);
            target.length -= length as u32;
            // Updated before the bytes are sent: the peer may grant this entry anew as soon as it has read
            // them.
            self.tables.put(self.grant * RANGE_BYTES, &target.to_memory(cfg!(target_endian = "big")));
            if target.length == 0 {
                self.grant = (self.grant + 1) % GRANTS;
            }
            self.sent = self.sent.wrapping_add(1);
            self.transfer(now, to, Some(Message::Data(length as u32)))?;
            bytes = later;
        }
        Ok(all - bytes.len())
    }

    /// Writes bytes to the peer's memory: inline if they are few, otherwise from the send ring.
    fn transfer(&mut self, bytes: &[u8], to: (u64, u32), message: Option<Message>) -> Result<(), Errno> {
        let length = bytes.len();
        self.requests_left -= 1;
        self.outgoing_free -= length;
        if length <= self.inline_bytes {
            let mut piece = [ibv_sge { addr: bytes.as_ptr() as u64, length: length as u32, lkey: 0 }];
            // SAFETY: inline bytes are read before the call returns.
            return unsafe { self.write(&mut piece, to, message, length as u64, true) };
        }
        self.outgoing.put(self.outgoing_at, bytes);
        let at = self.outgoing_at;
        self.outgoing_at = (at + length) % self.outgoing.length();
        let Some(tail) = tail_bytes(length, self.mtu).filter(|_| message.is_some()) else {
            let (mut pieces, count) = self.outgoing.pieces(at, length);
            // SAFETY: the room counts as used until the request has completed.
            return unsafe { self.write(&mut pieces[..count], to, message, length as u64, false) };
        };
        let body = length - tail;
        let (mut pieces, count) = self.outgoing.pieces(at, body);
        let (mut last, last_count) = self.outgoing.pieces((at + body) % self.outgoing.length(), tail);
        let behind = (to.0.wrapping_add(body as u64), to.1);
        let mut announced =
            request(&mut last[..last_count], behind, message, length as u64, IBV_SEND_SIGNALED);
        let mut first = request(&mut pieces[..count], to, None, 0, 0);
        first.next = &mut announced;
        // SAFETY: the room counts as used until the request has completed; the second completes after the
        // first.
        unsafe { self.post(&mut first) }
    }

    /// The connection has ended: what was sent and is not acknowledged never will be. Without this, closing
    /// would wait until the last retry, about 4 s.
    pub(super) fn peer_disconnected(&mut self) {
        self.peer_is_gone = true;
        self.end(End::Orderly);
    }

    /// Whether everything that was sent is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.ended == Some(End::Broken)
            || self.peer_is_gone
            || (self.outgoing_free == self.outgoing.length() && self.controls_left == CONTROL_REQUESTS)
    }

    /// Whether received bytes are unread.
    pub(super) fn has_data(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Copies received bytes; removes them unless `peek` is set.
    pub(super) fn take(&mut self, to: &mut [u8], peek: bool) -> usize {
        let (mut copied, mut at, mut read, mut seen) = (0, self.incoming_at, self.first_read, 0);
        while copied < to.len() {
            let Some(&length) = self.arrived.get(seen) else { break };
            let now = ((length - read) as usize).min(to.len() - copied);
            self.incoming.take(at, &mut to[copied..copied + now]);
            copied += now;
            at = (at + now) % self.incoming.length();
            read += now as u32;
            if read == length {
                (seen, read) = (seen + 1, 0);
            }
        }
        if !peek {
            self.arrived.drain(..seen);
            (self.incoming_at, self.first_read) = (at, read);
            self.received = self.received.wrapping_add(seen as u16);
            self.incoming_free += copied;
            self.give_credits();
        }
        copied
    }

    /// Entries of the peer's table of mappings.
    pub(super) fn peer_mappings(&self) -> u32 {
        self.peer.mappings
    }

    /// Whether an entry of the peer's table may be written now.
    pub(super) fn can_map(&self) -> bool {
        self.writable && self.can_write()
    }

    /// Writes an entry of the peer's table of mappings.
    pub(super) fn map(&mut self, index: u32, offset: u64, range: Range) -> Result<(), Errno> {
        let big_endian = self.peer.big_endian;
        let offset = if big_endian { offset.to_be_bytes() } else { offset.to_le_bytes() };
        let mut entry = [0; MAPPING_BYTES];
        entry[..8].copy_from_slice(&offset);
        entry[8..].copy_from_slice(&range.to_memory(big_endian));
        let table = u64::from(self.peer.grants.length) * RANGE_BYTES as u64;
        let at = self.peer.grants.address.wrapping_add(table + u64::from(index) * MAPPING_BYTES as u64);
        self.sent = self.sent.wrapping_add(1);
        self.transfer(&entry, (at, self.peer.grants.key), Some(Message::Mapping(index)))
    }

    /// Writes to memory that the peer has mapped; returns the number of bytes, or `None` when nothing is
    /// mapped there.
    pub(super) fn write_mapped(&mut self, bytes: &[u8], offset: u64) -> Result<Option<usize>, Errno> {
        let mapping = (0..self.mappings as usize).find_map(|index| {
            let at = GRANTS * RANGE_BYTES + index * MAPPING_BYTES;
            let start = u64::from_ne_bytes(self.tables.read(at));
            let range = Range::from_memory(self.tables.read(at + 8));
            let inside = offset.checked_sub(start).filter(|inside| *inside < u64::from(range.length))?;
            Some((range, inside))
        });
        let Some((range, inside)) = mapping else { return Ok(None) };
        let room = (u64::from(range.length) - inside) as usize;
        let length = bytes.len().min(TRANSFER_BYTES_MAX).min(self.outgoing_free).min(room);
        let to = (range.address.wrapping_add(inside), range.key);
        self.transfer(&bytes[..length], to, None)?;
        Ok(Some(length))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by this; its buffers and completion queue are dropped later.
        unsafe { qp::rdma_destroy_qp(self.id) };
    }
}
