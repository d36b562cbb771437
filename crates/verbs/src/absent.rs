//! What a name without an implementation answers. The caller's arguments stay in registers that nobody
//! reads.

use core::ffi::{c_int, c_void};
use door::Errno;

/// A function that answers with an error number.
pub(crate) extern "C" fn unsupported() -> c_int {
    Errno(libc::EOPNOTSUPP).set();
    libc::EOPNOTSUPP
}

/// A function whose failure is NULL and `errno`.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno(libc::EOPNOTSUPP).set();
    core::ptr::null_mut()
}

/// A function without an answer. `verbs_register_driver_34` is one: libraries of other providers call it
/// when they are loaded, before anything of ours has run.
pub(crate) extern "C" fn void() {}

/// A function that has nothing to do: memory is not pinned here, so `fork` needs no care.
pub(crate) extern "C" fn zero() -> c_int {
    0
}
