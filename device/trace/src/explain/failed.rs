//! Calls and completions with an error.

use crate::event::Event;
use crate::explain::ends::{self, Ends, QpKey, Region, Request, is_receive, key};
use crate::explain::mistake::{Finding, Mistake};
use crate::names::access_names;
use abi::names::{qp_state_name, wc_status_name, wr_opcode_name};

/// Values of `enum ibv_wc_status`.
const LOC_LEN_ERR: u64 = 1;
const LOC_PROT_ERR: u64 = 4;
const REM_INV_REQ_ERR: u64 = 9;
const REM_ACCESS_ERR: u64 = 10;
const RETRY_EXC_ERR: u64 = 12;
const RNR_RETRY_EXC_ERR: u64 = 13;

/// Bits of `enum ibv_access_flags`.
const LOCAL_WRITE: u64 = 1;
const REMOTE_WRITE: u64 = 2;
const REMOTE_READ: u64 = 4;
const REMOTE_ATOMIC: u64 = 8;

const READY_TO_SEND: u64 = 3;
const DRAINED: u64 = 4;
const INVALID: u64 = 22;

/// A send request that was refused for the state of its queue pair.
pub(super) fn refused_send(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let Some(qp) = ends.qp(key(event)) else {
        return;
    };
    let can_send = matches!(qp.state, READY_TO_SEND | DRAINED);
    if event.number("errno") != INVALID || can_send {
        return;
    }
    let what = format!(
        "ibv_post_send in state {}: requests are posted from RTS on",
        qp_state_name(qp.state)
    );
    report(ends, event, Mistake::WrongState, number, None, what);
}

/// A receive request that was refused for the state of its queue pair.
pub(super) fn refused_receive(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let Some(qp) = ends.qp(key(event)) else {
        return;
    };
    let what = match (event.number("errno"), qp.srq) {
        (INVALID, Some(srq)) => format!(
            "ibv_post_recv to a queue pair that takes receives of SRQ {srq:#x}: ibv_post_srq_recv posts there"
        ),
        (INVALID, None) if qp.state == ends::RESET => {
            "ibv_post_recv in state RESET: receives are posted from INIT on".to_owned()
        }
        _ => return,
    };
    report(ends, event, Mistake::WrongState, number, None, what);
}

/// Memory that was not registered because its flags contradict each other.
pub(super) fn refused_region(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let access = event.number("access");
    let is_written = access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    if event.number("errno") == 0 || !is_written || access & LOCAL_WRITE != 0 {
        return;
    }
    let what = format!(
        "ibv_reg_mr with {}: what peers write needs IBV_ACCESS_LOCAL_WRITE too",
        access_names(access)
    );
    report(ends, event, Mistake::WrongAccess, number, None, what);
}

fn report(
    ends: &mut Ends,
    of: &Event<'_>,
    mistake: Mistake,
    event: usize,
    shown_by: Option<usize>,
    what: String,
) {
    let finding = Finding {
        mistake,
        event,
        shown_by,
        what,
    };
    ends.report(key(of), finding);
}

/// A completion with an error: what was wrong with its request.
pub(super) fn completion(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let status = event.number("status");
    let Some(request) = ends.request_of(event) else {
        return;
    };
    let found = match status {
        LOC_LEN_ERR if is_receive(event) => Some(short_receive(&request)),
        LOC_LEN_ERR => Some(long_message(ends, key(event), &request)),
        LOC_PROT_ERR => local(ends, event, &request),
        REM_INV_REQ_ERR => queue_access(ends, key(event), &request),
        REM_ACCESS_ERR => Some(remote(ends, event, &request)),
        RNR_RETRY_EXC_ERR => Some(no_receive(ends, key(event), &request)),
        RETRY_EXC_ERR => no_answer(ends, key(event), &request),
        _ => None,
    };
    if let Some((mistake, at, what)) = found {
        let shown_by = (at != number).then_some(number);
        let what = format!("{what} ({})", wc_status_name(status));
        report(ends, event, mistake, at, shown_by, what);
    }
}

/// A mistake, the event that made it, and a sentence.
pub(super) type Found = (Mistake, usize, String);

fn short_receive(request: &Request) -> Found {
    let what = format!(
        "the message that arrived is longer than the {} bytes of the receive",
        request.length
    );
    (Mistake::ShortReceive, request.event, what)
}

/// A message that is longer than the port allows.
fn long_message(ends: &Ends, of: QpKey, request: &Request) -> Found {
    let is_datagram = ends.qp(of).is_some_and(|qp| qp.kind == ends::UD);
    let limit = match is_datagram {
        true => "a datagram has at most the bytes of the port's active_mtu",
        false => "a message has at most max_msg_sz bytes",
    };
    let name = wr_opcode_name(request.opcode);
    let what = format!("{name} of {} bytes: {limit}", request.length);
    (Mistake::TooLong, request.event, what)
}

/// The operation that an element is used for needs local access.
fn local(ends: &Ends, event: &Event<'_>, request: &Request) -> Option<Found> {
    let lkey = request.lkey?;
    let name = match is_receive(event) {
        true => "the receive",
        false => wr_opcode_name(request.opcode),
    };
    let Some(region) = ends.local_region(event.process, lkey) else {
        let what = format!("{name} uses lkey {lkey:#x}, which this process has not registered");
        return Some((Mistake::WrongKey, request.event, what));
    };
    if let Some(ended) = region.ended {
        let what = format!("{name} uses lkey {lkey:#x}, whose memory was deregistered");
        // Memory that ended before the request was posted is a wrong key.
        let mistake = match ended < request.event {
            true => (Mistake::WrongKey, request.event),
            false => (Mistake::DeregisteredInFlight, ended),
        };
        return Some((mistake.0, mistake.1, what));
    }
    let is_written = is_receive(event) || matches!(request.opcode, 4..=6);
    if is_written && region.access & LOCAL_WRITE == 0 {
        let what = format!(
            "{name} writes to memory that was registered without IBV_ACCESS_LOCAL_WRITE (access {})",
            access_names(region.access)
        );
        return Some((Mistake::WrongAccess, region.event, what));
    }
    // Only the first element is in the trace.
    if request.elements <= 1 && !region.has(request.address, request.length) {
        return Some((
            Mistake::OutOfRange,
            request.event,
            outside(name, request.address, request.length, region),
        ));
    }
    None
}

fn outside(name: &str, address: u64, length: u64, region: &Region) -> String {
    format!(
        "{name} uses {length} bytes at {address:#x}, and the memory of its key has {} bytes at {:#x}",
        region.length, region.begin
    )
}

/// The access that an operation needs at the peer.
const fn needed(opcode: u64) -> (u64, &'static str) {
    match opcode {
        4 => (REMOTE_READ, "IBV_ACCESS_REMOTE_READ"),
        5 | 6 => (REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC"),
        _ => (REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE"),
    }
}

/// The peer has refused an operation on its memory.
fn remote(ends: &Ends, event: &Event<'_>, request: &Request) -> Found {
    let mismatch = remote_mismatch(ends, key(event), request);
    mismatch.unwrap_or_else(|| {
        let what = format!(
            "{} was refused by the peer, though its key, range and flags are right: queue pair and memory \
             may be of different protection domains",
            wr_opcode_name(request.opcode)
        );
        (Mistake::WrongAccess, request.event, what)
    })
}

/// What is wrong with key, range or flags of the peer's memory.
pub(super) fn remote_mismatch(ends: &Ends, of: QpKey, request: &Request) -> Option<Found> {
    let name = wr_opcode_name(request.opcode);
    let (bit, flag) = needed(request.opcode);
    let rkey = request.rkey.unwrap_or(0);
    let process = ends.peer(of).map(|((process, _), _)| process);
    let Some(region) = ends.remote_region(process, rkey) else {
        let what = format!("{name} with rkey {rkey:#x}, which no region in this trace has");
        return Some((Mistake::WrongKey, request.event, what));
    };
    if let Some(ended) = region.ended {
        let what = format!("{name} to memory of rkey {rkey:#x}, which the peer has deregistered");
        return Some((Mistake::DeregisteredInFlight, ended, what));
    }
    if region.access & bit == 0 {
        let what = format!(
            "{name} to memory that was registered without {flag} (access {})",
            access_names(region.access)
        );
        return Some((Mistake::WrongAccess, region.event, what));
    }
    (!region.has(request.remote, request.length)).then(|| {
        let what = outside(name, request.remote, request.length, region);
        (Mistake::OutOfRange, request.event, what)
    })
}

/// The queue pair of the peer does not allow the operation, whatever the memory does.
pub(super) fn queue_access(ends: &Ends, of: QpKey, request: &Request) -> Option<Found> {
    request.rkey?;
    let (_, peer) = ends.peer(of)?;
    let (bit, flag) = needed(request.opcode);
    let (modified, access) = peer.access.filter(|(_, access)| access & bit == 0)?;
    let what = format!(
        "{} to a queue pair whose qp_access_flags lack {flag} (access {})",
        wr_opcode_name(request.opcode),
        access_names(access)
    );
    Some((Mistake::WrongAccess, modified, what))
}

fn no_receive(ends: &Ends, of: QpKey, request: &Request) -> Found {
    let name = wr_opcode_name(request.opcode);
    let what = match ends.peer(of) {
        Some((peer_key, peer)) if peer.srq.is_some() => {
            let srq = ends.srq(peer_key);
            format!(
                "{name} found no receive in the shared receive queue of the peer, after {} that were posted \
                 there",
                srq.map_or(0, |srq| srq.posted)
            )
        }
        Some(((_, qpn), peer)) => format!(
            "{name} found no receive: the peer, QP {qpn:#x}, had posted {} for the {} messages of this queue \
             pair",
            peer.receives_posted,
            ends.qp(of).map_or(0, |qp| qp.messages)
        ),
        None => format!("{name} found no receive at the peer, which is not in this trace"),
    };
    (Mistake::NoReceive, request.event, what)
}

/// Retries were exceeded: a mistake where the peer is in the trace, and was not ready.
fn no_answer(ends: &Ends, of: QpKey, request: &Request) -> Option<Found> {
    let ((_, qpn), peer) = ends.peer(of)?;
    (peer.state < 2 || peer.state == ends::ERROR).then(|| {
        let what = format!(
            "{} was not answered: the peer, QP {qpn:#x}, is in state {}",
            wr_opcode_name(request.opcode),
            qp_state_name(peer.state)
        );
        (Mistake::NoAnswer, request.event, what)
    })
}
