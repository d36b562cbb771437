//! Identifiers without a channel of the program: a call on one waits for its event.

use crate::delivered::forget_last;
use crate::events::next;
use crate::id::Id;
use ffi::Errno;

/// For synchronous identifiers: waits for the event of the current call, which stays in `event` until the
/// next call.
///
/// # Safety
/// No lock is held; the event of the last call is not used any more.
pub(crate) unsafe fn complete(this: &Id) -> Result<(), Errno> {
    if !this.state().is_synchronous {
        return Ok(());
    }
    // SAFETY: by this function's contract, no lock is held; the event of the last call is not used any
    // more; the channel is ours.
    unsafe {
        forget_last(this);
        let event = next((*this.raw()).channel)?;
        (*this.raw()).event = event;
        let status = (*event).status;
        match status {
            0 => Ok(()),
            _ if (*event).event == abi::RDMA_CM_EVENT_REJECTED => Err(Errno(libc::ECONNREFUSED)),
            status => Err(Errno(status.abs())),
        }
    }
}
