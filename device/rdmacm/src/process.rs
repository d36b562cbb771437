//! The state of the process: the connection manager, and the devices that it has opened.
//!
//! It is created on first use and stays until the process ends. The child of a fork creates its own. What the
//! child inherited belongs to its parent and may only be freed.

use crate::device::OpenDevice;
use crate::id_table::IdTable;
use crate::neighbours::Searches;
use ffi::Errno;
use ffi::lock;
use host::cm::{Connector, Owner as _, Session};
use rnic::{Gid, Instant};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The state of the process.
pub(crate) struct Process {
    connector: Connector<IdTable>,
    opened: Mutex<Vec<&'static OpenDevice>>,
    pub(crate) searches: Searches,
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
        host::note(format_args!("rockery: {error}"));
        Errno::NO_DEVICE
    })?;
    connector.with(|session, _| {
        let devices = session.devices().to_vec();
        session.owner.devices_changed(&devices);
    });
    let process = Box::leak(Box::new(Process {
        connector,
        opened: Mutex::default(),
        searches: Searches::default(),
    }));
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

    /// The connection manager, for calls that send requests to the agent: they take its lock themselves, and
    /// do not hold it meanwhile. No identifier's lock may be held.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub(crate) fn connector(&self) -> Result<&Connector<IdTable>, Errno> {
        if self.is_ours() {
            Ok(&self.connector)
        } else {
            Err(Errno::NO_DEVICE)
        }
    }

    /// The device that has an address, opened on first use.
    pub(crate) fn device_of(&self, gid: Gid) -> Result<&'static OpenDevice, Errno> {
        let name = self.with(|session, _| {
            let device = session
                .devices()
                .iter()
                .find(|device| device.has_address(gid));
            device
                .map(|device| device.name.clone())
                .ok_or(Errno::NO_DEVICE)
        })?;
        self.open(&name)
    }

    /// Whether an address is one of a device of this host.
    pub(crate) fn has_address(&self, gid: Gid) -> Result<bool, Errno> {
        self.with(|session, _| {
            let mut devices = session.devices().iter();
            Ok(devices.any(|device| device.has_address(gid)))
        })
    }

    /// All devices, opened on first use.
    pub(crate) fn devices(&self) -> Result<Vec<&'static OpenDevice>, Errno> {
        let names: Vec<String> = self.with(|session, _| {
            Ok(session
                .devices()
                .iter()
                .map(|device| device.name.clone())
                .collect())
        })?;
        Ok(names
            .iter()
            .filter_map(|name| self.open(name).ok())
            .collect())
    }

    fn open(&self, name: &str) -> Result<&'static OpenDevice, Errno> {
        let mut opened = lock(&self.opened);
        if let Some(known) = opened.iter().find(|opened| opened.name == name) {
            return Ok(known);
        }
        let device = Box::leak(Box::new(OpenDevice::open(name)?));
        opened.push(device);
        Ok(device)
    }
}
