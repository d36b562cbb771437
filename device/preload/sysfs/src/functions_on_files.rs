//! The C library's functions on open files, for those of the umad device. Calls on other files are passed to
//! the C library unchanged.

use crate::next::replace;
use crate::next_on_files as real;
use crate::subnet::{self, Reads};
use core::ffi::{c_int, c_ulong, c_void};

replace! {
    fn ioctl(file: c_int, command: c_ulong, argument: *mut c_void) -> c_int {
        if subnet::may_be_call(command) && link::management::is_file(file) {
            return called(file, command, argument);
        }
        real::ioctl(file, command, argument)
    }

    fn read(file: c_int, to: *mut c_void, room: usize) -> isize {
        if subnet::is_umad(file) {
            return received(file, to, room);
        }
        real::read(file, to, room)
    }

    fn __read_chk(file: c_int, to: *mut c_void, room: usize, most: usize) -> isize {
        if subnet::is_umad(file) {
            return received(file, to, room.min(most));
        }
        real::__read_chk(file, to, room, most)
    }
}

/// # Safety
/// The argument has as many bytes as the number of the call says.
unsafe fn called(file: c_int, command: c_ulong, argument: *mut c_void) -> c_int {
    let length = subnet::argument_bytes(command);
    let mut none = [];
    let argument = if length == 0 || argument.is_null() {
        &mut none[..]
    } else {
        // SAFETY: by this function's contract, so many bytes can be read and written.
        unsafe { core::slice::from_raw_parts_mut(argument.cast::<u8>(), length) }
    };
    match link::management::call(file, command as u32, argument) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    }
}

/// Reads a record. One that is longer than the room stays in the queue.
///
/// # Safety
/// So many bytes can be written.
unsafe fn received(file: c_int, to: *mut c_void, room: usize) -> isize {
    let peek = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: no bytes are asked for.
    let length = unsafe { libc::recv(file, core::ptr::null_mut(), 0, peek) };
    if length < 0 {
        return length;
    }
    match subnet::reads(length as usize, room) {
        // SAFETY: by this function's contract, so many bytes can be written.
        Reads::All => unsafe { libc::recv(file, to, room, 0) },
        Reads::Beginning(length) => {
            // SAFETY: by this function's contract, more bytes than these can be written.
            unsafe { libc::recv(file, to, length, libc::MSG_PEEK) };
            set_errno(libc::ENOSPC);
            -1
        }
        Reads::Nothing => {
            set_errno(libc::EINVAL);
            -1
        }
    }
}

fn set_errno(number: c_int) {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = number };
}
