//! Establishment of connections on the active side: a REP has come.

use crate::id::Id;
use crate::pending::Pending;
use crate::qp;
use crate::state::Step;
use abi::{RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED};
use ffi::Errno;
use rnic::cm::Reject;
use wire::cm::{REJ_PRIVATE_DATA, RTU_PRIVATE_DATA, RejectReason};

/// Handles a REP. If the queue pair was created by `rdma_create_qp`, it is brought to RTS and the RTU is
/// sent; otherwise the program does both.
///
/// # Safety
/// The identifier is alive, and its queue pair is NULL or live.
pub(crate) unsafe fn establish_connection(this: &Id, pending: &mut Pending) {
    // SAFETY: by this function's contract, the identifier is alive, and its queue pair is NULL or live.
    unsafe {
        if (*this.raw()).qp.is_null() {
            return;
        }
        match qp::make_ready(this).and_then(|()| establish(this)) {
            Ok(()) => pending.kind = RDMA_CM_EVENT_ESTABLISHED,
            Err(Errno(error)) => {
                let _ = this.process.with(|session, now| {
                    let comm = this.state().comm.ok_or(Errno::INVALID)?;
                    let private_data = [0; REJ_PRIVATE_DATA];
                    let reject = Reject {
                        reason: RejectReason::CONSUMER,
                        private_data,
                    };
                    Ok(session.cm.reject(comm, &reject, now)?)
                });
                this.state().step = Step::Disconnected;
                pending.kind = RDMA_CM_EVENT_CONNECT_ERROR;
                pending.status = -error;
            }
        }
    }
}

/// Sends the RTU.
pub(crate) fn establish(this: &Id) -> Result<(), Errno> {
    this.process.with(|session, now| {
        let comm = this.state().comm.ok_or(Errno::INVALID)?;
        session.cm.ready(comm, [0; RTU_PRIVATE_DATA], now)?;
        this.state().step = Step::Connected;
        Ok(())
    })
}
