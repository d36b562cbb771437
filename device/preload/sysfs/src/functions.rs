//! The C library's functions that take a path and inspect the file behind it.
//!
//! Each is defined here, and calls the original with the path translated. Calls within the C library (`fopen`
//! calls `open`) do not come through this library, so both are defined.
//!
//! `open` and the like are variadic: a mode follows some flags. On x86-64 a C caller passes it where a fixed
//! argument would be, so it is passed on as one.

use crate::counters;
use crate::next::{Next, missing};
use crate::subnet;
use crate::translate::{Path, folder, translated};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A variadic or opaque argument, which is only passed on.
type Pointer = *mut c_void;

/// The path to pass on: the translated one, in `room`, or the program's.
///
/// # Safety
/// `path` is NULL or ends with a zero.
unsafe fn passed_on(path: *const c_char, room: &mut Path) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: by this function's contract, `path` is NULL or ends with a zero.
    match translated(unsafe { CStr::from_ptr(path) }, room) {
        Some(there) => {
            refresh(there);
            there.as_ptr()
        }
        None => path,
    }
}

/// Writes the present values of files below a translated path.
#[inline(never)]
fn refresh(there: &CStr) {
    counters::refresh(there, folder().unwrap_or_default());
    subnet::refresh(there, folder().unwrap_or_default());
}

/// Opens a device file of the InfiniBand subnet; `None` for a path that is none.
///
/// # Safety
/// The path is NULL or ends with a zero.
#[inline(never)]
unsafe fn device_file(path: *const c_char, flags: c_int) -> Option<c_int> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by this function's contract, the path ends with a zero.
    let opened = subnet::open(unsafe { CStr::from_ptr(path) }, flags, folder()?)?;
    Some(opened.unwrap_or_else(|error| {
        // SAFETY: errno is a variable of this thread.
        unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
        -1
    }))
}

/// In the list of arguments the path comes before the semicolon.
macro_rules! functions {
    ($(
        fn $name:ident($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*) -> $ret:ty
        $(, opens by $opens:ident($flags:ident))?;
    )*) => {$(
        /// Replaces the C library's function of this name.
        ///
        /// # Safety
        /// As for the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $ret {
            type Original =
                unsafe extern "C-unwind" fn($($before_type,)* *const c_char $(, $after_type)*) -> $ret;
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            static NEXT: Next = Next::new(NAME, None);
            let original = NEXT.address();
            if original.is_null() {
                return missing::<$ret>();
            }
            // SAFETY: the C library's function of this name has this signature, and its caller owes it
            // the arguments.
            unsafe {
                let original = core::mem::transmute::<Pointer, Original>(original);
                let mut room = Path::new();
                let path = passed_on(path, &mut room);
                $(if let Some(file) = $opens(path, $flags) { return file; })?
                original($($before,)* path $(, $after)*)
            }
        }
    )*};
}

functions! {
    fn open(; flags: c_int, mode: c_uint) -> c_int, opens by device_file(flags);
    fn open64(; flags: c_int, mode: c_uint) -> c_int, opens by device_file(flags);
    fn __open_2(; flags: c_int) -> c_int, opens by device_file(flags);
    fn __open64_2(; flags: c_int) -> c_int, opens by device_file(flags);
    fn openat(folder: c_int; flags: c_int, mode: c_uint) -> c_int, opens by device_file(flags);
    fn openat64(folder: c_int; flags: c_int, mode: c_uint) -> c_int, opens by device_file(flags);
    fn __openat_2(folder: c_int; flags: c_int) -> c_int, opens by device_file(flags);
    fn __openat64_2(folder: c_int; flags: c_int) -> c_int, opens by device_file(flags);
    fn fopen(; mode: *const c_char) -> Pointer;
    fn fopen64(; mode: *const c_char) -> Pointer;

    fn opendir(;) -> Pointer;
    fn scandir(; list: Pointer, filter: Pointer, order: Pointer) -> c_int;
    fn scandir64(; list: Pointer, filter: Pointer, order: Pointer) -> c_int;
    fn chdir(;) -> c_int;

    fn stat(; to: Pointer) -> c_int;
    fn stat64(; to: Pointer) -> c_int;
    fn lstat(; to: Pointer) -> c_int;
    fn lstat64(; to: Pointer) -> c_int;
    fn fstatat(folder: c_int; to: Pointer, flags: c_int) -> c_int;
    fn fstatat64(folder: c_int; to: Pointer, flags: c_int) -> c_int;
    fn statx(folder: c_int; flags: c_int, mask: c_uint, to: Pointer) -> c_int;
    fn __xstat(version: c_int; to: Pointer) -> c_int;
    fn __xstat64(version: c_int; to: Pointer) -> c_int;
    fn __lxstat(version: c_int; to: Pointer) -> c_int;
    fn __lxstat64(version: c_int; to: Pointer) -> c_int;
    fn __fxstatat(version: c_int, folder: c_int; to: Pointer, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, folder: c_int; to: Pointer, flags: c_int) -> c_int;

    fn access(; mode: c_int) -> c_int;
    fn eaccess(; mode: c_int) -> c_int;
    fn euidaccess(; mode: c_int) -> c_int;
    fn faccessat(folder: c_int; mode: c_int, flags: c_int) -> c_int;

    fn readlink(; to: *mut c_char, size: usize) -> isize;
    fn __readlink_chk(; to: *mut c_char, size: usize, room: usize) -> isize;
    fn readlinkat(folder: c_int; to: *mut c_char, size: usize) -> isize;
    fn __readlinkat_chk(folder: c_int; to: *mut c_char, size: usize, room: usize) -> isize;
    fn realpath(; to: *mut c_char) -> *mut c_char;
    fn __realpath_chk(; to: *mut c_char, room: usize) -> *mut c_char;
    fn getxattr(; name: *const c_char, to: Pointer, size: usize) -> isize;
    fn lgetxattr(; name: *const c_char, to: Pointer, size: usize) -> isize;
    fn listxattr(; to: *mut c_char, size: usize) -> isize;
    fn llistxattr(; to: *mut c_char, size: usize) -> isize;
    fn canonicalize_file_name(;) -> *mut c_char;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_view_reach_the_c_library() {
        let path = c"/dev/null".as_ptr();
        // SAFETY: the path ends with a zero, and the descriptor is ours.
        let descriptor = unsafe { open(path, libc::O_RDONLY, 0) };
        assert!(descriptor >= 0);
        // SAFETY: the path ends with a zero, and the descriptor is ours.
        unsafe { libc::close(descriptor) };
        // SAFETY: NULL is refused by the kernel, not here.
        assert_eq!(unsafe { access(core::ptr::null(), 0) }, -1);
    }
}
