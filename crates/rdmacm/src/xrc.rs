//! Extended reliable connections of identifiers: the domain that their shared receive queues are in.

use crate::id::Id;
use crate::verbs;
use abi::{
    IBV_SRQ_INIT_ATTR_XRCD, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_srq_init_attr_ex, ibv_xrcd,
    ibv_xrcd_init_attr,
};
use door::Errno;

/// The domain of a device for who brings none: one, that all identifiers share.
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

/// Puts a shared receive queue into the domain, unless the program named one.
///
/// # Safety
/// The identifier has a device.
pub(crate) unsafe fn complete(this: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
        // SAFETY: as above.
        attr.xrcd = unsafe { domain(this) }?;
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    Ok(())
}
