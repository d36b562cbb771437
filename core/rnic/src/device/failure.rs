//! The end of a device after an internal error.

use super::Device;
use crate::error::Error;
use crate::qp::attr::{AttrMask, QpAttr, State};
use crate::time::Instant;

impl Device {
    /// Ends the device after an internal error, such as a panic in one of its calls, when its state may be
    /// inconsistent: raises [`crate::Event::DeviceFatal`] (IBTA 11.6.3.3) and flushes every queue pair. From
    /// then on packets are dropped, nothing is sent, and no queue pair is created or leaves the error state.
    /// Objects can still be destroyed, and completions and events taken.
    pub fn fail(&mut self, now: Instant) {
        if core::mem::replace(&mut self.failed, true) {
            return;
        }
        self.port_mut().set_removed();
        let attr = QpAttr {
            state: State::Error,
            ..QpAttr::default()
        };
        for qpn in self.qpns() {
            // The number is from the table; a failure of one queue pair must not stop the loop.
            let _ = self.modify_qp(qpn, &attr, AttrMask::STATE, now);
        }
    }

    /// Whether [`Self::fail`] has ended the device.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Refuses calls that would put a failed device to use again.
    pub(super) fn check_usable(&self) -> Result<(), Error> {
        if self.failed {
            Err(Error::WrongState)
        } else {
            Ok(())
        }
    }
}
