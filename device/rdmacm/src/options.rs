//! Options of identifiers, and enhanced connection establishment (ECE).

use crate::id::IdArg;
use crate::state::Step;
use abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, ibv_ece,
};
use core::ffi::{c_int, c_void};
use ffi::{Errno, In, Out, public_exports};
use rnic::cm::Ece;

/// Largest ACK timeout: the queue pair attribute has 5 bits.
const ACK_TIMEOUT_MAX: u8 = 31;

/// Reads an option's value, whose length must be that of its type.
///
/// # Safety
/// `value` points to `length` bytes.
unsafe fn value<T: Copy>(value: *const c_void, length: usize) -> Result<T, Errno> {
    if length != size_of::<T>() || value.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: by this function's contract, `value` points to `length` bytes.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

public_exports! {
    fn rdma_set_option(id: IdArg<'_>, level: c_int, name: c_int, place: *mut c_void, length: usize)
        -> status(c_int) {
        let this = id.get()?;
        let mut state = this.state();
        if level as u32 != RDMA_OPTION_ID {
            // Only `RDMA_OPTION_IB_PATH` is left: InfiniBand paths, which RoCE does not have.
            return Err(Errno(libc::ENOSYS));
        }
        // SAFETY: the program passes `length` bytes.
        let byte = || unsafe { value::<u8>(place, length) };
        // SAFETY: the program passes `length` bytes.
        let flag = || unsafe { value::<c_int>(place, length) }.map(|flag| flag != 0);
        match name as u32 {
            RDMA_OPTION_ID_TOS => state.options.tos = byte()?,
            RDMA_OPTION_ID_REUSEADDR => {
                let reuses = flag()?;
                if state.step != Step::Idle {
                    return Err(Errno::INVALID);
                }
                state.options.reuses_address = reuses;
            }
            RDMA_OPTION_ID_AFONLY => {
                let v6_only = flag()?;
                if state.step != Step::Idle {
                    return Err(Errno::INVALID);
                }
                state.options.v6_only = v6_only;
            }
            RDMA_OPTION_ID_ACK_TIMEOUT => {
                let timeout = byte()?;
                if timeout > ACK_TIMEOUT_MAX {
                    return Err(Errno::INVALID);
                }
                state.options.ack_timeout = Some(timeout);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }

    /// The queue pair's own ECE is used when it was created by `rdma_create_qp`.
    fn rdma_set_local_ece(id: IdArg<'_>, ece: In<'_, *mut ibv_ece>) -> status(c_int) {
        let this = id.get()?;
        let ece = ece.get()?;
        if this.has_qp() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        this.state().options.local_ece = Ece { vendor_id: ece.vendor_id, options: ece.options };
        Ok(())
    }

    fn rdma_get_remote_ece(id: IdArg<'_>, place: Out<'_, ibv_ece>) -> status(c_int) {
        let this = id.get()?;
        let place = place.required()?;
        if this.has_qp() {
            return Err(Errno::INVALID);
        }
        let Ece { vendor_id, options } = this.state().options.remote_ece;
        place.write(ibv_ece { vendor_id, options, comp_mask: 0 })
    }
}
