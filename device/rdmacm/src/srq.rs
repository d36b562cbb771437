//! Shared receive queues of identifiers.

use crate::id::{Id, IdArg};
use crate::qp::create_cqs;
use crate::verbs::{self, verbs};
use abi::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC, ibv_pd,
    ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use core::ffi::c_int;
use ffi::{Errno, InOut, public_exports};
use std::ptr::null_mut;

/// # Safety
/// `attr` is as `ibv_create_srq_ex` requires, except that optional objects may be NULL.
unsafe fn create(this: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: by this function's contract, `attr` is as `ibv_create_srq_ex` requires, except that optional
    // objects may be NULL.
    unsafe {
        if !(*raw).srq.is_null() {
            return Err(Errno::INVALID);
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            attr.pd = if (*raw).pd.is_null() {
                device.pd()?
            } else {
                (*raw).pd
            };
        }
        if (*attr.pd).context != (*raw).verbs {
            return Err(Errno::INVALID);
        }
        let is_xrc = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && attr.srq_type == IBV_SRQT_XRC;
        if is_xrc && (attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null()) {
            create_cqs(this, None, Some(attr.attr.max_wr))?;
            attr.cq = (*raw).recv_cq;
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        }
        if is_xrc {
            crate::xrc::complete(this, attr)?;
        }
        (*raw).srq = verbs::create_srq_ex((*raw).verbs, attr)?;
        (*raw).pd = attr.pd;
        Ok(())
    }
}

public_exports! {
    fn rdma_create_srq(id: IdArg<'_>, pd: *mut ibv_pd, attr: InOut<'_, ibv_srq_init_attr>) -> status(c_int) {
        let (this, attr) = (id.get()?, attr.get()?);
        // SAFETY: all zeros is a valid value: pointers, masks, numbers.
        let mut longer: ibv_srq_init_attr_ex = unsafe { core::mem::zeroed() };
        (longer.srq_context, longer.attr, longer.pd) = (attr.srq_context, attr.attr, pd);
        // SAFETY: calls on one identifier come one at a time.
        if unsafe { (*this.raw()).qp_type } == abi::IBV_QPT_XRC_RECV {
            longer.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
            longer.srq_type = IBV_SRQT_XRC;
        }
        if !pd.is_null() {
            longer.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        // SAFETY: the attributes name live objects or NULL.
        unsafe { create(this, &mut longer) }?;
        attr.attr = longer.attr;
        Ok(())
    }

    fn rdma_create_srq_ex(id: IdArg<'_>, attr: InOut<'_, ibv_srq_init_attr_ex>) -> status(c_int) {
        // SAFETY: the attributes name live objects or NULL.
        unsafe { create(id.get()?, attr.get()?) }
    }

    fn rdma_destroy_srq(id: IdArg<'_>) -> plain(()) {
        let Some(this) = id.optional() else { return };
        // SAFETY: calls on one identifier come one at a time.
        let srq: *mut ibv_srq = core::mem::replace(unsafe { &mut (*this.raw()).srq }, null_mut());
        if let Ok(verbs) = verbs()
            && !srq.is_null()
        {
            // SAFETY: the program does not use the queue any more.
            unsafe { (verbs.ibv_destroy_srq)(srq) };
        }
    }
}
