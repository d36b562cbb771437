//! Objects imported from another context (`ibv_import_device(3)`, `ibv_import_pd(3)`, `ibv_import_mr(3)`,
//! `ibv_import_dm(3)`): the device by `cmd_fd`, the others by handle.
//!
//! With hardware the objects belong to the kernel, and another process may import them. Here they belong to
//! the process that created them, so only that process can import them; others get `EOPNOTSUPP`.

use crate::context::{ContextArg, Objects};
use crate::device::ListedDevice;
use crate::dm;
use crate::memory::{self, Backing};
use crate::operations::opened;
use crate::pd::{self, PdArg, identity};
use abi::{ibv_context, ibv_dm, ibv_mr, ibv_pd};
use ffi::lock;
use ffi::{Errno, GivenUp, exports};
use rnic::{Lkey, RegionKeys};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use wire::Rkey;

/// A device that can be imported.
struct Exported {
    /// The file behind `cmd_fd`.
    file: (u64, u64),
    /// The process that opened the device: the child of a fork inherits a copy of this list.
    process: u32,
    device: Weak<host::Device>,
    objects: Weak<Mutex<Objects>>,
}

static EXPORTED: Mutex<Vec<Exported>> = Mutex::new(Vec::new());

/// Creates a `cmd_fd` for a device; `None` when no descriptor is left, and then the device cannot be
/// imported.
pub(crate) fn export_device(
    device: &Arc<host::Device>,
    objects: &Arc<Mutex<Objects>>,
) -> Option<OwnedFd> {
    let command = os::memory_file::unsealable(c"rockery").ok()?;
    let file = identity(command.as_raw_fd()).ok()?;
    let mut all_exported = lock(&EXPORTED);
    all_exported.retain(|exported| exported.device.strong_count() > 0);
    let (device, objects) = (Arc::downgrade(device), Arc::downgrade(objects));
    all_exported.push(Exported {
        file,
        process: std::process::id(),
        device,
        objects,
    });
    Some(command)
}

/// A device, and its objects that can be imported.
type ExportedDevice = (Arc<host::Device>, Arc<Mutex<Objects>>);

/// The device behind a `cmd_fd`.
fn find(fd: i32) -> Result<ExportedDevice, Errno> {
    let (file, process) = (identity(fd)?, std::process::id());
    let all_exported = lock(&EXPORTED);
    let found = all_exported
        .iter()
        .find(|exported| exported.file == file && exported.process == process);
    let held =
        found.and_then(|exported| Some((exported.device.upgrade()?, exported.objects.upgrade()?)));
    held.ok_or(Errno::UNSUPPORTED)
}

exports! {
    /// The context owns the descriptor from then on.
    fn ibv_import_device(fd: i32) -> pointer(*mut ibv_context) {
        let (device, objects) = find(fd)?;
        let listed = ListedDevice::alone(device.info().clone());
        // SAFETY: the program gives the descriptor to the context.
        let command = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(opened(listed, device, objects, Some(command)))
    }

    fn ibv_import_pd(context: ContextArg<'_>, handle: u32) -> pointer(*mut ibv_pd) {
        if !context.objects().pds.contains(&handle) {
            return Err(Errno::INVALID);
        }
        Ok(pd::boxed(context.hold(), rnic::Pd::from_value(handle), None))
    }

    /// Frees the handle only: the imported domain stays.
    fn ibv_unimport_pd(given_up: GivenUp<pd::Pd, ibv_pd>) -> plain(()) {
        given_up.free();
    }

    /// An imported region has keys and a length. Its address field is NULL, because only the exporter has the
    /// address.
    fn ibv_import_mr(domain: PdArg<'_>, handle: u32) -> pointer(*mut ibv_mr) {
        let length = domain.get()?.context.objects().regions.get(&handle).copied();
        let length = length.ok_or(Errno::INVALID)?;
        let keys = RegionKeys { lkey: Lkey::from_value(handle), rkey: Rkey(handle) };
        memory::boxed(domain, core::ptr::null_mut(), length, keys, Backing::Program)
    }

    /// Frees the handle only: the imported region stays.
    fn ibv_unimport_mr(given_up: GivenUp<memory::Region, ibv_mr>) -> plain(()) {
        given_up.free();
    }

    fn ibv_import_dm(context: ContextArg<'_>, handle: u32) -> pointer(*mut ibv_dm) {
        let memory = context.objects().device_memories.get(&handle).cloned();
        Ok(dm::boxed(context.hold(), memory.ok_or(Errno::INVALID)?, handle))
    }

    /// Frees the handle only: the imported memory stays.
    fn ibv_unimport_dm(given_up: GivenUp<dm::Dm, ibv_dm>) -> plain(()) {
        given_up.free();
    }
}
