//! Multicast groups. On RoCE a group's address is its GID. Joining attaches the queue pair to the group, and
//! attaching makes the host join on the network (IGMP, MLD).

use crate::events::{Action, Param, Pending};
use crate::id::{Group, Id, IdArg, Step};
use crate::sockaddr::{self, AddressArg};
use crate::verbs::verbs;
use abi::{
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, ibv_gid, rdma_cm_join_mc_attr_ex,
};
use core::ffi::{c_int, c_void};
use door::{Errno, In, door};
use rnic::Path;
use std::net::SocketAddr;
use std::sync::Arc;

/// Groups of one identifier at most.
const GROUPS_MAX: usize = 1024;

fn join(this: &Id, address: SocketAddr, context: *mut c_void, sends_only: bool) -> Result<(), Errno> {
    let mut state = this.state();
    if state.device.is_none()
        || !matches!(state.step, Step::Bound | Step::AddressResolved | Step::RouteResolved | Step::Connected)
    {
        return Err(Errno::INVALID);
    }
    let group = sockaddr::gid(address.ip());
    if !group.is_multicast() {
        return Err(Errno::INVALID);
    }
    if state.groups.iter().any(|known| known.address.ip() == address.ip()) {
        return Err(Errno(libc::EADDRINUSE));
    }
    if state.groups.len() >= GROUPS_MAX {
        return Err(Errno::NO_MEMORY);
    }
    let local = this.local().ok_or(Errno::INVALID)?;
    let path = Path {
        source: sockaddr::gid(local.ip()),
        destination: group,
        traffic_class: state.options.tos,
        // TTL 1, as on Linux: multicast packets stay on the link.
        hop_limit: 1,
        ..Path::default()
    };
    let context = context as usize;
    state.groups.push(Group { address, attached: false, sends_only });
    let param = Param::Group { path, context };
    let action = Action::Join(address);
    Arc::clone(&state.queue).push(Pending {
        param,
        action,
        ..Pending::plain(this.key(), RDMA_CM_EVENT_MULTICAST_JOIN, 0)
    });
    Ok(())
}

/// Attaches the queue pair to a group that was joined.
///
/// # Safety
/// The identifier's queue pair is NULL or live.
pub(crate) unsafe fn attach(this: &Id, address: SocketAddr) -> Result<(), Errno> {
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    let qp = unsafe { (*this.raw()).qp };
    let mut state = this.state();
    let group = state.groups.iter_mut().find(|group| group.address == address).ok_or(Errno::INVALID)?;
    if qp.is_null() || group.sends_only || group.attached {
        return Ok(());
    }
    let gid = ibv_gid { raw: sockaddr::gid(address.ip()).0 };
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    Errno::check(unsafe { (verbs()?.ibv_attach_mcast)(qp, &gid, 0) })?;
    group.attached = true;
    Ok(())
}

/// # Safety
/// The identifier's queue pair is NULL or live.
unsafe fn detach(this: &Id, group: &Group) {
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    unsafe {
        let qp = (*this.raw()).qp;
        let gid = ibv_gid { raw: sockaddr::gid(group.address.ip()).0 };
        if let Ok(verbs) = verbs()
            && group.attached
            && !qp.is_null()
        {
            (verbs.ibv_detach_mcast)(qp, &gid, 0);
        }
    }
}

/// Detaches the queue pair from all groups, and leaves them.
///
/// # Safety
/// The identifier's queue pair is NULL or live.
pub(crate) unsafe fn leave_all(this: &Id) {
    let groups = core::mem::take(&mut this.state().groups);
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    groups.iter().for_each(|group| unsafe { detach(this, group) });
}

door! {
    fn rdma_join_multicast(id: IdArg<'_>, address: AddressArg, context: *mut c_void)
        -> status(c_int) {
        let this = id.get()?;
        join(this, address.get()?, context, false)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { this.complete() }
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
        unsafe { this.complete() }
    }

    fn rdma_leave_multicast(id: IdArg<'_>, address: AddressArg) -> status(c_int) {
        let this = id.get()?;
        let address = address.get()?;
        let group = {
            let mut state = this.state();
            let place = state.groups.iter().position(|group| group.address.ip() == address.ip());
            state.groups.swap_remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?)
        };
        // SAFETY: the identifier's queue pair is NULL or live.
        unsafe { detach(this, &group) };
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| {
            event.id == this.key()
                && matches!(&event.action, Action::Join(joined) if *joined == group.address)
        }));
        Ok(())
    }
}
