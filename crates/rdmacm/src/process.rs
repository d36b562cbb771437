//! The state of the process: the connection manager, and the devices that it has opened.
//!
//! It is created on first use and stays until the process ends. The child of a fork creates its own. What the
//! child inherited belongs to its parent and may only be freed.

use crate::id_table::IdTable;
use crate::verbs::verbs;
use abi::{ibv_context, ibv_device_attr, ibv_gid, ibv_pd, ibv_xrcd};
use core::ffi::CStr;
use door::Errno;
use host::cm::{Connector, Owner as _, Session};
use rnic::{Gid, Instant};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of the only port of each device.
pub(crate) const PORT: u8 = 1;
/// Most entries of a device's GID table.
const GIDS_MAX: i32 = 16;

/// Locks a mutex even if another thread panicked while holding it: [`door`] catches panics and the program
/// continues.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open device. It stays open, because opening a device takes longer than most connections last.
pub(crate) struct OpenDevice {
    pub(crate) name: String,
    context: usize,
    pd: OnceLock<usize>,
    xrcd: Mutex<usize>,
    /// READs and atomics that a queue pair of the device supports as a responder; the next field: as a
    /// requester.
    pub(crate) responder_resources_max: u8,
    pub(crate) initiator_depth_max: u8,
}

impl OpenDevice {
    /// The context that programs see.
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context as *mut ibv_context
    }

    /// The default protection domain, for queue pairs of programs that name none.
    pub(crate) fn pd(&self) -> Result<*mut ibv_pd, Errno> {
        if let Some(pd) = self.pd.get() {
            return Ok(*pd as *mut ibv_pd);
        }
        // SAFETY: the context is open for ever.
        let pd = Errno::check_pointer(unsafe { (verbs()?.ibv_alloc_pd)(self.context()) })?;
        if self.pd.set(pd as usize).is_err() {
            // Another thread was faster. SAFETY: this domain is not used.
            unsafe { (verbs()?.ibv_dealloc_pd)(pd) };
        }
        Ok(self.pd.get().map_or(pd, |pd| *pd as *mut ibv_pd))
    }

    /// The default XRC domain, opened on first use.
    pub(crate) fn xrcd(
        &self,
        open: impl FnOnce(*mut ibv_context) -> Result<*mut ibv_xrcd, Errno>,
    ) -> Result<*mut ibv_xrcd, Errno> {
        let mut xrcd = lock(&self.xrcd);
        if *xrcd == 0 {
            *xrcd = open(self.context())? as usize;
        }
        Ok(*xrcd as *mut ibv_xrcd)
    }

    /// The index of a GID in the device's table.
    pub(crate) fn gid_index(&self, gid: Gid) -> Result<u8, Errno> {
        let query = verbs()?.ibv_query_gid;
        for index in 0..GIDS_MAX {
            let mut found = ibv_gid::default();
            // SAFETY: the context is open for ever; there is room for a GID.
            let code = unsafe { query(self.context(), PORT, index, &mut found) };
            if code == 0 && found.raw == gid.0 {
                return Ok(index as u8);
            }
        }
        Err(Errno(libc::EADDRNOTAVAIL))
    }
}

/// The state of the process.
pub(crate) struct Process {
    connector: Connector<IdTable>,
    opened: Mutex<Vec<&'static OpenDevice>>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// The state of this process, created on first use.
pub(crate) fn process() -> Result<&'static Process, Errno> {
    static CREATING: Mutex<()> = Mutex::new(());
    if let Some(process) = existing() {
        return Ok(process);
    }
    let _creating = lock(&CREATING);
    if let Some(process) = existing() {
        return Ok(process);
    }
    let connector = Connector::start(IdTable::default()).map_err(|error| {
        // `errno` cannot express the reason.
        eprintln!("rockery: {error}");
        Errno::NO_DEVICE
    })?;
    connector.with(|session, _| {
        let devices = session.devices().to_vec();
        session.owner.devices_changed(&devices);
    });
    let process = Box::leak(Box::new(Process { connector, opened: Mutex::default() }));
    PROCESS.store(process, Ordering::Release);
    Ok(process)
}

fn existing() -> Option<&'static Process> {
    // SAFETY: NULL, or a world that was leaked.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    process.filter(|process| process.is_ours())
}

impl Process {
    /// Whether this process created it: see [`Connector::is_ours`].
    pub(crate) fn is_ours(&self) -> bool {
        self.connector.is_ours()
    }

    /// Runs calls on the connection manager under its lock, which is not reentrant.
    ///
    /// # Errors
    /// `ENODEV` in the child of a fork, for the state of its parent.
    pub(crate) fn with<T>(
        &self,
        calls: impl FnOnce(&mut Session<IdTable>, Instant) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.connector()?.with(calls)
    }

    /// The connection manager, for calls that ask the agent: they take its lock themselves, and do not hold
    /// it meanwhile. No identifier's lock may be held.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub(crate) fn connector(&self) -> Result<&Connector<IdTable>, Errno> {
        if self.is_ours() { Ok(&self.connector) } else { Err(Errno::NO_DEVICE) }
    }

    /// The device that has an address, opened on first use.
    pub(crate) fn device_of(&self, gid: Gid) -> Result<&'static OpenDevice, Errno> {
        let name = self.with(|session, _| {
            let device = session.devices().iter().find(|device| device.gids.contains(&gid));
            device.map(|device| device.name.clone()).ok_or(Errno::NO_DEVICE)
        })?;
        self.open(&name)
    }

    /// All devices, opened on first use.
    pub(crate) fn devices(&self) -> Result<Vec<&'static OpenDevice>, Errno> {
        let names: Vec<String> =
            self.with(|session, _| Ok(session.devices().iter().map(|device| device.name.clone()).collect()))?;
        Ok(names.iter().filter_map(|name| self.open(name).ok()).collect())
    }

    fn open(&self, name: &str) -> Result<&'static OpenDevice, Errno> {
        let mut opened = lock(&self.opened);
        if let Some(known) = opened.iter().find(|opened| opened.name == name) {
            return Ok(known);
        }
        let context = open(name)?;
        // SAFETY: all zeros is a valid value: numbers.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: an open device, and room for its attributes.
        Errno::check(unsafe { (verbs()?.ibv_query_device)(context, &mut attr) })?;
        let depth = |value: i32| value.clamp(0, i32::from(u8::MAX)) as u8;
        let device = Box::leak(Box::new(OpenDevice {
            name: name.to_owned(),
            context: context as usize,
            pd: OnceLock::new(),
            xrcd: Mutex::new(0),
            responder_resources_max: depth(attr.max_qp_rd_atom),
            initiator_depth_max: depth(attr.max_qp_init_rd_atom),
        }));
        opened.push(device);
        Ok(device)
    }
}

/// Opens the device of this name in libibverbs's list.
fn open(name: &str) -> Result<*mut ibv_context, Errno> {
    let verbs = verbs()?;
    // SAFETY: the list is NULL or ends with NULL, its devices have names, and it is freed once.
    unsafe {
        let list = Errno::check_pointer((verbs.ibv_get_device_list)(null_mut()))?;
        let mut place = list;
        let mut context = Err(Errno::NO_DEVICE);
        while !(*place).is_null() {
            if CStr::from_ptr((verbs.ibv_get_device_name)(*place)).to_bytes() == name.as_bytes() {
                context = Errno::check_pointer((verbs.ibv_open_device)(*place));
                break;
            }
            place = place.add(1);
        }
        (verbs.ibv_free_device_list)(list);
        context
    }
}
