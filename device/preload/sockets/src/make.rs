//! New rsockets, with the options that the administrator and the environment set.

use crate::config;
use crate::rsockets as r;
use core::ffi::c_int;
use libc::socklen_t;

/// The level of options of rdma/rsocket.h, and names of options.
pub(crate) const SOL_RDMA: c_int = 0x1_0000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;

/// Creates an rsocket, with the options that the environment sets.
///
/// # Safety
/// No requirements beyond those of `rsocket(3)`, whose arguments are numbers.
pub(crate) unsafe fn make(domain: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    // SAFETY: numbers; options lead to a number that lives until the call returns.
    unsafe {
        let rsocket = r::rsocket(domain, kind, protocol);
        if rsocket < 0 {
            return None;
        }
        let settings = config::settings();
        for (name, value) in [
            (RDMA_SQSIZE, settings.send_queue),
            (RDMA_RQSIZE, settings.receive_queue),
            (RDMA_INLINE, settings.inline_bytes),
        ] {
            if let Some(value) = value {
                let place = core::ptr::from_ref(&value).cast();
                r::rsetsockopt(
                    rsocket,
                    SOL_RDMA,
                    name,
                    place,
                    size_of::<c_int>() as socklen_t,
                );
            }
        }
        Some(rsocket)
    }
}
