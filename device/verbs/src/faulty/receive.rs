//! Receive requests that meet faults.

use crate::context::ContextRef;
use crate::faulty::judge::{device_of, is_status, meet, peer_of};
use crate::limits::SGES;
use crate::packed::borrow;
use crate::post::{elements, gathered};
use crate::qp::QpArg;
use crate::srq::SrqArg;
use crate::traced;
use abi::ibv_recv_wr;
use core::mem::MaybeUninit;
use faults::{Action, Occasion, Opcode, Point, QpKind};
use ffi::{Errno, exports};
use rnic::{Lkey, ReceiveRequest, Sge};

/// A key that no region has.
const NO_REGION: Lkey = Lkey::from_value(u32::MAX);
/// Values of `enum ibv_wc_status`.
const LOC_LEN_ERR: u32 = 1;
const LOC_PROT_ERR: u32 = 4;

/// What is known of a queue before its requests are looked at.
struct Queue<'a> {
    context: &'a ContextRef,
    call: Point,
    occasion: Occasion<'a>,
    /// The number of a shared receive queue.
    srq: Option<u32>,
}

/// Posts receives one after the other, with their faults; the first that fails is written to `bad`.
///
/// A fault is made of what the device does with such a receive: one without room ends in `LOC_LEN_ERR` when
/// a message arrives, one with a wrong key in `LOC_PROT_ERR`, and the peer learns of both.
///
/// # Safety
/// The list is as the manual page of `ibv_post_recv` asks.
unsafe fn receives(
    queue: &Queue<'_>,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&mut host::Poster<'_>, &ReceiveRequest<'_>, u32) -> Result<(), rnic::Error>,
) -> Result<(), Errno> {
    let mut room = [const { MaybeUninit::uninit() }; SGES];
    let mut copy = MaybeUninit::uninit();
    // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
    while let Some(request) = unsafe { borrow(wr, &mut copy) } {
        // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
        let posted = unsafe { elements(request.sg_list, request.num_sge) }.and_then(|list| {
            let mut sges = gathered(list, &mut room).to_vec();
            let refusals = match host::faults::interest().receives {
                true => judge(queue, &mut sges)?,
                false => 0,
            };
            let request = ReceiveRequest {
                id: request.wr_id,
                sges: &sges,
            };
            let device = &queue.context.device;
            Ok(device.post(|poster| post(poster, &request, refusals))?)
        });
        if traced::is_on() {
            // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
            unsafe { traced::received(queue.occasion.qpn, queue.srq, request, &posted) };
        }
        if posted.is_err() {
            // SAFETY: by this function's contract, the list is as the manual page of `ibv_post_recv` asks.
            unsafe { bad.write_unaligned(wr) };
            return posted;
        }
        wr = request.next;
    }
    Ok(())
}

/// Asks the rules about a receive, and changes its elements as they say. Returns how often the message that
/// arrives for it is refused.
fn judge(queue: &Queue<'_>, sges: &mut Vec<Sge>) -> Result<u32, Errno> {
    let size = sges.iter().map(|sge| u64::from(sge.length)).sum();
    let occasion = Occasion {
        size: Some(size),
        ..queue.occasion
    };
    meet(queue.call, &occasion)?;
    let decision = host::faults::decide(&occasion, is_status);
    match decision.map(|decision| decision.action) {
        Some(Action::Status(status)) if status.value() == LOC_LEN_ERR => sges.clear(),
        Some(Action::Status(status)) if status.value() == LOC_PROT_ERR => {
            sges.iter_mut().for_each(|sge| sge.lkey = NO_REGION);
        }
        _ => {}
    }
    let at_call = Occasion {
        point: queue.call,
        ..occasion
    };
    let is_refused = |action| matches!(action, Action::Rnr(_));
    let decision = host::faults::decide(&at_call, is_refused);
    Ok(match decision.map(|decision| decision.action) {
        Some(Action::Rnr(times)) => times,
        _ => 0,
    })
}

exports! {
    fn post_recv(queue: QpArg<'_>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = queue.get()?;
        let device = device_of(&queue.context);
        let occasion = Occasion {
            device: device.as_deref(),
            kind: Some(queue.fault_kind()),
            qpn: Some(queue.qpn.value()),
            peer: peer_of(queue),
            opcode: Some(Opcode::Recv),
            ..Occasion::at(Point::Completion)
        };
        let known = Queue { context: &queue.context, call: Point::Call("post_recv"), occasion, srq: None };
        let post = |poster: &mut host::Poster<'_>, request: &ReceiveRequest<'_>, refusals| {
            poster.receive(queue.qpn, request)?;
            match refusals {
                0 => Ok(()),
                refusals => poster.refuse_last_receive(queue.qpn, refusals),
            }
        };
        // SAFETY: the list is the program's, as the manual page asks.
        unsafe { receives(&known, first, bad, post) }
    }

    fn post_srq_recv(queue: SrqArg<'_>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> code(i32) {
        let queue = queue.get()?;
        let device = device_of(&queue.context);
        let occasion = Occasion {
            device: device.as_deref(),
            // Its queue pairs are RC, XRC or UD: which one takes the receive is not known yet.
            kind: Some(QpKind::Rc),
            opcode: Some(Opcode::Recv),
            ..Occasion::at(Point::Completion)
        };
        let srq = Some(queue.handle.value());
        let known = Queue { context: &queue.context, call: Point::Call("post_srq_recv"), occasion, srq };
        let post = |poster: &mut host::Poster<'_>, request: &ReceiveRequest<'_>, refusals| {
            poster.srq_receive(queue.handle, request)?;
            match refusals {
                0 => Ok(()),
                refusals => poster.refuse_last_shared_receive(queue.handle, refusals),
            }
        };
        // SAFETY: the list is the program's, as the manual page asks.
        unsafe { receives(&known, first, bad, post) }
    }
}
