//! Targets that a message of the peer names: memory by a key, or a shared receive queue.

use crate::access::Access;
use crate::handle::{Pd, Srq};
use crate::memory::Piece;
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::refusal::Refusal;
use wire::{Packet, Rkey};

/// The shared receive queue of a message. An XRC message names it, and it must be in the queue pair's domain
/// (IBTA A14.4).
#[inline(always)]
pub(super) fn shared_queue(cx: &Context<'_>, packet: &Packet) -> Result<Option<Srq>, Refusal> {
    if cx.qp.kind != QpType::XrcReceive {
        return Ok(cx.qp.init.srq);
    }
    let number = packet
        .xrc_srq
        .and_then(|number| cx.resources.srqs.by_number(number));
    let srq = number.ok_or(Refusal::Invalid)?;
    let domain = cx
        .resources
        .srqs
        .get(srq)
        .and_then(|srq| srq.xrc)
        .map(|(xrcd, _)| xrcd);
    if domain.is_some() && domain == cx.qp.init.xrcd {
        Ok(Some(srq))
    } else {
        Err(Refusal::Invalid)
    }
}

/// The protection domain of a receive: an SRQ has its own.
pub(super) fn receive_pd(cx: &Context<'_>, srq: Option<Srq>) -> Pd {
    srq.and_then(|srq| cx.resources.srqs.get(srq))
        .map_or(cx.qp.pd(), |srq| srq.pd)
}

/// The memory that the peer names; `None` for a transfer of no bytes, which needs no key (IBTA 9.7.4.1.5).
#[inline(always)]
pub(super) fn remote_piece(
    cx: &Context<'_>,
    packet: &Packet,
    rkey: Rkey,
    address: u64,
    length: u32,
    need: Access,
) -> Result<Option<Piece>, Refusal> {
    if length == 0 {
        return Ok(None);
    }
    let pd = match cx.qp.kind {
        QpType::XrcReceive => receive_pd(cx, shared_queue(cx, packet)?),
        _ => cx.qp.pd(),
    };
    let piece = cx
        .resources
        .regions
        .remote(pd, cx.qp.qpn, rkey, address, length, need);
    piece.map(Some).ok_or(Refusal::Access)
}
