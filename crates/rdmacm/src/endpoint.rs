//! Endpoints: an identifier, its address and its queue pair in one call.

use crate::address::{bind, find_route, resolve};
use crate::id::{Id, destroy, id, port_space};
use crate::qp;
use crate::sockaddr;
use crate::verbs::verbs;
use crate::world::world;
use abi::{RAI_PASSIVE, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use core::ffi::c_int;
use door::{Errno, door};
use std::ptr::null_mut;

/// With what a listening endpoint makes the queue pairs of its connections.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pd: usize,
    attr: ibv_qp_init_attr,
}

// SAFETY: the pointers are the program's, which says by its calls which thread uses them.
unsafe impl Send for Template {}

/// Gives a new connection of a listening endpoint its queue pair.
///
/// # Safety
/// What the program gave with the endpoint is alive.
pub(crate) unsafe fn furnish(listener: &Id, new: &Id) -> Result<(), Errno> {
    let Some(template) = listener.state().endpoint else { return Ok(()) };
    let mut attr = qp::extended(template.pd as *mut ibv_pd, &template.attr);
    // SAFETY: as above.
    unsafe { qp::create(new, &mut attr) }
}

/// # Safety
/// As `rdma_create_ep`.
unsafe fn furnish_endpoint(
    this: &Id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe {
        if info.ai_flags as u32 & RAI_PASSIVE != 0 {
            bind(this, sockaddr::read(info.ai_src_addr)?)?;
            if let Some(attr) = attr.as_mut() {
                attr.qp_type = (*this.raw()).qp_type;
                this.state().endpoint = Some(Template { pd: pd as usize, attr: *attr });
            }
            return Ok(());
        }
        let local = if info.ai_src_len == 0 { None } else { Some(sockaddr::read(info.ai_src_addr)?) };
        resolve(this, local, sockaddr::read(info.ai_dst_addr)?)?;
        this.complete()?;
        find_route(this)?;
        this.complete()?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = (*this.raw()).qp_type;
            let mut longer = qp::extended(pd, attr);
            qp::create(this, &mut longer)?;
            attr.cap = longer.cap;
        }
        Ok(())
    }
}

door! {
    fn rdma_create_ep(place: *mut *mut rdma_cm_id, info: *mut rdma_addrinfo, pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr) -> status(c_int) {
        let place = place.as_mut().ok_or(Errno::INVALID)?;
        let info = info.as_ref().ok_or(Errno::INVALID)?;
        let (space, usual) = port_space(info.ai_port_space as u32)?;
        let qp_type = if info.ai_qp_type == 0 { usual } else { info.ai_qp_type as u32 };
        let new: *mut rdma_cm_id = Id::new(world()?, null_mut(), null_mut(), space, qp_type)?.cast();
        if let Err(error) = furnish_endpoint(id(new)?, info, pd, attr) {
            rdma_destroy_ep(new);
            return Err(error);
        }
        *place = new;
        Ok(())
    }

    fn rdma_destroy_ep(raw: *mut rdma_cm_id) -> plain(()) {
        if raw.is_null() {
            return;
        }
        if !(*raw).qp.is_null() {
            qp::rdma_destroy_qp(raw);
        }
        if !(*raw).srq.is_null()
            && let Ok(verbs) = verbs()
        {
            (verbs.ibv_destroy_srq)((*raw).srq);
            (*raw).srq = null_mut();
        }
        let _ = destroy(raw);
    }
}
