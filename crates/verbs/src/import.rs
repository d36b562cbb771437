//! Objects that a program imports from another context (`ibv_import_device` and those after it): by `cmd_fd`,
//! which names the device, and by handles.
//!
//! On a card objects live in the kernel, and another process may import them. Here they live in the process
//! that made them, so only that one can: elsewhere the answer is `EOPNOTSUPP`.

use crate::channel::lock;
use crate::context::{Objects, context, opened};
use crate::device::Listed;
use crate::dm;
use crate::memory::{self, Beneath};
use crate::pd::{self, identity};
use abi::{ibv_context, ibv_dm, ibv_mr, ibv_pd};
use door::{Errno, door};
use rnic::{Lkey, RegionKeys};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use wire::Rkey;

/// A device that can be imported.
struct Offer {
    /// The file behind `cmd_fd`.
    file: (u64, u64),
    /// Whose it is: the child of a fork has a copy of this list.
    process: u32,
    device: Weak<host::Device>,
    objects: Weak<Mutex<Objects>>,
}

static OFFERS: Mutex<Vec<Offer>> = Mutex::new(Vec::new());

/// Makes a `cmd_fd` for a device; `None` when there is no descriptor for it: then it cannot be imported.
pub(crate) fn offer(device: &Arc<host::Device>, objects: &Arc<Mutex<Objects>>) -> Option<OwnedFd> {
    // SAFETY: a name that ends with zero.
    let fd = unsafe { libc::memfd_create(c"rockery".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let command = unsafe { OwnedFd::from_raw_fd(fd) };
    let file = identity(command.as_raw_fd()).ok()?;
    let mut offers = lock(&OFFERS);
    offers.retain(|offer| offer.device.strong_count() > 0);
    let (device, objects) = (Arc::downgrade(device), Arc::downgrade(objects));
    offers.push(Offer { file, process: std::process::id(), device, objects });
    Some(command)
}

/// A device, and what can be imported with it.
type Offered = (Arc<host::Device>, Arc<Mutex<Objects>>);

/// The device behind a `cmd_fd`.
fn find(fd: i32) -> Result<Offered, Errno> {
    let (file, process) = (identity(fd)?, std::process::id());
    let offers = lock(&OFFERS);
    let found = offers.iter().find(|offer| offer.file == file && offer.process == process);
    let held = found.and_then(|offer| Some((offer.device.upgrade()?, offer.objects.upgrade()?)));
    held.ok_or(Errno::UNSUPPORTED)
}

door! {
    /// The descriptor belongs to the context from then on.
    fn ibv_import_device(fd: i32) -> pointer(*mut ibv_context) {
        let (device, objects) = find(fd)?;
        let listed = Listed::alone(device.info().clone());
        Ok(opened(listed, device, objects, Some(OwnedFd::from_raw_fd(fd))))
    }

    fn ibv_import_pd(raw: *mut ibv_context, handle: u32) -> pointer(*mut ibv_pd) {
        if !context(raw).objects().pds.contains(&handle) {
            return Err(Errno::INVALID);
        }
        Ok(pd::boxed(raw, rnic::Pd::from_value(handle), None))
    }

    /// The domain itself stays.
    fn ibv_unimport_pd(raw: *mut ibv_pd) -> plain(()) {
        if !raw.is_null() {
            drop(Box::from_raw(raw.cast::<pd::Pd>()));
        }
    }

    /// What is imported has keys and a length; its address is the exporter's affair.
    fn ibv_import_mr(domain: *mut ibv_pd, handle: u32) -> pointer(*mut ibv_mr) {
        pd::pd(domain)?;
        let length = context((*domain).context).objects().regions.get(&handle).copied();
        let length = length.ok_or(Errno::INVALID)?;
        let keys = RegionKeys { lkey: Lkey::from_value(handle), rkey: Rkey(handle) };
        Ok(memory::boxed(domain, core::ptr::null_mut(), length, keys, Beneath::Program))
    }

    /// The region itself stays.
    fn ibv_unimport_mr(raw: *mut ibv_mr) -> plain(()) {
        if !raw.is_null() {
            drop(Box::from_raw(raw.cast::<memory::Region>()));
        }
    }

    fn ibv_import_dm(raw: *mut ibv_context, handle: u32) -> pointer(*mut ibv_dm) {
        let memory = context(raw).objects().device_memories.get(&handle).cloned();
        Ok(dm::boxed(raw, memory.ok_or(Errno::INVALID)?, handle))
    }

    /// The memory itself stays.
    fn ibv_unimport_dm(raw: *mut ibv_dm) -> plain(()) {
        if !raw.is_null() {
            drop(Box::from_raw(raw.cast::<dm::Dm>()));
        }
    }
}
