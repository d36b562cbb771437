//! The sending side of a stream: a ring of bytes that are not acknowledged yet, and the requests that send
//! them.

use super::buffer::Buffer;
use super::protocol::{LENGTH_MAX, Message};
use super::queue_pair::QueuePair;
use super::sizes::{CONTROL_REQUESTS, Sizes};
use super::writes::{packet_bytes, request, tail_bytes};
use abi::{IBV_SEND_INLINE, IBV_SEND_SIGNALED, ibv_pd, ibv_sge, ibv_wr_rdma};
use ffi::Errno;

/// Bytes of one WRITE at most.
const TRANSFER_BYTES_MAX: usize = 64 << 10;
/// Bytes of free send buffer below which sending does not start (rdma-core's low-water mark), so that a
/// writer is not woken for a few bytes.
const LOW_WATER_BYTES: usize = 2048;
/// The length, in work request IDs.
const LENGTH: u64 = LENGTH_MAX as u64;

/// Bytes on their way to the peer.
pub(super) struct Outgoing {
    ring: Buffer,
    at: usize,
    free: usize,
    requests_left: u32,
    /// Path MTU, if longer messages are sent by two requests.
    mtu: usize,
    /// Payload of the packets of the last message that was sent by two requests; 0 where they differed.
    packet: usize,
}

impl Outgoing {
    /// # Safety
    /// `pd` outlives this.
    pub(super) unsafe fn new(pd: *mut ibv_pd, sizes: &Sizes) -> Result<Self, Errno> {
        // SAFETY: by this function's contract, `pd` outlives the buffer.
        let ring = unsafe { Buffer::new(pd, sizes.send_bytes, 0) }?;
        let requests_left = sizes.sends.saturating_sub(CONTROL_REQUESTS);
        Ok(Self {
            at: 0,
            free: ring.length(),
            ring,
            requests_left,
            mtu: usize::MAX,
            packet: 0,
        })
    }

    /// Sends messages that are longer than the path MTU by two requests.
    pub(super) fn split_above(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Whether there are a free request and free room.
    pub(super) fn has_room(&self) -> bool {
        self.requests_left > 0 && self.free >= LOW_WATER_BYTES.min(self.ring.length())
    }

    /// Bytes that one transfer may have now.
    pub(super) fn room(&self) -> usize {
        TRANSFER_BYTES_MAX.min(self.free)
    }

    /// Whether everything is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.free == self.ring.length()
    }

    /// A transfer has completed: its room is free again.
    pub(super) fn complete(&mut self, wr_id: u64) {
        self.requests_left += 1;
        self.free += (wr_id & LENGTH) as usize;
    }

    /// Writes bytes to the peer's memory: inline if they are few, otherwise from the ring. There have to be a
    /// free request and room for the bytes.
    pub(super) fn transfer(
        &mut self,
        queue_pair: &mut QueuePair,
        bytes: &[u8],
        to: ibv_wr_rdma,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        let length = bytes.len();
        self.requests_left -= 1;
        self.free -= length;
        if length <= queue_pair.inline_bytes() {
            let mut piece = [ibv_sge {
                addr: bytes.as_ptr() as u64,
                length: length as u32,
                lkey: 0,
            }];
            let flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
            // SAFETY: inline bytes are read before the call returns.
            return unsafe {
                queue_pair.post(&mut request(&mut piece, to, message, length as u64, flags))
            };
        }
        self.ring.copy_in(self.at, bytes);
        let at = self.at;
        self.at = (at + length) % self.ring.length();
        let Some(tail) = tail_bytes(length, self.mtu, self.packet).filter(|_| message.is_some())
        else {
            let (mut pieces, count) = self.ring.pieces(at, length);
            let mut whole = request(
                &mut pieces[..count],
                to,
                message,
                length as u64,
                IBV_SEND_SIGNALED,
            );
            // SAFETY: the room counts as used until the request has completed.
            return unsafe { queue_pair.post(&mut whole) };
        };
        let body = length - tail;
        self.packet = packet_bytes(body, self.mtu).unwrap_or(0);
        let (mut pieces, count) = self.ring.pieces(at, body);
        let (mut last, last_count) = self.ring.pieces((at + body) % self.ring.length(), tail);
        let behind = ibv_wr_rdma {
            remote_addr: to.remote_addr.wrapping_add(body as u64),
            ..to
        };
        let mut announced = request(
            &mut last[..last_count],
            behind,
            message,
            length as u64,
            IBV_SEND_SIGNALED,
        );
        let mut first = request(&mut pieces[..count], to, None, 0, 0);
        first.next = &mut announced;
        // SAFETY: the room counts as used until the request has completed; the second completes after the
        // first.
        unsafe { queue_pair.post(&mut first) }
    }
}
