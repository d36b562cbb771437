//! The list of devices.

use abi::ibv_device;
use core::ffi::{c_char, c_int};
use ffi::{BeginsWith, Errno, InOut, Object, exports};
use host::DeviceInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries of the GID table that programs see. Programs walk all of it, so it is no longer than necessary.
pub(crate) const GIDS: u8 = 16;

/// A device in a list, freed when no list and no open context refers to it.
#[repr(C)]
pub(crate) struct ListedDevice {
    abi: ibv_device,
    /// Provider libraries look here for their own function table, to recognize their devices.
    not_theirs: [u64; 8],
    users: AtomicUsize,
    pub(crate) info: Arc<DeviceInfo>,
}

// SAFETY: C sees the first field; `ListedDevice::new` makes the pointers.
unsafe impl BeginsWith<ibv_device> for ListedDevice {}

/// The device behind a C pointer.
///
/// # Safety
/// The pointer comes from this library, and the device is not freed.
pub(crate) unsafe fn listed<'a>(raw: *mut ibv_device) -> Result<&'a ListedDevice, Errno> {
    // SAFETY: by this function's contract, the pointer comes from this library, and the device is not freed.
    unsafe { raw.cast::<ListedDevice>().as_ref() }.ok_or(Errno::INVALID)
}

impl ListedDevice {
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
        copy(
            &mut abi.dev_path,
            &format!("/sys/class/infiniband_verbs/uverbs{}", info.ifindex),
        );
        copy(
            &mut abi.ibdev_path,
            &format!("/sys/class/infiniband/{}", info.name),
        );
        let device = Self {
            abi,
            not_theirs: [0; 8],
            users: AtomicUsize::new(1),
            info: Arc::new(info),
        };
        Box::into_raw(Box::new(device))
    }

    /// A device that is in no list.
    pub(crate) fn alone(info: DeviceInfo) -> *mut ibv_device {
        Self::new(info).cast()
    }

    /// Adds a reference.
    pub(crate) fn add_reference(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a reference; the last one frees the device.
    ///
    /// # Safety
    /// The caller owns the reference, and does not use it any more.
    pub(crate) unsafe fn release(raw: *mut ibv_device) {
        let device = raw.cast::<Self>();
        // SAFETY: by this function's contract, the caller owns the reference, and does not use it any more.
        if unsafe { &(*device).users }.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: this was the last reference.
            drop(unsafe { Box::from_raw(device) });
        }
    }
}

/// Copies as many bytes as fit, and terminates them with a zero.
fn copy<const N: usize>(to: &mut [c_char; N], from: &str) {
    for (to, from) in to[..N - 1].iter_mut().zip(from.bytes()) {
        *to = from as c_char;
    }
}

exports! {
    /// The list ends with NULL, which the count does not include. It fails where the kernel does not list the
    /// interfaces, as without descriptors.
    fn ibv_get_device_list(count: InOut<'_, c_int>) -> pointer(*mut *mut ibv_device) {
        let mut list: Vec<*mut ibv_device> =
            host::try_list()?.into_iter().map(|info| ListedDevice::new(info).cast::<ibv_device>()).collect();
        if let Some(count) = count.optional() {
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
        // SAFETY: a list that this library made, which ends with NULL.
        while let device = unsafe { *list.add(length) }
            && !device.is_null()
        {
            // SAFETY: the list has a reference to each of its devices.
            unsafe { ListedDevice::release(device) };
            length += 1;
        }
        let list = core::ptr::slice_from_raw_parts_mut(list, length + 1);
        // SAFETY: the list was made by `Box::into_raw` with as many entries; the program gives it up.
        drop(unsafe { Box::from_raw(list) });
    }

    /// Node GUID in network byte order.
    fn ibv_get_device_guid(device: Object<'_, ListedDevice, ibv_device>) -> plain(u64) {
        device.optional().map_or(0, |device| u64::from_ne_bytes(device.info.guid))
    }

    fn ibv_get_device_index(device: Object<'_, ListedDevice, ibv_device>) -> plain(i32) {
        device.optional().map_or(-1, |device| device.info.ifindex as i32)
    }
}

/// # Safety
/// The pointer is NULL or points to a device of a list.
pub(crate) unsafe extern "C" fn ibv_get_device_name(raw: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller of a verb owes valid arguments.
    unsafe { raw.as_ref() }.map_or(core::ptr::null(), |device| device.name.as_ptr())
}
