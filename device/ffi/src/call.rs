//! Log messages for functions that C calls.

use crate::Errno;
use core::fmt::Debug;
use host::log::CALL;
use tracing::{debug, trace};

/// A function that C calls, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Call(pub &'static str);

/// Beginnings of the names of functions on the data path: these are logged at the level `trace`.
const DATA_PATH: &[&str] = &[
    "post_",
    "poll_cq",
    "req_notify_cq",
    "wr_",
    "start_poll",
    "next_poll",
    "end_poll",
    "read_",
    "rsend",
    "rrecv",
    "rread",
    "rwrite",
    "rpoll",
    "rselect",
    "riowrite",
];

impl Call {
    /// Logs what the call returns.
    #[cold]
    pub(crate) fn log<T: Debug>(self, result: &Result<T, Errno>) {
        let name = self.0;
        let is_data_path = DATA_PATH.iter().any(|prefix| name.starts_with(prefix));
        match result {
            Ok(value) if is_data_path => trace!(target: CALL, "{name}: {value:?}"),
            Ok(value) => debug!(target: CALL, "{name}: {value:?}"),
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno.0);
                match is_data_path {
                    true => trace!(target: CALL, "{name} failed: {error}"),
                    false => debug!(target: CALL, "{name} failed: {error}"),
                }
            }
        }
    }
}
