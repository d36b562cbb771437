//! The helpers that read `/sys`, and the query about `fork`.

use core::ffi::{CStr, c_char};
use ffi::{Errno, Text, cancellation, exports};
use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// `IBV_FORK_UNNEEDED` (`enum ibv_fork_status`).
const FORK_UNNEEDED: i32 = 2;

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Returns `IBV_FORK_UNNEEDED`: memory is not pinned, so a fork does not take it from the parent.
pub(crate) extern "C" fn ibv_fork_init() -> i32 {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> i32 {
    FORK_UNNEEDED
}

exports! {
    /// Returns the number of bytes read, without the newline at the end.
    fn ibv_read_sysfs_file(folder: Text<'_>, file: Text<'_>, buffer: *mut c_char, size: usize)
        -> number(i32) {
        fn part(text: &CStr) -> &Path {
            Path::new(std::ffi::OsStr::from_bytes(text.to_bytes()))
        }
        let path = part(folder.get()?).join(part(file.get()?));
        let path = CString::new(path.into_os_string().into_vec()).map_err(|_| Errno::INVALID)?;
        // The files are those that the program sees, which a preloaded library may show (`--view preload`).
        let mut source = File::from(cancellation::open_as_programs(&path)?);
        // SAFETY: the program has room for `size` bytes.
        let buffer = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
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
