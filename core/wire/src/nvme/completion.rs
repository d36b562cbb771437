//! The 16 bytes of a completion (Base 3.3.3.2).

use super::status::Status;
use crate::layout::layouts;

/// Bytes of a completion.
pub const COMPLETION_SIZE: usize = 16;

layouts! {
    /// A completion as it is laid out in a capsule.
    Completion[16] {
        /// The value that the command returns: a feature's value, a property, a controller id.
        result: u64 = 0;
        /// How far the controller has taken commands from the submission queue.
        sq_head: u16 = 8;
        /// The submission queue; not used on fabrics.
        sq_id: u16 = 10;
        /// Identifier of the command that completed (CID).
        cid: u16 = 12;
        /// The status, one bit up: bit 0 is the phase, which fabrics do not use.
        status_and_phase: u16 = 14;
    }
}

impl Completion {
    /// The completion of command `cid`.
    #[inline]
    pub fn new(cid: u16, status: Status) -> Self {
        Self {
            cid,
            status_and_phase: status.0 << 1,
            ..Self::default()
        }
    }

    /// The status field.
    #[inline]
    pub const fn status(&self) -> Status {
        Status(self.status_and_phase >> 1)
    }
}
