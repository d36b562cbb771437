//! Devices are opened and closed.

use crate::context::release;
use crate::device::listed;
use crate::operations::opened;
use crate::{import, record};
use abi::{ibv_context, ibv_device};
use ffi::{Errno, exports};
use std::error::Error as _;
use std::io;
use std::sync::Arc;

/// The error number of the system where one of its limits is in the way.
fn open_errno(error: &host::OpenError) -> Errno {
    const LIMITS: [i32; 5] = [
        libc::EAGAIN,
        libc::EFBIG,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
    ];
    let source = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    let code = source.and_then(io::Error::raw_os_error);
    Errno(
        code.filter(|code| LIMITS.contains(code))
            .unwrap_or(libc::EIO),
    )
}

exports! {
    /// Prints to standard error why a device does not open, because `errno` cannot express it.
    fn ibv_open_device(raw: *mut ibv_device) -> pointer(*mut ibv_context) {
        // SAFETY: the program has the device from a list that it has not freed.
        let entry = unsafe { listed(raw) }?;
        record::begin();
        let device = host::Device::open(&entry.info).map_err(|error| {
            host::note(format_args!("rockery: {}: {error}", entry.info.name));
            open_errno(&error)
        })?;
        let objects = Arc::default();
        let command = import::export_device(&device, &objects);
        entry.add_reference();
        Ok(opened(raw, device, objects, command))
    }

    /// Objects that the program has not destroyed yet keep the device open.
    fn ibv_close_device(raw: *mut ibv_context) -> code(i32) {
        if raw.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program gives up its reference.
        unsafe { release(raw) };
        Ok(())
    }
}
