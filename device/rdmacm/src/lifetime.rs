//! Creation, migration and destruction of identifiers.

use crate::channel;
use crate::delivered::forget_last;
use crate::id::{Id, IdArg, id, port_space};
use crate::process::process;
use abi::{ibv_sa_path_rec, rdma_cm_id, rdma_event_channel};
use core::ffi::{c_int, c_void};
use ffi::{Errno, Out, public_exports};
use std::sync::Arc;

/// Closes the connection, the listener and the port of an identifier.
fn close(this: &Id) -> Result<(), Errno> {
    let (is_listening, bound) = this.process.with(|session, now| {
        let mut state = this.state();
        session.owner.forget(this.key(), &state);
        let listener = state.listener.take().zip(state.bound);
        if let Some((listener, bound)) = listener {
            session.unlisten(&bound, listener, now);
        }
        if let Some(comm) = state.comm.take() {
            let _ = session.cm.release(comm, now);
        }
        Ok((listener.is_some(), state.bound.take()))
    })?;
    let connector = this.process.connector()?;
    if let Some(bound) = bound {
        if is_listening {
            connector.withdraw(&bound);
        }
        connector.unbind(&bound);
    }
    Ok(())
}

/// Closes the connection, the listener and the port of an identifier, and frees it.
///
/// # Safety
/// `raw` is an identifier that is not used any more.
pub(crate) unsafe fn destroy(raw: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `raw` is an identifier that is not used any more.
    unsafe {
        let this = id(raw)?;
        forget_last(this);
        this.process.searches.cancel(this.key());
        // Fails only in the child of a fork, whose copies belong to the parent.
        let _ = close(this);
        let groups = core::mem::take(&mut this.state().groups);
        groups.leave_all((*raw).qp);
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| event.id == this.key()));
        this.wait_acknowledged();
        // A thread that resolves a name may have queued an event until `wait_acknowledged` returned.
        drop(queue.take_out(|event| event.id == this.key()));
        let (is_synchronous, channel) = (this.state().is_synchronous, (*raw).channel);
        let path = (*raw).route.path_rec;
        drop(Box::from_raw(raw.cast::<Id>()));
        if !path.is_null() {
            drop(Box::<ibv_sa_path_rec>::from_raw(path));
        }
        if is_synchronous {
            channel::destroy(channel);
        }
        Ok(())
    }
}

public_exports! {
    fn rdma_create_id(
        channel: *mut rdma_event_channel, place: Out<'_, *mut rdma_cm_id>, context: *mut c_void, space: u32,
    ) -> status(c_int) {
        let (space, qp_type) = port_space(space)?;
        let place = place.required()?;
        place.write(Id::new(process()?, channel, context, space, qp_type)?.cast())
    }

    fn rdma_destroy_id(raw: *mut rdma_cm_id) -> status(c_int) {
        // SAFETY: the program gives the identifier up.
        unsafe { destroy(raw) }
    }

    fn rdma_migrate_id(id: IdArg<'_>, channel: *mut rdma_event_channel) -> status(c_int) {
        let (this, raw) = (id.get()?, id.raw());
        let becomes_synchronous = channel.is_null();
        if becomes_synchronous && this.state().is_synchronous {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program is done with the event of its last call.
        unsafe { forget_last(this) };
        let channel = if becomes_synchronous { channel::create()? } else { channel };
        // SAFETY: the program's channel, or ours.
        let queue = unsafe { channel::queue(channel) }?;
        // SAFETY: calls on one identifier come one at a time.
        let old = unsafe { (*raw).channel };
        let was_synchronous = this.process.with(|_, _| {
            let mut state = this.state();
            let waiting = state.queue.take_out(|event| event.id == this.key());
            waiting.into_iter().for_each(|event| queue.push(event));
            state.queue = Arc::clone(&queue);
            // SAFETY: calls on one identifier come one at a time.
            unsafe { (*raw).channel = channel };
            Ok(core::mem::replace(&mut state.is_synchronous, becomes_synchronous))
        })?;
        this.wait_acknowledged();
        if was_synchronous {
            // SAFETY: the channel was made for the identifier alone, which has another one now.
            unsafe { channel::destroy(old) };
        }
        Ok(())
    }
}
