//! Joining and leaving multicast groups. On RoCE a group's address is its GID. The queue pair is attached to
//! the group when the program takes the event of the join.

use crate::id::{Id, IdArg};
use crate::pending::{Action, Param, Pending};
use crate::sockaddr::{self, AddressArg};
use crate::state::Step;
use crate::synchronous::complete;
use abi::{
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, rdma_cm_join_mc_attr_ex,
};
use core::ffi::{c_int, c_void};
use ffi::{Errno, In, public_exports};
use rnic::Path;
use std::net::SocketAddr;
use std::sync::Arc;

fn join(
    this: &Id,
    address: SocketAddr,
    context: *mut c_void,
    sends_only: bool,
) -> Result<(), Errno> {
    let mut state = this.state();
    if state.device.is_none()
        || !matches!(
            state.step,
            Step::Bound | Step::AddressResolved | Step::RouteResolved | Step::Connected
        )
    {
        return Err(Errno::INVALID);
    }
    if state.device.is_some_and(|device| device.is_subnet) {
        // The subnet's administrator has to make the group, and gives its LID.
        return Err(Errno::UNSUPPORTED);
    }
    let group = sockaddr::gid(address.ip());
    if !group.is_multicast() {
        return Err(Errno::INVALID);
    }
    let local = this.local().ok_or(Errno::INVALID)?;
    state.groups.add(address, sends_only)?;
    let path = Path {
        source: sockaddr::gid(local.ip()),
        destination: group,
        traffic_class: state.options.tos,
        // TTL 1, as on Linux: multicast packets stay on the link.
        hop_limit: 1,
        ..Path::default()
    };
    let context = context as usize;
    let param = Param::Group { path, context };
    let action = Action::Join(address);
    Arc::clone(&state.queue).push(Pending {
        param,
        action,
        ..Pending::plain(this.key(), RDMA_CM_EVENT_MULTICAST_JOIN, 0)
    });
    Ok(())
}

public_exports! {
    fn rdma_join_multicast(id: IdArg<'_>, address: AddressArg, context: *mut c_void)
        -> status(c_int) {
        let this = id.get()?;
        join(this, address.get()?, context, false)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    fn rdma_join_multicast_ex(
        id: IdArg<'_>, attr: In<'_, *mut rdma_cm_join_mc_attr_ex>, context: *mut c_void,
    ) -> status(c_int) {
        let this = id.get()?;
        let attr = attr.get()?;
        let known = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        if attr.comp_mask & !known != 0 || attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
            return Err(Errno::INVALID);
        }
        let sends_only = match attr.join_flags {
            _ if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 0 => false,
            RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
            _ => return Err(Errno::INVALID),
        };
        // SAFETY: the mask says that there is an address, whose family says how long it is.
        let address = unsafe { sockaddr::read(attr.addr) }?;
        join(this, address, context, sends_only)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    fn rdma_leave_multicast(id: IdArg<'_>, address: AddressArg) -> status(c_int) {
        let this = id.get()?;
        let address = address.get()?;
        let group = this.state().groups.remove(address)?;
        // SAFETY: the identifier's queue pair is NULL or live.
        unsafe { group.detach((*this.raw()).qp) };
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| {
            event.id == this.key()
                && matches!(&event.action, Action::Join(joined) if *joined == group.address())
        }));
        Ok(())
    }
}
