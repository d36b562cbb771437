//! Multicast groups. On RoCE the group's address is its GID; joining means that the queue pair receives what
//! is sent there, and that the host says so on the network (IGMP, MLD), which attaching does.

use crate::events::{Param, Pending, Then};
use crate::id::{Group, Id, Step, id};
use crate::sockaddr;
use crate::verbs::verbs;
use abi::{
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, ibv_gid, rdma_cm_id,
    rdma_cm_join_mc_attr_ex,
};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::Path;
use std::net::SocketAddr;
use std::sync::Arc;

/// Groups that one identifier is in.
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
        // It stays on the link, as Linux sends it.
        hop_limit: 1,
        ..Path::default()
    };
    let context = context as usize;
    state.groups.push(Group { address, attached: false, sends_only });
    let param = Param::Group { path, context };
    let then = Then::Join(address);
    Arc::clone(&state.queue).push(Pending {
        param,
        then,
        ..Pending::plain(this.key(), RDMA_CM_EVENT_MULTICAST_JOIN, 0)
    });
    Ok(())
}

/// Has the queue pair receive from a group that was joined.
///
/// # Safety
/// The identifier's queue pair is as C says.
pub(crate) unsafe fn attach(this: &Id, address: SocketAddr) -> Result<(), Errno> {
    // SAFETY: as above.
    let qp = unsafe { (*this.raw()).qp };
    let mut state = this.state();
    let group = state.groups.iter_mut().find(|group| group.address == address).ok_or(Errno::INVALID)?;
    if qp.is_null() || group.sends_only || group.attached {
        return Ok(());
    }
    let gid = ibv_gid { raw: sockaddr::gid(address.ip()).0 };
    // SAFETY: as above.
    Errno::check(unsafe { (verbs()?.ibv_attach_mcast)(qp, &gid, 0) })?;
    group.attached = true;
    Ok(())
}

/// # Safety
/// The identifier's queue pair is as C says.
unsafe fn detach(this: &Id, group: &Group) {
    // SAFETY: as above.
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

/// Leaves all groups.
///
/// # Safety
/// The identifier's queue pair is as C says.
pub(crate) unsafe fn leave_all(this: &Id) {
    let groups = core::mem::take(&mut this.state().groups);
    // SAFETY: as above.
    groups.iter().for_each(|group| unsafe { detach(this, group) });
}

door! {
    fn rdma_join_multicast(raw: *mut rdma_cm_id, address: *const c_void, context: *mut c_void)
        -> status(c_int) {
        let this = id(raw)?;
        join(this, sockaddr::read(address)?, context, false)?;
        this.complete()
    }

    fn rdma_join_multicast_ex(raw: *mut rdma_cm_id, attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void)
        -> status(c_int) {
        let this = id(raw)?;
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
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
        join(this, sockaddr::read(attr.addr)?, context, sends_only)?;
        this.complete()
    }

    fn rdma_leave_multicast(raw: *mut rdma_cm_id, address: *const c_void) -> status(c_int) {
        let this = id(raw)?;
        let address = sockaddr::read(address)?;
        let group = {
            let mut state = this.state();
            let place = state.groups.iter().position(|group| group.address.ip() == address.ip());
            state.groups.swap_remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?)
        };
        detach(this, &group);
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| {
            event.id == this.key() && matches!(&event.then, Then::Join(joined) if *joined == group.address)
        }));
        Ok(())
    }
}
