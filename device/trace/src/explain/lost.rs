//! Messages of UC and UD that are lost without an error: the sender has a success, and the receiver nothing.

use crate::event::Event;
use crate::explain::ends::{Datagrams, ERROR, Ends, Qp, QpKey, UC, is_receive, key};
use crate::explain::failed::{Found, queue_access, remote_mismatch};
use crate::explain::mistake::{Finding, Mistake};

/// The bytes in front of a datagram in its receive.
const GRH_BYTES: u64 = 40;
/// A Q_Key with this bit stands for that of the sender's own queue pair.
const CONTROLLED: u64 = 1 << 31;
const READY_TO_RECEIVE: u64 = 2;
const RDMA_WRITE: u64 = 0;
const RDMA_WRITE_WITH_IMM: u64 = 1;

/// The sender of a UC WRITE has a success, also where the peer has refused it.
pub(super) fn completion(ends: &mut Ends, event: &Event<'_>) {
    let of = key(event);
    let is_uc = ends.qp(of).is_some_and(|qp| qp.kind == UC);
    if !is_uc || is_receive(event) || event.number("status") != 0 || ends.peer(of).is_none() {
        return;
    }
    let Some(request) = ends.request_of(event) else {
        return;
    };
    if !matches!(request.opcode, RDMA_WRITE | RDMA_WRITE_WITH_IMM) || request.length == 0 {
        return;
    }
    let found = queue_access(ends, of, &request).or_else(|| remote_mismatch(ends, of, &request));
    report(ends, of, found);
}

fn report(ends: &mut Ends, of: QpKey, found: Option<Found>) {
    if let Some((mistake, event, what)) = found {
        let finding = Finding {
            mistake,
            event,
            shown_by: None,
            what: format!("{what}: it was lost without an error, though its sender has a success"),
        };
        ends.report(of, finding);
    }
}

/// A queue pair is destroyed: what it should have received.
pub(super) fn ended(ends: &mut Ends, event: &Event<'_>) {
    look(ends, key(event));
}

/// The trace ends: what every queue pair should have received.
pub(super) fn at_the_end(ends: &mut Ends) {
    let keys: Vec<QpKey> = ends.qps().map(|(key, _)| key).collect();
    for of in keys {
        look(ends, of);
    }
}

fn look(ends: &mut Ends, of: QpKey) {
    let Some(qp) = ends.qp(of).filter(|qp| qp.is_unreliable()) else {
        return;
    };
    if qp.state < READY_TO_RECEIVE || qp.state == ERROR {
        return;
    }
    let found = lost(ends, of, qp);
    report(ends, of, found);
}

/// Why datagrams, or messages of UC, to a queue pair did not arrive.
fn lost(ends: &Ends, of: QpKey, qp: &Qp) -> Option<Found> {
    let sent = ends
        .datagrams_to(of.1)
        .filter(|sent| sent.count > qp.arrived)?;
    let number = of.1;
    let first = sent.first.first()?.event;
    if qp.kind == UC {
        let found = short(ends, of, first, sent.count, sent.longest(), 0);
        // A receive that is too short for the message behind a lost one follows from the loss.
        return match found {
            Some((Mistake::NoReceive, ..)) => found,
            found => early(number, sent).or(found),
        };
    }
    let found = sent.first.iter().find_map(|one| {
        let qkey = match one.qkey & CONTROLLED {
            0 => one.qkey,
            _ => ends.qp(one.sender)?.qkey?,
        };
        let wanted = qp.qkey.filter(|wanted| *wanted != qkey)?;
        let what =
            format!("a datagram with Q_Key {qkey:#x} to QP {number:#x}, which has {wanted:#x}");
        Some((Mistake::QkeyMismatch, one.event, what))
    });
    found
        .or_else(|| short(ends, of, first, sent.count, sent.longest(), GRH_BYTES))
        .or_else(|| wrong_address(ends, of, qp))
}

/// No datagram arrived, and they went to an address that the receiver's process does not use.
fn wrong_address(ends: &Ends, of: QpKey, qp: &Qp) -> Option<Found> {
    let own = ends.addresses(of.0).filter(|_| qp.arrived == 0)?;
    let sent = ends.datagrams_to(of.1)?;
    let handle = sent.first.iter().find_map(|one| {
        let handle = ends.handle(one.sender.0, one.ah)?;
        (!own.contains(&handle.to)).then_some(handle)
    })?;
    let mut known: Vec<&str> = own.iter().map(String::as_str).collect();
    known.sort_unstable();
    let what = format!(
        "datagrams to QP {:#x} go to {}, and its process has {}",
        of.1,
        handle.to,
        known.join(", ")
    );
    Some((Mistake::GidMismatch, handle.event, what))
}

/// A message of UC that may have come before its receive: as many were posted as messages were sent.
fn early(number: u64, sent: &Datagrams) -> Option<Found> {
    let early = sent.early?;
    let (message, posted) = (early.message, early.posted);
    let what = format!(
        "message {message} to QP {number:#x} was sent when that had posted {posted} receives, and UC drops \
         what comes before its receive"
    );
    Some((Mistake::NoReceive, early.event, what))
}

/// Receives that were too few, or the next of which is too short.
fn short(
    ends: &Ends,
    of: QpKey,
    first: usize,
    count: u64,
    longest: u64,
    header: u64,
) -> Option<Found> {
    let (receives, posted) = match ends.receives(of) {
        Some((receives, posted)) => (receives.front(), posted),
        None => (None, 0),
    };
    let number = of.1;
    if posted < count && receives.is_none() {
        let what = format!("QP {number:#x} has posted {posted} receives for {count} messages");
        return Some((Mistake::NoReceive, first, what));
    }
    let next = receives.filter(|next| next.length < longest.saturating_add(header))?;
    let room = match header {
        0 => format!("{longest} bytes"),
        header => format!("{longest} bytes, and {header} of the GRH before them"),
    };
    let what = format!("a receive of {} bytes for a message of {room}", next.length);
    Some((Mistake::ShortReceive, next.event, what))
}
