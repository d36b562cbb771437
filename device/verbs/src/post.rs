//! Work requests from C. Hot path: no allocation.

use crate::address::Ah;
use crate::limits::{INLINE, SGES};
use crate::packed::{Packed, borrow};
use crate::qp::{Qp, QpArg};
use crate::record;
use crate::srq::SrqArg;
use crate::window::binding;
use abi::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use core::mem::MaybeUninit;
use ffi::{Errno, exports};
use rnic::{
    Data, Destination, Lkey, Operation, ReceiveRequest, SendFlags, SendRequest, Sge, Window,
};
use wire::{Qpn, Rkey, Tail};

/// The scatter/gather elements of a request.
///
/// # Safety
/// `count` elements are at `list`.
pub(crate) unsafe fn elements<'a>(
    list: *const ibv_sge,
    count: i32,
) -> Result<&'a [Packed<ibv_sge>], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
    if count == 0 {
        return Ok(&[]);
    }
    if count > SGES || list.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: by this function's contract, `count` elements are at `list`.
    Ok(unsafe { core::slice::from_raw_parts(list.cast(), count) })
}

/// Converts the elements for the device, into an array on the stack.
pub(crate) fn gathered<'a>(
    from: &[Packed<ibv_sge>],
    to: &'a mut [MaybeUninit<Sge>; SGES],
) -> &'a [Sge] {
    for (to, from) in to.iter_mut().zip(from.iter().map(|element| element.get())) {
        to.write(Sge {
            address: from.addr,
            length: from.length,
            lkey: Lkey::from_value(from.lkey),
        });
    }
    // SAFETY: as many have been written; `elements` allows no more than there is room for.
    unsafe { core::slice::from_raw_parts(to.as_ptr().cast(), from.len().min(SGES)) }
}

/// Copies inline data into an array on the stack.
///
/// # Safety
/// The elements name readable memory.
unsafe fn inlined<'a>(
    from: &[Packed<ibv_sge>],
    to: &'a mut [MaybeUninit<u8>; INLINE],
) -> Result<&'a [u8], Errno> {
    let mut end = 0_usize;
    for element in from.iter().map(|element| element.get()) {
        let length = element.length as usize;
        let target = to
            .get_mut(end..end.saturating_add(length))
            .ok_or(Errno::INVALID)?;
        let target = target.as_mut_ptr().cast();
        // SAFETY: by this function's contract, the elements name readable memory, and the target is as long.
        unsafe { core::ptr::copy_nonoverlapping(element.addr as *const u8, target, length) };
        end += length;
    }
    // SAFETY: as many bytes have been written.
    Ok(unsafe { core::slice::from_raw_parts(to.as_ptr().cast(), end) })
}

/// The operation of a request, by its opcode.
///
/// # Safety
/// The fields that the opcode needs are written, and pointers among them are live.
unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Errno> {
    // SAFETY: by this function's contract, the fields that the opcode needs are written, and pointers among
    // them are live; all variants of the union are plain numbers.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (address, rkey) = (rdma.remote_addr, Rkey(rdma.rkey));
    let immediate = wr.imm_data.to_ne_bytes();
    Ok(match wr.opcode {
        abi::IBV_WR_SEND => Operation::Send(Tail::None),
        abi::IBV_WR_SEND_WITH_IMM => Operation::Send(Tail::Immediate(immediate)),
        abi::IBV_WR_SEND_WITH_INV => Operation::Send(Tail::Invalidate(Rkey(wr.imm_data))),
        abi::IBV_WR_RDMA_WRITE => Operation::Write {
            address,
            rkey,
            immediate: None,
        },
        abi::IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write {
            address,
            rkey,
            immediate: Some(immediate),
        },
        abi::IBV_WR_RDMA_READ => Operation::Read { address, rkey },
        abi::IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
            address,
            rkey: Rkey(atomic.rkey),
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        abi::IBV_WR_ATOMIC_FETCH_AND_ADD => Operation::FetchAdd {
            address,
            rkey: Rkey(atomic.rkey),
            add: atomic.compare_add,
        },
        abi::IBV_WR_ATOMIC_WRITE => Operation::AtomicWrite { address, rkey },
        abi::IBV_WR_LOCAL_INV => Operation::LocalInvalidate(Rkey(wr.imm_data)),
        abi::IBV_WR_BIND_MW => {
            let bind = &wr.bind_mw;
            // SAFETY: by this function's contract, the fields that the opcode needs are written, and pointers
            // among them are live.
            let window = unsafe { bind.mw.as_ref() }.ok_or(Errno::INVALID)?;
            // SAFETY: by this function's contract, the fields that the opcode needs are written, and pointers
            // among them are live.
            let binding = unsafe {
                binding(
                    Window::from_value(window.handle),
                    Rkey(bind.rkey),
                    &bind.bind_info,
                )
            }?;
            Operation::BindWindow(binding)
        }
        _ => return Err(Errno::INVALID),
    })
}

/// The destination of a datagram.
///
/// # Safety
/// The request is for a UD queue pair: its address handle is NULL or live.
unsafe fn destination(wr: &ibv_send_wr) -> Result<Destination, Errno> {
    // SAFETY: by this function's contract, the request is for a UD queue pair: its address handle is NULL or
    // live.
    let (ud, ah) = unsafe { (wr.wr.ud, wr.wr.ud.ah.cast::<Ah>().as_ref()) };
    let vector = ah.ok_or(Errno::INVALID)?.vector;
    Ok(Destination {
        vector,
        qpn: Qpn::new(ud.remote_qpn),
        qkey: ud.remote_qkey,
    })
}

/// A queue pair, as its send requests need it.
#[derive(Clone, Copy)]
pub(crate) struct PostedQueue {
    qpn: Qpn,
    qp_type: u32,
    signal_all: bool,
}

impl PostedQueue {
    pub(crate) fn of_qp(queue: &Qp) -> Self {
        Self {
            qpn: queue.qpn,
            qp_type: queue.abi.qp_base.qp_type,
            signal_all: queue.signal_all,
        }
    }
}

/// Posts one request.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
pub(crate) unsafe fn send(
    poster: &mut host::Poster<'_>,
    queue: PostedQueue,
    wr: &ibv_send_wr,
) -> Result<(), Errno> {
    let PostedQueue {
        qpn,
        qp_type,
        signal_all,
    } = queue;
    // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send` asks.
    unsafe {
        with_request(qp_type, wr, |request| {
            poster.send(qpn, request)?;
            if let Some(recorder) = record::active() {
                let signaled = signal_all || wr.send_flags & abi::IBV_SEND_SIGNALED != 0;
                recorder.posted(qpn.value(), wr.opcode, qp_type, &request.data, signaled);
            }
            Ok(())
        })?;
        if wr.opcode == abi::IBV_WR_BIND_MW {
            note_bound(wr);
        }
    }
    Ok(())
}

/// Whether [`send`] would accept a request after `before` others of the same batch. Nothing is changed.
///
/// # Safety
/// As for [`send`].
pub(crate) unsafe fn check_send(
    poster: &host::Poster<'_>,
    queue: PostedQueue,
    wr: &ibv_send_wr,
    before: usize,
) -> Result<(), Errno> {
    // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send` asks.
    unsafe {
        with_request(queue.qp_type, wr, |request| {
            Ok(poster.check_send(queue.qpn, request, before)?)
        })
    }
}

/// A window has the key of its last binding that was posted.
///
/// # Safety
/// The request binds a window, and was posted.
unsafe fn note_bound(wr: &ibv_send_wr) {
    // SAFETY: by this function's contract, the window is live.
    if let Some(window) = unsafe { wr.bind_mw.mw.as_mut() } {
        window.rkey = wr.bind_mw.rkey;
    }
}

/// Calls `take` with a request in the device's form, whose data lies on the stack.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
#[inline(always)]
pub(crate) unsafe fn with_request(
    qp_type: u32,
    wr: &ibv_send_wr,
    take: impl FnOnce(&SendRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut sges = [const { MaybeUninit::uninit() }; SGES];
    let mut bytes = [const { MaybeUninit::uninit() }; INLINE];
    // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send` asks.
    let list = unsafe { elements(wr.sg_list, wr.num_sge) }?;
    let data = if wr.send_flags & abi::IBV_SEND_INLINE != 0 {
        // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send` asks.
        Data::Inline(unsafe { inlined(list, &mut bytes) }?)
    } else {
        Data::Sges(gathered(list, &mut sges))
    };
    take(&SendRequest {
        id: wr.wr_id,
        // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send` asks.
        operation: unsafe { operation(wr) }?,
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        data,
        destination: match qp_type {
            abi::IBV_QPT_UD if wr.opcode != abi::IBV_WR_LOCAL_INV => {
                // SAFETY: by this function's contract, the request is as the manual page of `ibv_post_send`
                // asks.
                Some(unsafe { destination(wr) }?)
            }
            _ => None,
        },
        xrc_srq: (qp_type == abi::IBV_QPT_XRC_SEND).then(|| Qpn::new(wr.xrc_remote_srqn)),
    })
}

/// Posts receives one after the other; the first that fails is written to `bad`.
///
/// # Safety
/// The list is as the manual page of `ibv_post_recv` asks.
unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ReceiveRequest<'_>) -> Result<(), rnic::Error>,
) -> Result<(), Errno> {
    let mut room = [const { MaybeUninit::uninit() }; SGES];
    let mut copy = MaybeUninit::uninit();
    // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
    while let Some(request) = unsafe { borrow(wr, &mut copy) } {
        // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
        let posted = unsafe { elements(request.sg_list, request.num_sge) }.and_then(|list| {
            let sges = gathered(list, &mut room);
            Ok(post(&ReceiveRequest {
                id: request.wr_id,
                sges,
            })?)
        });
        if posted.is_err() {
            // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
            unsafe { bad.write_unaligned(wr) };
            return posted;
        }
        wr = request.next;
    }
    Ok(())
}

exports! {
    fn post_send(raw: QpArg<'_>, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> code(i32) {
        let queue = raw.get()?;
        let posted = PostedQueue::of_qp(queue);
        queue.context.device.post(|poster| {
            let mut wr = first;
            let mut copy = MaybeUninit::uninit();
            // SAFETY: a request of the program's list, or NULL at its end.
            while let Some(request) = unsafe { borrow(wr, &mut copy) } {
                // SAFETY: the program has filled the request in as the manual page asks.
                if let Err(errno) = unsafe { send(poster, posted, request) } {
                    // SAFETY: the program has room for the request that failed.
                    unsafe { bad.write_unaligned(wr) };
                    return Err(errno);
                }
                wr = request.next;
            }
            Ok(())
        })
    }

    fn post_recv(queue: QpArg<'_>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = queue.get()?;
        queue.context.device.post(|poster| {
            let post = |request: &ReceiveRequest<'_>| {
                poster.receive(queue.qpn, request)?;
                if let Some(recorder) = record::active() {
                    let room = request.sges.iter().fold(0_u32, |sum, sge| sum.saturating_add(sge.length));
                    recorder.receives(queue.qpn.value(), room);
                }
                Ok(())
            };
            // SAFETY: the list is the program's, as the manual page asks.
            unsafe { receives(first, bad, post) }
        })
    }

    fn post_srq_recv(queue: SrqArg<'_>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = queue.get()?;
        queue.context.device.post(|poster| {
            let post = |request: &ReceiveRequest<'_>| poster.srq_receive(queue.handle, request);
            // SAFETY: the list is the program's, as the manual page asks.
            unsafe { receives(first, bad, post) }
        })
    }
}
