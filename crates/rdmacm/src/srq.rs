//! Shared receive queues of identifiers.

use crate::id::{Id, id};
use crate::qp::create_cqs;
use crate::verbs::{self, verbs};
use abi::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC, ibv_pd, ibv_srq,
    ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use core::ffi::c_int;
use door::{Errno, door};
use std::ptr::null_mut;

/// # Safety
/// `attr` is as `ibv_create_srq_ex` wants it, but that what may be left out may be NULL.
unsafe fn create(this: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: as above.
    unsafe {
        if !(*raw).srq.is_null() {
            return Err(Errno::INVALID);
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            attr.pd = if (*raw).pd.is_null() { device.pd()? } else { (*raw).pd };
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

door! {
    fn rdma_create_srq(raw: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> status(c_int) {
        let attr = attr.as_mut().ok_or(Errno::INVALID)?;
        // All zeros is a valid value: pointers, masks, numbers.
        let mut longer: ibv_srq_init_attr_ex = core::mem::zeroed();
        (longer.srq_context, longer.attr, longer.pd) = (attr.srq_context, attr.attr, pd);
        if raw.as_ref().ok_or(Errno::INVALID)?.qp_type == abi::IBV_QPT_XRC_RECV {
            longer.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
            longer.srq_type = IBV_SRQT_XRC;
        }
        if !pd.is_null() {
            longer.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        create(id(raw)?, &mut longer)?;
        attr.attr = longer.attr;
        Ok(())
    }

    fn rdma_create_srq_ex(raw: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> status(c_int) {
        create(id(raw)?, attr.as_mut().ok_or(Errno::INVALID)?)
    }

    fn rdma_destroy_srq(raw: *mut rdma_cm_id) -> plain(()) {
        let Some(raw) = raw.as_mut() else { return };
        let srq: *mut ibv_srq = core::mem::replace(&mut raw.srq, null_mut());
        if let Ok(verbs) = verbs()
            && !srq.is_null()
        {
            (verbs.ibv_destroy_srq)(srq);
        }
    }
}
