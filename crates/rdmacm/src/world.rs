//! What the process has: its connections, and the devices that were opened for them.
//!
//! It is made when first needed and stays until the process ends. The child of a fork makes its own: what it
//! inherited belongs to its parent, and is left alone but for being freed.

use crate::owner::Owners;
use crate::verbs::verbs;
use abi::{ibv_context, ibv_device_attr, ibv_gid, ibv_pd, ibv_xrcd};
use core::ffi::CStr;
use door::Errno;
use host::cm::{Connector, Owner as _, Session};
use rnic::{Gid, Instant};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Every device has one port.
pub(crate) const PORT: u8 = 1;
/// As long as the GID table is at most.
const GIDS_MAX: i32 = 16;

/// A lock whose data stays usable after a panic elsewhere: the door stops panics, and programs go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open device. It stays open: opening takes longer than most connections last.
pub(crate) struct Opened {
    pub(crate) name: String,
    context: usize,
    pd: OnceLock<usize>,
    xrcd: Mutex<usize>,
    /// READs and atomics that a queue pair takes, and that it has outstanding, at a time.
    pub(crate) responder_resources_max: u8,
    pub(crate) initiator_depth_max: u8,
}

impl Opened {
    /// What programs see of it.
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context as *mut ibv_context
    }

    /// The protection domain for queue pairs of those who bring none.
    pub(crate) fn pd(&self) -> Result<*mut ibv_pd, Errno> {
        if let Some(pd) = self.pd.get() {
            return Ok(*pd as *mut ibv_pd);
        }
        // SAFETY: the context is open for ever.
        let pd = Errno::check_pointer(unsafe { (verbs()?.ibv_alloc_pd)(self.context()) })?;
        if self.pd.set(pd as usize).is_err() {
            // Another thread was faster. SAFETY: nobody uses this one.
            unsafe { (verbs()?.ibv_dealloc_pd)(pd) };
        }
        Ok(self.pd.get().map_or(pd, |pd| *pd as *mut ibv_pd))
    }

    /// The XRC domain of those who bring none, opened when there is none.
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

    /// Where in the device's table a GID stands.
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

/// All that the process has.
pub(crate) struct World {
    connector: Connector<Owners>,
    opened: Mutex<Vec<&'static Opened>>,
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(null_mut());

/// The process's world, made when there is none.
pub(crate) fn world() -> Result<&'static World, Errno> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(world) = existing() {
        return Ok(world);
    }
    let _making = lock(&MAKING);
    if let Some(world) = existing() {
        return Ok(world);
    }
    let connector = Connector::start(Owners::default()).map_err(|error| {
        // `errno` cannot say it.
        eprintln!("rockery: {error}");
        Errno::NO_DEVICE
    })?;
    connector.with(|session, _| {
        let devices = session.devices().to_vec();
        session.owner.devices_changed(&devices);
    });
    let world = Box::leak(Box::new(World { connector, opened: Mutex::default() }));
    WORLD.store(world, Ordering::Release);
    Ok(world)
}

fn existing() -> Option<&'static World> {
    // SAFETY: NULL, or a world that was leaked.
    let world = unsafe { WORLD.load(Ordering::Acquire).as_ref() };
    world.filter(|world| world.is_ours())
}

impl World {
    /// Whether this process made it: see [`Connector::is_ours`].
    pub(crate) fn is_ours(&self) -> bool {
        self.connector.is_ours()
    }

    /// Runs calls on the connections, under their lock. Nothing may be called in there that asks for it
    /// again.
    ///
    /// # Errors
    /// `ENODEV` where the world is a parent's.
    pub(crate) fn with<T>(
        &self,
        calls: impl FnOnce(&mut Session<Owners>, Instant) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.is_ours() { self.connector.with(calls) } else { Err(Errno::NO_DEVICE) }
    }

    /// The device that has an address, opened.
    pub(crate) fn device_of(&self, gid: Gid) -> Result<&'static Opened, Errno> {
        let name = self.with(|session, _| {
            let device = session.devices().iter().find(|device| device.gids.contains(&gid));
            device.map(|device| device.name.clone()).ok_or(Errno::NO_DEVICE)
        })?;
        self.open(&name)
    }

    /// All devices, opened.
    pub(crate) fn devices(&self) -> Result<Vec<&'static Opened>, Errno> {
        let names: Vec<String> =
            self.with(|session, _| Ok(session.devices().iter().map(|device| device.name.clone()).collect()))?;
        Ok(names.iter().filter_map(|name| self.open(name).ok()).collect())
    }

    fn open(&self, name: &str) -> Result<&'static Opened, Errno> {
        let mut opened = lock(&self.opened);
        if let Some(known) = opened.iter().find(|opened| opened.name == name) {
            return Ok(known);
        }
        let context = open(name)?;
        // SAFETY: all zeros is a valid value: numbers.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: an open device, and room for what it tells.
        Errno::check(unsafe { (verbs()?.ibv_query_device)(context, &mut attr) })?;
        let depth = |value: i32| value.clamp(0, i32::from(u8::MAX)) as u8;
        let device = Box::leak(Box::new(Opened {
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

/// Opens the device of this name, as libibverbs lists it.
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
