//! The UD queue pair of one local address. A socket that is not bound to an address has one for each that it
//! uses.

use super::header;
use crate::buffer::Buffer;
use crate::completions::{BATCH, Completions};
use crate::sizes::Sizes;
use abi::{
    IBV_QPT_UD, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_GRH, IBV_WR_SEND, ibv_ah, ibv_cq,
    ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc, ibv_wr_remote, ibv_wr_ud,
    rdma_cm_id,
};
use ffi::Errno;
use rdma_cm::sockaddr;
use rdma_cm::verbs::{self, verbs};
use rdma_cm::{HOP_LIMIT, address_vector, attach_device, rdma_bind_addr, rdma_create_qp};
use rdma_cm::{rdma_create_id, rdma_destroy_id};
use rnic::Path;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;

/// `IBV_ACCESS_LOCAL_WRITE` (`enum ibv_access_flags`).
const LOCAL_WRITE: u32 = 1;
/// Bytes of a slot, headers of rsockets included: as in rdma-core.
const SLOT_BYTES: usize = 2048;
/// Bytes of the global route header, which a UD queue pair stores before the payload.
const GRH_BYTES: usize = 40;
/// Receive slots are aligned to cache lines.
const RECEIVE_STRIDE: usize = (GRH_BYTES + SLOT_BYTES).next_multiple_of(64);
/// Marks work request IDs of receives; the other bits are the slot.
const RECEIVE: u64 = 1 << 63;

/// A peer's queue pair, and the address handle to it.
pub(super) struct Destination {
    ah: *mut ibv_ah,
    pub(super) qpn: u32,
}

// SAFETY: an address handle may be used and destroyed from any thread.
unsafe impl Send for Destination {}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Ok(verbs) = verbs() {
            // SAFETY: ours.
            unsafe { (verbs.ibv_destroy_ah)(self.ah) };
        }
    }
}

/// A received datagram in a slot.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) from: SocketAddr,
    slot: u32,
    offset: u32,
    pub(super) length: u32,
}

/// An identifier that this owns.
struct Identifier(*mut rdma_cm_id);

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: ours; its queue pair is gone.
        unsafe { rdma_destroy_id(self.0) };
    }
}

/// The UD queue pair, with its buffers.
pub(super) struct UdQp {
    pub(super) address: IpAddr,
    pub(super) completions: Completions,
    id: Identifier,
    inline_bytes: usize,
    outgoing: Buffer,
    /// Slots of `outgoing` that are free.
    free: Vec<u32>,
    slots: usize,
    incoming: Buffer,
    /// Longest datagram in bytes, the rsocket header included.
    packet_bytes: usize,
}

// SAFETY: the objects behind the pointers belong to this, and verbs may be called from any thread.
unsafe impl Send for UdQp {}

impl UdQp {
    /// Creates the queue pair of a local address, whose interface must have a device.
    pub(super) fn new(address: IpAddr, sizes: &Sizes) -> Result<Self, Errno> {
        let mut raw: *mut rdma_cm_id = null_mut();
        // SAFETY: the place is ours; without a channel the identifier is synchronous.
        Errno::check_code(unsafe {
            rdma_create_id(null_mut(), &mut raw, null_mut(), abi::RDMA_PS_UDP)
        })?;
        let id = Identifier(raw);
        let local = sockaddr::storage(SocketAddr::new(address, 0));
        // SAFETY: the identifier is used here only, and created objects belong to it or to the new value.
        unsafe {
            Errno::check_code(rdma_bind_addr(raw, local.as_ptr().cast()))?;
            let device = attach_device(rdma_cm::id(raw)?, address)?;
            let pd = device.pd()?;
            let slots = slots(sizes.sends, sizes.send_bytes);
            let receives = slots_of_receives(sizes);
            let outgoing = Buffer::new(pd, slots as usize * SLOT_BYTES, 0)?;
            let incoming = Buffer::new(pd, receives as usize * RECEIVE_STRIDE, LOCAL_WRITE)?;
            let completions = Completions::new((*raw).verbs, slots + receives)?;
            let inline_bytes = make_queue_pair(
                raw,
                completions.queue(),
                slots,
                receives,
                sizes.inline_bytes,
            )?;
            let mut ud_qp = Self {
                address,
                completions,
                id,
                inline_bytes,
                outgoing,
                free: (0..slots).collect(),
                slots: slots as usize,
                incoming,
                packet_bytes: (128_usize << device.active_mtu()).min(SLOT_BYTES),
            };
            (0..receives).try_for_each(|slot| ud_qp.post_receive(slot))?;
            ud_qp.completions.arm()?;
            Ok(ud_qp)
        }
    }

    /// The queue pair number, to which peers send.
    pub(super) fn qpn(&self) -> u32 {
        // SAFETY: the identifier and its queue pair are ours.
        unsafe { (*(*self.id.0).qp).qp_num }
    }

    /// Creates an address handle to a peer's queue pair.
    pub(super) fn destination(&self, to: IpAddr, qpn: u32) -> Result<Destination, Errno> {
        // SAFETY: the identifier is ours.
        let this = unsafe { rdma_cm::id(self.id.0) }?;
        let path = Path {
            source: sockaddr::gid(self.address),
            destination: sockaddr::gid(to),
            hop_limit: HOP_LIMIT,
            ..Path::default()
        };
        let mut attr = address_vector(this, &path)?;
        // SAFETY: the domain is that of the queue pair.
        let ah = unsafe { (verbs()?.ibv_create_ah)((*self.id.0).pd, &mut attr) };
        Ok(Destination {
            ah: Errno::check_pointer(ah)?,
            qpn,
        })
    }

    /// Whether a datagram of `length` bytes and its header fit in one packet.
    pub(super) fn fits(&self, length: usize) -> bool {
        length + header::SOURCE_BYTES_MAX <= self.packet_bytes
    }

    /// Whether a send slot is free.
    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether no datagram is being sent.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Sends a datagram; `false` if no slot is free.
    pub(super) fn send(
        &mut self,
        header: &[u8],
        pieces: &[&[u8]],
        destination: &Destination,
    ) -> Result<bool, Errno> {
        let Some(slot) = self.free.pop() else {
            return Ok(false);
        };
        let start = slot as usize * SLOT_BYTES;
        let mut at = start;
        for piece in [header].iter().chain(pieces) {
            self.outgoing.copy_in(at, piece);
            at += piece.len();
        }
        let length = at - start;
        let ([mut piece, _], _) = self.outgoing.pieces(start, length);
        let mut request = ibv_send_wr {
            wr_id: slot.into(),
            next: null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED
                | if length <= self.inline_bytes {
                    IBV_SEND_INLINE
                } else {
                    0
                },
            imm_data: 0,
            wr: ibv_wr_remote {
                ud: ibv_wr_ud {
                    ah: destination.ah,
                    remote_qpn: destination.qpn,
                    remote_qkey: abi::RDMA_UDP_QKEY,
                },
            },
            xrc_remote_srqn: 0,
            // SAFETY: not looked at; zeros are a valid value.
            bind_mw: unsafe { core::mem::zeroed() },
        };
        let mut bad = null_mut();
        // SAFETY: the slot is ours until its request has completed.
        let posted =
            Errno::check_code(unsafe { verbs::post_send((*self.id.0).qp, &mut request, &mut bad) });
        posted.inspect_err(|_| self.free.push(slot))?;
        Ok(true)
    }

    /// Takes completions, and passes on the datagrams that have arrived.
    pub(super) fn progress(&mut self, mut arrived: impl FnMut(Arrival)) {
        loop {
            let mut completions = [ibv_wc::default(); BATCH];
            let completions = self.completions.take(&mut completions).unwrap_or_default();
            for completion in completions {
                let slot = completion.wr_id as u32;
                if completion.wr_id & RECEIVE == 0 {
                    self.free.push(slot);
                } else if let Some(arrival) = self.arrival(slot, completion) {
                    arrived(arrival);
                } else if completion.status == 0 {
                    // The header is invalid. If the queue pair has failed, the next send reports it.
                    _ = self.post_receive(slot);
                }
            }
            if completions.len() < BATCH {
                break;
            }
        }
    }

    /// The datagram in a slot; `None` if its header is invalid.
    fn arrival(&self, slot: u32, completion: &ibv_wc) -> Option<Arrival> {
        let is_whole = completion.status == 0 && completion.wc_flags & IBV_WC_GRH != 0;
        let length = (completion.byte_len as usize)
            .checked_sub(GRH_BYTES)
            .filter(|_| is_whole)?;
        let start = slot as usize * RECEIVE_STRIDE;
        let route: [u8; GRH_BYTES] = self.incoming.read(start);
        let head: [u8; header::SOURCE_BYTES_MAX] = self.incoming.read(start + GRH_BYTES);
        let (from, header) = header::source(head.get(..length.min(head.len()))?, &route)?;
        let length = length.checked_sub(header)? as u32;
        Some(Arrival {
            from,
            slot,
            offset: (GRH_BYTES + header) as u32,
            length,
        })
    }

    /// Copies a datagram from `at` on; returns the number of bytes copied.
    pub(super) fn copy(&self, arrival: &Arrival, at: usize, to: &mut [u8]) -> usize {
        let length = (arrival.length as usize).saturating_sub(at).min(to.len());
        let start = arrival.slot as usize * RECEIVE_STRIDE + arrival.offset as usize + at;
        self.incoming.take(start, &mut to[..length]);
        length
    }

    /// Posts the datagram's slot as a receive again.
    pub(super) fn release(&mut self, arrival: &Arrival) -> Result<(), Errno> {
        self.post_receive(arrival.slot)
    }

    fn post_receive(&mut self, slot: u32) -> Result<(), Errno> {
        let ([mut piece, _], _) = self
            .incoming
            .pieces(slot as usize * RECEIVE_STRIDE, GRH_BYTES + SLOT_BYTES);
        let mut request = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(slot),
            next: null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: the slot is not used otherwise until the request completes.
        Errno::check_code(unsafe { verbs::post_recv((*self.id.0).qp, &mut request, &mut bad) })
    }
}

/// # Safety
/// The identifier has a device and no queue pair.
unsafe fn make_queue_pair(
    raw: *mut rdma_cm_id,
    cq: *mut ibv_cq,
    sends: u32,
    receives: u32,
    inline_bytes: u32,
) -> Result<usize, Errno> {
    let mut attr = ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        },
        qp_type: IBV_QPT_UD,
        sq_sig_all: 0,
    };
    // SAFETY: by this function's contract, the identifier has a device and no queue pair.
    Errno::check_code(unsafe { rdma_create_qp(raw, null_mut(), &mut attr) })?;
    Ok(attr.cap.max_inline_data as usize)
}

/// Slots: as many as the queue has requests and the memory has room for.
fn slots(requests: u32, bytes: usize) -> u32 {
    requests.min((bytes / SLOT_BYTES) as u32).max(1)
}

/// Receive slots, and so unread datagrams, at most.
pub(super) fn slots_of_receives(sizes: &Sizes) -> u32 {
    slots(sizes.receives, sizes.receive_bytes)
}

impl Drop for UdQp {
    fn drop(&mut self) {
        // SAFETY: created by this; its buffers and completion queue are dropped later.
        unsafe { rdma_cm::rdma_destroy_qp(self.id.0) };
    }
}
