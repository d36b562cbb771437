//! The helpers that read `/sys`, and the word about `fork`.

use core::ffi::{CStr, c_char};
use door::{Errno, door};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `IBV_FORK_UNNEEDED`.
const FORK_UNNEEDED: i32 = 2;

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Memory is not pinned, so a child never takes it from its parent.
pub(crate) extern "C" fn ibv_fork_init() -> i32 {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> i32 {
    FORK_UNNEEDED
}

door! {
    /// Bytes read, without the newline at the end.
    fn ibv_read_sysfs_file(folder: *const c_char, file: *const c_char, buffer: *mut c_char, size: usize)
        -> number(i32) {
        let bytes = |text: *const c_char| CStr::from_ptr(text).to_bytes();
        let part = |text: *const c_char| Path::new(std::ffi::OsStr::from_bytes(bytes(text)));
        let mut source = std::fs::File::open(part(folder).join(part(file)))?;
        let buffer = core::slice::from_raw_parts_mut(buffer.cast::<u8>(), size);
        let mut length = source.read(buffer)?;
        if length > 0 && buffer[length - 1] == b'\n' {
            length -= 1;
        }
        if let Some(end) = buffer.get_mut(length) {
            *end = 0;
        }
        i32::try_from(length).map_err(|_| Errno::INVALID)
    }
}
