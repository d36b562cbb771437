//! Functions behind exported names that are not implemented. They ignore their arguments, which stay in
//! registers, so one function serves any signature.

use core::ffi::{c_int, c_void};
use ffi::Errno;

/// For calls that return an error number: `EOPNOTSUPP`.
pub(crate) extern "C" fn unsupported() -> c_int {
    Errno(libc::EOPNOTSUPP).set();
    libc::EOPNOTSUPP
}

/// For calls that return a pointer: NULL, with `errno` set to `EOPNOTSUPP`.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno(libc::EOPNOTSUPP).set();
    core::ptr::null_mut()
}

/// For calls that return a descriptor: -1, with `errno` set to `EOPNOTSUPP`.
pub(crate) extern "C" fn minus_one() -> c_int {
    Errno(libc::EOPNOTSUPP).set();
    -1
}

/// For calls that return nothing, such as `verbs_register_driver_34`: provider libraries call it from their
/// constructors, before any function of this library has run.
pub(crate) extern "C" fn void() {}

/// For calls that succeed without an effect: memory is not pinned, so `fork` needs no preparation.
pub(crate) extern "C" fn zero() -> c_int {
    0
}
