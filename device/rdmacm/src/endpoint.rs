//! Endpoints: an identifier, its address and its queue pair, created by one call.

use crate::address::{bind, find_route, resolve};
use crate::id::{Id, port_space};
use crate::lifetime::destroy;
use crate::process::process;
use crate::qp;
use crate::qp_attr::{Template, extended};
use crate::sockaddr;
use crate::synchronous::complete;
use crate::verbs::verbs;
use abi::{RAI_PASSIVE, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use core::ffi::c_int;
use ffi::{Errno, In, Out, public_exports};
use std::ptr::null_mut;

/// Timeout for the address of the peer, as in rdma-core.
const RESOLVE_MS: c_int = 2000;

/// Creates the queue pair of a new connection of a listening endpoint.
///
/// # Safety
/// The objects that the program named when it created the endpoint are alive.
pub(crate) unsafe fn create_connection_qp(listener: &Id, new: &Id) -> Result<(), Errno> {
    let Some(template) = listener.state().endpoint else {
        return Ok(());
    };
    let mut attr = template.attributes();
    // SAFETY: by this function's contract, the objects that the program named when it created the endpoint
    // are alive.
    unsafe { qp::create(new, &mut attr) }
}

/// # Safety
/// As for `rdma_create_ep`.
unsafe fn create_endpoint_qp(
    this: &Id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: by this function's contract, which is that of `rdma_create_ep`.
    unsafe {
        if info.ai_flags as u32 & RAI_PASSIVE != 0 {
            bind(this, sockaddr::read(info.ai_src_addr)?)?;
            if let Some(attr) = attr.as_mut() {
                attr.qp_type = (*this.raw()).qp_type;
                this.state().endpoint = Some(Template::new(pd, *attr));
            }
            return Ok(());
        }
        let local = if info.ai_src_len == 0 {
            None
        } else {
            Some(sockaddr::read(info.ai_src_addr)?)
        };
        let remote = sockaddr::read(info.ai_dst_addr)?;
        resolve(this, local, remote, RESOLVE_MS)?;
        complete(this)?;
        find_route(this)?;
        complete(this)?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = (*this.raw()).qp_type;
            let mut longer = extended(pd, attr);
            qp::create(this, &mut longer)?;
            attr.cap = longer.cap;
        }
        Ok(())
    }
}

/// Destroys an identifier with its queues.
///
/// # Safety
/// `raw` is an identifier that is not used any more.
unsafe fn destroy_endpoint(raw: *mut rdma_cm_id) {
    // SAFETY: by this function's contract, the identifier is live and not used by others.
    if !unsafe { (*raw).qp }.is_null() {
        // SAFETY: by this function's contract, the queue pair is not used any more.
        unsafe { qp::rdma_destroy_qp(raw) };
    }
    // SAFETY: by this function's contract, the identifier is live and not used by others.
    let srq = core::mem::replace(unsafe { &mut (*raw).srq }, null_mut());
    if !srq.is_null()
        && let Ok(verbs) = verbs()
    {
        // SAFETY: by this function's contract, the queue is not used any more.
        unsafe { (verbs.ibv_destroy_srq)(srq) };
    }
    // SAFETY: by this function's contract, the identifier is not used any more.
    let _ = unsafe { destroy(raw) };
}

public_exports! {
    fn rdma_create_ep(
        place: Out<'_, *mut rdma_cm_id>, info: In<'_, *mut rdma_addrinfo>, pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
    ) -> status(c_int) {
        let (place, info) = (place.required()?, info.get()?);
        let (space, usual) = port_space(info.ai_port_space as u32)?;
        let qp_type = if info.ai_qp_type == 0 { usual } else { info.ai_qp_type as u32 };
        let new = Id::new(process()?, null_mut(), null_mut(), space, qp_type)?;
        // SAFETY: the identifier was just made; the other arguments are as the manual page requires.
        if let Err(error) = unsafe { create_endpoint_qp(&*new, info, pd, attr) } {
            // SAFETY: the pointer to the identifier has not been returned yet.
            unsafe { destroy_endpoint(new.cast()) };
            return Err(error);
        }
        place.write(new.cast())
    }

    fn rdma_destroy_ep(raw: *mut rdma_cm_id) -> plain(()) {
        if !raw.is_null() {
            // SAFETY: the program gives the endpoint up.
            unsafe { destroy_endpoint(raw) };
        }
    }
}
