//! Listening for connection requests.

use crate::address::bind;
use crate::delivered::{acknowledge, forget_last};
use crate::endpoint::create_connection_qp;
use crate::events;
use crate::id::{Id, IdArg, id};
use crate::lifetime::destroy;
use crate::state::Step;
use abi::{RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_id};
use core::ffi::c_int;
use ffi::{Errno, Out, public_exports};
use std::net::Ipv4Addr;

/// Backlog where the program names none: 1,024, as on Linux.
const BACKLOG: u32 = 1024;

/// Listens on the bound address and port; on any address and a free port where none is bound.
pub(crate) fn listen(this: &Id, backlog: c_int) -> Result<(), Errno> {
    if this.state().step == Step::Idle {
        bind(this, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    }
    let bound = {
        let state = this.state();
        if state.step != Step::Bound {
            return Err(Errno::INVALID);
        }
        state.bound.ok_or(Errno::INVALID)?
    };
    let backlog = u32::try_from(backlog).unwrap_or(0);
    let backlog = if (1..BACKLOG).contains(&backlog) {
        backlog
    } else {
        BACKLOG
    };
    this.process
        .connector()?
        .listen(&bound, backlog, |session, listener| {
            session.owner.listeners.insert(listener, this.entry());
            let mut state = this.state();
            state.listener = Some(listener);
            // The device may have been removed since the lock was released.
            if state.step != Step::Bound {
                return Err(Errno::INVALID);
            }
            state.step = Step::Listening;
            Ok(())
        })?
}

public_exports! {
    fn rdma_listen(id: IdArg<'_>, backlog: c_int) -> status(c_int) {
        listen(id.get()?, backlog)
    }

    fn rdma_get_request(listener: IdArg<'_>, place: Out<'_, *mut rdma_cm_id>) -> status(c_int) {
        let this = listener.get()?;
        let place = place.required()?;
        if !this.state().is_synchronous {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program is done with the event of its last call.
        unsafe { forget_last(this) };
        // SAFETY: calls on one identifier come one at a time.
        let channel = unsafe { (*this.raw()).channel };
        // SAFETY: a synchronous identifier has a channel of its own.
        let event = unsafe { events::next(channel) }?;
        // SAFETY: the event was just taken.
        let (status, kind, new) = unsafe { ((*event).status, (*event).event, (*event).id) };
        if status != 0 || kind != RDMA_CM_EVENT_CONNECT_REQUEST {
            // SAFETY: the event was just taken, and is not passed on.
            unsafe { acknowledge(event) };
            return Err(if status == 0 { Errno::INVALID } else { Errno(status.abs()) });
        }
        // SAFETY: the identifier of the request, which the event made.
        let made = unsafe { id(new) }?;
        // SAFETY: the objects that the program named for the endpoint are alive.
        if let Err(error) = unsafe { create_connection_qp(this, made) } {
            // SAFETY: the event was just taken, and is not passed on.
            unsafe { acknowledge(event) };
            // SAFETY: the program does not know the identifier.
            unsafe { destroy(new) }?;
            return Err(error);
        }
        // SAFETY: the program does not know the identifier yet.
        unsafe { (*new).event = event };
        place.write(new)
    }
}
