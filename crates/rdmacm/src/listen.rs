//! Waiting for requests.

use crate::address::bind;
use crate::events;
use crate::id::{Id, Step, id};
use abi::{RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_id};
use core::ffi::c_int;
use door::{Errno, door};
use std::net::Ipv4Addr;

/// Requests that wait where the program names no number: as many as Linux lets wait.
const BACKLOG: u32 = 1024;

/// Waits for requests from now on; at any address and port where none was bound.
pub(crate) fn listen(this: &Id, backlog: c_int) -> Result<(), Errno> {
    if this.state().step == Step::Idle {
        bind(this, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    }
    this.world.with(|session, now| {
        let mut state = this.state();
        if state.step != Step::Bound {
            return Err(Errno::INVALID);
        }
        let bound = state.bound.ok_or(Errno::INVALID)?;
        let backlog = u32::try_from(backlog).unwrap_or(0);
        let backlog = if (1..BACKLOG).contains(&backlog) { backlog } else { BACKLOG };
        let listener = session.listen(&bound, backlog, now)?;
        session.owner.listeners.insert(listener, this.key());
        state.listener = Some(listener);
        state.step = Step::Listening;
        Ok(())
    })
}

door! {
    fn rdma_listen(raw: *mut rdma_cm_id, backlog: c_int) -> status(c_int) {
        listen(id(raw)?, backlog)
    }

    fn rdma_get_request(raw: *mut rdma_cm_id, place: *mut *mut rdma_cm_id) -> status(c_int) {
        let this = id(raw)?;
        let place = place.as_mut().ok_or(Errno::INVALID)?;
        if !this.state().is_synchronous {
            return Err(Errno::INVALID);
        }
        this.forget_event();
        let event = events::next((*raw).channel)?;
        if (*event).status != 0 || (*event).event != RDMA_CM_EVENT_CONNECT_REQUEST {
            let status = (*event).status;
            events::acknowledge(event);
            return Err(if status == 0 { Errno::INVALID } else { Errno(status.abs()) });
        }
        let new = (*event).id;
        if let Err(error) = crate::endpoint::furnish(this, id(new)?) {
            events::acknowledge(event);
            crate::id::destroy(new)?;
            return Err(error);
        }
        (*new).event = event;
        *place = new;
        Ok(())
    }
}
