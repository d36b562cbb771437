//! What a name without an implementation answers. The caller's arguments stay in registers that nobody
//! reads.

use crate::door::{Errno, set_errno};
use core::ffi::{c_int, c_void};

/// A function that answers with an error number.
pub(crate) extern "C" fn unsupported() -> c_int {
    set_errno(Errno(libc::EOPNOTSUPP));
    libc::EOPNOTSUPP
}

/// A function whose failure is NULL and `errno`.
pub(crate) extern "C" fn null() -> *mut c_void {
    set_errno(Errno(libc::EOPNOTSUPP));
    core::ptr::null_mut()
}

/// A function without an answer. `verbs_register_driver_34` is one: libraries of other providers call it
/// when they are loaded, before anything of ours has run.
pub(crate) extern "C" fn void() {}

/// A function that has nothing to do: memory is not pinned here, so `fork` needs no care.
pub(crate) extern "C" fn zero() -> c_int {
    0
}
