//! The list of devices.

use crate::world::world;
use abi::ibv_context;
use core::ffi::c_int;
use door::{Errno, door};
use std::ptr::null_mut;

door! {
    /// The devices stay open after the list is freed.
    fn rdma_get_devices(count: *mut c_int) -> pointer(*mut *mut ibv_context) {
        let devices = world()?.devices()?;
        if devices.is_empty() {
            return Err(Errno::NO_DEVICE);
        }
        if let Some(count) = count.as_mut() {
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
        while !(*list.add(length)).is_null() {
            length += 1;
        }
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(list, length + 1)));
    }
}
