//! Send requests that meet faults.

use crate::faulty::judge::{device_of, is_status, meet, peer_of};
use crate::packed::{Packed, borrow};
use crate::post::{self, PostedQueue, with_request};
use crate::qp::{Qp, QpArg};
use crate::traced;
use abi::{ibv_send_wr, ibv_sge};
use core::mem::MaybeUninit;
use faults::{Action, Occasion, Opcode, Point, QpKind, WcStatus};
use ffi::{Errno, exports};
use rnic::{CompletionKind, Data, Operation, SendRequest, Status};

/// What the rules say about the requests of one call, in their order.
#[derive(Default)]
pub(super) struct Verdict {
    /// The status of each request that is posted.
    pub(super) statuses: Vec<Option<WcStatus>>,
    /// The error number of the request behind these.
    pub(super) refused: Option<Errno>,
}

/// The opcode of a request, as rules name it; `None` for one that the device refuses.
fn opcode(wr: &ibv_send_wr) -> Option<Opcode> {
    Some(match wr.opcode {
        abi::IBV_WR_SEND => Opcode::Send,
        abi::IBV_WR_SEND_WITH_IMM => Opcode::SendWithImm,
        abi::IBV_WR_SEND_WITH_INV => Opcode::SendWithInv,
        abi::IBV_WR_RDMA_WRITE => Opcode::RdmaWrite,
        abi::IBV_WR_RDMA_WRITE_WITH_IMM => Opcode::RdmaWriteWithImm,
        abi::IBV_WR_RDMA_READ => Opcode::RdmaRead,
        abi::IBV_WR_ATOMIC_CMP_AND_SWP => Opcode::CompareSwap,
        abi::IBV_WR_ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd,
        abi::IBV_WR_ATOMIC_WRITE => Opcode::AtomicWrite,
        abi::IBV_WR_LOCAL_INV => Opcode::LocalInv,
        abi::IBV_WR_BIND_MW => Opcode::BindMw,
        _ => return None,
    })
}

/// The operation that a completion names for an opcode.
const fn completion_kind(opcode: Opcode) -> CompletionKind {
    match opcode {
        Opcode::Send | Opcode::SendWithImm | Opcode::SendWithInv => CompletionKind::Send,
        Opcode::RdmaWrite | Opcode::RdmaWriteWithImm => CompletionKind::Write,
        Opcode::RdmaRead => CompletionKind::Read,
        Opcode::CompareSwap => CompletionKind::CompareSwap,
        Opcode::FetchAdd => CompletionKind::FetchAdd,
        Opcode::AtomicWrite => CompletionKind::AtomicWrite,
        Opcode::LocalInv => CompletionKind::LocalInvalidate,
        Opcode::BindMw => CompletionKind::BindWindow,
        Opcode::Recv => CompletionKind::Receive,
    }
}

/// The device's name for a status that a rule asks for.
const fn status(wanted: WcStatus) -> Status {
    match wanted.value() {
        1 => Status::LocalLength,
        2 => Status::LocalQpOperation,
        4 => Status::LocalProtection,
        5 => Status::Flushed,
        6 => Status::WindowBind,
        7 => Status::BadResponse,
        9 => Status::RemoteInvalidRequest,
        10 => Status::RemoteAccess,
        11 => Status::RemoteOperation,
        12 => Status::RetryExceeded,
        13 => Status::RnrRetryExceeded,
        16 => Status::RemoteAborted,
        19 => Status::Fatal,
        20 => Status::ResponseTimeout,
        _ => Status::General,
    }
}

/// Bytes of a request.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
unsafe fn size(wr: &ibv_send_wr) -> u64 {
    let count = usize::try_from(wr.num_sge).unwrap_or(0);
    if wr.sg_list.is_null() || count == 0 {
        return 0;
    }
    // SAFETY: by this function's contract, as many elements are there.
    let list = unsafe { core::slice::from_raw_parts(wr.sg_list.cast::<Packed<ibv_sge>>(), count) };
    list.iter().map(|one| u64::from(one.get().length)).sum()
}

/// Whether a rule could apply to a request. Takes no lock: most rules are not about most requests.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
pub(super) unsafe fn may_apply(queue: &Qp, wr: &ibv_send_wr, sends: u32) -> bool {
    opcode(wr).is_some_and(|opcode| {
        // SAFETY: by this function's contract.
        let size = || unsafe { size(wr) };
        sends & opcode.bit() != 0 && host::faults::may_apply(opcode, queue.qpn.value(), size())
    })
}

/// Asks the rules about the requests of one call, and waits where they say so.
///
/// # Safety
/// The requests are as the manual page of `ibv_post_send` asks.
pub(super) unsafe fn judge<'a>(
    queue: &Qp,
    requests: impl Iterator<Item = &'a ibv_send_wr>,
) -> Verdict {
    let (device, peer) = (device_of(&queue.context), peer_of(queue));
    let mut verdict = Verdict::default();
    for wr in requests {
        let occasion = Occasion {
            device: device.as_deref(),
            kind: Some(queue.fault_kind()),
            qpn: Some(queue.qpn.value()),
            peer,
            opcode: opcode(wr),
            // SAFETY: by this function's contract.
            size: Some(unsafe { size(wr) }),
            ..Occasion::at(Point::Completion)
        };
        if let Err(errno) = meet(Point::Call("post_send"), &occasion) {
            verdict.refused = Some(errno);
            break;
        }
        let decision = host::faults::decide(&occasion, is_status);
        verdict
            .statuses
            .push(decision.and_then(|decision| match decision.action {
                Action::Status(status) => Some(status),
                _ => None,
            }));
    }
    verdict
}

/// Posts a request, which fails with a status if there is one.
///
/// # Safety
/// The request is as the manual page of `ibv_post_send` asks.
pub(super) unsafe fn send(
    poster: &mut host::Poster<'_>,
    queue: &Qp,
    wr: &ibv_send_wr,
    wanted: Option<WcStatus>,
) -> Result<(), Errno> {
    let posted = PostedQueue::of_qp(queue);
    let (Some(wanted), Some(opcode)) = (wanted, opcode(wr)) else {
        // SAFETY: by this function's contract.
        return unsafe { post::send(poster, posted, wr) };
    };
    let operation = Operation::Fault {
        status: status(wanted),
        kind: completion_kind(opcode),
    };
    let post = |request: &SendRequest<'_>| {
        // A request that the device would refuse is refused all the same.
        poster.check_send(queue.qpn, request, 0)?;
        let data = match request.data {
            // What is inline is not sent, and may be longer than a fault's entry has room for.
            Data::Inline(_) => Data::Sges(&[]),
            sges @ Data::Sges(_) => sges,
        };
        Ok(poster.send(
            queue.qpn,
            &SendRequest {
                operation,
                data,
                ..*request
            },
        )?)
    };
    // SAFETY: by this function's contract.
    unsafe { with_request(queue.abi.qp_base.qp_type, wr, post) }
}

/// What the rules say about a program's list of requests; nothing where no rule could apply to one.
///
/// # Safety
/// The list is as the manual page of `ibv_post_send` asks.
unsafe fn judged(queue: &Qp, first: *mut ibv_send_wr) -> Verdict {
    let sends = host::faults::interest().sends;
    let (mut wr, mut copy, mut applies) = (first, MaybeUninit::uninit(), false);
    if sends == 0 {
        return Verdict::default();
    }
    // SAFETY: a request of the program's list, or NULL at its end.
    while let Some(request) = unsafe { borrow(wr, &mut copy) } {
        // SAFETY: by this function's contract.
        applies |= unsafe { may_apply(queue, request, sends) };
        wr = request.next;
    }
    if !applies {
        return Verdict::default();
    }
    let (mut wr, mut requests) = (first, Vec::new());
    // SAFETY: a request of the program's list, or NULL at its end.
    while let Some(request) = unsafe { borrow(wr, &mut copy) } {
        requests.push(*request);
        wr = request.next;
    }
    // SAFETY: by this function's contract.
    unsafe { judge(queue, requests.iter()) }
}

exports! {
    fn post_send(raw: QpArg<'_>, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> code(i32) {
        let queue = raw.get()?;
        // SAFETY: the list is the program's, as the manual page asks.
        let verdict = unsafe { judged(queue, first) };
        queue.context.device.post(|poster| {
            let (mut wr, mut copy) = (first, MaybeUninit::uninit());
            let mut statuses = verdict.statuses.iter();
            // SAFETY: a request of the program's list, or NULL at its end.
            while let Some(request) = unsafe { borrow(wr, &mut copy) } {
                let posted = match (statuses.next(), verdict.refused) {
                    (None, Some(errno)) => Err(errno),
                    // SAFETY: the program has filled the request in as the manual page asks.
                    (wanted, _) => unsafe { send(poster, queue, request, wanted.copied().flatten()) },
                };
                if traced::is_on() {
                    let is_datagram = queue.fault_kind() == QpKind::Ud;
                    // SAFETY: the program has filled the request in as the manual page asks.
                    unsafe { traced::sent(queue.qpn, is_datagram, request, &posted) };
                }
                if let Err(errno) = posted {
                    // SAFETY: the program has room for the request that failed.
                    unsafe { bad.write_unaligned(wr) };
                    return Err(errno);
                }
                wr = request.next;
            }
            Ok(())
        })
    }
}
