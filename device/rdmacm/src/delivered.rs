//! Events that the program has taken: their C struct, and their acknowledgement.

use crate::id::{Id, id};
use crate::pending::{Param, Pending};
use crate::qp;
use abi::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_param, rdma_ud_param};
use core::ffi::c_void;
use rnic::Path;
use std::ptr::{null, null_mut};

/// An event for C, which sees the first field.
#[repr(C)]
struct Event {
    abi: rdma_cm_event,
    data: Box<[u8]>,
    /// Address of the identifier that counts it as unacknowledged.
    of: usize,
}

/// The identifier that an event is about.
///
/// # Safety
/// `key` is the address of a live identifier.
pub(crate) unsafe fn id_of_key<'a>(key: usize) -> &'a Id {
    // SAFETY: by this function's contract, `key` is the address of a live identifier.
    unsafe { &*(key as *const Id) }
}

/// Makes the event for C.
///
/// # Safety
/// `about` is a live identifier.
pub(crate) unsafe fn make(
    pending: Pending,
    about: *mut rdma_cm_id,
    listener: *mut rdma_cm_id,
) -> *mut rdma_cm_event {
    let Pending {
        id,
        kind,
        status,
        param,
        data,
        ..
    } = pending;
    let private_data: *const c_void = if data.is_empty() {
        null()
    } else {
        data.as_ptr().cast()
    };
    let private_data_len = data.len() as u8;
    // SAFETY: by this function's contract, `about` is a live identifier.
    let param = unsafe { in_c(param, private_data, private_data_len, about) };
    let abi = rdma_cm_event {
        id: about,
        listen_id: listener,
        event: kind,
        status,
        param,
    };
    Box::into_raw(Box::new(Event { abi, data, of: id })).cast()
}

/// # Safety
/// `about` is a live identifier.
unsafe fn in_c(
    param: Param,
    private_data: *const c_void,
    private_data_len: u8,
    about: *mut rdma_cm_id,
) -> rdma_event_param {
    let datagram = |private_data, path: &Path, qp_num, qkey| {
        // SAFETY: by this function's contract, `about` is a live identifier.
        let ah_attr = unsafe { id(about) }.and_then(|this| qp::address_vector(this, path));
        let ah_attr = ah_attr.unwrap_or_default();
        rdma_event_param {
            ud: rdma_ud_param {
                private_data,
                private_data_len,
                ah_attr,
                qp_num,
                qkey,
            },
        }
    };
    match param {
        Param::Datagram { path, qpn, qkey } => datagram(private_data, &path, qpn, qkey),
        Param::Group { path, context } => datagram(
            context as *const c_void,
            &path,
            qp::MULTICAST_QPN,
            abi::RDMA_UDP_QKEY,
        ),
        Param::Argument(arg) => rdma_event_param { arg },
        Param::None => rdma_event_param {
            conn: conn_param(private_data, private_data_len),
        },
        Param::Connection {
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            srq,
            qpn,
        } => rdma_event_param {
            conn: rdma_conn_param {
                responder_resources,
                initiator_depth,
                flow_control: flow_control.into(),
                retry_count,
                rnr_retry_count,
                srq: srq.into(),
                qp_num: qpn,
                ..conn_param(private_data, private_data_len)
            },
        },
    }
}

fn conn_param(private_data: *const c_void, private_data_len: u8) -> rdma_conn_param {
    rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    }
}

/// Acknowledges and frees an event.
///
/// # Safety
/// `raw` is an event of [`make`] that is not used any more.
pub(crate) unsafe fn acknowledge(raw: *mut rdma_cm_event) {
    // SAFETY: by this function's contract, `raw` is an event of [`make`] that is not used any more; the
    // identifier is not freed before its events are acknowledged.
    unsafe {
        let event = Box::from_raw(raw.cast::<Event>());
        id_of_key(event.of).note_acknowledged();
    }
}

/// Acknowledges the event that the last call on a synchronous identifier left.
///
/// # Safety
/// The program does not use the event any more.
pub(crate) unsafe fn forget_last(this: &Id) {
    // SAFETY: by this function's contract, the program does not use the event any more.
    unsafe {
        let event: *mut rdma_cm_event = core::mem::replace(&mut (*this.raw()).event, null_mut());
        if !event.is_null() {
            acknowledge(event);
        }
    }
}
