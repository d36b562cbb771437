//! The C library's own functions on open files.

use crate::next::real;
use core::ffi::{c_int, c_ulong, c_void};

real! {
    fn ioctl(file: c_int, command: c_ulong, argument: *mut c_void) -> c_int;
    fn read(file: c_int, to: *mut c_void, room: usize) -> isize;
    fn write(file: c_int, from: *const c_void, length: usize) -> isize;
    fn __read_chk(file: c_int, to: *mut c_void, room: usize, most: usize) -> isize;
}
