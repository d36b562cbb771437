//! Attributes of queue pairs that are to be created.

use abi::{IBV_QP_INIT_ATTR_PD, ibv_pd, ibv_qp_init_attr, ibv_qp_init_attr_ex};

/// Converts attributes to the extended struct.
pub(crate) fn extended(pd: *mut ibv_pd, attr: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: all zeros is a valid value: pointers, masks, lengths.
    let empty: ibv_qp_init_attr_ex = unsafe { core::mem::zeroed() };
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        ..empty
    }
}

/// Attributes for the queue pairs of a listening endpoint's connections.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pd: usize,
    attr: ibv_qp_init_attr,
}

// SAFETY: the pointers are the program's, whose calls determine the thread that uses them.
unsafe impl Send for Template {}

impl Template {
    pub(crate) fn new(pd: *mut ibv_pd, attr: ibv_qp_init_attr) -> Self {
        Self {
            pd: pd as usize,
            attr,
        }
    }

    /// The attributes of one queue pair.
    pub(crate) fn attributes(&self) -> ibv_qp_init_attr_ex {
        extended(self.pd as *mut ibv_pd, &self.attr)
    }
}
