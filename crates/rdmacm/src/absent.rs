//! What a name without an implementation answers. The caller's arguments stay in registers that nobody
//! reads.

/// A function whose failure is -1 and `errno`.
pub(crate) extern "C" fn unsupported() -> i64 {
    fail();
    -1
}

fn fail() {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}
