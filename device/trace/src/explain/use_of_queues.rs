//! Requests that are never completed, memory that ends before them, and work request IDs.

use crate::event::Event;
use crate::explain::ends::{ERROR, Ends, Qp, QpKey, Request, key};
use crate::explain::mistake::{Finding, Mistake};
use abi::names::wr_opcode_name;
use std::collections::VecDeque;

const NO_MEMORY: u64 = 12;
const READY_TO_SEND: u64 = 3;

/// A send request is posted, or refused because its queue is full.
pub(super) fn sent(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let Some(qp) = ends.qp(key(event)) else {
        return;
    };
    let found = match event.number("errno") {
        0 => reused(&qp.sends, event).map(|what| (Mistake::WrIdReused, what)),
        NO_MEMORY => full(qp),
        _ => None,
    };
    report(ends, key(event), number, found);
}

/// A receive request is posted.
pub(super) fn received(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let is_posted = event.number("errno") == 0;
    let Some(qp) = ends.qp(key(event)).filter(|_| is_posted) else {
        return;
    };
    let found = reused(&qp.receives, event).map(|what| (Mistake::WrIdReused, what));
    report(ends, key(event), number, found);
}

fn report(ends: &mut Ends, of: QpKey, event: usize, found: Option<(Mistake, String)>) {
    if let Some((mistake, what)) = found {
        let finding = Finding {
            mistake,
            event,
            shown_by: None,
            what,
        };
        ends.report(of, finding);
    }
}

/// An outstanding request of other memory has the ID of a new one. Programs that give all requests one ID do
/// not tell them by it.
fn reused(queue: &VecDeque<Request>, event: &Event<'_>) -> Option<String> {
    let wr_id = event.number("wr_id");
    let same = queue.iter().find(|it| it.wr_id == wr_id)?;
    let others = queue.iter().any(|it| it.wr_id != wr_id);
    (others && same.address != event.number("address")).then(|| {
        format!(
            "wr_id {wr_id:#x} is that of an outstanding request, of other memory, of the same queue"
        )
    })
}

/// Why a send queue is full.
fn full(qp: &Qp) -> Option<(Mistake, String)> {
    let count = qp.sends.len();
    if count > 0 && !qp.sends.iter().any(|request| request.signaled) {
        let what = format!("the queue is full: none of its {count} requests is signaled");
        return Some((Mistake::NeverSignaled, what));
    }
    (count > 0 && qp.polled == 0).then(|| {
        let what = format!(
            "the queue is full: {count} requests are outstanding, and no completion was polled"
        );
        (Mistake::NeverPolled, what)
    })
}

/// Memory is deregistered: requests that use it have to be completed.
pub(super) fn deregistered(ends: &mut Ends, number: usize, event: &Event<'_>) {
    if event.number("errno") != 0 {
        return;
    }
    let lkey = event.field("lkey");
    let uses_it = |request: &&Request| request.lkey.is_some() && request.lkey == lkey;
    let found: Vec<(QpKey, String)> = ends
        .qps()
        .filter(|((process, _), qp)| *process == event.process && qp.state == READY_TO_SEND)
        .filter_map(|(of, qp)| {
            let request = qp.sends.iter().find(uses_it)?;
            let what = format!(
                "memory of lkey {:#x} was deregistered before the completion of {} wr_id {:#x} was polled",
                lkey.unwrap_or(0),
                wr_opcode_name(request.opcode),
                request.wr_id
            );
            Some((of, what))
        })
        .collect();
    for (of, what) in found {
        let found = Some((Mistake::DeregisteredInFlight, what));
        report(ends, of, number, found);
    }
}

/// A queue pair is destroyed: what it leaves.
pub(super) fn ended(ends: &mut Ends, event: &Event<'_>) {
    let of = key(event);
    if let Some((mistake, number, what)) = ends.qp(of).and_then(unpolled) {
        report(ends, of, number, Some((mistake, what)));
    }
}

/// Signaled requests of which none was polled.
fn unpolled(qp: &Qp) -> Option<(Mistake, usize, String)> {
    let first = qp.sends.iter().find(|request| request.signaled)?;
    let count = qp.sends.iter().filter(|request| request.signaled).count();
    (qp.polled == 0 && qp.state != ERROR).then(|| {
        let what = format!(
            "{count} signaled requests, from this one on, and no completion of them was polled"
        );
        (Mistake::NeverPolled, first.event, what)
    })
}

/// The trace ends: queue pairs that wait for a receive of their peer, and those that were never polled.
pub(super) fn at_the_end(ends: &mut Ends) {
    let keys: Vec<QpKey> = ends.qps().map(|(key, _)| key).collect();
    for of in keys {
        let waiting = waiting(ends, of);
        let found = waiting.or_else(|| ends.qp(of).and_then(unpolled));
        if let Some((mistake, number, what)) = found {
            report(ends, of, number, Some((mistake, what)));
        }
    }
}

/// A message that is not completed, where the peer has posted fewer receives than messages were sent.
fn waiting(ends: &Ends, of: QpKey) -> Option<(Mistake, usize, String)> {
    let qp = ends.qp(of).filter(|qp| qp.state == READY_TO_SEND)?;
    let request = qp.sends.iter().find(|request| request.needs_receive())?;
    let (peer_key, peer) = ends.peer(of)?;
    let qpn = peer_key.1;
    let name = wr_opcode_name(request.opcode);
    let what = match peer.srq {
        None => (peer.receives_posted < qp.messages).then(|| {
            format!(
                "{name} waits for a receive: the peer, QP {qpn:#x}, has posted {} for {} messages",
                peer.receives_posted, qp.messages
            )
        }),
        Some(number) => {
            let of_peer = ends.srq(peer_key);
            let is_empty = of_peer.is_none_or(|srq| srq.receives.is_empty());
            let posted = of_peer.map_or(0, |srq| srq.posted);
            is_empty.then(|| {
                format!(
                    "{name} waits for a receive: SRQ {number:#x} of the peer, QP {qpn:#x}, is empty, after \
                     {posted} receives that were posted"
                )
            })
        }
    };
    what.map(|what| (Mistake::NoReceive, request.event, what))
}
