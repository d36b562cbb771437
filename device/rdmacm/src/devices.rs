//! The list of devices: `rdma_get_devices`.

use crate::process::process;
use abi::ibv_context;
use core::ffi::c_int;
use ffi::{Errno, InOut, public_exports};
use std::ptr::null_mut;

public_exports! {
    /// The devices stay open after the list is freed.
    fn rdma_get_devices(count: InOut<'_, c_int>) -> pointer(*mut *mut ibv_context) {
        let devices = process()?.devices()?;
        if devices.is_empty() {
            return Err(Errno::NO_DEVICE);
        }
        if let Some(count) = count.optional() {
            *count = devices.len() as c_int;
        }
        let list = devices.iter().map(|device| device.context()).chain([null_mut()]);
        Ok(Box::into_raw(list.collect::<Box<[_]>>()).cast())
    }

    fn rdma_free_devices(list: *mut *mut ibv_context) -> plain(()) {
        if list.is_null() {
            return;
        }
        let mut length = 0;
        // SAFETY: a list that this library made, which ends with NULL.
        while !unsafe { *list.add(length) }.is_null() {
            length += 1;
        }
        let list = core::ptr::slice_from_raw_parts_mut(list, length + 1);
        // SAFETY: the list was made by `Box::into_raw` with as many entries; the program gives it up.
        drop(unsafe { Box::from_raw(list) });
    }
}
