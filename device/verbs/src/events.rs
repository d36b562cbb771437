//! Asynchronous events.

use crate::address::PORT;
use crate::context::{Context, ContextArg, Objects};
use crate::cq::Cq;
use crate::event_counts::EventCounts;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::traced;
use abi::{ibv_async_element, ibv_async_event};
use ffi::{Errno, In, Out, exports};
use rnic::Event;

/// The object that an event is about, by address.
#[derive(Clone, Copy)]
enum Subject {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    /// The port or the device: no acknowledgement is counted for these.
    Port,
}

/// Counts one unacknowledged event about `subject`.
///
/// # Safety
/// The object is alive.
unsafe fn event_counts<'a>(subject: Subject) -> Option<&'a EventCounts> {
    // SAFETY: by this function's contract, the object is alive.
    let event_counts = unsafe {
        match subject {
            Subject::Cq(address) => &(*(address as *const Cq)).async_events,
            Subject::Qp(address) => &(*(address as *const Qp)).async_events,
            Subject::Srq(address) => &(*(address as *const Srq)).async_events,
            Subject::Port => return None,
        }
    };
    Some(event_counts)
}

/// Counts one acknowledgement of an event about `subject`.
///
/// # Safety
/// The object is alive.
unsafe fn acknowledged(subject: Subject) {
    // SAFETY: by this function's contract, the object is alive.
    if let Some(event_counts) = unsafe { event_counts(subject) } {
        event_counts.acknowledged(1);
    }
}

/// The event type in C, and its subject; `None` when the subject is being destroyed.
fn described(objects: &Objects, event: Event) -> Option<(u32, Subject)> {
    let kind = match event {
        // Completion events arrive on completion channels instead.
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
        Event::LidChange => abi::IBV_EVENT_LID_CHANGE,
        Event::PartitionChange => abi::IBV_EVENT_PKEY_CHANGE,
        Event::ManagerChange => abi::IBV_EVENT_SM_CHANGE,
        Event::ClientReregister => abi::IBV_EVENT_CLIENT_REREGISTER,
        Event::DeviceFatal => abi::IBV_EVENT_DEVICE_FATAL,
    };
    let subject = match event {
        Event::PortActive
        | Event::PortError
        | Event::GidChange
        | Event::LidChange
        | Event::PartitionChange
        | Event::ManagerChange
        | Event::ClientReregister
        | Event::DeviceFatal => Subject::Port,
        Event::Completion(queue) | Event::CqError(queue) => {
            Subject::Cq(*objects.cqs.get(&queue.value())?)
        }
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

/// The next event about an object that still exists. It is counted as unacknowledged before the object can be
/// destroyed.
///
/// # Safety
/// The objects in the table are alive.
unsafe fn next(owner: &Context) -> Result<(u32, Subject), Errno> {
    loop {
        let event = owner.device.async_events().next()?;
        let objects = owner.objects();
        if let Some((kind, subject)) = described(&objects, event) {
            // SAFETY: by this function's contract, the objects in the table are alive.
            if let Some(event_counts) = unsafe { event_counts(subject) } {
                event_counts.took();
            }
            return Ok((kind, subject));
        }
    }
}

/// Counts an acknowledgement in a counter of C's struct.
///
/// # Safety
/// The counter is of a live object; acknowledgements of the program alone change it.
unsafe fn count(counter: *mut u32) {
    // SAFETY: by this function's contract.
    unsafe { *counter = (*counter).wrapping_add(1) };
}

exports! {
    fn ibv_get_async_event(context: ContextArg<'_>, event: Out<'_, ibv_async_event>) -> number(i32) {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: destroying an object removes it from the table.
        let (event_type, subject) = unsafe { next(&context) }?;
        if traced::is_on() {
            let qpn = match subject {
                // SAFETY: the queue pair is alive until its events are acknowledged.
                Subject::Qp(address) => Some(unsafe { &*(address as *const Qp) }.qpn.value()),
                _ => None,
            };
            traced::event(event_type, qpn);
        }
        let element = match subject {
            Subject::Cq(address) => ibv_async_element { cq: address as *mut _ },
            Subject::Qp(address) => ibv_async_element { qp: address as *mut _ },
            Subject::Srq(address) => ibv_async_element { srq: address as *mut _ },
            Subject::Port => ibv_async_element { port_num: PORT.into() },
        };
        event.write(ibv_async_event { element, event_type })?;
        Ok(0)
    }

    fn ibv_ack_async_event(event: In<'_, *mut ibv_async_event>) -> plain(()) {
        let Some(event) = event.optional() else { return };
        let subject = match event.event_type {
            abi::IBV_EVENT_CQ_ERR => {
                // SAFETY: events of this type have a queue, which is not destroyed before this returns.
                let queue = unsafe { event.element.cq };
                // SAFETY: the queue is alive until all its events are acknowledged.
                unsafe { count(&raw mut (*queue).async_events_completed) };
                Subject::Cq(queue as usize)
            }
            abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                // SAFETY: events of these types have a shared receive queue.
                let queue = unsafe { event.element.srq };
                // SAFETY: the queue is alive until all its events are acknowledged.
                unsafe { count(&raw mut (*queue).events_completed) };
                Subject::Srq(queue as usize)
            }
            abi::IBV_EVENT_QP_FATAL..=abi::IBV_EVENT_SQ_DRAINED | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: events of these types have a queue pair.
                let queue = unsafe { event.element.qp };
                // SAFETY: the queue pair is alive until all its events are acknowledged.
                unsafe { count(&raw mut (*queue).events_completed) };
                Subject::Qp(queue as usize)
            }
            _ => return,
        };
        // SAFETY: the object is alive until this acknowledgement is counted.
        unsafe { acknowledged(subject) };
    }
}
