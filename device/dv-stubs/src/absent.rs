//! Functions that refuse a device, by return type. None reads its arguments.

use core::ffi::{c_int, c_void};
use ffi::Errno;

/// For functions that return an error number.
pub(crate) extern "C" fn unsupported() -> c_int {
    Errno(libc::EOPNOTSUPP).set();
    libc::EOPNOTSUPP
}

/// For functions that return a pointer: NULL, with `errno` set.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno(libc::EOPNOTSUPP).set();
    core::ptr::null_mut()
}

/// For functions that return a descriptor or a size: -1, with `errno` set. As wide as `ssize_t`; callers of
/// those that return `int` read the lower half.
pub(crate) extern "C" fn minus_one() -> isize {
    Errno(libc::EOPNOTSUPP).set();
    -1
}

/// For predicates (`mlx5dv_is_supported`) and numbers of queues: 0.
pub(crate) extern "C" fn zero() -> c_int {
    0
}

/// For functions that free an object: none can have been created.
pub(crate) extern "C" fn void() {}
