//! The C library's functions on open files, for those of the umad device. Calls on other files are passed to
//! the C library unchanged.

use crate::next::replace;
use crate::next_on_files as real;
use crate::subnet::{self, Reads};
use core::ffi::{c_int, c_ulong, c_void};
use link::management::{self, Next};
use std::io;
use std::os::unix::fs::FileExt;

replace! {
    fn ioctl(file: c_int, command: c_ulong, argument: *mut c_void) -> c_int {
        if subnet::may_be_call(command) && subnet::is_file(file) {
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

    fn write(file: c_int, from: *const c_void, length: usize) -> isize {
        if subnet::is_umad(file) {
            return written(file, from, length);
        }
        real::write(file, from, length)
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
#[inline(never)]
unsafe fn called(file: c_int, command: c_ulong, argument: *mut c_void) -> c_int {
    let length = subnet::argument_bytes(command);
    let mut none = [];
    let argument = if length == 0 || argument.is_null() {
        &mut none[..]
    } else {
        // SAFETY: by this function's contract, so many bytes can be read and written.
        unsafe { core::slice::from_raw_parts_mut(argument.cast::<u8>(), length) }
    };
    match management::call(file, command as u32, argument) {
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
#[inline(never)]
unsafe fn received(file: c_int, to: *mut c_void, room: usize) -> isize {
    let (in_file, length) = match management::next_record(file) {
        Ok(Next::InSocket(length)) => (None, length),
        Ok(Next::InFile(record, length)) => (Some(record), length),
        Err(error) => return failed(&error),
    };
    let given = match subnet::reads(length, room) {
        Reads::All => length,
        Reads::Beginning(length) => length,
        Reads::Nothing => {
            set_errno(libc::EINVAL);
            return -1;
        }
    };
    let is_whole = given == length;
    if let Some(record) = in_file {
        // SAFETY: by this function's contract, more bytes than these can be written.
        let to = unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), given) };
        if let Err(error) = record.read_exact_at(to, 0) {
            return failed(&error);
        }
        if is_whole {
            // SAFETY: no bytes are asked for. The record leaves the queue.
            unsafe { libc::recv(file, core::ptr::null_mut(), 0, 0) };
        }
    } else {
        let flags = if is_whole { 0 } else { libc::MSG_PEEK };
        // SAFETY: by this function's contract, as many bytes can be written.
        let received = unsafe { libc::recv(file, to, given, flags) };
        if received < 0 || is_whole {
            return received;
        }
    }
    if is_whole {
        return given as isize;
    }
    set_errno(libc::ENOSPC);
    -1
}

/// Writes a record.
///
/// # Safety
/// So many bytes can be read.
#[inline(never)]
unsafe fn written(file: c_int, from: *const c_void, length: usize) -> isize {
    if length < subnet::RECORD_BYTES_MIN || from.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: by this function's contract, so many bytes can be read.
    let record = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), length) };
    match management::send_record(file, record) {
        Ok(()) => length as isize,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> isize {
    set_errno(error.raw_os_error().unwrap_or(libc::EIO));
    -1
}

fn set_errno(number: c_int) {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = number };
}
