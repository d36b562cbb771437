//! Identifiers of connection requests.

use crate::id::Id;
use crate::lifetime::destroy;
use crate::negotiated::Negotiated;
use crate::path_record::fill_path_record;
use crate::pending::{NewRequest, Param};
use crate::qp::random_psn;
use crate::state::Step;
use crate::subnet_path;
use abi::rdma_cm_id;
use ffi::Errno;
use std::ptr::null_mut;

/// An identifier with the properties of a listener, attached to the device at which a request arrived.
///
/// # Safety
/// `listener` is alive.
unsafe fn like_listener(listener: &Id, negotiated: &Negotiated) -> Result<*mut Id, Errno> {
    // SAFETY: the listener is alive.
    let seen = unsafe { *listener.raw() };
    let (space, is_synchronous) = {
        let state = listener.state();
        (state.space, state.is_synchronous)
    };
    let path = negotiated.path().ok_or(Errno::NO_DEVICE)?;
    let device = listener.process.device_of(path.source)?;
    let channel = if is_synchronous {
        null_mut()
    } else {
        seen.channel
    };
    let new = Id::new(listener.process, channel, seen.context, space, seen.qp_type)?;
    // SAFETY: just made.
    let this = unsafe { &*new };
    this.state().is_unaccepted = true;
    this.attach(device);
    Ok(new)
}

/// Creates an identifier for a connection request. It uses the listener's channel, or a channel of its own if
/// the listener is synchronous.
///
/// # Safety
/// `listener` is alive.
pub(crate) unsafe fn create_id(
    listener: &Id,
    new_request: NewRequest,
    param: &Param,
) -> Result<*mut rdma_cm_id, Errno> {
    let NewRequest {
        comm,
        local,
        remote,
        mut negotiated,
        ece,
    } = new_request;
    let withdraw = || {
        let _ = listener.process.with(|session, now| {
            session.owner.drop_unclaimed(comm);
            let _ = session.cm.release(comm, now);
            Ok(())
        });
    };
    let psn = random_psn().inspect_err(|_| withdraw())?;
    // SAFETY: the listener is alive.
    let made = unsafe { like_listener(listener, &negotiated) };
    let new = made.inspect_err(|_| withdraw())?;
    negotiated.expected_psn = psn;
    let tos = listener.state().options.tos;
    // SAFETY: just made.
    let this = unsafe { &*new };
    let is_subnet = this.state().device.is_some_and(|device| device.is_subnet);
    if let Some(path) = negotiated.path().filter(|_| is_subnet) {
        // Without an answer of the lab the program cannot accept, and is told so then.
        let found = subnet_path::find(path.destination).ok();
        this.state().subnet_path = found;
        if listener.state().peer_gid.is_some() {
            this.name_by_gid(found.map_or([0; 16], |found| found.gid));
        }
    }
    this.set_local(local);
    this.set_remote(remote);
    // SAFETY: just made.
    unsafe { fill_path_record(this, negotiated.path().copied().unwrap_or_default()) };
    let claimed = this.process.with(|session, _| {
        session.cm.take(comm)?;
        session.owner.claim(comm, this.entry());
        let mut state = this.state();
        state.step = Step::Requested;
        state.comm = Some(comm);
        state.negotiated = negotiated;
        state.options.tos = tos;
        state.options.remote_ece = ece;
        Ok(())
    });
    if let Err(error) = claimed {
        withdraw();
        // SAFETY: the program has not got it.
        unsafe { destroy(new.cast()) }?;
        return Err(error);
    }
    if let Param::Connection {
        responder_resources,
        initiator_depth,
        ..
    } = *param
    {
        this.state()
            .negotiated
            .offer(responder_resources, initiator_depth);
    }
    Ok(new.cast())
}
