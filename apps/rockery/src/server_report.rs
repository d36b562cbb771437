//! The counters that a server reports at its control socket, for `rockery top` and `rockery web`.

use ::nvme::serve::Report;
use ::smb::serve::Report as SmbReport;
use serde_json::Value;
use server::control::ControlError;

/// The report of an NVMe target, or of an SMB gateway or dial.
#[derive(Debug)]
pub(crate) enum ServerReport {
    Nvme(Report),
    Smb(SmbReport),
}

impl ServerReport {
    /// The report in an answer: those of SMB servers have the field `smb`.
    ///
    /// # Errors
    /// [`ControlError::Answer`] when it is of another version of rockery.
    pub(crate) fn of(answer: Value) -> Result<Self, ControlError> {
        let report = match answer.get("smb") {
            Some(_) => serde_json::from_value(answer).map(Self::Smb),
            None => serde_json::from_value(answer).map(Self::Nvme),
        };
        report.map_err(ControlError::Answer)
    }
}
