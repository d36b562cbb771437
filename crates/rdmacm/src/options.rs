//! Options of identifiers, and enhanced connection establishment.

use crate::id::{Step, id};
use abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, ibv_ece, rdma_cm_id,
};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::cm::Ece;

/// The most that the field of a queue pair holds.
const ACK_TIMEOUT_MAX: u8 = 31;

/// A value of the caller's, which has to be as long as the option.
///
/// # Safety
/// `value` leads to `length` bytes.
unsafe fn value<T: Copy>(value: *const c_void, length: usize) -> Result<T, Errno> {
    if length != size_of::<T>() || value.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

door! {
    fn rdma_set_option(raw: *mut rdma_cm_id, level: c_int, name: c_int, place: *mut c_void, length: usize)
        -> status(c_int) {
        let this = id(raw)?;
        let mut state = this.state();
        if level as u32 != RDMA_OPTION_ID {
            // What is left is paths of InfiniBand, which RoCE has no use for.
            return Err(Errno(libc::ENOSYS));
        }
        match name as u32 {
            RDMA_OPTION_ID_TOS => state.options.tos = value::<u8>(place, length)?,
            RDMA_OPTION_ID_REUSEADDR => {
                let reuses = value::<c_int>(place, length)? != 0;
                if state.step != Step::Idle {
                    return Err(Errno::INVALID);
                }
                state.options.reuses_address = reuses;
            }
            RDMA_OPTION_ID_AFONLY => {
                let v6_only = value::<c_int>(place, length)? != 0;
                if state.step != Step::Idle {
                    return Err(Errno::INVALID);
                }
                state.options.v6_only = v6_only;
            }
            RDMA_OPTION_ID_ACK_TIMEOUT => {
                let timeout = value::<u8>(place, length)?;
                if timeout > ACK_TIMEOUT_MAX {
                    return Err(Errno::INVALID);
                }
                state.options.ack_timeout = Some(timeout);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }

    /// A queue pair of the identifier's own says it itself.
    fn rdma_set_local_ece(raw: *mut rdma_cm_id, ece: *mut ibv_ece) -> status(c_int) {
        let this = id(raw)?;
        let ece = ece.as_ref().ok_or(Errno::INVALID)?;
        if !(*raw).qp.is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        this.state().options.local_ece = Ece { vendor_id: ece.vendor_id, options: ece.options };
        Ok(())
    }

    fn rdma_get_remote_ece(raw: *mut rdma_cm_id, place: *mut ibv_ece) -> status(c_int) {
        let this = id(raw)?;
        let place = place.as_mut().ok_or(Errno::INVALID)?;
        if !(*raw).qp.is_null() {
            return Err(Errno::INVALID);
        }
        let Ece { vendor_id, options } = this.state().options.remote_ece;
        *place = ibv_ece { vendor_id, options, comp_mask: 0 };
        Ok(())
    }
}
