//! The byte stream of a connection: what moves between the [`Outgoing`] and [`Incoming`] sides of both ends.
//!
//! Driven by completions: [`Stream::progress`] takes them and sends credits when the reader has made room.

use super::closing::{Closing, End};
use super::completions::BATCH;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::peer::Peer;
use super::protocol::{Connect, Message, Range, scale, unscale};
use super::queue_pair::{QueuePair, RECEIVE};
use super::ranges::Ranges;
use super::sizes::{CONTROL_REQUESTS, Sizes};
use super::writes::request;
use abi::{IBV_SEND_SIGNALED, ibv_sge, ibv_wc, ibv_wr_rdma, rdma_cm_id};
use ffi::Errno;
use rdma_cm::id;

/// The remote address of a message without data.
const NOWHERE: ibv_wr_rdma = ibv_wr_rdma {
    remote_addr: 0,
    rkey: 0,
};

/// Marks work request IDs of control messages. IDs of other sends are the length.
const CONTROL: u64 = 1 << 62;

/// Messages of so many bytes are sent before completions are taken, up to a number of bytes in a row.
const AHEAD_FROM: usize = 16 << 10;
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// A connection's send and receive rings, and its flow control.
pub(super) struct Stream {
    /// Dropped before the memory that its requests name.
    pub(super) queue_pair: QueuePair,
    outgoing: Outgoing,
    incoming: Incoming,
    ranges: Ranges,
    peer: Peer,
    controls_left: u32,
    pub(super) closing: Closing,
    /// A message has arrived, so the peer is connected even if the RTU was lost.
    pub(super) has_received: bool,
    /// The peer's queue pair can receive. Before that it would drop packets.
    open: bool,
    /// Bytes that the program has passed since completions were taken last.
    ahead: usize,
}

impl Stream {
    /// Creates the buffers and the queue pair of an identifier.
    ///
    /// # Safety
    /// `raw` has a device, no queue pair, and outlives the stream.
    pub(super) unsafe fn new(raw: *mut rdma_cm_id, sizes: &Sizes) -> Result<Self, Errno> {
        // SAFETY: by this function's contract, `raw` has a device, no queue pair, and outlives the stream;
        // the device's domain is never deallocated.
        unsafe {
            let pd = id(raw)?.pd()?;
            let outgoing = Outgoing::new(pd, sizes)?;
            let incoming = Incoming::new(pd, sizes)?;
            let ranges = Ranges::new(pd, unscale(scale(sizes.mappings)))?;
            Ok(Self {
                queue_pair: QueuePair::new(raw, sizes)?,
                outgoing,
                incoming,
                ranges,
                peer: Peer::default(),
                controls_left: CONTROL_REQUESTS,
                closing: Closing::new(),
                has_received: false,
                open: false,
                ahead: 0,
            })
        }
    }

    /// The private data of this end.
    pub(super) fn private_data(&self) -> Connect {
        Connect {
            big_endian: cfg!(target_endian = "big"),
            credits: self.incoming.depth(),
            mappings: self.ranges.mappings(),
            grants: self.ranges.grants(),
            first: self.incoming.first_grant(),
        }
    }

    /// Sets the parameters of the peer.
    pub(super) fn set_peer(&mut self, peer: Connect) {
        self.peer = Peer::new(peer);
        self.ranges.set_first(peer.first);
    }

    /// Both queue pairs are connected.
    pub(super) fn open(&mut self) {
        self.open = true;
        if let Some(mtu) = self.queue_pair.mtu() {
            self.outgoing.split_above(mtu);
        }
    }

    /// Takes completions, and sends credits. Every call on the socket runs it.
    pub(super) fn progress(&mut self) {
        self.ahead = 0;
        loop {
            let mut completions = [ibv_wc::default(); BATCH];
            let Ok(completions) = self.queue_pair.completions.take(&mut completions) else {
                self.closing.end(End::Broken);
                return;
            };
            let mut receives = 0;
            for completion in completions {
                receives += self.complete(completion);
            }
            if receives > 0 && self.queue_pair.post_receives(receives).is_err() {
                self.closing.end(End::Broken);
            }
            if completions.len() < BATCH {
                break;
            }
        }
        self.give_credits();
    }

    /// Processes a completion; returns the number of receives that it consumed.
    fn complete(&mut self, completion: &ibv_wc) -> u32 {
        if completion.status != 0 {
            self.closing.end(End::Broken);
            return 0;
        }
        if completion.wr_id & RECEIVE != 0 {
            self.has_received = true;
            self.receive(Message::parse(u32::from_be(completion.imm_data)));
            return 1;
        }
        if completion.wr_id & CONTROL != 0 {
            self.controls_left += 1;
        } else {
            self.outgoing.complete(completion.wr_id);
        }
        0
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Data(length) => {
                // A peer that announces more bytes than it was granted violates the protocol.
                if !self.incoming.announce(length) {
                    self.closing.end(End::Broken);
                }
            }
            Message::Credits(credits) => self.peer.set_credits(credits),
            Message::Mapping(_) => self.incoming.count_message(),
            Message::Disconnect => self.closing.end(End::Orderly),
            Message::Shutdown => self.closing.peer_stopped_writing(),
            Message::KeepAlive | Message::Unknown => {}
        }
    }

    /// Whether a control message may be sent.
    pub(super) fn can_control(&self) -> bool {
        self.open && self.controls_left > 0 && self.closing.ended().is_none()
    }

    /// Sends a control message without data. [`Stream::can_control`] has to be true.
    pub(super) fn control(&mut self, message: Message) -> Result<(), Errno> {
        // SAFETY: there are no elements.
        unsafe { self.control_with(&mut [], NOWHERE, message) }
    }

    /// # Safety
    /// The elements are registered until the request completes.
    unsafe fn control_with(
        &mut self,
        elements: &mut [ibv_sge],
        to: ibv_wr_rdma,
        message: Message,
    ) -> Result<(), Errno> {
        self.controls_left = self.controls_left.saturating_sub(1);
        let mut request = request(elements, to, Some(message), CONTROL, IBV_SEND_SIGNALED);
        // SAFETY: by this function's contract, the elements are registered until the request completes.
        let posted = unsafe { self.queue_pair.post(&mut request) };
        posted.inspect_err(|_| self.closing.end(End::Broken))
    }

    /// Sends credits and a grant, when half of the buffer or half of the receives is free.
    fn give_credits(&mut self) {
        if !self.incoming.owes_credits() || !self.can_control() || !self.peer.is_known() {
            return;
        }
        let (credits, range) = self.incoming.renew();
        let credits = Message::Credits(credits);
        let Some(range) = range else {
            _ = self.control(credits);
            return;
        };
        let piece = self.ranges.place_range(self.peer.range(range));
        let to = self.peer.grant_place();
        // SAFETY: a place is used again only after as many control messages have completed.
        if unsafe { self.control_with(&mut [piece], to, credits) }.is_ok() {
            self.incoming.granted();
            self.peer.granted();
        }
    }

    /// Whether so many bytes may be sent before completions are taken.
    pub(super) fn sends_ahead(&mut self, bytes: usize) -> bool {
        self.ahead += bytes;
        bytes >= AHEAD_FROM && self.ahead <= AHEAD_BYTES_MAX
    }

    /// Whether bytes may be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.can_map() && self.ranges.granted().length > 0
    }

    /// Sends as many bytes as there is room for, and returns how many.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<usize, Errno> {
        let all = bytes.len();
        while !bytes.is_empty() && self.can_send() {
            let target = self.ranges.granted();
            let length = bytes
                .len()
                .min(self.outgoing.room())
                .min(target.length as usize);
            let (now, later) = bytes.split_at(length);
            self.ranges.set_granted(Range {
                address: target.address.wrapping_add(length as u64),
                length: target.length - length as u32,
                ..target
            });
            self.peer.count_message();
            self.transfer(
                now,
                ibv_wr_rdma {
                    remote_addr: target.address,
                    rkey: target.key,
                },
                Some(Message::Data(length as u32)),
            )?;
            bytes = later;
        }
        Ok(all - bytes.len())
    }

    fn transfer(
        &mut self,
        bytes: &[u8],
        to: ibv_wr_rdma,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        let posted = self
            .outgoing
            .transfer(&mut self.queue_pair, bytes, to, message);
        posted.inspect_err(|_| self.closing.end(End::Broken))
    }

    /// Whether everything that was sent is acknowledged, or never will be.
    pub(super) fn is_idle(&self) -> bool {
        !self.closing.may_be_acknowledged()
            || (self.outgoing.is_empty() && self.controls_left == CONTROL_REQUESTS)
    }

    /// Whether received bytes are unread.
    pub(super) fn has_data(&self) -> bool {
        self.incoming.has_data()
    }

    /// Copies received bytes; removes them unless `peek` is set.
    pub(super) fn take(&mut self, to: &mut [u8], peek: bool) -> usize {
        let copied = self.incoming.take(to, peek);
        if !peek {
            self.give_credits();
        }
        copied
    }

    /// Entries of the peer's table of mappings.
    pub(super) fn peer_mappings(&self) -> u32 {
        self.peer.mappings()
    }

    /// Whether this end may send and has a free request and buffer, and the peer a free receive. An entry of
    /// the peer's table of mappings may be written then.
    pub(super) fn can_map(&self) -> bool {
        self.closing.is_writable() && self.outgoing.has_room() && self.peer.has_receive()
    }

    /// Writes an entry of the peer's table of mappings.
    pub(super) fn map(&mut self, index: u32, offset: u64, range: Range) -> Result<(), Errno> {
        let entry = self.peer.mapping(offset, range);
        self.peer.count_message();
        self.transfer(
            &entry,
            self.peer.mapping_place(index),
            Some(Message::Mapping(index)),
        )
    }

    /// Writes to memory that the peer has mapped; returns the number of bytes, or `None` when nothing is
    /// mapped there.
    pub(super) fn write_mapped(
        &mut self,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Option<usize>, Errno> {
        let Some((range, inside)) = self.ranges.mapped(offset) else {
            return Ok(None);
        };
        let room = (u64::from(range.length) - inside) as usize;
        let length = bytes.len().min(self.outgoing.room()).min(room);
        let to = ibv_wr_rdma {
            remote_addr: range.address.wrapping_add(inside),
            rkey: range.key,
        };
        self.transfer(&bytes[..length], to, None)?;
        Ok(Some(length))
    }
}
