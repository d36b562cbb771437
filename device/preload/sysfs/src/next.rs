//! The C library's functions and those that replace them, for libraries that are preloaded.
//!
//! A thread that is cancelled (`pthread_cancel(3)`) in the C library's function is unwound from there,
//! through the function here that called it. Both have the ABI `C-unwind` for that. Packages have another
//! unwinder than the C library's, which must not meet a frame of Rust that has something to clean up: what
//! does is in a function of its own, which is never inlined and calls no cancellation point of the program.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is first called.
pub(crate) struct Next {
    name: &'static CStr,
    /// The version to look for first, where the C library has several that differ.
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        Self {
            name,
            version,
            found: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Address of the function; NULL where the C library has none.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let mut found = core::ptr::null_mut();
        if let Some(version) = self.version {
            // SAFETY: both names end with a zero. Two threads that look at once find the same.
            found = unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) };
        }
        if found.is_null() {
            // SAFETY: the name ends with a zero. Two threads that look at once find the same.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        }
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

impl Failure for i64 {
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

/// Defines functions that call the C library's of the same name. Of those that it has in several versions,
/// one can be named: `in c"GLIBC_2.3.2":` before them.
macro_rules! real {
    ($(in $version:literal:)? $(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $crate::next::real! { @ [$(Some($version),)? None] $(fn $name($($arg: $type),*) -> $ret;)* }
    };
    (@ $version:tt $(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        /// Calls the C library's function of this name.
        ///
        /// # Safety
        /// As for the C library's function.
        pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
            const NAME: &core::ffi::CStr =
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            const VERSIONS: &[Option<&core::ffi::CStr>] = &$version;
            static NEXT: $crate::next::Next = $crate::next::Next::new(NAME, VERSIONS[0]);
            let original = NEXT.address();
            if original.is_null() {
                return $crate::next::missing::<$ret>();
            }
            type Original = unsafe extern "C-unwind" fn($($type),*) -> $ret;
            // SAFETY: the C library's function of this name has this signature; variadic ones take their
            // argument where one that is always there would be.
            unsafe { core::mem::transmute::<*mut core::ffi::c_void, Original>(original)($($arg),*) }
        }
    )*};
}
pub(crate) use real;

/// Defines functions that replace the C library's in the program.
macro_rules! replace {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block
    )*) => {$(
        $(#[$meta])*
        /// Replaces the C library's function of this name.
        ///
        /// # Safety
        /// As for the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code))]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the caller owes the C library's function the same arguments.
            unsafe { $body }
        }
    )*};
}
pub(crate) use replace;
