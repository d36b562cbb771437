//! Completion queues some of whose completions are reported late.

use crate::cq::Cq;
use crate::faulty::judge::{device_of, peer_of};
use crate::held;
use crate::qp::Qp;
use faults::{Action, Occasion, Opcode, Point};
use rnic::{Completion, CompletionKind, Extra};
use std::sync::Arc;
use std::time::Duration;

/// The operation of a completion, as rules name it. Those with immediate data or an invalidated key are not
/// told from those without: the completion of the sender does not say.
const fn opcode(completion: &Completion) -> Opcode {
    match completion.kind {
        CompletionKind::Send => match completion.extra {
            Extra::None | Extra::Invalidated(_) => Opcode::Send,
            Extra::Immediate(_) => Opcode::SendWithImm,
        },
        CompletionKind::Write => Opcode::RdmaWrite,
        CompletionKind::Read => Opcode::RdmaRead,
        CompletionKind::CompareSwap => Opcode::CompareSwap,
        CompletionKind::FetchAdd => Opcode::FetchAdd,
        CompletionKind::AtomicWrite => Opcode::AtomicWrite,
        CompletionKind::BindWindow => Opcode::BindMw,
        CompletionKind::LocalInvalidate => Opcode::LocalInv,
        CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate => Opcode::Recv,
    }
}

/// Polls as [`host::Device::poll_cq`], and holds completions back as the rules say.
pub(super) fn poll(queue: &Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
    let device = &queue.context.device;
    if !host::faults::interest().polls && held::is_empty() {
        return device.poll_cq(queue.handle, most, take);
    }
    let mut taken = held::release(key(queue), most, &mut take);
    while taken < most {
        let mut new = None;
        if device.poll_cq(queue.handle, 1, |completion| new = Some(*completion)) == 0 {
            break;
        }
        let Some(completion) = new else { break };
        if !hold(queue, completion) {
            take(&completion);
            taken += 1;
        }
    }
    taken
}

fn key(queue: &Cq) -> usize {
    core::ptr::from_ref(queue) as usize
}

/// Whether a completion has to wait, and does now.
fn hold(queue: &Cq, completion: Completion) -> bool {
    let time = lateness(queue, &completion);
    let Some(wait) = held::hold(key(queue), completion, time) else {
        return false;
    };
    // A program that waits for an event gets it when the completion is there.
    let (device, handle) = (Arc::downgrade(&queue.context.device), queue.handle);
    host::faults::after(wait, move || {
        if let Some(device) = device.upgrade() {
            device.with(|rnic, now| rnic.cqs_mut().notify(handle, now));
        }
    });
    true
}

/// How late the rules want a completion.
fn lateness(queue: &Cq, completion: &Completion) -> Option<Duration> {
    if !host::faults::interest().polls {
        return None;
    }
    let (device, found) = {
        let objects = queue.context.objects();
        let found = objects.qps.get(&completion.qpn.value()).copied();
        (device_of(&queue.context), found)
    };
    // SAFETY: a queue pair in the table is alive, and the program does not destroy it while it polls for its
    // completions.
    let owner = found.map(|address| unsafe { &*(address as *const Qp) });
    let occasion = Occasion {
        device: device.as_deref(),
        kind: owner.map(Qp::fault_kind),
        qpn: Some(completion.qpn.value()),
        peer: owner.and_then(peer_of),
        opcode: Some(opcode(completion)),
        size: Some(completion.length.into()),
        ..Occasion::at(Point::Completion)
    };
    let is_late = |action| matches!(action, Action::Late(_));
    match host::faults::decide(&occasion, is_late)?.action {
        Action::Late(time) => Some(time),
        _ => None,
    }
}
