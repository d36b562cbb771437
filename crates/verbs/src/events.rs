//! Asynchronous events.

use crate::channel::Owed;
use crate::context::{Context, Objects, context};
use crate::cq::Cq;
use crate::door::{Errno, door};
use crate::qp::Qp;
use crate::srq::Srq;
use abi::{ibv_async_element, ibv_async_event, ibv_context};
use rnic::Event;

/// The object that an event is about, by its address.
#[derive(Clone, Copy)]
enum Subject {
    Cq(usize),
    Qp(usize),
    Srq(usize),
}

/// Counts what a program owes for an event about `subject`.
///
/// # Safety
/// The object is alive.
unsafe fn owed<'a>(subject: Subject) -> &'a Owed {
    // SAFETY: as above.
    unsafe {
        match subject {
            Subject::Cq(address) => &(*(address as *const Cq)).async_events,
            Subject::Qp(address) => &(*(address as *const Qp)).async_events,
            Subject::Srq(address) => &(*(address as *const Srq)).async_events,
        }
    }
}

/// The kind of an event in C, and its subject; `None` when that is being destroyed.
fn described(objects: &Objects, event: Event) -> Option<(u32, Subject)> {
    let kind = match event {
        // Completion channels carry these.
        Event::Completion(_) => return None,
        Event::CqError(_) => abi::IBV_EVENT_CQ_ERR,
        Event::QpFatal(_) => abi::IBV_EVENT_QP_FATAL,
        Event::QpRequestError(_) => abi::IBV_EVENT_QP_REQ_ERR,
        Event::QpAccessError(_) => abi::IBV_EVENT_QP_ACCESS_ERR,
        Event::CommunicationEstablished(_) => abi::IBV_EVENT_COMM_EST,
        Event::SendQueueDrained(_) => abi::IBV_EVENT_SQ_DRAINED,
        Event::LastWqeReached(_) => abi::IBV_EVENT_QP_LAST_WQE_REACHED,
        Event::SrqLimitReached(_) => abi::IBV_EVENT_SRQ_LIMIT_REACHED,
        Event::SrqError(_) => abi::IBV_EVENT_SRQ_ERR,
    };
    let subject = match event {
        Event::Completion(queue) | Event::CqError(queue) => Subject::Cq(*objects.cqs.get(&queue.value())?),
        Event::SrqLimitReached(queue) | Event::SrqError(queue) => {
            Subject::Srq(*objects.srqs.get(&queue.value())?)
        }
        Event::QpFatal(qpn)
        | Event::QpRequestError(qpn)
        | Event::QpAccessError(qpn)
        | Event::CommunicationEstablished(qpn)
        | Event::SendQueueDrained(qpn)
        | Event::LastWqeReached(qpn) => Subject::Qp(*objects.qps.get(&qpn.value())?),
    };
    Some((kind, subject))
}

/// The next event about an object that is still there; what the program owes for it is counted before the
/// object can go.
///
/// # Safety
/// The objects in the table are alive.
unsafe fn next(owner: &Context) -> Result<(u32, Subject), Errno> {
    loop {
        let event = owner.device.async_events().next()?;
        let objects = owner.objects();
        if let Some((kind, subject)) = described(&objects, event) {
            // SAFETY: as above.
            unsafe { owed(subject) }.took();
            return Ok((kind, subject));
        }
    }
}

door! {
    fn ibv_get_async_event(raw: *mut ibv_context, event: *mut ibv_async_event) -> minus_one(i32) {
        let event = event.as_mut().ok_or(Errno::INVALID)?;
        let (kind, subject) = next(context(raw))?;
        event.event_type = kind;
        event.element = match subject {
            Subject::Cq(address) => ibv_async_element { cq: address as *mut _ },
            Subject::Qp(address) => ibv_async_element { qp: address as *mut _ },
            Subject::Srq(address) => ibv_async_element { srq: address as *mut _ },
        };
        Ok(0)
    }

    fn ibv_ack_async_event(event: *mut ibv_async_event) -> plain(()) {
        let Some(event) = event.as_ref() else { return };
        match event.event_type {
            abi::IBV_EVENT_CQ_ERR => {
                let queue = event.element.cq;
                (*queue).async_events_completed = (*queue).async_events_completed.wrapping_add(1);
                owed(Subject::Cq(queue as usize)).acknowledged(1);
            }
            abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                let queue = event.element.srq;
                (*queue).events_completed = (*queue).events_completed.wrapping_add(1);
                owed(Subject::Srq(queue as usize)).acknowledged(1);
            }
            abi::IBV_EVENT_QP_FATAL..=abi::IBV_EVENT_SQ_DRAINED | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let queue = event.element.qp;
                (*queue).events_completed = (*queue).events_completed.wrapping_add(1);
                owed(Subject::Qp(queue as usize)).acknowledged(1);
            }
            _ => {}
        }
    }
}
