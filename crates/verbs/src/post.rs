//! Work requests from C. Hot: no allocation.

use crate::address::Ah;
use crate::context::context;
use crate::memory::binding;
use crate::qp::qp;
use crate::srq::srq;
use abi::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};
use core::mem::MaybeUninit;
use door::{Errno, door};
use rnic::{Data, Destination, Lkey, Operation, ReceiveRequest, SendFlags, SendRequest, Sge, Window};
use wire::{Qpn, Rkey, Tail};

/// Elements per work request at most: what `max_sge` of the device says.
pub(crate) const SGES: usize = 32;
/// Inline bytes at most: what the device allows.
pub(crate) const INLINE: usize = 1024;

/// The elements of a request.
///
/// # Safety
/// `count` elements are at `list`.
unsafe fn elements<'a>(list: *const ibv_sge, count: i32) -> Result<&'a [ibv_sge], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
    if count == 0 {
        return Ok(&[]);
    }
    if count > SGES || list.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    Ok(unsafe { core::slice::from_raw_parts(list, count) })
}

/// The elements as the device wants them, in room on the stack.
fn gathered<'a>(from: &[ibv_sge], to: &'a mut [MaybeUninit<Sge>; SGES]) -> &'a [Sge] {
    for (to, from) in to.iter_mut().zip(from) {
        to.write(Sge { address: from.addr, length: from.length, lkey: Lkey::from_value(from.lkey) });
    }
    // SAFETY: as many have been written; `elements` allows no more than there is room for.
    unsafe { core::slice::from_raw_parts(to.as_ptr().cast(), from.len().min(SGES)) }
}

/// Copies inline data together, to room on the stack.
///
/// # Safety
/// The elements name readable memory.
unsafe fn inlined<'a>(from: &[ibv_sge], to: &'a mut [MaybeUninit<u8>; INLINE]) -> Result<&'a [u8], Errno> {
    let mut end = 0_usize;
    for element in from {
        let length = element.length as usize;
        let target = to.get_mut(end..end.saturating_add(length)).ok_or(Errno::INVALID)?;
        let target = target.as_mut_ptr().cast();
        // SAFETY: as above, and the target is as long.
        unsafe { core::ptr::copy_nonoverlapping(element.addr as *const u8, target, length) };
        end += length;
    }
    // SAFETY: as many bytes have been written.
    Ok(unsafe { core::slice::from_raw_parts(to.as_ptr().cast(), end) })
}

/// What to do, by the opcode.
///
/// # Safety
/// The fields that the opcode needs are written, and pointers among them are live.
unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Errno> {
    // SAFETY: as above; all variants of the union are plain numbers.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (address, rkey) = (rdma.remote_addr, Rkey(rdma.rkey));
    let immediate = wr.imm_data.to_ne_bytes();
    Ok(match wr.opcode {
        abi::IBV_WR_SEND => Operation::Send(Tail::None),
        abi::IBV_WR_SEND_WITH_IMM => Operation::Send(Tail::Immediate(immediate)),
        abi::IBV_WR_SEND_WITH_INV => Operation::Send(Tail::Invalidate(Rkey(wr.imm_data))),
        abi::IBV_WR_RDMA_WRITE => Operation::Write { address, rkey, immediate: None },
        abi::IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write { address, rkey, immediate: Some(immediate) },
        abi::IBV_WR_RDMA_READ => Operation::Read { address, rkey },
        abi::IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
            address,
            rkey: Rkey(atomic.rkey),
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        abi::IBV_WR_ATOMIC_FETCH_AND_ADD => {
            Operation::FetchAdd { address, rkey: Rkey(atomic.rkey), add: atomic.compare_add }
        }
        abi::IBV_WR_ATOMIC_WRITE => Operation::AtomicWrite { address, rkey },
        abi::IBV_WR_LOCAL_INV => Operation::LocalInvalidate(Rkey(wr.imm_data)),
        abi::IBV_WR_BIND_MW => {
            let bind = &wr.bind_mw;
            // SAFETY: as above.
            let window = unsafe { bind.mw.as_mut() }.ok_or(Errno::INVALID)?;
            // SAFETY: as above.
            let binding =
                unsafe { binding(Window::from_value(window.handle), Rkey(bind.rkey), &bind.bind_info) }?;
            window.rkey = bind.rkey;
            Operation::BindWindow(binding)
        }
        _ => return Err(Errno::INVALID),
    })
}

/// Where a datagram goes.
///
/// # Safety
/// The request is one for a UD queue pair: its address handle is NULL or live.
unsafe fn destination(wr: &ibv_send_wr) -> Result<Destination, Errno> {
    // SAFETY: as above.
    let (ud, ah) = unsafe { (wr.wr.ud, wr.wr.ud.ah.cast::<Ah>().as_ref()) };
    let vector = ah.ok_or(Errno::INVALID)?.vector;
    Ok(Destination { vector, qpn: Qpn::new(ud.remote_qpn), qkey: ud.remote_qkey })
}

/// Posts one request.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
pub(crate) unsafe fn send(
    poster: &mut host::Poster<'_>,
    qpn: Qpn,
    qp_type: u32,
    wr: &ibv_send_wr,
) -> Result<(), Errno> {
    let mut sges = [const { MaybeUninit::uninit() }; SGES];
    let mut bytes = [const { MaybeUninit::uninit() }; INLINE];
    // SAFETY: as above.
    let list = unsafe { elements(wr.sg_list, wr.num_sge) }?;
    let data = if wr.send_flags & abi::IBV_SEND_INLINE != 0 {
        // SAFETY: as above.
        Data::Inline(unsafe { inlined(list, &mut bytes) }?)
    } else {
        Data::Sges(gathered(list, &mut sges))
    };
    let request = SendRequest {
        id: wr.wr_id,
        // SAFETY: as above.
        operation: unsafe { operation(wr) }?,
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        data,
        destination: match qp_type {
            // SAFETY: as above.
            abi::IBV_QPT_UD if wr.opcode != abi::IBV_WR_LOCAL_INV => Some(unsafe { destination(wr) }?),
            _ => None,
        },
        xrc_srq: (qp_type == abi::IBV_QPT_XRC_SEND).then(|| Qpn::new(wr.xrc_remote_srqn)),
    };
    Ok(poster.send(qpn, &request)?)
}

/// Posts receives, one after the other; the first that fails is told.
///
/// # Safety
/// The list is as the manual page of `ibv_post_recv` asks.
unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ReceiveRequest<'_>) -> Result<(), rnic::Error>,
) -> Result<(), Errno> {
    let mut room = [const { MaybeUninit::uninit() }; SGES];
    // SAFETY: as above.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        let posted = unsafe { elements(request.sg_list, request.num_sge) }.and_then(|list| {
            let sges = gathered(list, &mut room);
            Ok(post(&ReceiveRequest { id: request.wr_id, sges })?)
        });
        if posted.is_err() {
            // SAFETY: as above.
            unsafe { *bad = wr };
            return posted;
        }
        wr = request.next;
    }
    Ok(())
}

door! {
    fn post_send(raw: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> code(i32) {
        let (queue, kind) = (qp(raw)?, (*raw).qp_type);
        context((*raw).context).device.post(|poster| {
            let mut wr = first;
            while let Some(request) = wr.as_ref() {
                if let Err(errno) = send(poster, queue.qpn, kind, request) {
                    *bad = wr;
                    return Err(errno);
                }
                wr = request.next;
            }
            Ok(())
        })
    }

    fn post_recv(raw: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = qp(raw)?;
        context((*raw).context)
            .device
            .post(|poster| receives(first, bad, |request| poster.receive(queue.qpn, request)))
    }

    fn post_srq_recv(raw: *mut ibv_srq, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = srq(raw)?;
        context((*raw).context)
            .device
            .post(|poster| receives(first, bad, |request| poster.srq_receive(queue.handle, request)))
    }
}
