//! Log messages for functions that C calls.

use crate::Errno;
use core::fmt::Debug;
use host::log::CALL;
use tracing::{debug, trace};

/// A function that C calls.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    name: &'static str,
    /// Whether it may allocate memory, and has to fail where there is none.
    pub(crate) allocates: bool,
    /// Whether it is on the data path, where tables of functions that are watched take the place of this.
    is_data_path: bool,
}

/// Words in the names of functions that need no memory: those that end something, which have to succeed, and
/// those that wait or look.
const NEEDS_NO_MEMORY: &[&str] = &[
    "ack",
    "close",
    "dealloc",
    "dereg",
    "destroy",
    "detach",
    "disconnect",
    "free",
    "get_async_event",
    "get_cq_event",
    "leave",
    "query",
    "unimport",
];

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

/// Whether `name` has `part` at its beginning, or anywhere.
const fn has(name: &str, part: &str, anywhere: bool) -> bool {
    let (name, part) = (name.as_bytes(), part.as_bytes());
    let mut start = 0;
    while start + part.len() <= name.len() && (anywhere || start == 0) {
        let mut same = 0;
        while same < part.len() && name[start + same] == part[same] {
            same += 1;
        }
        if same == part.len() {
            return true;
        }
        start += 1;
    }
    false
}

const fn has_any(name: &str, parts: &[&str], anywhere: bool) -> bool {
    let mut index = 0;
    while index < parts.len() {
        if has(name, parts[index], anywhere) {
            return true;
        }
        index += 1;
    }
    false
}

impl Call {
    /// The function of this name.
    pub const fn new(name: &'static str) -> Self {
        let is_data_path = has_any(name, DATA_PATH, false);
        Self {
            name,
            allocates: !is_data_path && !has_any(name, NEEDS_NO_MEMORY, true),
            is_data_path,
        }
    }

    /// The function's name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether the call may meet faults or is traced: not on the data path, which does not even look.
    #[inline(always)]
    pub fn is_watched(self) -> bool {
        !self.is_data_path && host::watch::is_on()
    }

    /// The same function where it cannot fail.
    pub(crate) fn never_refused(self) -> Self {
        Self {
            allocates: false,
            ..self
        }
    }

    /// Logs what the call returns.
    #[cold]
    pub(crate) fn log<T: Debug>(self, result: &Result<T, Errno>) {
        let name = self.name;
        let is_data_path = self.is_data_path;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_create_something_allocate() {
        for name in ["ibv_reg_mr", "ibv_open_device", "rdma_bind_addr", "rsocket"] {
            assert!(Call::new(name).allocates, "{name}");
        }
        let others = [
            "post_send",
            "poll_cq",
            "ibv_destroy_cq",
            "rdma_ack_cm_event",
        ];
        for name in { others }
            .into_iter()
            .chain(["rdma_disconnect", "ibv_dereg_mr"])
        {
            assert!(!Call::new(name).allocates, "{name}");
        }
    }
}
