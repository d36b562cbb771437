//! The XRC domain of identifiers' shared receive queues.

use crate::id::Id;
use crate::verbs;
use abi::{
    IBV_SRQ_INIT_ATTR_XRCD, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_srq_init_attr_ex,
    ibv_xrcd, ibv_xrcd_init_attr,
};
use ffi::Errno;

/// The default XRC domain of a device, which all identifiers share that name none.
///
/// # Safety
/// The identifier has a device.
pub(crate) unsafe fn domain(this: &Id) -> Result<*mut ibv_xrcd, Errno> {
    let device = this.state().device.ok_or(Errno::INVALID)?;
    device.xrcd(|context| {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: an open device.
        unsafe { verbs::open_xrcd(context, &mut attr) }
    })
}

/// Adds the XRC domain to the attributes of a shared receive queue, unless the program named one.
///
/// # Safety
/// The identifier has a device.
pub(crate) unsafe fn complete(this: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
        // SAFETY: by this function's contract, the identifier has a device.
        attr.xrcd = unsafe { domain(this) }?;
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    Ok(())
}
