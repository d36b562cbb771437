//! Calls in the trace of a process.

use crate::Call;
use trace::{Kind, NONE};

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    call: Call,
    at_ns: u64,
    qpn: Option<u32>,
    size: Option<u64>,
    object: Option<u64>,
}

impl Begun {
    /// The beginning of a call on a queue pair, with the size and the object of its arguments, if the process
    /// is traced.
    pub(crate) fn now(
        call: Call,
        qpn: Option<u32>,
        [size, object]: [Option<u64>; 2],
    ) -> Option<Self> {
        host::traced::is_on().then(|| Self {
            call,
            at_ns: host::traced::now_ns(),
            qpn,
            size,
            object,
        })
    }

    /// Writes the record of the call, which returns this error number, or 0. A call that found nothing is not
    /// recorded, as polls without a completion are not.
    #[cold]
    pub fn end(self, errno: i32) {
        if errno == libc::EAGAIN {
            return;
        }
        let duration_ns = host::traced::now_ns().saturating_sub(self.at_ns);
        let fields = [
            duration_ns,
            errno as u64,
            self.qpn.map_or(NONE, u64::from),
            self.size.unwrap_or(NONE),
            self.object.unwrap_or(NONE),
        ];
        host::traced::record_at(self.at_ns, Kind::Call, &fields, self.call.name());
    }
}

/// The error number of a call that has returned, by the kind of its return value; 0 for success.
pub mod outcome {
    use crate::Number;
    use core::ffi::c_int;

    fn errno() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    /// As [`crate::pointer`] returns it.
    pub fn pointer<T>(result: &*mut T) -> i32 {
        if result.is_null() { errno() } else { 0 }
    }

    /// As [`crate::code`] returns it.
    pub fn code(result: &c_int) -> i32 {
        *result
    }

    /// As [`crate::status`] returns it.
    pub fn status(result: &c_int) -> i32 {
        number(result)
    }

    /// As [`crate::number`] returns it.
    pub fn number<T: Number + PartialEq>(result: &T) -> i32 {
        if *result == T::FAILED { errno() } else { 0 }
    }

    /// As [`crate::plain`] returns it: such calls do not fail.
    pub fn plain<T>(_result: &T) -> i32 {
        0
    }
}
