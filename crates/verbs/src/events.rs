//! Asynchronous events.

use crate::address::PORT;
use crate::channel::Owed;
use crate::context::{Context, Objects, context};
use crate::cq::Cq;
use crate::qp::Qp;
use crate::srq::Srq;
use abi::{ibv_async_element, ibv_async_event, ibv_context};
use door::{Errno, door};
use rnic::Event;

/// The object that an event is about, by its address.
#[derive(Clone, Copy)]
enum Subject {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    /// The port, or the device: nothing is owed for it.
    Port,
}

/// Counts what a program owes for an event about `subject`.
///
/// # Safety
/// The object is alive.
unsafe fn owed<'a>(subject: Subject) -> Option<&'a Owed> {
    // SAFETY: as above.
    let owed = unsafe {
        match subject {
            Subject::Cq(address) => &(*(address as *const Cq)).async_events,
            Subject::Qp(address) => &(*(address as *const Qp)).async_events,
            Subject::Srq(address) => &(*(address as *const Srq)).async_events,
            Subject::Port => return None,
        }
    };
    Some(owed)
}

/// Counts that a program acknowledged an event about `subject`.
///
/// # Safety
/// The object is alive.
unsafe fn acknowledged(subject: Subject) {
    // SAFETY: as above.
    if let Some(owed) = unsafe { owed(subject) } {
        owed.acknowledged(1);
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
        Event::PortActive => abi::IBV_EVENT_PORT_ACTIVE,
        Event::PortError => abi::IBV_EVENT_PORT_ERR,
        Event::GidChange => abi::IBV_EVENT_GID_CHANGE,
        Event::DeviceFatal => abi::IBV_EVENT_DEVICE_FATAL,
    };
    let subject = match event {
        Event::PortActive | Event::PortError | Event::GidChange | Event::DeviceFatal => Subject::Port,
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
            if let Some(owed) = unsafe { owed(subject) } {
                owed.took();
            }
            return Ok((kind, subject));
        }
    }
}

door! {
    fn ibv_get_async_event(raw: *mut ibv_context, event: *mut ibv_async_event) -> number(i32) {
        let event = event.as_mut().ok_or(Errno::INVALID)?;
        let (kind, subject) = next(context(raw))?;
        event.event_type = kind;
        event.element = match subject {
            Subject::Cq(address) => ibv_async_element { cq: address as *mut _ },
            Subject::Qp(address) => ibv_async_element { qp: address as *mut _ },
            Subject::Srq(address) => ibv_async_element { srq: address as *mut _ },
            Subject::Port => ibv_async_element { port_num: PORT.into() },
        };
        Ok(0)
    }

    fn ibv_ack_async_event(event: *mut ibv_async_event) -> plain(()) {
        let Some(event) = event.as_ref() else { return };
        match event.event_type {
            abi::IBV_EVENT_CQ_ERR => {
                let queue = event.element.cq;
                (*queue).async_events_completed = (*queue).async_events_completed.wrapping_add(1);
                acknowledged(Subject::Cq(queue as usize));
            }
            abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                let queue = event.element.srq;
                (*queue).events_completed = (*queue).events_completed.wrapping_add(1);
                acknowledged(Subject::Srq(queue as usize));
            }
            abi::IBV_EVENT_QP_FATAL..=abi::IBV_EVENT_SQ_DRAINED | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let queue = event.element.qp;
                (*queue).events_completed = (*queue).events_completed.wrapping_add(1);
                acknowledged(Subject::Qp(queue as usize));
            }
            _ => {}
        }
    }
}
