//! The C library's own functions, which this library replaces.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is first called.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; NULL where the C library has no such function.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero. Two threads that look at once find the same.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// A return type's value for failure.
pub(crate) trait Failure {
    const FAILED: Self;
}

impl Failure for c_int {
    const FAILED: Self = -1;
}

impl Failure for isize {
    const FAILED: Self = -1;
}

impl Failure for *mut c_void {
    const FAILED: Self = core::ptr::null_mut();
}

impl Failure for *mut c_char {
    const FAILED: Self = core::ptr::null_mut();
}

/// The result where the C library has no such function: failure with `ENOSYS`.
pub(crate) fn missing<T: Failure>() -> T {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    T::FAILED
}
