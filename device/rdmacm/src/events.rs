//! Event channels and their events, as the program sees them: an event is delivered when the program takes
//! it.

use crate::channel;
use crate::delivered::{acknowledge, id_of_key, make};
use crate::establish::establish_connection;
use crate::pending::{Action, Pending};
use crate::process::process;
use crate::qp;
use crate::requested;
use abi::{rdma_cm_event, rdma_event_channel};
use core::ffi::c_int;
use ffi::{Errno, Out, public_exports};
use std::ptr::null_mut;

/// Takes the next event of a channel; blocks unless the channel's descriptor is non-blocking.
///
/// # Safety
/// `raw` is NULL or a channel of this library.
pub(crate) unsafe fn next(raw: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: by this function's contract, `raw` is NULL or a channel of this library.
    let queue = unsafe { channel::queue(raw) }?;
    loop {
        // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those that
        // were noted here.
        let pending = queue.next_noting(|pending| unsafe { id_of_key(pending.id) }.note_event())?;
        let key = pending.id;
        // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those that
        // were noted here.
        match unsafe { deliver(pending) } {
            Some(event) => return Ok(event),
            // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those
            // that were noted here.
            None => unsafe { id_of_key(key) }.note_acknowledged(),
        }
    }
}

/// Does the work that an event requires, and makes the event for C; `None` when the request cannot be served
/// any more.
///
/// # Safety
/// The identifier is alive, and its queue pair is NULL or live.
unsafe fn deliver(mut pending: Pending) -> Option<*mut rdma_cm_event> {
    // SAFETY: by this function's contract, the identifier is alive, and its queue pair is NULL or live.
    unsafe {
        let this = id_of_key(pending.id);
        let (mut about, mut listener) = (this.raw(), null_mut());
        match core::mem::replace(&mut pending.action, Action::Nothing) {
            Action::Nothing => {}
            Action::CreateId(new_request) => {
                listener = this.raw();
                about = requested::create_id(this, *new_request, &pending.param).ok()?;
            }
            Action::EstablishConnection => establish_connection(this, &mut pending),
            Action::ForgetSource => this.forget_source(),
            Action::Flush => {
                let _ = qp::fail(this);
            }
            Action::Join(address) => {
                if let Err(Errno(error)) = this.state().groups.attach(address, (*this.raw()).qp) {
                    pending.kind = abi::RDMA_CM_EVENT_MULTICAST_ERROR;
                    pending.status = -error;
                }
            }
        }
        Some(make(pending, about, listener))
    }
}

public_exports! {
    /// Registers the process with the agent already here, so that `rdma_create_event_channel` reports a
    /// failure.
    fn rdma_create_event_channel() -> pointer(*mut rdma_event_channel) {
        process()?;
        channel::create()
    }

    fn rdma_destroy_event_channel(raw: *mut rdma_event_channel) -> plain(()) {
        // SAFETY: the program gives the channel up.
        unsafe { channel::destroy(raw) };
    }

    fn rdma_get_cm_event(channel: *mut rdma_event_channel, place: Out<'_, *mut rdma_cm_event>)
        -> status(c_int) {
        let place = place.required()?;
        // SAFETY: the program's channel or NULL.
        let event = unsafe { next(channel) }?;
        if host::traced::is_on() {
            // SAFETY: just made, and not given to the program yet.
            let made = unsafe { &*event };
            let fields = [made.event.into(), made.status as u64, made.id.addr() as u64];
            host::traced::record(trace::Kind::CmEvent, &fields, "");
        }
        place.write(event)
    }

    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> status(c_int) {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an event that the program has taken, and gives up.
        unsafe { acknowledge(event) };
        Ok(())
    }
}
