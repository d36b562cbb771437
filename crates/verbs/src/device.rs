//! The list of devices.

use abi::{ibv_context, ibv_device};
use core::ffi::{c_char, c_int};
use door::{Errno, door};
use host::DeviceInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries of the GID table that programs see. They walk all of it, so it is no longer than it has to be.
pub(crate) const GIDS: u8 = 16;

/// A device in a list. Lives as long as a list or an open context has it.
#[repr(C)]
pub(crate) struct Listed {
    abi: ibv_device,
    /// Libraries of other providers look here for their own table of functions, to see whether a device is
    /// theirs.
    not_theirs: [u64; 8],
    users: AtomicUsize,
    pub(crate) info: Arc<DeviceInfo>,
}

/// The device behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn listed<'a>(raw: *mut ibv_device) -> Result<&'a Listed, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Listed>().as_ref() }.ok_or(Errno::INVALID)
}

impl Listed {
    fn new(info: DeviceInfo) -> *mut Self {
        let mut abi = ibv_device {
            ops: [core::ptr::null_mut(); 2],
            node_type: abi::IBV_NODE_CA,
            transport_type: abi::IBV_TRANSPORT_IB,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        copy(&mut abi.name, &info.name);
        copy(&mut abi.dev_name, &format!("uverbs{}", info.ifindex));
        copy(&mut abi.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{}", info.ifindex));
        copy(&mut abi.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
        let device = Self { abi, not_theirs: [0; 8], users: AtomicUsize::new(1), info: Arc::new(info) };
        Box::into_raw(Box::new(device))
    }

    /// One that stands in no list.
    pub(crate) fn alone(info: DeviceInfo) -> *mut ibv_device {
        Self::new(info).cast()
    }

    /// One user more.
    pub(crate) fn hold(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One user less; the last one frees it.
    ///
    /// # Safety
    /// The caller held it, and does not use it any more.
    pub(crate) unsafe fn release(raw: *mut ibv_device) {
        let device = raw.cast::<Self>();
        // SAFETY: as above.
        if unsafe { &(*device).users }.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(device) });
        }
    }
}

/// Copies what fits, and leaves a zero at the end.
fn copy<const N: usize>(to: &mut [c_char; N], from: &str) {
    for (to, from) in to[..N - 1].iter_mut().zip(from.bytes()) {
        *to = from as c_char;
    }
}

door! {
    /// The list ends with NULL, which the count does not include.
    fn ibv_get_device_list(count: *mut c_int) -> pointer(*mut *mut ibv_device) {
        let mut list: Vec<*mut ibv_device> =
            host::list().into_iter().map(|info| Listed::new(info).cast::<ibv_device>()).collect();
        if let Some(count) = count.as_mut() {
            *count = list.len() as c_int;
        }
        list.push(core::ptr::null_mut());
        Ok(Box::into_raw(list.into_boxed_slice()).cast())
    }

    fn ibv_free_device_list(list: *mut *mut ibv_device) -> plain(()) {
        if list.is_null() {
            return;
        }
        let mut length = 0;
        while !(*list.add(length)).is_null() {
            Listed::release(*list.add(length));
            length += 1;
        }
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(list, length + 1)));
    }

    /// Big-endian.
    fn ibv_get_device_guid(raw: *mut ibv_device) -> plain(u64) {
        listed(raw).map_or(0, |device| u64::from_ne_bytes(device.info.guid))
    }

    fn ibv_get_device_index(raw: *mut ibv_device) -> plain(i32) {
        listed(raw).map_or(-1, |device| device.info.ifindex as i32)
    }
}

/// # Safety
/// The pointer is NULL or leads to a device of a list.
pub(crate) unsafe extern "C" fn ibv_get_device_name(raw: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller of a verb owes valid arguments.
    unsafe { raw.as_ref() }.map_or(core::ptr::null(), |device| device.name.as_ptr())
}

/// A context's device.
///
/// # Safety
/// `raw` is a live context.
pub(crate) unsafe fn of<'a>(raw: *mut ibv_context) -> Result<&'a Listed, Errno> {
    // SAFETY: as above.
    unsafe { listed((*raw).device) }
}
