//! What a name without an implementation answers. The caller's arguments stay in registers that nobody
//! reads.

/// A function whose failure is -1 and `errno`.
pub(crate) extern "C" fn unsupported() -> i64 {
    fail();
    -1
}

/// A function whose failure is NULL and `errno`.
pub(crate) extern "C" fn null() -> *mut core::ffi::c_void {
    fail();
    core::ptr::null_mut()
}

/// A function that has nothing to say.
pub(crate) extern "C" fn void() {}

/// A function whose answer is a number: none.
pub(crate) extern "C" fn zero() -> i64 {
    0
}

fn fail() {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}
